//! Handlers of plays and roles; checks that each notified name belongs to a handler.

use super::diagnostics::key_of;
use super::refusal::{self, RefusedTask};
use super::{Compiler, Context};
use crate::lang::yaml::{SpannedData, SpannedNode};
use crate::plan::{Choices, Handler, PlanStep, Play, RejectedChoices, SourcePlace, Task, TaskCondition};
use crate::vars::var_map;
use remoor_model::{Fault, did_you_mean};
use std::collections::BTreeSet;

impl Compiler<'_> {
    pub(super) fn handlers(&mut self, node: &SpannedNode, context: &Context) -> Vec<Handler> {
        let mut context = Context { handler: true, ..context.clone() };
        context.keywords.notify.clear();
        let mut out = Vec::new();
        self.parts.handler_lists += 1;
        let items = node.list().unwrap_or_default();
        if node.list().is_none() && node.data != SpannedData::Null {
            self.fault(&context.file, (node.line, node.column), format!("handlers are a list, found {}", node.kind()));
        }
        for item in items {
            // The handlers in a block or in an imported file have their own names.
            let mut places: Vec<SourcePlace> = Vec::new();
            for step in self.task(item, &context) {
                let (task, choices, refused) = match step {
                    PlanStep::Task(task) => (*task, Choices::new(), RejectedChoices::new()),
                    PlanStep::Include(include) => (include.task, include.choices, include.refused),
                    PlanStep::Block(_) => continue,
                };
                let before = places.iter().filter(|place| **place == task.place).count();
                places.push(task.place.clone());
                let listen = self.listens(&task.place, before, item, &context);
                let mut names = vec![task.name.clone()];
                if let Some(role) = &context.role {
                    names.push(format!("{} : {}", role.name, task.name));
                }
                let list = self.parts.handler_lists;
                out.push(Handler { names, listen, task, list, choices, refused });
            }
        }
        out
    }

    /// Reads the `listen` names of the handler at `place`, which is the entry `item` of `handlers`,
    /// or a task of its block or of an imported file. `before` is the number of earlier handlers on
    /// the same line.
    fn listens(&mut self, place: &SourcePlace, before: usize, item: &SpannedNode, context: &Context) -> Vec<String> {
        let file = &place.file;
        let parsed = self.cache.parsed.get(file).cloned().and_then(Result::ok);
        let items = match *file == context.file {
            true => std::slice::from_ref(item),
            false => parsed.as_ref().and_then(|list| list.list()).unwrap_or_default(),
        };
        let tasks = items.iter().flat_map(|item| match item.get("block").and_then(SpannedNode::list) {
            Some(inner) => inner,
            None => std::slice::from_ref(item),
        });
        let written = tasks.filter(|item| item.line == place.line).nth(before);
        let listen = written.and_then(|item| item.get("listen")).cloned();
        listen.map(|listen| self.word_list(file, "listen", &listen)).unwrap_or_default()
    }

    /// Compiles the tasks of a block of handlers. As in Ansible, each of them is a handler of its
    /// own, and the tasks of `rescue` and `always` never run.
    pub(super) fn handler_block(&mut self, node: &SpannedNode, own: &Context) -> Vec<PlanStep> {
        let ineffective = ["rescue", "always"].into_iter().filter_map(|name| Some((name, node.get(name)?)));
        for (name, part) in ineffective {
            let message = format!("`{name}` has no effect in a block of handlers");
            self.warn(
                &own.file,
                (part.line, part.column),
                message,
                "move these tasks to a file, and notify a handler that includes the file with `include_tasks`",
            );
        }
        let Some(block) = node.get("block") else { return Vec::new() };
        if let Some(inner) = block.list().unwrap_or_default().iter().find(|item| item.get("block").is_some()) {
            let message = "a block in a block of handlers cannot be a handler";
            self.fault_hint(&own.file, (inner.line, inner.column), message, "write its tasks one by one");
            self.diagnostics.mark_in_ansible();
            return Vec::new();
        }
        self.tasks(block, own)
    }

    /// Adds the handlers of a role. Identical handlers are added once.
    pub(super) fn role_handlers(&mut self, dir: &str, name: &str, own: &Context, from: (&str, (u32, u32))) {
        let Some(path) = self.role_file(dir, "handlers", name) else {
            if name != "main" {
                self.fault(from.0, from.1, format!("{dir}/handlers/{name} is not in the fleet directory"));
            }
            return;
        };
        if own.handler {
            return;
        }
        let Some(node) = self.yaml_of_tasks(&path, from) else { return };
        let inner = Context { file: path, ..own.clone() };
        for handler in self.handlers(&node, &inner) {
            let same = |other: &Handler| {
                let task = Task { id: handler.task.id, ..other.task.clone() };
                other.names == handler.names && task == handler.task
            };
            if !self.current_play.handlers.iter().any(same) {
                self.current_play.handlers.push(handler);
            }
        }
    }

    /// Refuses each task that notifies a handler by a literal name that no handler has. In Ansible,
    /// such a task fails too, but only after it has changed something. So a task that never changes
    /// anything is not refused.
    pub(super) fn check_notifications(&mut self, play: &mut Play) {
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for handler in &play.handlers {
            known.extend(handler.names.iter().map(String::as_str));
            known.extend(handler.listen.iter().map(String::as_str));
            let inner = handler.choices.values().flatten();
            known.extend(
                inner.filter_map(|step| if let PlanStep::Task(task) = step { Some(task.name.as_str()) } else { None }),
            );
        }
        if known.iter().any(|name| var_map::has_markup(name)) {
            return;
        }
        let known: BTreeSet<String> = known.into_iter().map(str::to_owned).collect();
        let (refused, diagnostics) = (&mut self.refused, &mut self.diagnostics);
        play.each_single_task_mut(&mut |task| {
            let conditions = task.outcome.changed_when.as_deref().unwrap_or_default();
            if conditions.iter().any(TaskCondition::is_always_false) {
                return;
            }
            let unknown = |name: &&String| !var_map::has_markup(name) && !known.contains(*name);
            let faults = task.notify.iter().filter(unknown).map(|name| {
                let message = format!("no handler is called `{name}`");
                let near = did_you_mean(name, known.iter().map(String::as_str));
                let fault = Fault::error(&task.place.file, task.place.line, 1, message);
                near.map_or_else(|| fault.clone(), |near| fault.clone().hint(near))
            });
            let faults: Vec<Fault> = faults.collect();
            if changes_nothing(task) {
                diagnostics.warnings.extend(faults.into_iter().map(|fault| {
                    let message = format!("{}, and this task never changes anything", fault.message);
                    Fault { warning: true, message, ..fault }
                }));
                return;
            }
            diagnostics.in_ansible.extend(faults.iter().map(key_of));
            if let Some(first) = faults.first() {
                *task = refusal::refused_form(task, &first.message);
                refused.push(RefusedTask { id: task.id, choice: None, faults });
            }
        });
    }
}

/// Modules whose result is never a change.
const READERS: [&str; 16] = [
    "assert",
    "debug",
    "fail",
    "find",
    "getent",
    "include_vars",
    "package_facts",
    "pause",
    "ping",
    "service_facts",
    "set_fact",
    "setup",
    "slurp",
    "stat",
    "wait_for",
    "wait_for_connection",
];
/// Options with which `systemd` reports no change, if it has no others.
const RELOADS: [&str; 5] = ["daemon_reload", "daemon-reload", "daemon_reexec", "daemon-reexec", "scope"];

/// Whether the result of a task is never a change, so that the task notifies no handler.
fn changes_nothing(task: &Task) -> bool {
    let reloads = task.module == "systemd" && task.args.keys().all(|name| RELOADS.contains(&name.as_str()));
    task.outcome.changed_when.is_none() && (reloads || READERS.contains(&task.module.as_str()))
}
