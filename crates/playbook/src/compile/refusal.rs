//! Replaces a task that cannot be compiled by a step that fails when the run reaches it. As in
//! Ansible, such a task does no harm behind a condition that is false on the host.

use super::diagnostics::{self, FaultKey, key_of};
use super::{Compiler, Context};
use crate::lang::yaml::SpannedNode;
use crate::plan::{HostRules, OutcomeRules, Plan, PlanStep, REFUSED, Task};
use crate::rendered;
use remoor_model::Fault;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Beginning of the warning about a task that fails when a run reaches it.
const REFUSAL_NOTE: &str = "this task fails if it is reached: ";
/// Beginning of the warning about a task that fails when a run reaches it, and in Ansible too.
const SHARED_NOTE: &str = "this task fails if it is reached, in Ansible too: ";
/// Beginning of the warning about a task that no run with this inventory reaches.
const UNREACHED_NOTE: &str = "this task could not be run, but no run with this inventory reaches it: ";
/// Maximum number of faults in the message of a refused step.
const FAULTS_SHOWN: usize = 3;

/// A task of which the plan contains only a refusal.
pub(super) struct RefusedTask {
    pub id: u32,
    /// The target that an include cannot select. None: the plan does not contain the task itself.
    pub choice: Option<String>,
    pub faults: Vec<Fault>,
}

impl Compiler<'_> {
    /// Replaces a task by a refusal if compiling it recorded faults since index `from`. Otherwise
    /// returns `steps`.
    pub(super) fn or_refusal(
        &mut self,
        from: usize,
        node: &SpannedNode,
        context: &Context,
        steps: Vec<PlanStep>,
    ) -> Vec<PlanStep> {
        if self.diagnostics.faults.len() <= from {
            return steps;
        }
        let faults = self.diagnostics.faults.split_off(from);
        let step = self.refusal(node, context, &faults);
        // The keywords of the task may be faulty too. Those faults are in `faults` already.
        self.diagnostics.faults.truncate(from);
        let id = step.as_ref().map_or(0, |task| task.id);
        self.refused.push(RefusedTask { id, choice: None, faults });
        step.map(|task| PlanStep::Task(Box::new(task))).into_iter().collect()
    }

    /// Takes the faults since index `from` out of the errors, because only a run knows whether the
    /// include `id` selects `choice`. Returns the first of them as the reason of a failure.
    pub(super) fn rejected_choice(&mut self, from: usize, id: u32, choice: &str) -> Option<String> {
        if self.diagnostics.faults.len() <= from {
            return None;
        }
        let faults = self.diagnostics.faults.split_off(from);
        let reason = faults.first().map(|fault| format!("{}:{}: {}", fault.file, fault.line, fault.message));
        self.refused.push(RefusedTask { id, choice: Some(choice.to_owned()), faults });
        reason
    }

    /// The step that fails with `faults`. None: the tags of the task are not selected, or the first
    /// host of the batch runs it.
    fn refusal(&mut self, node: &SpannedNode, context: &Context, faults: &[Fault]) -> Option<Task> {
        let file = context.file.clone();
        let mut own = context.clone();
        if let Some(vars) = node.get("vars") {
            let vars = self.vars(&file, vars);
            own.layers.vars.extend(self.layer(vars));
        }
        self.inherit(&file, node, &mut own);
        if let Some(when) = node.get("when") {
            own.keywords.when.extend(self.conditions(&file, "when", when));
        }
        // A condition that is faulty itself fails when it is evaluated, so the other ones decide
        // whether the run gets that far.
        own.keywords.when.retain(|condition| self.check_expression(&condition.text).is_ok());
        let once = self.runs_once(&own);
        let skipped = own.keywords.run_once && !self.current_play.first && !once;
        if !own.handler && !self.is_selected(&own.keywords.tags) || skipped {
            return None;
        }
        let shown = |fault: &Fault| match fault.file == file {
            true => fault.message.clone(),
            false => format!("{}:{}: {}", fault.file, fault.line, fault.message),
        };
        let delegates = self.options.delegates;
        let said = |text: String| if delegates { diagnostics::drop_fleet_words(&text) } else { text };
        let mut messages: Vec<String> = faults.iter().take(FAULTS_SHOWN).map(shown).map(said).collect();
        if faults.len() > FAULTS_SHOWN {
            messages.push(format!("{} more", faults.len() - FAULTS_SHOWN));
        }
        let mut task = Task {
            module: REFUSED.to_owned(),
            args: Map::from_iter([("msg".to_owned(), json!(messages.join("; ")))]),
            register: node.get("register").and_then(SpannedNode::text).filter(|name| super::is_name(name)),
            hosts: HostRules { once, ..HostRules::default() },
            ..self.numbered_task(node, &own)
        };
        let before = self.diagnostics.faults.len();
        self.repeat(node.map().unwrap_or_default(), &own, &mut task);
        if self.diagnostics.faults.len() > before {
            task.repeat = None;
        }
        let named = || node.map()?.iter().map(|(key, _)| key.text.as_str()).find(|key| super::task::is_module(key));
        let name = node.get("name").or(node.get("role")).and_then(SpannedNode::text);
        task.name = name.unwrap_or_else(|| named().unwrap_or(REFUSED).to_owned());
        Some(task)
    }

    /// Separates the faults of the refused tasks: errors for those that every run of `plan`
    /// reaches, and warnings for the others.
    /// `in_ansible` are the faults with which Ansible fails too.
    pub(super) fn refusal_faults(
        refused: Vec<RefusedTask>,
        plan: &Plan,
        in_ansible: &BTreeSet<FaultKey>,
    ) -> (Vec<Fault>, Vec<Fault>) {
        if refused.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let found = rendered::find_refusals(plan, &Map::new(), false);
        let reached: BTreeSet<(u32, Option<String>)> =
            found.certain.into_iter().map(|step| (step.id, step.choice)).collect();
        let (mut certain, mut others) = (Vec::new(), Vec::new());
        for RefusedTask { id, choice, faults } in refused {
            let step = (id, choice);
            if reached.contains(&step) {
                certain.extend(faults);
                continue;
            }
            let possible = found.possible.contains(&step);
            others.extend(faults.into_iter().map(|fault| {
                let note = match (possible, in_ansible.contains(&key_of(&fault))) {
                    (true, true) => SHARED_NOTE,
                    (true, false) => REFUSAL_NOTE,
                    (false, _) => UNREACHED_NOTE,
                };
                Fault { warning: true, message: format!("{note}{}", fault.message), ..fault }
            }));
        }
        (certain, others)
    }
}

/// Removes each note that no run reaches a task if another host or playbook reaches it. Keeps the
/// order.
pub fn merge_refusal_notes(mut faults: Vec<Fault>) -> Vec<Fault> {
    let key = |fault: &Fault, message: &str| (fault.file.clone(), fault.line, fault.column, message.to_owned());
    let told = |fault: &Fault| {
        let message = [REFUSAL_NOTE, SHARED_NOTE].iter().find_map(|note| fault.message.strip_prefix(note));
        message.map(str::to_owned)
    };
    let reached = |fault: &Fault| match told(fault) {
        Some(message) => Some(key(fault, &message)),
        None => Some(key(fault, &fault.message)).filter(|_| !fault.warning),
    };
    let reached: BTreeSet<_> = faults.iter().filter_map(reached).collect();
    faults.retain(|fault| match fault.message.strip_prefix(UNREACHED_NOTE) {
        Some(message) => !reached.contains(&key(fault, message)),
        None => true,
    });
    faults
}

/// The step that takes the place of `task` and fails with `message`.
pub(super) fn refused_form(task: &Task, message: &str) -> Task {
    Task {
        id: task.id,
        name: task.name.clone(),
        place: task.place.clone(),
        module: REFUSED.to_owned(),
        args: Map::from_iter([("msg".to_owned(), json!(message))]),
        when: task.when.clone(),
        repeat: task.repeat.clone(),
        register: task.register.clone(),
        outcome: OutcomeRules { ignore_errors: task.outcome.ignore_errors.clone(), ..OutcomeRules::default() },
        modes: task.modes.clone(),
        no_log: task.no_log,
        tags: task.tags.clone(),
        layers: task.layers.clone(),
        hosts: HostRules { once: task.hosts.once, ..HostRules::default() },
        ..Task::default()
    }
}

/// The message of a refused step.
pub fn refusal_message(args: &Map<String, Value>) -> &str {
    args.get("msg").and_then(Value::as_str).unwrap_or_default()
}
