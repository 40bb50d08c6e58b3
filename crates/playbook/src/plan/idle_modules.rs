//! Modules that change nothing on a node, and the plans that consist of them.

use super::{Plan, PlanStep, REFUSED};

/// Modules that only read, wait or report, or that change only variables of the run.
const IDLE: [&str; 25] = [
    "add_host",
    "assert",
    "async_status",
    "debug",
    "fail",
    "fetch",
    "find",
    "gather_facts",
    "getent",
    "group_by",
    "include_vars",
    "meta",
    "package_facts",
    "pause",
    "ping",
    REFUSED,
    "service_facts",
    "set_fact",
    "set_stats",
    "setup",
    "slurp",
    "stat",
    "validate_argument_spec",
    "wait_for",
    "wait_for_connection",
];

/// Whether a module changes nothing on the node.
pub fn is_idle(module: &str) -> bool {
    IDLE.contains(&module)
}

impl Plan {
    /// Whether the plan has a task that could change the node. Handlers are not considered, because
    /// they run only after such a task.
    pub fn does_something(&self) -> bool {
        fn any_effective(steps: &[PlanStep]) -> bool {
            steps.iter().any(|step| match step {
                PlanStep::Task(task) => !is_idle(&task.module),
                PlanStep::Block(b) => any_effective(&b.block) || any_effective(&b.always),
                PlanStep::Include(i) => i.choices.values().any(|steps| any_effective(steps)),
            })
        }
        self.plays.iter().flat_map(|play| &play.sections).any(|section| any_effective(section))
    }

    /// Whether a task that could change the node has one of these tags.
    pub fn has_tag(&self, tags: &[String]) -> bool {
        fn any_tagged(steps: &[PlanStep], tags: &[String]) -> bool {
            steps.iter().any(|step| match step {
                PlanStep::Task(task) => !is_idle(&task.module) && task.tags.iter().any(|tag| tags.contains(tag)),
                PlanStep::Block(b) => any_tagged(&b.block, tags) || any_tagged(&b.always, tags),
                // The tags of an included task also decide whether it runs, so the tags of the
                // include are not enough.
                PlanStep::Include(_) => false,
            })
        }
        self.plays.iter().flat_map(|play| &play.sections).any(|section| any_tagged(section, tags))
    }
}
