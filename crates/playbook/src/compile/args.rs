//! Checks the options of a module: known names, required options, types and form.

use super::{Compiler, ELSEWHERE, module_specs, option_types, options};
use crate::elevation;
use crate::suggestions::nearest;
use crate::yaml::{Key, Node, SpannedData};
use crate::{expr, pyregex, var_map, word_split};
use serde_json::{Map, Value, json};

impl Compiler<'_> {
    /// Collects and checks the options of one task.
    pub(super) fn args(
        &mut self,
        file: &str,
        spec: &module_specs::ModuleSpec,
        key: &Key,
        node: &Node,
        more: Option<&Node>,
        defaults: Option<&Node>,
    ) -> Map<String, Value> {
        let at = (key.line, key.column);
        let mut out = Map::new();
        let mut places: Vec<(String, (u32, u32))> = Vec::new();
        let mut take = |pairs: &[(Key, Node)], out: &mut Map<String, Value>| {
            for (key, value) in pairs {
                places.push((key.text.clone(), (key.line, key.column)));
                out.insert(key.text.clone(), value.json());
            }
        };
        // `module_defaults` have less precedence than the options of the task.
        take(defaults.and_then(Node::map).unwrap_or_default(), &mut out);
        if let Some(more) = more {
            take(more.map().unwrap_or_default(), &mut out);
            self.check_markup(file, more);
        }
        match &node.data {
            SpannedData::Map(pairs) => take(pairs, &mut out),
            SpannedData::Null => {}
            SpannedData::Text(text) => match spec.free {
                Some(free) => out.extend(self.free_form(file, at, spec.name, free, text)),
                None => {
                    let hint = "write the options as a map";
                    self.warn(file, at, format!("`{}` with option=value in one text", key.text), hint);
                    out.extend(self.pairs(file, at, text));
                }
            },
            _ => {
                self.fault(
                    file,
                    (node.line, node.column),
                    format!("`{}` takes options, found {}", key.text, node.kind()),
                );
                return out;
            }
        }
        self.check_markup(file, node);
        if spec.name == "set_fact" {
            if out.contains_key("cacheable") {
                let place = places.iter().find(|(n, _)| n == "cacheable").map_or(at, |(_, p)| *p);
                self.reject_option(file, place, spec.name, "cacheable", &mut out);
            }
            let bad = out
                .keys()
                .filter(|name| !super::is_name(name) && !var_map::has_markup(name))
                .cloned()
                .collect::<Vec<_>>();
            for name in bad {
                self.fault(file, at, format!("`{name}` cannot be the name of a variable"));
            }
            return out;
        }
        if let Some((one, other)) = options::conflicting_options(spec.name, &|option| out.contains_key(option)) {
            self.fault(file, at, format!("{} takes `{one}` or `{other}`, not both", spec.name));
        }
        for name in out.keys().cloned().collect::<Vec<_>>() {
            if options::is_refused(spec.name, &name, spec.options.contains(&"mode")) {
                let place = places.iter().find(|(n, _)| *n == name).map_or(at, |(_, p)| *p);
                self.reject_option(file, place, spec.name, &name, &mut out);
                continue;
            }
            if spec.options.contains(&name.as_str()) || spec.free == Some(name.as_str()) {
                continue;
            }
            let place = places.iter().find(|(n, _)| *n == name).map_or(at, |(_, p)| *p);
            let near = nearest(&name, spec.options.iter().copied());
            let hint = near.map_or_else(
                || format!("known are {}; else {ELSEWHERE}", spec.options.join(", ")),
                |n| format!("did you mean `{n}`?"),
            );
            self.fault_hint(file, place, format!("unknown option `{name}` of {}", spec.name), hint);
        }
        for group in spec.required {
            if !group.iter().any(|name| out.get(*name).is_some_and(|value| !value.is_null())) {
                self.fault(file, at, format!("{} needs `{}`", spec.name, group.join("` or `")));
            }
        }
        for (name, value) in &out {
            let needed = |text| options::missing_requirement(spec.name, name, text, &|option| out.contains_key(option));
            if let Some(other) = value.as_str().and_then(needed) {
                let message =
                    format!("{} with `{name}: {}` needs `{other}`", spec.name, value.as_str().unwrap_or_default());
                self.fault(file, at, message);
            }
        }
        for (name, value) in &out {
            if has_markup_anywhere(value) || !spec.options.contains(&name.as_str()) {
                continue;
            }
            if let Some((why, hint)) = option_types::check_value(spec.name, name, value) {
                let place = places.iter().find(|(n, _)| n == name).map_or(at, |(_, p)| *p);
                self.fault_hint(file, place, why, hint);
            }
        }
        if let (Some(Value::Array(extra)), "unarchive") = (out.get("extra_opts"), spec.name)
            && let Some(odd) =
                options::odd_extra(extra.iter().filter_map(Value::as_str).filter(|text| !var_map::has_markup(text)))
        {
            self.fault_hint(file, at, format!("`{odd}` in `extra_opts` is not part of the language"), ELSEWHERE);
        }
        if spec.name == "lineinfile" {
            self.patterns(file, at, &out, &places);
        }
        self.conditions_inside(file, spec.name, node);
        if matches!(spec.name, "command" | "script") {
            self.command(file, at, &mut out);
        }
        if let Some(mode) = out.get_mut("mode").filter(|m| m.is_number()) {
            // A number has no leading zero, so its decimal digits were probably meant as octal.
            let text = mode.to_string();
            self.warn(
                file,
                at,
                format!("bare mode {text} is read as the octal text \"{text}\""),
                "quote it, with a leading zero",
            );
            *mode = Value::String(text);
        }
        out
    }

    /// Rejects an option that remoor does not support. If it is switched off, it is dropped
    /// instead.
    fn reject_option(
        &mut self,
        file: &str,
        place: (u32, u32),
        module: &str,
        name: &str,
        args: &mut Map<String, Value>,
    ) {
        let value = args.remove(name).unwrap_or_default();
        if var_map::boolean(&value) != Some(false) {
            self.fault_hint(file, place, format!("`{name}` of {module} is not part of the language"), ELSEWHERE);
        }
    }

    /// Patterns without markup must be valid regular expressions.
    fn patterns(&mut self, file: &str, at: (u32, u32), args: &Map<String, Value>, places: &[(String, (u32, u32))]) {
        for name in ["regexp", "regex", "insertafter", "insertbefore"] {
            let Some(text) = args.get(name).and_then(Value::as_str).filter(|t| !var_map::has_markup(t)) else {
                continue;
            };
            if let Err(e) = pyregex::bytes(text).build() {
                let place = places.iter().find(|(n, _)| n == name).map_or(at, |(_, p)| *p);
                let last = e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                self.fault_hint(
                    file,
                    place,
                    format!("pattern of `{name}`: {last}"),
                    "look-around and backreferences in patterns are not supported; use provisioner kind: ansible",
                );
            }
        }
    }

    /// `that` of assert and `var` of debug are expressions, not templates.
    fn conditions_inside(&mut self, file: &str, module: &str, node: &Node) {
        match module {
            "assert" => {
                if let Some(that) = node.get("that") {
                    self.conditions(file, "that", that);
                }
            }
            "debug" => {
                if let Some(var) = node.get("var")
                    && let Some(text) = var.text()
                    && let Err(e) = expr::check_expression(&text)
                {
                    self.template_fault(file, (var.line, var.column), &e);
                }
            }
            _ => {}
        }
    }

    /// Parses options in one text: `name=nginx state=started`.
    fn pairs(&mut self, file: &str, at: (u32, u32), text: &str) -> Map<String, Value> {
        let mut out = Map::new();
        match word_split::split_words(text) {
            Err(e) => {
                self.fault(file, at, e);
            }
            Ok(words) => {
                for word in words {
                    match word.text.split_once('=') {
                        Some((name, value)) => {
                            out.insert(name.to_owned(), Value::String(value.to_owned()));
                        }
                        None => {
                            self.fault(file, at, format!("`{}` is not of the form option=value", word.text));
                        }
                    }
                }
            }
        }
        out
    }

    /// Parses the free form of a module, such as a command line with `creates=`, `removes=` or
    /// `chdir=` in it.
    fn free_form(&mut self, file: &str, at: (u32, u32), module: &str, free: &str, text: &str) -> Map<String, Value> {
        let mut out = Map::new();
        if !elevation::COMMANDS.contains(&module) {
            let text = text.trim();
            // `x.yml a=1 b=2`, or only option=value.
            let Ok(words) = word_split::split_words(text) else { return Map::from_iter([(free.into(), json!(text))]) };
            let pair = |word: &word_split::ShellWord| {
                super::is_name(word.text.split('=').next()?).then(|| word.text.contains('='))
            };
            let plain = words.iter().take_while(|word| pair(word) != Some(true)).count();
            if plain == words.len() || plain > 1 {
                out.insert(free.into(), json!(text));
                return out;
            }
            for word in &words[plain..] {
                if let Some((name, value)) = word.text.split_once('=') {
                    out.insert(name.to_owned(), json!(value));
                }
            }
            out.extend(words.first().filter(|_| plain == 1).map(|word| (free.to_owned(), json!(word.text))));
            self.warn(file, at, format!("`{module}` with option=value in one text"), "write the options as a map");
            return out;
        }
        let mut rest = Vec::new();
        for part in word_split::pieces(text) {
            let word = part.trim();
            let options = module_specs::find(module).map_or(&[][..], |spec| spec.options);
            let option =
                options.iter().filter(|o| **o != free && !o.starts_with("std")).chain(&["warn"]).find_map(|o| {
                    let value = word.strip_prefix(o)?.strip_prefix('=')?;
                    (!value.is_empty()).then_some((*o, value))
                });
            match option {
                Some((name, value)) => {
                    self.warn(
                        file,
                        at,
                        format!("`{name}=` inside the command line"),
                        format!("write it as `args: {name}:`"),
                    );
                    out.insert(name.into(), json!(value.trim_matches(['"', '\''])));
                }
                None => rest.push(part),
            }
        }
        out.insert(free.into(), json!(rest.concat().trim()));
        out
    }

    /// Splits the command line at compile time, so that no value can become two arguments on the
    /// node.
    fn command(&mut self, file: &str, at: (u32, u32), args: &mut Map<String, Value>) {
        if let Some(argv) = args.get("argv") {
            if !argv.is_array() && !argv.is_string() {
                self.fault(file, at, "`argv` takes a list");
            }
            return;
        }
        let Some(line) = args.get("cmd").and_then(Value::as_str).map(str::to_owned) else { return };
        if expr::inner_expression(&line).is_some() {
            self.warn(file, at, "the whole command is one value, which is split at blanks", "use `argv:`");
            return;
        }
        let words = match word_split::split_words(&line) {
            Ok(words) if words.is_empty() => {
                self.fault(file, at, "the command is empty");
                return;
            }
            Ok(words) => words,
            Err(e) => {
                self.fault(file, at, format!("command: {e}"));
                return;
            }
        };
        for word in &words {
            if var_map::has_markup(&word.text)
                && let Err(_broken) = expr::check_template(&word.text)
                && expr::check_template(&line).is_ok()
            {
                self.fault_hint(
                    file,
                    at,
                    format!("markup extends over several words, as in `{}`", word.text),
                    "use `argv:` or `shell`",
                );
                return;
            }
        }
        let words: Vec<Value> = words.into_iter().map(|w| json!([w.text, w.quoted])).collect();
        args.remove("cmd");
        args.insert("words".into(), Value::Array(words));
    }
}

/// Whether a value is only known when the task runs.
fn has_markup_anywhere(value: &Value) -> bool {
    match value {
        Value::String(text) => var_map::has_markup(text),
        Value::Array(items) => items.iter().any(has_markup_anywhere),
        Value::Object(map) => map.iter().any(|(key, value)| var_map::has_markup(key) || has_markup_anywhere(value)),
        _ => false,
    }
}
