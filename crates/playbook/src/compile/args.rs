//! Checks the options of a module: known names, required options, types and form.

use super::{Compiler, HINT_ANSIBLE, module_specs, option_types, options};
use crate::lang::file_regex::{FileRegex, LineRules};
use crate::lang::word_split;
use crate::lang::yaml::{SpannedData, SpannedKey, SpannedNode};
use crate::plan::elevation;
use crate::template::expr;
use crate::vars::var_map;
use remoor_model::did_you_mean;
use serde_json::{Map, Value, json};

/// The options of one task.
struct TaskOptions {
    /// Line and column of the module's key. An error about an option is reported there if the place
    /// of the option itself is not known.
    at: (u32, u32),
    values: Map<String, Value>,
    /// Line and column of each option that is written as a map entry, by option name.
    places: Vec<(String, (u32, u32))>,
}

impl TaskOptions {
    /// Adds options that are written as a map. They replace options of the same name.
    fn add(&mut self, pairs: &[(SpannedKey, SpannedNode)]) {
        for (key, value) in pairs {
            self.places.push((key.text.clone(), (key.line, key.column)));
            self.values.insert(key.text.clone(), value.json());
        }
    }

    fn place(&self, name: &str) -> (u32, u32) {
        self.places.iter().find(|(n, _)| n == name).map_or(self.at, |(_, place)| *place)
    }
}

impl Compiler<'_> {
    /// Collects and checks the options of one task.
    pub(super) fn args(
        &mut self,
        file: &str,
        spec: &module_specs::ModuleSpec,
        key: &SpannedKey,
        node: &SpannedNode,
        more: Option<&SpannedNode>,
        defaults: Option<&SpannedNode>,
    ) -> Map<String, Value> {
        let mut options = TaskOptions { at: (key.line, key.column), values: Map::new(), places: Vec::new() };
        // `module_defaults` have less precedence than the options of the task.
        options.add(defaults.and_then(SpannedNode::map).unwrap_or_default());
        if let Some(more) = more {
            options.add(more.map().unwrap_or_default());
            self.check_markup(file, more);
        }
        if !self.collect_options(file, spec, key, node, &mut options) {
            return options.values;
        }
        self.check_markup(file, node);
        if spec.name.is_empty() {
            return options.values;
        }
        if spec.name == "set_fact" {
            self.check_fact_names(file, &options);
            return options.values;
        }
        self.check_option_names(file, spec, &mut options);
        self.read_list_as_path(file, spec, &mut options);
        self.check_option_values(file, spec, &options);
        if spec.name == "lineinfile" {
            self.patterns(file, &options);
        }
        self.conditions_inside(file, spec.name, node);
        if matches!(spec.name, "command" | "script") {
            self.command(file, options.at, &mut options.values);
        }
        self.normalize_mode(file, &mut options);
        options.values
    }

    /// Adds the options that are written under the module's key, as a map or as one text. Returns
    /// false if they are neither.
    fn collect_options(
        &mut self,
        file: &str,
        spec: &module_specs::ModuleSpec,
        key: &SpannedKey,
        node: &SpannedNode,
        options: &mut TaskOptions,
    ) -> bool {
        match &node.data {
            SpannedData::Map(pairs) => options.add(pairs),
            SpannedData::Null => {}
            SpannedData::Text(text) => match spec.free {
                Some(free) => options.values.extend(self.free_form(file, options.at, spec.name, free, text)),
                None => {
                    let hint = "write the options as a map";
                    self.warn(file, options.at, format!("`{}` with option=value in one text", key.text), hint);
                    options.values.extend(self.pairs(file, options.at, text));
                }
            },
            _ => {
                let message = format!("`{}` takes options, found {}", key.text, node.kind());
                self.fault(file, (node.line, node.column), message);
                return false;
            }
        }
        true
    }

    /// The options of `set_fact` are variables, except `cacheable`.
    fn check_fact_names(&mut self, file: &str, options: &TaskOptions) {
        for name in options.values.keys() {
            if !super::is_name(name) && !var_map::has_markup(name) {
                self.fault(file, options.at, format!("`{name}` cannot be the name of a variable"));
            }
        }
    }

    /// Checks that the module knows the options and that all required ones are given.
    fn check_option_names(&mut self, file: &str, spec: &module_specs::ModuleSpec, options: &mut TaskOptions) {
        // An option with `omit` may turn out not to be given. A run checks the options that remain.
        let given = |option: &str| options.values.get(option).is_some_and(|value| !may_be_omitted(value));
        if let Some((one, other)) = options::conflicting_options(spec.name, &given) {
            self.fault(file, options.at, format!("{} takes `{one}` or `{other}`, not both", spec.name));
        }
        for name in options.values.keys().cloned().collect::<Vec<_>>() {
            if options::is_refused(spec, &name) {
                // An option with `omit` is refused when the task runs and the option remains.
                if !options.values.get(&name).is_some_and(may_be_omitted) {
                    self.reject_option(file, spec.name, &name, options);
                }
                continue;
            }
            // All other options of `add_host` are variables of the host.
            let known = spec.options.contains(&name.as_str())
                || options::is_common(spec, &name)
                || spec.name == "add_host" && super::is_name(&name);
            if known || spec.free == Some(name.as_str()) {
                continue;
            }
            let near = did_you_mean(&name, spec.options.iter().copied());
            let hint = near.unwrap_or_else(|| format!("known are {}; else {HINT_ANSIBLE}", spec.options.join(", ")));
            self.fault_hint(file, options.place(&name), format!("unknown option `{name}` of {}", spec.name), hint);
            self.diagnostics.mark_in_ansible();
        }
        for group in spec.required {
            if !group.iter().any(|name| options.values.get(*name).is_some_and(|value| !value.is_null())) {
                self.fault(file, options.at, format!("{} needs `{}`", spec.name, group.join("` or `")));
            }
        }
    }

    /// Reads a list as the path of a file that should be absent. Ansible converts the list to one
    /// text, which names no file, so that the task does nothing. Other tasks with such a path are
    /// refused, because they would make a file of this name.
    fn read_list_as_path(&mut self, file: &str, spec: &module_specs::ModuleSpec, options: &mut TaskOptions) {
        if spec.name != "file" || options.values.get("state").and_then(Value::as_str) != Some("absent") {
            return;
        }
        for name in ["path", "dest", "name"] {
            let Some(Value::Array(items)) = options.values.get(name) else { continue };
            let items: Vec<String> =
                items.iter().map(|item| format!("'{}'", item.as_str().unwrap_or_default())).collect();
            let text = format!("[{}]", items.join(", "));
            if items.is_empty() || var_map::has_markup(&text) || text.contains("..") {
                continue;
            }
            let message = format!("a list is no list of paths here: Ansible removes only a file with the name {text}");
            self.warn(file, options.place(name), message, "use a loop");
            // Ansible's modules run in the home directory of the login user.
            options.values.insert(name.to_owned(), json!(format!("~/{text}")));
        }
    }

    /// Checks the option values that are known at compile time: their types, and the other options
    /// that they require.
    fn check_option_values(&mut self, file: &str, spec: &module_specs::ModuleSpec, options: &TaskOptions) {
        let (at, values) = (options.at, &options.values);
        for (name, value) in values {
            let needed =
                |text| options::missing_requirement(spec.name, name, text, &|option| values.contains_key(option));
            if let Some(other) = value.as_str().and_then(needed) {
                let message =
                    format!("{} with `{name}: {}` needs `{other}`", spec.name, value.as_str().unwrap_or_default());
                self.fault(file, at, message);
            }
        }
        for (name, value) in values {
            if has_markup_anywhere(value) || !spec.options.contains(&name.as_str()) {
                continue;
            }
            if let Some((why, hint)) = option_types::check_value(spec.name, name, value) {
                self.fault_hint(file, options.place(name), why, hint);
            }
        }
        if let (Some(Value::Array(extra)), "unarchive") = (values.get("extra_opts"), spec.name)
            && let Some(odd) =
                options::odd_extra(extra.iter().filter_map(Value::as_str).filter(|text| !var_map::has_markup(text)))
        {
            self.fault_hint(file, at, format!("`{odd}` in `extra_opts` is not part of the language"), HINT_ANSIBLE);
        }
    }

    /// Converts a `mode` that is a number to its octal digits, as Ansible does. `0644` is the
    /// number 420, and `644` is the mode 1204.
    fn normalize_mode(&mut self, file: &str, options: &mut TaskOptions) {
        let Some(mode) = options.values.get_mut("mode") else { return };
        let Some(octal) = elevation::octal_mode(mode) else { return };
        let message = format!("the mode is the bare number {mode}, which sets {octal}");
        *mode = Value::String(octal);
        self.warn(file, options.at, message, "quote the octal digits, with a leading zero");
    }

    /// Rejects an option that remoor does not support. An unsupported option that is switched off
    /// is dropped instead.
    fn reject_option(&mut self, file: &str, module: &str, name: &str, options: &mut TaskOptions) {
        let value = options.values.remove(name).unwrap_or_default();
        if var_map::boolean(&value) != Some(false) {
            self.fault_hint(
                file,
                options.place(name),
                format!("`{name}` of {module} is not part of the language"),
                HINT_ANSIBLE,
            );
        }
    }

    /// Checks that the options for patterns are valid regular expressions. Options with markup are
    /// not known yet and are not checked.
    fn patterns(&mut self, file: &str, options: &TaskOptions) {
        for name in ["regexp", "regex", "insertafter", "insertbefore"] {
            let Some(text) = options.values.get(name).and_then(Value::as_str).filter(|t| !var_map::has_markup(t))
            else {
                continue;
            };
            if let Err(e) = FileRegex::new(text, LineRules::default()) {
                let last = e.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                self.fault(file, options.place(name), format!("pattern of `{name}`: {last}"));
            }
        }
    }

    /// `that` of assert and `var` of debug are expressions, not templates.
    fn conditions_inside(&mut self, file: &str, module: &str, node: &SpannedNode) {
        match module {
            "assert" => {
                if let Some(that) = node.get("that") {
                    self.conditions(file, "that", that);
                }
            }
            "debug" => {
                if let Some(var) = node.get("var")
                    && let Some(text) = var.text()
                    && let Err(e) = self.check_expression(&text)
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
            // The text is one value with options after it, as in `x.yml a=1 b=2`, or it has only
            // options.
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
                && let Err(_broken) = self.check_template(&word.text)
                && self.check_template(&line).is_ok()
            {
                // The node renders and then splits the whole command, as Ansible does.
                let message = format!(
                    "the command is split after it is rendered, because markup extends over several words, as in `{}`",
                    word.text
                );
                self.warn(file, at, message, "use `argv:`, so that a value with blanks remains one argument");
                return;
            }
        }
        let words: Vec<Value> = words.into_iter().map(|w| json!([w.text, w.quoted])).collect();
        args.remove("cmd");
        args.insert("words".into(), Value::Array(words));
    }
}

/// Whether any text in a value contains a Jinja template. Such a value is known only when the task
/// runs.
fn has_markup_anywhere(value: &Value) -> bool {
    match value {
        Value::String(text) => var_map::has_markup(text),
        Value::Array(items) => items.iter().any(has_markup_anywhere),
        Value::Object(map) => map.iter().any(|(key, value)| var_map::has_markup(key) || has_markup_anywhere(value)),
        _ => false,
    }
}
/// Whether a value is a template that may result in `omit`.
fn may_be_omitted(value: &Value) -> bool {
    value.as_str().is_some_and(|text| var_map::has_markup(text) && text.contains("omit"))
}
