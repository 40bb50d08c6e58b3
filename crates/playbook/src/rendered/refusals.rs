//! Finds the refused steps that every run reaches, so that they are errors before a run begins.

use super::{Walk, may_fail};
use crate::compile::refusal_message;
use crate::plan::{DynamicInclude, Plan, PlanStep, Play, REFUSED, SourcePlace, Task, TaskCondition, choice};
use crate::vars::scope::ExprScope;
use crate::vars::var_map::{Var, VarMap, has_markup};
use crate::vars::{unknown, variable_scope};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Names of systems other than Linux, in lower case.
const OTHER_SYSTEMS: [&str; 11] =
    ["aix", "darwin", "dragonfly", "freebsd", "hp-ux", "macos", "netbsd", "openbsd", "solaris", "win32nt", "windows"];
/// Values of `ansible_os_family` on Linux.
const FAMILIES: [&str; 14] = [
    "Alpine",
    "Altlinux",
    "Archlinux",
    "ClearLinux",
    "Debian",
    "Flatcar",
    "Gentoo",
    "Mandrake",
    "NA",
    "OpenWrt",
    "RedHat",
    "Slackware",
    "Suse",
    // Any other distribution.
    "Linux",
];

/// A step that fails in every run, because its task could not be compiled.
#[derive(Debug, Clone)]
pub struct CertainRefusal {
    pub id: u32,
    /// The target that an include selects, if only this target cannot run.
    pub choice: Option<String>,
    pub place: SourcePlace,
    pub message: String,
}

/// What is known about the refused steps of a plan before a run.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Those that every run reaches.
    pub certain: Vec<CertainRefusal>,
    /// The ids of those that a run may reach, with the target if only this target is refused.
    pub possible: BTreeSet<(u32, Option<String>)>,
}

/// Finds the refused steps that every run reaches. Handlers are included if a task that every run
/// performs may notify them. `facts` are the facts that count as known.
pub(crate) fn find_refusals(plan: &Plan, facts: &Map<String, Value>, check: bool) -> Refusals {
    let mut any = false;
    plan.each_task(&mut |task| any |= task.module == REFUSED);
    if !any && !has_refused_choice(plan) {
        return Refusals::default();
    }
    let mut out = Walk::new(plan, facts);
    if check {
        out.frame.check();
    }
    out.plan();
    // The run does not reach the tasks of plays that it has completed with another plan.
    let mut passed = BTreeSet::new();
    for play in plan.plays.iter().filter(|play| play.index < plan.first_play()) {
        play.each_task(&mut |task| {
            passed.insert(task.id);
        });
    }
    out.refusals.certain.retain(|refusal| !passed.contains(&refusal.id));
    out.refusals
}

impl<'p> Walk<'p> {
    /// Whether every run performs a task whose conditions evaluate to `holds`, and ends if the task
    /// fails.
    pub(super) fn is_certain<E>(&self, task: &Task, holds: &Result<bool, E>) -> bool {
        holds.is_ok() && !self.may_be_skipped && !self.may_be_skipped_or_fail && !may_fail(task)
    }

    pub(super) fn refuse(&mut self, task: &Task, choice: Option<String>, message: String) {
        self.refusals.certain.push(CertainRefusal { id: task.id, choice, place: task.place.clone(), message });
    }

    /// The target that `name` selects, which an include may write as `./name` too. Notes a refused
    /// target that a run may reach.
    pub(super) fn known_choice(&mut self, include: &DynamicInclude, name: String, scope: &ExprScope) -> String {
        let known = |name: &str| include.refused.contains_key(name) || include.choices.contains_key(name);
        let short = name.strip_prefix("./").unwrap_or(&name).to_owned();
        let name = if known(&name) { name } else { short };
        if include.refused.contains_key(&name) {
            self.note_possible(&include.task, Some(name.clone()), scope);
        }
        name
    }

    /// Notes a refused step that a run may reach.
    pub(super) fn note_possible(&mut self, task: &Task, choice: Option<String>, scope: &ExprScope) {
        if !self.never_reached && !is_never_true(scope, &task.when) {
            self.refusals.possible.insert((task.id, choice));
        }
    }

    /// Whether a task that a run may perform may notify the handler, or another handler may.
    pub(super) fn may_be_notified(&self, play: &Play, at: usize) -> bool {
        let own = &play.handlers[at];
        let of_handlers = play.handlers.iter().flat_map(|handler| &handler.task.notify);
        own.names.iter().chain(&own.listen).any(|name| has_markup(name))
            || self.may_notify.iter().chain(of_handlers).any(|name| has_markup(name) || play.answers(at, name))
    }

    /// Notes a handler that cannot run although a task that every run performs may notify it.
    pub(super) fn refused_handler(&mut self, play: &'p Play, at: usize) {
        let task = &play.handlers[at].task;
        if task.module != REFUSED || may_fail(task) || !self.notified.iter().any(|name| play.answers(at, name)) {
            return;
        }
        if matches!(variable_scope::all_hold(&self.frame.scope(play, task), &task.when), Ok(true)) {
            self.refuse(task, None, refusal_message(&task.args).to_owned());
        }
    }
}

/// Whether one of the conditions is false on each host that remoor can run on. If a condition names
/// another system than Linux, and the inventory does not set the system, the system counts as
/// Linux. All other facts are unknown.
pub(super) fn is_never_true(scope: &ExprScope, conditions: &[TaskCondition]) -> bool {
    let names_other = |condition: &TaskCondition| {
        let text = condition.text.to_ascii_lowercase();
        OTHER_SYSTEMS.iter().any(|name| text.contains(name))
    };
    let is_set = is_system_set(scope);
    conditions.iter().any(|condition| {
        if is_set || !names_other(condition) {
            return matches!(unknown::holds(scope, &condition.text), Ok(Some(false)));
        }
        FAMILIES
            .iter()
            .all(|family| matches!(unknown::holds(&scope_on_linux(scope, family), &condition.text), Ok(Some(false))))
    })
}

/// Whether the inventory or the playbook sets the system of the host.
fn is_system_set(scope: &ExprScope) -> bool {
    ["ansible_os_family", "ansible_system"].iter().any(|name| scope.get(name).is_some())
}

/// The variables on a host with Linux of this family. All other facts stay unknown.
fn scope_on_linux(scope: &ExprScope, family: &str) -> ExprScope {
    let facts = [("system", "Linux"), ("os_family", family)];
    let all = facts.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    let mut known = VarMap::default();
    for (name, value) in facts {
        known.set(&format!("ansible_{name}"), Var::Plain(Value::from(value)));
    }
    known.set("ansible_facts", Var::new(&unknown::open(all), false));
    scope.with_layer(known)
}

/// The targets that an include can select on a host with Linux. None: other facts than the system
/// select the target, or none of the targets is known.
pub(super) fn choices_on_linux(scope: &ExprScope, include: &DynamicInclude) -> Option<BTreeSet<String>> {
    if is_system_set(scope) {
        return None;
    }
    let known = |name: &str| include.refused.contains_key(name) || include.choices.contains_key(name);
    let mut out = BTreeSet::new();
    for family in FAMILIES {
        let args = variable_scope::args(&scope_on_linux(scope, family), &include.task).ok()?;
        let name = choice(&include.task, &args);
        out.insert(if known(&name) { name } else { name.strip_prefix("./").unwrap_or(&name).to_owned() });
    }
    out.iter().any(|name| known(name)).then_some(out)
}

/// Whether an include of the plan has a possible target that the plan cannot hold.
fn has_refused_choice(plan: &Plan) -> bool {
    fn any_refused(steps: &[PlanStep]) -> bool {
        steps.iter().any(|step| match step {
            PlanStep::Task(_) => false,
            PlanStep::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().any(|part| any_refused(part)),
            PlanStep::Include(i) => !i.refused.is_empty() || i.choices.values().any(|part| any_refused(part)),
        })
    }
    plan.plays.iter().flat_map(|play| &play.sections).any(|section| any_refused(section))
}
