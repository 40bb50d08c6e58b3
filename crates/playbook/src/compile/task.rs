//! Compiles tasks and blocks: their module, keywords and inherited values. Loops are in
//! `repeat.rs`, includes in `include.rs`.

use super::{Compiler, Context, HINT_ANSIBLE, include, module_specs, python_module, repeat};
use crate::lang::hosts::LOCAL;
use crate::lang::yaml::{SpannedData, SpannedKey, SpannedNode};
use crate::modules::{CONNECTS, PLAYBOOK_DIR, SYNCHRONIZE};
use crate::plan::ModuleRefusal;
use crate::plan::elevation;
use crate::plan::{
    Block, Delegation, HostRules, OutcomeRules, PlanStep, SourcePlace, Task, TaskCondition, TaskLayers, TaskModes,
};
use crate::vars::var_map;
use remoor_model::did_you_mean;
use serde_json::Value;

/// Maximum number of tasks of one plan.
const TASKS_MAX: u32 = 20_000;

/// Modules that read files of the fleet directory.
const FILES: [&str; 4] = ["copy", "include_tasks", "include_vars", "template"];

/// Modules whose actions in Ansible do not support `async`.
const FOREGROUND: [&str; 23] = [
    "add_host",
    "assemble",
    "assert",
    "async_status",
    "copy",
    "debug",
    "fail",
    "fetch",
    "gather_facts",
    "group_by",
    "include_vars",
    "meta",
    "pause",
    "raw",
    "reboot",
    "script",
    "set_fact",
    "set_stats",
    SYNCHRONIZE,
    "template",
    "unarchive",
    "validate_argument_spec",
    "wait_for_connection",
];

/// The module of a task with its arguments.
pub(super) struct TaskModule<'n> {
    pub key: &'n SpannedKey,
    pub spec: &'static module_specs::ModuleSpec,
    /// The name in `Plan::modules`, if the module runs as Python. Then `spec` is `PYTHON`.
    pub python: Option<String>,
    pub args: SpannedNode,
    /// Whether the task was written with the old `include`, which can be an import or an include.
    pub old_include: bool,
}

impl TaskModule<'_> {
    /// The name of the module in the plan.
    pub fn name(&self) -> &str {
        self.python.as_deref().unwrap_or(self.spec.name)
    }
}

impl Compiler<'_> {
    pub(super) fn tasks(&mut self, node: &SpannedNode, context: &Context) -> Vec<PlanStep> {
        match &node.data {
            SpannedData::Null => Vec::new(),
            SpannedData::List(items) => items.iter().flat_map(|item| self.task(item, context)).collect(),
            _ => {
                let message = format!("expected a list of tasks, found {}", node.kind());
                self.fault(&context.file, (node.line, node.column), message);
                Vec::new()
            }
        }
    }

    /// Compiles a task. A task that cannot be compiled becomes a step that fails when it is
    /// reached.
    pub(super) fn task(&mut self, node: &SpannedNode, context: &Context) -> Vec<PlanStep> {
        let from = self.diagnostics.faults.len();
        let steps = self.task_steps(node, context);
        self.or_refusal(from, node, context, steps)
    }

    fn task_steps(&mut self, node: &SpannedNode, context: &Context) -> Vec<PlanStep> {
        let rewritten = include::first_found(node);
        let node = rewritten.as_ref().unwrap_or(node);
        let file = context.file.clone();
        let at = (node.line, node.column);
        let Some(pairs) = node.map() else {
            self.fault(&file, at, format!("a task is a map, found {}", node.kind()));
            return Vec::new();
        };
        if self.parts.tasks >= TASKS_MAX {
            self.limit_fault(&file, at, format!("more than {TASKS_MAX} tasks"));
            return Vec::new();
        }
        let mut own = context.clone();
        if let Some(vars) = node.get("vars") {
            let vars = self.vars(&file, vars);
            own.layers.vars.extend(self.layer(vars));
        }
        self.inherit(&file, node, &mut own);
        self.local_action(node, &mut own);
        if let Some(when) = node.get("when") {
            own.keywords.when.extend(self.conditions(&file, "when", when));
        }
        if node.get("block").is_some() {
            self.resolve_computed_lookups(&own, None, true);
            return self.block(node, pairs, &own);
        }
        let Some(call) = self.module(&own, at, pairs) else { return Vec::new() };
        // As in Ansible, one host adds the hosts for the whole batch.
        own.keywords.run_once |= call.spec.name == "add_host";
        let name = match call.spec.name {
            "include_tasks" if call.old_include => self.old_include(&file, &call, pairs),
            name => name,
        };
        match name {
            "import_tasks" => self.import_tasks(node, &call, &own),
            "include_tasks" => self.include_tasks(node, &call, &own, context),
            "import_role" => self.import_role(node, &call, &own),
            "include_role" => self.include_role(node, &call, &own, context),
            _ => {
                let mut task = self.base_task(node, &call, &own);
                self.finish_task(node, &call, &own, &mut task)
                    .map(|()| PlanStep::Task(Box::new(task)))
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Reads `local_action`, which means `delegate_to: localhost`.
    fn local_action(&mut self, node: &SpannedNode, own: &mut Context) {
        let Some((key, _)) = node.map().and_then(|pairs| pairs.iter().find(|(key, _)| key.text == "local_action"))
        else {
            return;
        };
        if self.is_local() {
            own.keywords.delegate_to = None;
        } else if self.options.delegates {
            own.keywords.delegate_to = Some(LOCAL[0].to_owned());
        } else {
            let message = "`local_action` is not part of the language";
            self.fault_hint(&own.file, (key.line, key.column), message, HINT_ANSIBLE);
        }
    }

    /// Completes a task that is not an include. None: the task is not for this host, or its tags
    /// are not selected.
    fn finish_task(&mut self, node: &SpannedNode, call: &TaskModule, own: &Context, task: &mut Task) -> Option<()> {
        let at = (call.key.line, call.key.column);
        self.refuse_delegation(call.name(), own);
        match call.spec.name {
            "include_vars" => self.include_vars(own, at, task),
            "fetch" if !self.options.delegates => {
                let message = "`fetch` works only during `remoor play`, because managers store no files of nodes";
                self.fault_hint(&own.file, at, message, HINT_ANSIBLE);
            }
            "reboot" => self.reboot(own, at, task),
            SYNCHRONIZE => self.synchronize(own, at, task),
            "add_host" | "group_by" if !self.options.delegates => {
                let message = format!("`{}` works only during `remoor play`", call.spec.name);
                self.fault_hint(&own.file, at, message, HINT_ANSIBLE);
            }
            "meta" => self.meta(own, at, task),
            _ => self.attach(own, (node.line, node.column), task),
        }
        self.resolve_computed_lookups(own, task.repeat.as_ref(), true);
        let read_only =
            task.outcome.changed_when.as_deref().is_some_and(|all| all.iter().any(TaskCondition::is_always_false));
        if elevation::COMMANDS.contains(&call.spec.name)
            && task.modes.check_mode == Some(Value::Bool(false))
            && !read_only
        {
            let message = "`check_mode: false` runs this command in check mode too";
            self.warn(
                &own.file,
                at,
                message,
                "set `changed_when: false` if it only reads; otherwise remove `check_mode`",
            );
        }
        if !own.handler && !self.is_selected(&own.keywords.tags) {
            return None;
        }
        if task.module == "meta" {
            task.hosts.once = false;
        }
        if own.keywords.run_once && !self.current_play.first && !task.hosts.once {
            // This host skips the `run_once` task, because the first host of the batch runs it. So
            // this host does not know the values that the task sets.
            let sets = matches!(call.spec.name, "set_fact" | "include_vars").then(|| task.args.keys().cloned());
            let names = task.register.iter().cloned().chain(sets.into_iter().flatten());
            self.set_on_first_host.extend(names.map(|name| (name, task.place.clone())));
            return None;
        }
        Some(())
    }

    /// Prepares `synchronize`: rsync runs on the controller, unless the task is delegated.
    fn synchronize(&mut self, own: &Context, at: (u32, u32), task: &mut Task) {
        if !self.options.delegates {
            let message = "`synchronize` works only during `remoor play`, because managers give no files to rsync";
            self.fault_hint(&own.file, at, message, HINT_ANSIBLE);
            return;
        }
        task.args.insert(PLAYBOOK_DIR.to_owned(), self.playbook_path(&self.current_play.base).into());
        // With `connection: local`, both paths are on the controller.
        let local = own.delegated_here || own.keywords.local || self.is_local();
        let pulls = task.args.get("mode").and_then(Value::as_str) == Some("pull");
        for option in ["src", "dest"].into_iter().filter(|option| local || (*option == "dest") == pulls) {
            let path = task.args.get(option).and_then(Value::as_str).and_then(|path| self.existing_path(own, path));
            task.args.extend(path.map(|path| (option.to_owned(), path.into())));
        }
        if local {
            return;
        }
        task.args.insert(CONNECTS.to_owned(), true.into());
        let here = || Delegation { to: LOCAL[0].to_owned(), facts: false };
        task.hosts.delegation.get_or_insert_with(here);
    }

    /// Checks `reboot`. The run continues at this task after the reboot, which a loop and another
    /// host do not support.
    fn reboot(&mut self, own: &Context, at: (u32, u32), task: &Task) {
        let message = if !self.options.delegates {
            "`reboot` works only during `remoor play`, because an attempt ends with its session"
        } else if task.hosts.delegation.is_some() {
            "`reboot` of another host is not part of the language"
        } else if task.repeat.is_some() {
            "`reboot` in a loop is not part of the language"
        } else {
            return;
        };
        self.fault_hint(&own.file, at, message, HINT_ANSIBLE);
    }

    /// Checks `meta`. Only actions that a plan of one host can perform are allowed.
    fn meta(&mut self, own: &Context, at: (u32, u32), task: &Task) {
        let action = task.args.get("action").and_then(|a| a.as_str()).unwrap_or_default();
        let known = matches!(
            action,
            "noop"
                | "flush_handlers"
                | "end_host"
                | "end_role"
                | "end_play"
                | "end_batch"
                | "clear_facts"
                | "reset_connection"
        );
        if !known {
            let fault = if matches!(action, "refresh_inventory" | "clear_host_errors") {
                self.fault(&own.file, at, format!("meta `{action}` is not part of the language"))
            } else {
                self.fault(&own.file, at, format!("unknown meta `{action}`"))
            };
            fault.hint = Some(HINT_ANSIBLE.into());
        }
        if matches!(action, "end_play" | "end_batch") && !own.keywords.when.is_empty() && !self.current_play.alone {
            let message = format!("meta `{action}` with a condition would decide for all hosts on one host");
            self.fault_hint(&own.file, at, message, "use `meta: end_host`, which each host decides for itself");
        }
        if action == "end_role" && (own.role.is_none() || own.handler) {
            self.fault(&own.file, at, "meta `end_role` is only for tasks of a role");
        }
        if action == "flush_handlers" && own.handler {
            self.fault(&own.file, at, "a handler cannot flush handlers");
        }
    }

    /// Whether one host runs a task for all hosts of the batch, and the others ask for its result.
    pub(super) fn runs_once(&self, own: &Context) -> bool {
        own.keywords.run_once && self.options.delegates && !self.current_play.alone
    }

    /// A task with the next number and the inherited keywords that a refused task has too.
    pub(super) fn numbered_task(&mut self, node: &SpannedNode, own: &Context) -> Task {
        self.parts.tasks += 1;
        Task {
            id: self.parts.tasks,
            place: SourcePlace { file: own.file.clone(), line: node.line },
            when: own.keywords.when.clone(),
            outcome: OutcomeRules {
                ignore_errors: own.keywords.ignore_errors.clone(),
                // As in Ansible, a failure of a task that runs once is one of all hosts.
                fatal: own.keywords.fatal || self.runs_once(own),
                ..OutcomeRules::default()
            },
            no_log: own.keywords.no_log || self.hides_tasks(&own.file),
            tags: own.keywords.tags.clone(),
            layers: TaskLayers {
                defaults: own.layers.defaults.clone(),
                vars: own.layers.role_vars.iter().chain(&own.layers.vars).copied().collect(),
                params: own.layers.role_params.iter().chain(&own.layers.include_params).copied().collect(),
            },
            ..Task::default()
        }
    }

    /// Compiles a task, except the files that it names.
    pub(super) fn base_task(&mut self, node: &SpannedNode, call: &TaskModule, own: &Context) -> Task {
        let pairs = node.map().unwrap_or_default();
        let file = own.file.as_str();
        let mut task = Task {
            module: call.name().to_owned(),
            environment: own.keywords.environment.clone(),
            privileges: self.privileges((node.line, node.column), own),
            modes: TaskModes {
                check_mode: own.keywords.check_mode.clone(),
                diff: own.keywords.diff.clone(),
                poll: None,
            },
            hosts: HostRules {
                delegation: self.task_delegation(own),
                once: self.runs_once(own),
                throttle: if self.current_play.alone { 0 } else { own.keywords.throttle },
            },
            timeout: own.keywords.timeout.clone(),
            notify: own.keywords.notify.clone(),
            ..self.numbered_task(node, own)
        };
        let written = call.key.text.as_str();
        let defaults = match &call.python {
            None => own.keywords.module_defaults.get(call.spec.name),
            Some(name) => [written, name, module_specs::short_name(written)]
                .iter()
                .find_map(|name| own.keywords.module_defaults.get(*name)),
        };
        let defaults = defaults.cloned();
        task.args = self.args(file, call.spec, call.key, &call.args, node.get("args"), defaults.as_deref());
        if FILES.contains(&call.spec.name) {
            for option in ["src", "file"] {
                let placed = task.args.get(option).map(|value| self.fleet_paths(own, value));
                task.args.extend(placed.map(|value| (option.to_owned(), value)));
            }
        }
        self.keywords(file, pairs, &mut task);
        if let Some((key, _)) = pairs.iter().find(|(key, _)| key.text == "listen" && !own.handler) {
            self.fault(file, (key.line, key.column), "`listen` is for handlers");
        }
        self.repeat(pairs, own, &mut task);
        self.resolve_computed_lookups(own, task.repeat.as_ref(), true);
        task.name = node.get("name").and_then(SpannedNode::text).unwrap_or_else(|| title(&task));
        task
    }

    fn block(&mut self, node: &SpannedNode, pairs: &[(SpannedKey, SpannedNode)], own: &Context) -> Vec<PlanStep> {
        for (key, _) in pairs {
            self.known_key(&own.file, key, module_specs::BLOCK_KEYS, "block");
        }
        if own.handler {
            return self.handler_block(node, own);
        }
        let mut part = |name: &str| node.get(name).map(|tasks| self.tasks(tasks, own)).unwrap_or_default();
        let (block, rescue, always) = (part("block"), part("rescue"), part("always"));
        if block.is_empty() && always.is_empty() {
            return Vec::new();
        }
        let place = SourcePlace { file: own.file.clone(), line: node.line };
        vec![PlanStep::Block(Block { place, block, rescue, always, ..Block::default() })]
    }

    /// The Python module that runs instead of the native module `named` with the options `given`.
    fn replacement(
        &mut self,
        own: &Context,
        named: &str,
        spec: &module_specs::ModuleSpec,
        given: &[&SpannedNode],
    ) -> Result<Option<String>, ModuleRefusal> {
        let replacement = self.replacement_of_native(own, named, module_specs::short_name(named)).transpose()?;
        Ok(replacement.or_else(|| self.replacement_for_options(own, named, spec, given)))
    }

    /// Finds the module of a task: the key that is the name of a module, or the module that
    /// `action` names. More than one module is an error.
    fn module<'n>(
        &mut self,
        own: &Context,
        at: (u32, u32),
        pairs: &'n [(SpannedKey, SpannedNode)],
    ) -> Option<TaskModule<'n>> {
        let file = own.file.as_str();
        let mut found: Option<TaskModule> = None;
        // A word beside a native module is a misspelled keyword and not a module.
        let has_native = pairs.iter().any(|(key, _)| module_specs::find(module_specs::short_name(&key.text)).is_some());
        let mut faulty = false;
        for (key, value) in pairs {
            let place = (key.line, key.column);
            let (named, args) = match key.text.as_str() {
                "action" | "local_action" => action(value),
                word if module_specs::TASK_KEYS.contains(&word) || repeat::kind(word).is_some() => continue,
                // The keyword `static` is only for an old `include`; see `old_include`.
                "static" if pairs.iter().any(|(key, _)| key.text == "include") => continue,
                word => (word.to_owned(), value.clone()),
            };
            if matches!(key.text.as_str(), "action" | "local_action") {
                let message = format!("`{}` is an old spelling", key.text);
                self.warn(file, place, message, format!("write `{named}:` with its options"));
            }
            let short = module_specs::short_name(&named);
            if let Some(spec) = module_specs::find(short) {
                if let Some(first) = &found {
                    let message = format!("a task has one module, found `{}` and `{}`", first.key.text, key.text);
                    self.fault(file, place, message);
                    faulty = true;
                }
                let written = pairs.iter().find(|(key, _)| key.text == "args").map(|(_, more)| more);
                let given: Vec<&SpannedNode> = written.into_iter().chain([&args]).collect();
                let python = match self.replacement(own, &named, spec, &given) {
                    Ok(python) => python,
                    Err(refusal) => {
                        self.module_refusal_fault(file, place, &named, &refusal);
                        faulty = true;
                        None
                    }
                };
                if python.is_none() {
                    self.pack_for_values(own, &named, spec, (&given, pairs));
                }
                let spec = if python.is_some() { &module_specs::PYTHON } else { spec };
                found = Some(TaskModule { key, spec, python, args, old_include: short == "include" });
                continue;
            }
            let keyword =
                module_specs::has_word(module_specs::UNSUPPORTED_KEYWORDS, short) || short.starts_with("with_");
            let refusal = match self.options.modules {
                Some(_) if !keyword && (!has_native || named.contains('.')) => match self.python_module(own, &named) {
                    Ok(name) => {
                        let written = pairs.iter().find(|(key, _)| key.text == "args").map(|(_, more)| more);
                        let given: Vec<&SpannedNode> = written.into_iter().chain([&args]).collect();
                        faulty |= !self.check_controller_options(own, place, &name, &given);
                        found = Some(TaskModule {
                            key,
                            spec: &module_specs::PYTHON,
                            python: Some(name),
                            args,
                            old_include: false,
                        });
                        continue;
                    }
                    Err(refusal) => Some(refusal),
                },
                _ => None,
            };
            faulty = true;
            self.refuse_module(file, place, (&named, short), refusal);
        }
        if found.is_none() && !faulty {
            self.fault(file, at, "a task needs a module");
        }
        found.filter(|_| !faulty)
    }

    /// Refuses a task whose module, or a keyword of which, is not known.
    fn refuse_module(
        &mut self,
        file: &str,
        place: (u32, u32),
        (named, short): (&str, &str),
        refusal: Option<ModuleRefusal>,
    ) {
        let in_ansible = refusal.as_ref().is_some_and(python_module::fails_in_ansible);
        let typo = || {
            let modules = module_specs::MODULES.iter().map(|m| m.name);
            let keys = module_specs::TASK_KEYS.iter().copied();
            did_you_mean(short, modules.chain(keys).chain(["block", "rescue", "always"]))
        };
        let unclear = !short.contains('.') && !module_specs::is_foreign(short);
        let unclear = unclear
            && matches!(
                refusal,
                Some(ModuleRefusal::NotFound(_) | ModuleRefusal::NoCore(_) | ModuleRefusal::NativeOnly)
            );
        if let Some(refusal) = refusal.filter(|_| !unclear || typo().is_none()) {
            let (message, hint) = python_module::refusal_text(named, &refusal);
            match refusal {
                // The user forbids such modules wherever they are.
                ModuleRefusal::NativeOnly => self.limit_fault(file, place, message),
                _ => self.fault_hint(file, place, message, hint),
            }
        } else if module_specs::is_foreign(short) || short.contains('.') && !short.starts_with("with_") {
            self.fault_hint(file, place, format!("module `{named}` is not part of the language"), HINT_ANSIBLE);
        } else if module_specs::has_word(module_specs::UNSUPPORTED_KEYWORDS, short) || short.starts_with("with_") {
            self.fault_hint(file, place, format!("`{named}` is not part of the language"), HINT_ANSIBLE);
        } else {
            let hint = typo().unwrap_or_else(|| format!("if it is a module of Ansible, {HINT_ANSIBLE}"));
            self.fault_hint(file, place, format!("unknown module or keyword `{named}`"), hint);
        }
        if in_ansible {
            self.diagnostics.mark_in_ansible();
        }
    }

    /// The value of `poll` beside `async`, if it may be 0. Refuses modules that cannot run in the
    /// background.
    fn background_poll(&mut self, file: &str, value: &SpannedNode, module: &str) -> Option<Value> {
        let at = (value.line, value.column);
        let poll = self.number(file, "poll", value).filter(|every| match every {
            Value::String(text) => text.parse::<f64>().is_ok_and(|every| every == 0.0) || !is_literal(text),
            every => every.as_f64() == Some(0.0),
        })?;
        if !self.options.delegates {
            let message = "`poll: 0` in a fleet: the task could outlive its attempt";
            self.fault_hint(file, at, message, "omit `poll`, so that the run waits for the task");
        } else if FOREGROUND.contains(&module) {
            self.fault_hint(file, at, format!("`{module}` cannot run in the background"), "omit `poll: 0`");
            self.diagnostics.mark_in_ansible();
        }
        Some(poll)
    }

    fn keywords(&mut self, file: &str, pairs: &[(SpannedKey, SpannedNode)], task: &mut Task) {
        for (key, value) in pairs {
            let at = (value.line, value.column);
            match key.text.as_str() {
                "register" => match value.text().filter(|name| super::is_name(name)) {
                    Some(name) => task.register = Some(name),
                    None => {
                        self.fault(file, at, "`register` takes the name of a variable");
                    }
                },
                "changed_when" => task.outcome.changed_when = Some(self.conditions(file, "changed_when", value)),
                "failed_when" => task.outcome.failed_when = Some(self.conditions(file, "failed_when", value)),
                "until" => task.retry.until = Some(self.conditions(file, "until", value)),
                "retries" => task.retry.retries = self.number(file, "retries", value),
                "delay" => task.retry.delay = self.number(file, "delay", value),
                // Its time limit is that of the job in Ansible.
                "async" => match self.number(file, "async", value) {
                    Some(limit) if limit.as_f64() != Some(0.0) && limit != "0" => task.timeout = Some(limit),
                    _ => {}
                },
                "poll" if pairs.iter().any(|(key, _)| key.text == "async") => {
                    task.modes.poll = self.background_poll(file, value, &task.module);
                }
                _ => {}
            }
        }
    }
}

/// Reads `action: copy src=a dest=b`, or a map with `module`.
fn action(value: &SpannedNode) -> (String, SpannedNode) {
    match &value.data {
        SpannedData::Map(pairs) => {
            let name = value.get("module").and_then(SpannedNode::text).unwrap_or_default();
            let rest = pairs.iter().filter(|(key, _)| key.text != "module").cloned().collect();
            (name, SpannedNode { data: SpannedData::Map(rest), ..value.clone() })
        }
        _ => {
            let text = value.text().unwrap_or_default();
            let (name, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
            let data =
                if rest.trim().is_empty() { SpannedData::Null } else { SpannedData::Text(rest.trim().to_owned()) };
            (name.to_owned(), SpannedNode { data, ..value.clone() })
        }
    }
}

/// Whether a key of a task is not a keyword, so that it should be the name of a module.
pub(super) fn is_module(key: &str) -> bool {
    !module_specs::TASK_KEYS.contains(&key) && repeat::kind(key).is_none()
}

/// Whether a name is literal, without markup.
pub(super) fn is_literal(name: &str) -> bool {
    !var_map::has_markup(name)
}

/// The title of a task without a name: its module and its main argument. With `no_log`, the title
/// does not contain the argument.
fn title(task: &Task) -> String {
    let main =
        ["name", "path", "dest", "cmd", "msg", "file", "action"].iter().find_map(|k| task.args.get(*k)?.as_str());
    match main.filter(|_| !task.no_log) {
        Some(text) => {
            format!("{} {}", task.module, text.lines().next().unwrap_or_default().chars().take(60).collect::<String>())
        }
        None => task.module.clone(),
    }
}
