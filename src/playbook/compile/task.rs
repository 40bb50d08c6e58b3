//! Tasks, blocks and includes.

use super::{Compiler, Context, ELSEWHERE, assets, spec};
use crate::playbook::data;
use crate::playbook::names::nearest;
use crate::playbook::plan::{Block, Include, Place, Repeat, RepeatKind, Step, Task};
use crate::playbook::yaml::{Data, Key, Node};
use serde_json::Value;
use std::collections::BTreeMap;

/// Task files inside task files.
const DEPTH_MAX: usize = 20;
/// Tasks of one plan, and files that one dynamic include may choose from.
const TASKS_MAX: u32 = 20_000;
const CHOICES_MAX: usize = 100;

impl Compiler<'_> {
    pub(super) fn tasks(&mut self, node: &Node, context: &Context) -> Vec<Step> {
        match &node.data {
            Data::Null => Vec::new(),
            Data::List(items) => items.iter().flat_map(|item| self.task(item, context)).collect(),
            _ => {
                self.fault(
                    &context.file,
                    (node.line, node.column),
                    format!("expected a list of tasks, found {}", node.kind()),
                );
                Vec::new()
            }
        }
    }

    /// A file of tasks, with what it inherits from where it is named.
    pub(super) fn task_file(&mut self, path: &str, context: &Context, from: (&str, (u32, u32))) -> Vec<Step> {
        if context.open.iter().any(|open| open == path) {
            let mut chain: Vec<&str> = context.open.iter().map(String::as_str).collect();
            chain.push(path);
            let chain = chain.join(" -> ");
            self.fault(from.0, from.1, format!("{path} includes itself: {chain}"));
            return Vec::new();
        }
        if context.open.len() > DEPTH_MAX {
            self.fault(from.0, from.1, format!("includes are more than {DEPTH_MAX} deep"));
            return Vec::new();
        }
        let Some(node) = self.yaml(path, from) else { return Vec::new() };
        let mut inner = Context { file: path.to_owned(), ..context.clone() };
        inner.open.push(path.to_owned());
        self.tasks(&node, &inner)
    }

    pub(super) fn task(&mut self, node: &Node, context: &Context) -> Vec<Step> {
        let file = context.file.clone();
        let at = (node.line, node.column);
        let Some(pairs) = node.map() else {
            self.fault(&file, at, format!("a task is a map, found {}", node.kind()));
            return Vec::new();
        };
        if self.tasks >= TASKS_MAX {
            if self.tasks == TASKS_MAX {
                self.tasks += 1;
                self.fault(&file, at, format!("more than {TASKS_MAX} tasks"));
            }
            return Vec::new();
        }
        let mut own = context.clone();
        self.inherit(&file, node, &mut own);
        if let Some(vars) = node.get("vars") {
            let vars = self.vars(&file, vars);
            own.vars.extend(self.layer(vars));
        }
        if let Some(when) = node.get("when") {
            own.when.extend(self.conditions(&file, "when", when));
        }
        if let Some(ignore) = node.get("ignore_errors") {
            self.check_markup(&file, ignore);
            own.ignore_errors = Some(ignore.json());
        }
        if let Some(no_log) = node.get("no_log") {
            own.no_log = self.boolean(&file, "no_log", no_log);
        }
        if node.get("block").is_some() {
            return self.block(node, pairs, &own);
        }
        let Some((key, module, args)) = self.module(&file, at, pairs) else { return Vec::new() };
        let selected = own.handler || self.selected(&own.tags);
        self.tasks += 1;
        let mut task = Task {
            id: self.tasks,
            place: Place { file: file.clone(), line: node.line },
            module: module.name.to_owned(),
            when: own.when.clone(),
            environment: own.environment.clone(),
            ignore_errors: own.ignore_errors.clone(),
            no_log: own.no_log,
            elevated: own.elevated,
            tags: own.tags.clone(),
            defaults: own.defaults.clone(),
            vars: own.vars.clone(),
            ..Task::default()
        };
        task.args = self.args(&file, module, key, args, node.get("args"));
        self.keywords(&file, pairs, &mut task);
        task.name = node.get("name").and_then(Node::text).unwrap_or_else(|| title(&task));
        match module.name {
            "import_tasks" => {
                if let Some(bad) = ["loop", "with_items", "register", "until", "notify"]
                    .iter()
                    .find_map(|k| pairs.iter().find(|(key, _)| key.text == **k))
                {
                    self.fault(
                        &file,
                        (bad.0.line, bad.0.column),
                        format!("`{}` does nothing on import_tasks", bad.0.text),
                    )
                    .hint = Some("use include_tasks".into());
                }
                let name = task.args.get("file").and_then(Value::as_str).unwrap_or_default().to_owned();
                if data::has_markup(&name) {
                    self.fault(&file, at, "import_tasks takes a fixed name").hint = Some("use include_tasks".into());
                    return Vec::new();
                }
                match self.task_path(&own, &name) {
                    Some(path) => self.task_file(&path, &own, (&file, at)),
                    None => {
                        self.fault(&file, at, format!("{name} is not in the fleet directory"));
                        Vec::new()
                    }
                }
            }
            "include_tasks" => {
                // What the include says of itself does not reach its tasks; what stands around it does.
                let around = Context { tags: context.tags.clone(), ..own };
                let choices = self.choices(&file, at, &around, &task);
                if selected { vec![Step::Include(Box::new(Include { task, choices }))] } else { Vec::new() }
            }
            _ => {
                if matches!(module.name, "template" | "copy" | "script") {
                    self.attach(&own, at, &mut task);
                }
                if selected { vec![Step::Task(Box::new(task))] } else { Vec::new() }
            }
        }
    }

    fn block(&mut self, node: &Node, pairs: &[(Key, Node)], own: &Context) -> Vec<Step> {
        for (key, _) in pairs {
            self.known_key(&own.file, key, spec::BLOCK_KEYS, "block");
        }
        let mut part = |name: &str| node.get(name).map(|tasks| self.tasks(tasks, own)).unwrap_or_default();
        let (block, rescue, always) = (part("block"), part("rescue"), part("always"));
        if block.is_empty() && always.is_empty() {
            return Vec::new();
        }
        let place = Place { file: own.file.clone(), line: node.line };
        vec![Step::Block(Block { place, block, rescue, always })]
    }

    /// The one key of a task that is a module.
    fn module<'n>(
        &mut self,
        file: &str,
        at: (u32, u32),
        pairs: &'n [(Key, Node)],
    ) -> Option<(&'n Key, &'static spec::Spec, &'n Node)> {
        let mut found: Option<(&Key, &'static spec::Spec, &Node)> = None;
        let mut faulty = false;
        for (key, value) in pairs {
            let short = ["ansible.builtin.", "ansible.legacy."]
                .iter()
                .find_map(|p| key.text.strip_prefix(p))
                .unwrap_or(&key.text);
            if spec::TASK_KEYS.contains(&key.text.as_str()) {
                continue;
            }
            let place = (key.line, key.column);
            if let Some(spec) = spec::find(short) {
                if let Some((first, _, _)) = found {
                    self.fault(
                        file,
                        place,
                        format!("a task has one module, found `{}` and `{}`", first.text, key.text),
                    );
                    faulty = true;
                }
                found = Some((key, spec, value));
                continue;
            }
            faulty = true;
            if spec::has(spec::ELSEWHERE, short) || short.contains('.') {
                self.fault_hint(file, place, format!("module `{}` is not part of the language", key.text), ELSEWHERE);
            } else if spec::has(spec::KEYS_ELSEWHERE, short) || short.starts_with("with_") {
                self.fault_hint(file, place, format!("`{}` is not part of the language", key.text), ELSEWHERE);
            } else {
                let modules = spec::MODULES.iter().map(|m| m.name);
                let near =
                    nearest(short, modules.chain(spec::TASK_KEYS.iter().copied()).chain(["block", "rescue", "always"]));
                let hint = near.map_or_else(
                    || format!("if it is a module of Ansible, {ELSEWHERE}"),
                    |n| format!("did you mean `{n}`?"),
                );
                self.fault_hint(file, place, format!("unknown module or keyword `{}`", key.text), hint);
            }
        }
        if found.is_none() && !faulty {
            self.fault(file, at, "a task needs a module");
        }
        found.filter(|_| !faulty)
    }

    fn keywords(&mut self, file: &str, pairs: &[(Key, Node)], task: &mut Task) {
        for (key, value) in pairs {
            let at = (value.line, value.column);
            match key.text.as_str() {
                "register" => match value.text().filter(|name| super::is_name(name)) {
                    Some(name) => task.register = Some(name),
                    None => {
                        self.fault(file, at, "`register` takes the name of a variable");
                    }
                },
                "changed_when" => task.changed_when = Some(self.conditions(file, "changed_when", value)),
                "failed_when" => task.failed_when = Some(self.conditions(file, "failed_when", value)),
                "until" => task.until = Some(self.conditions(file, "until", value)),
                "retries" | "delay" | "timeout" => {
                    self.check_markup(file, value);
                    let json = value.json();
                    if !json.is_number()
                        && !json.as_str().is_some_and(|s| data::has_markup(s) || s.parse::<f64>().is_ok())
                    {
                        self.fault(file, at, format!("`{}` takes a number, found {}", key.text, value.kind()));
                    }
                    *match key.text.as_str() {
                        "retries" => &mut task.retries,
                        "delay" => &mut task.delay,
                        _ => &mut task.timeout,
                    } = Some(json);
                }
                "notify" => {
                    self.check_markup(file, value);
                    let items = value.list().unwrap_or(std::slice::from_ref(value));
                    task.notify.extend(items.iter().filter_map(Node::text));
                }
                "listen" if task.place.line > 0 => {}
                "loop" | "with_items" | "with_list" | "with_dict" => {
                    if task.repeat.is_some() {
                        self.fault(file, at, "a task has one loop");
                    }
                    task.repeat = Some(self.repeat(file, &key.text, value));
                }
                _ => {}
            }
        }
        if let Some((key, control)) = pairs.iter().find(|(key, _)| key.text == "loop_control") {
            match &mut task.repeat {
                Some(repeat) => self.loop_control(file, control, repeat),
                None => {
                    self.fault(file, (key.line, key.column), "`loop_control` without a loop");
                }
            }
        }
    }

    fn repeat(&mut self, file: &str, key: &str, value: &Node) -> Repeat {
        let kind = match key {
            "with_items" => RepeatKind::Items,
            "with_dict" => RepeatKind::Dict,
            _ => RepeatKind::Loop,
        };
        let mut items = value.json();
        match &value.data {
            Data::Text(text) if !data::has_markup(text) && key.starts_with("with_") => {
                self.warn(
                    file,
                    (value.line, value.column),
                    format!("bare `{text}` is read as a variable"),
                    format!("write \"{{{{ {text} }}}}\""),
                );
                items = Value::String(format!("{{{{ {text} }}}}"));
            }
            Data::Text(text) if !data::has_markup(text) => {
                self.fault(file, (value.line, value.column), "`loop` takes a list").hint =
                    Some(format!("write \"{{{{ {text} }}}}\" for a variable"));
            }
            _ => {}
        }
        self.check_markup(file, value);
        Repeat { kind, items, var: "item".into(), index_var: None, label: None, pause: None }
    }

    fn loop_control(&mut self, file: &str, control: &Node, repeat: &mut Repeat) {
        self.check_markup(file, control);
        for (key, value) in control.map().unwrap_or_default() {
            match (key.text.as_str(), value.text()) {
                ("loop_var", Some(name)) => repeat.var = name,
                ("index_var", Some(name)) => repeat.index_var = Some(name),
                ("label", Some(label)) => repeat.label = Some(label),
                ("label", None) => {}
                ("pause", _) => repeat.pause = Some(value.json()),
                _ => {
                    let near = nearest(&key.text, ["loop_var", "index_var", "label", "pause"]);
                    let hint = near.map_or_else(|| ELSEWHERE.to_owned(), |n| format!("did you mean `{n}`?"));
                    self.fault_hint(
                        file,
                        (key.line, key.column),
                        format!("unknown option `{}` of loop_control", key.text),
                        hint,
                    );
                }
            }
        }
    }

    /// Where a task file named here lies: beside this file, in the role, in the playbook's directory.
    fn task_path(&self, own: &Context, name: &str) -> Option<String> {
        self.task_dirs(own).iter().filter_map(|dir| assets::join(dir, name)).find(|path| self.files.get(path).is_some())
    }

    fn task_dirs(&self, own: &Context) -> Vec<String> {
        let mut dirs = vec![assets::parent(&own.file)];
        if let Some((_, dir)) = &own.role {
            dirs.push(format!("{dir}/tasks"));
            dirs.push(dir.clone());
        }
        dirs.push(self.base.clone());
        dirs
    }

    /// Every file that an include could mean, compiled. Conditions are asked once, at the include.
    fn choices(&mut self, file: &str, at: (u32, u32), own: &Context, task: &Task) -> BTreeMap<String, Vec<Step>> {
        let name = task.args.get("file").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut inner = own.clone();
        inner.when.clear();
        let mut out = BTreeMap::new();
        if !data::has_markup(&name) {
            match self.task_path(own, &name) {
                Some(path) => {
                    let steps = self.task_file(&path, &inner, (file, at));
                    out.insert(name, steps);
                }
                None => {
                    self.fault(file, at, format!("{name} is not in the fleet directory"));
                }
            }
            return out;
        }
        let mut found = BTreeMap::new();
        for dir in self.task_dirs(own) {
            for (name, path) in assets::matching(self.files, &dir, &name) {
                if path.ends_with(".yml") || path.ends_with(".yaml") {
                    found.entry(name).or_insert(path);
                }
            }
            if !found.is_empty() {
                break;
            }
        }
        found.retain(|_, path| !own.open.contains(path));
        if found.is_empty() || found.len() > CHOICES_MAX {
            self.fault(
                file,
                at,
                format!("{} files could be meant by `{name}`, expected 1 to {CHOICES_MAX}", found.len()),
            );
            return out;
        }
        for (name, path) in found {
            let steps = self.task_file(&path, &inner, (file, at));
            out.insert(name, steps);
        }
        out
    }
}

fn title(task: &Task) -> String {
    let main =
        ["name", "path", "dest", "cmd", "msg", "file", "action"].iter().find_map(|k| task.args.get(*k)?.as_str());
    match main {
        Some(text) => {
            format!("{} {}", task.module, text.lines().next().unwrap_or_default().chars().take(60).collect::<String>())
        }
        None => task.module.clone(),
    }
}
