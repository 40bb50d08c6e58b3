//! Imports and includes of task files. A file with a literal name is read at compile time. For a
//! name with markup, all files that the name could match are read. Files of variables are in
//! `include_vars.rs`.

use super::task::{TaskModule, is_literal};
use super::{Compiler, Context, Role, assets};
use crate::lang::yaml::{SpannedData, SpannedKey, SpannedNode};
use crate::plan::{Choices, DynamicInclude, PlanStep, RejectedChoices, Task};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum nesting depth of task files.
const DEPTH_MAX: usize = 20;
/// Maximum number of files that one dynamic include may select from.
pub(super) const CHOICES_MAX: usize = 100;

impl Compiler<'_> {
    /// Reads a file of tasks. The tasks inherit the keywords and variables of `context`.
    pub(super) fn task_file(&mut self, path: &str, context: &Context, from: (&str, (u32, u32))) -> Vec<PlanStep> {
        let Some((node, inner)) = self.open_task_file(path, context, from) else { return Vec::new() };
        self.tasks(&node, &inner)
    }

    /// Reads a file of tasks or handlers. Fails if the file includes itself or is nested too
    /// deeply.
    pub(super) fn open_task_file(
        &mut self,
        path: &str,
        context: &Context,
        from: (&str, (u32, u32)),
    ) -> Option<(std::rc::Rc<SpannedNode>, Context)> {
        if context.open.iter().any(|open| open == path) {
            let mut chain: Vec<&str> = context.open.iter().map(String::as_str).collect();
            chain.push(path);
            let chain = chain.join(" -> ");
            self.fault(from.0, from.1, format!("{path} includes itself: {chain}"));
            return None;
        }
        if context.open.len() > DEPTH_MAX {
            self.fault(from.0, from.1, format!("includes are more than {DEPTH_MAX} deep"));
            return None;
        }
        if !self.opens(from.0, from.1) {
            return None;
        }
        let node = self.yaml_of_tasks(path, from)?;
        let mut inner = Context { file: path.to_owned(), ..context.clone() };
        inner.open.push(path.to_owned());
        Some((node, inner))
    }

    /// Decides whether the old keyword `include` is a static import or a dynamic include. `static`
    /// decides. Without it, an `include` of a literal name without a loop is an import.
    pub(super) fn old_include(
        &mut self,
        file: &str,
        call: &TaskModule,
        pairs: &[(SpannedKey, SpannedNode)],
    ) -> &'static str {
        let text = call.args.text().or_else(|| call.args.get("file").and_then(SpannedNode::text)).unwrap_or_default();
        let looped = pairs.iter().any(|(key, _)| super::repeat::kind(&key.text).is_some());
        let told = pairs.iter().find(|(key, _)| key.text == "static");
        let told = told.map(|(_, value)| !self.boolean(file, "static", value));
        let name = if told.unwrap_or(looped || !is_literal(&text)) { "include_tasks" } else { "import_tasks" };
        self.warn(file, (call.key.line, call.key.column), "`include` is an old spelling", format!("write `{name}`"));
        name
    }

    /// Rejects keywords that have no effect on an import or include. `known` are the keywords that
    /// this kind of task supports, in addition to those that every import and include supports.
    pub(super) fn reject_ineffective_keywords(
        &mut self,
        node: &SpannedNode,
        call: &TaskModule,
        file: &str,
        known: &[&str],
        hint: &str,
    ) {
        let all = [
            "name",
            "vars",
            "when",
            "tags",
            "args",
            "ignore_errors",
            "no_log",
            "run_once",
            "collections",
            "action",
            "local_action",
        ];
        for (key, _) in node.map().unwrap_or_default() {
            let word = key.text.as_str();
            if word == "register" && call.spec.name.starts_with("include_") {
                let message = format!("`register` on {} sets no variable", call.spec.name);
                self.warn(file, (key.line, key.column), message, "register the result of a task in the file");
                continue;
            }
            if word == "listen" && call.spec.name == "import_tasks" {
                let message = "`listen` has no effect on import_tasks";
                self.warn(file, (key.line, key.column), message, "write it into the handlers of the file");
                continue;
            }
            let looped = super::repeat::kind(word).is_some() && known.contains(&"loop");
            let own = word == call.key.text || all.contains(&word) || known.contains(&word) || looped;
            if IGNORED.contains(&word) && call.spec.name.starts_with("import_") {
                let message = format!("`{word}` does nothing on {}", call.spec.name);
                self.warn(file, (key.line, key.column), message, hint);
                continue;
            }
            if !own && (super::module_specs::TASK_KEYS.contains(&word) || super::repeat::kind(word).is_some()) {
                let fault =
                    self.fault(file, (key.line, key.column), format!("`{word}` does nothing on {}", call.spec.name));
                fault.hint = Some(hint.to_owned());
            }
        }
    }

    pub(super) fn import_tasks(&mut self, node: &SpannedNode, call: &TaskModule, own: &Context) -> Vec<PlanStep> {
        let at = (call.key.line, call.key.column);
        self.reject_ineffective_keywords(node, call, &own.file, &INHERITED, "use include_tasks");
        let args = self.args(&own.file, call.spec, call.key, &call.args, node.get("args"), None);
        if args.contains_key("apply") {
            self.fault(&own.file, at, "`apply` is for include_tasks").hint =
                Some("write its keywords on the task itself".into());
        }
        let name = args.get("file").and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = self.fleet_path(own, &name).unwrap_or(name);
        let name = match is_literal(&name) {
            true => name,
            false => match crate::template::expr::render_text(&self.early_scope(own), &name) {
                Ok(name) => name,
                Err(_) => {
                    let hint = "use include_tasks; only variables of the play and extra vars are known this early";
                    self.fault_hint(&own.file, at, "import_tasks takes a fixed name", hint);
                    return Vec::new();
                }
            },
        };
        if name.is_empty() {
            return Vec::new();
        }
        match self.task_path(own, &name) {
            Some(path) => self.task_file(&path, own, (&own.file, at)),
            None => {
                self.fault(&own.file, at, format!("{name} is not in the fleet directory"));
                Vec::new()
            }
        }
    }

    pub(super) fn include_tasks(
        &mut self,
        node: &SpannedNode,
        call: &TaskModule,
        own: &Context,
        around: &Context,
    ) -> Vec<PlanStep> {
        let file = own.file.clone();
        let at = (call.key.line, call.key.column);
        self.reject_ineffective_keywords(
            node,
            call,
            &file,
            &["loop", "loop_control", "listen"],
            "write it into `apply:` of the include",
        );
        let mut call = TaskModule { args: call.args.clone(), python: None, ..*call };
        let (file_arg, apply) = split_option(&mut call.args, "apply");
        call.args = file_arg;
        let mut task = self.base_task(node, &call, own);
        task.module = "include_tasks".into();
        let Some(inner) = self.include_context(own, around, apply.as_ref()) else { return Vec::new() };
        let (choices, refused) = self.choices(&file, at, &inner, &mut task);
        if !own.handler && !self.is_selected(&own.keywords.tags) || own.keywords.run_once && !self.current_play.first {
            return Vec::new();
        }
        vec![PlanStep::Include(Box::new(DynamicInclude { task, choices, refused }))]
    }

    /// The context of the tasks of a dynamic include: the surrounding context, the variables of the
    /// include, and `apply`.
    pub(super) fn include_context(
        &mut self,
        own: &Context,
        around: &Context,
        apply: Option<&SpannedNode>,
    ) -> Option<Context> {
        let mut inner = Context { dynamic: true, ..around.clone() };
        inner.layers.vars.clone_from(&own.layers.vars);
        inner.keywords.run_once = own.keywords.run_once;
        inner.layers.include_params.extend(own.layers.vars.iter().skip(around.layers.vars.len()));
        let Some(apply) = apply else { return Some(inner) };
        let at = (apply.line, apply.column);
        let Some(pairs) = apply.map() else {
            self.fault(&own.file, at, format!("`apply` takes a map, found {}", apply.kind()));
            return None;
        };
        for (key, _) in pairs {
            let known: Vec<&str> = super::module_specs::BLOCK_KEYS
                .iter()
                .copied()
                .filter(|k| !matches!(*k, "block" | "rescue" | "always" | "name"))
                .collect();
            self.known_key(&own.file, key, &known, "block");
        }
        if let Some(vars) = apply.get("vars") {
            let vars = self.vars(&own.file, vars);
            inner.layers.vars.extend(self.layer(vars));
        }
        self.inherit(&own.file, apply, &mut inner);
        if let Some(when) = apply.get("when") {
            inner.keywords.when.extend(self.conditions(&own.file, "when", when));
        }
        Some(inner)
    }

    /// Finds a task file: next to the file that names it, in the role, or in the playbook's
    /// directory.
    fn task_path(&self, own: &Context, name: &str) -> Option<String> {
        let at_top = self.files.get(name).map(|_| name.to_owned());
        let dirs = self.task_dirs(own);
        dirs.iter().filter_map(|dir| assets::join(dir, name)).find(|path| self.files.get(path).is_some()).or(at_top)
    }

    fn task_dirs(&self, own: &Context) -> Vec<String> {
        let mut dirs = vec![assets::parent(&own.file)];
        if let Some(Role { dir, .. }) = &own.role {
            dirs.extend(own.handler.then(|| format!("{dir}/handlers")));
            dirs.push(format!("{dir}/tasks"));
            dirs.push(dir.clone());
        }
        dirs.push(self.current_play.base.clone());
        dirs
    }

    /// Compiles every file that an include could select. Returns the compiled files, and the files
    /// that cannot be compiled, each with the reason.
    fn choices(&mut self, file: &str, at: (u32, u32), inner: &Context, task: &mut Task) -> (Choices, RejectedChoices) {
        let name = task.args.get("file").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut out, mut refused) = (Choices::new(), RejectedChoices::new());
        let mut found = BTreeMap::new();
        if is_literal(&name) {
            match self.task_path(inner, &name) {
                Some(path) => {
                    found.insert(name.clone(), path);
                }
                None if name.is_empty() => {}
                None => {
                    self.fault(file, at, format!("{name} is not in the fleet directory"));
                }
            }
        } else {
            for dir in self.task_dirs(inner) {
                for (name, path) in assets::matching_files(self.files, &dir, &name) {
                    if path.ends_with(".yml") || path.ends_with(".yaml") {
                        found.entry(name).or_insert(path);
                    }
                }
                if !found.is_empty() {
                    break;
                }
            }
            if let Some(repeat) = task.repeat.as_ref().filter(|repeat| !repeat.files.is_empty()) {
                found = repeat.files.iter().map(|path| (path.clone(), path.clone())).collect();
            }
            let written = task.repeat.as_ref().map(|repeat| repeat.items.to_string()).unwrap_or_default();
            // A computed name such as `{{ a }}/{{ b }}.yml` also matches files of handlers.
            let handlers = inner.handler || name.contains("handlers") || written.contains("handlers");
            let fits = |path: &str| handlers || assets::parent(path).rsplit('/').next() != Some("handlers");
            found.retain(|_, path| fits(path) && !inner.open.contains(path) && self.shape(path).0);
            if found.is_empty() || found.len() > CHOICES_MAX {
                let message = format!("`{name}` could refer to {} files, expected 1 to {CHOICES_MAX}", found.len());
                self.fault(file, at, message);
                return (out, refused);
            }
        }
        for (choice, path) in found {
            let before = self.diagnostics.faults.len();
            let steps = self.task_file(&path, inner, (file, at));
            let chosen = !is_literal(&name);
            // A lookup gives the path of a file, and so does a name that begins with `role_path`.
            for path in [&path, &self.playbook_path(&path)].into_iter().filter(|path| chosen && **path != choice) {
                task.files.choice_paths.insert(path.clone(), choice.clone());
            }
            match chosen.then(|| self.rejected_choice(before, task.id, &choice)).flatten() {
                Some(why) => {
                    refused.insert(choice, why);
                }
                None => {
                    out.insert(choice, steps);
                }
            }
        }
        (out, refused)
    }

    /// Whether a file could be a file of tasks, and whether it could be one of variables.
    pub(super) fn shape(&self, path: &str) -> (bool, bool) {
        if let Some(known) = self.cache.shapes.borrow().get(path) {
            return *known;
        }
        let parsed = self.peek(path).map(|text| crate::lang::yaml::parse(path, &text));
        let of_play =
            |key: &SpannedKey| key.text == "hosts" || super::module_specs::short_name(&key.text) == "import_playbook";
        let a_play = |item: &SpannedNode| item.map().is_some_and(|pairs| pairs.iter().any(|(key, _)| of_play(key)));
        let shape = match parsed {
            Some(Ok((node, _))) => {
                let tasks = |items: &[SpannedNode]| !items.iter().any(|item| item.map().is_none() || a_play(item));
                let empty = node.data == SpannedData::Null;
                (empty || node.list().is_some_and(tasks), empty || node.map().is_some())
            }
            _ => (false, false),
        };
        self.cache.shapes.borrow_mut().insert(path.to_owned(), shape);
        shape
    }
}

/// Keywords of a task that Ansible ignores on an import.
const IGNORED: [&str; 8] = ["async", "changed_when", "delay", "failed_when", "poll", "register", "retries", "until"];

/// Keywords of an import that apply to the imported tasks.
pub(super) const INHERITED: [&str; 16] = [
    "environment",
    "become",
    "become_user",
    "become_method",
    "become_flags",
    "become_exe",
    "any_errors_fatal",
    "check_mode",
    "diff",
    "timeout",
    "notify",
    "module_defaults",
    "ignore_unreachable",
    "delegate_to",
    "delegate_facts",
    "throttle",
];

/// Splits the option `name` off the options of a task. Returns the other options, and the value of
/// `name`.
pub(super) fn split_option(args: &mut SpannedNode, name: &str) -> (SpannedNode, Option<SpannedNode>) {
    let SpannedData::Map(pairs) = &args.data else { return (args.clone(), None) };
    let (found, rest): (Vec<_>, Vec<_>) = pairs.iter().cloned().partition(|(key, _)| key.text == name);
    (SpannedNode { data: SpannedData::Map(rest), ..args.clone() }, found.into_iter().next().map(|(_, value)| value))
}

/// Rewrites a task whose file is `{{ lookup('first_found', x) }}` to the equivalent loop.
pub(super) fn first_found(node: &SpannedNode) -> Option<SpannedNode> {
    let pairs = node.map()?;
    let (at, text) = pairs.iter().enumerate().find_map(|(at, (key, value))| {
        let takes = matches!(super::module_specs::short_name(&key.text), "include_vars" | "include_tasks");
        takes.then(|| Some((at, value.get("file").unwrap_or(value).text()?))).flatten()
    })?;
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let (name, term) = inner.strip_prefix("lookup(")?.strip_suffix(')')?.split_once(',')?;
    let looped = pairs.iter().any(|(key, _)| super::repeat::kind(&key.text).is_some());
    if super::module_specs::short_name(name.trim().trim_matches(['\'', '"'])) != "first_found"
        || !super::is_name(term.trim())
        || looped
    {
        return None;
    }
    let mut pairs = pairs.to_vec();
    let value = &mut pairs[at].1;
    let item = SpannedData::Text("{{ item }}".into());
    match &mut value.data {
        SpannedData::Map(options) => {
            options.iter_mut().filter(|(k, _)| k.text == "file").for_each(|(_, v)| v.data = item.clone())
        }
        data => *data = item,
    }
    let (line, column) = (value.line, value.column);
    let key = SpannedKey { line, column, text: "with_first_found".into(), boolean: None };
    let list = SpannedNode { line, column, data: SpannedData::Text(format!("{{{{ {} }}}}", term.trim())) };
    pairs.push((key, list));
    Some(SpannedNode { data: SpannedData::Map(pairs), ..node.clone() })
}
