//! Tasks that concern other hosts than that of the plan: delegated tasks, and tasks that one host
//! runs for all hosts.

use super::{Plan, Play, Task};
use crate::plan::elevation::ANYBODY;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a task concerns the other hosts of the play.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostRules {
    /// The host that runs the task instead of the plan's own host.
    pub delegation: Option<Delegation>,
    /// Whether one host runs the task for all hosts of the batch (`run_once`). The run asks the
    /// controller which host it is.
    pub once: bool,
    /// Maximum number of hosts that run the task at the same time (`throttle`); 0: no limit.
    pub throttle: u32,
}

/// The host that runs a task instead of the plan's own host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    /// The name of the host, which may contain markup.
    pub to: String,
    /// Whether facts that the task sets are those of that host (`delegate_facts`).
    pub facts: bool,
}

/// The state with which the host of a delegated task runs it. The values are those of the run that
/// delegated the task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelegatedRun {
    /// A `RunState` in the form of messages.
    pub state: Value,
    /// The variables of the loop, if the task has one.
    pub item: Option<Map<String, Value>>,
}

/// How a run continues after its host was restarted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumedRun {
    /// The checkpoint as the host has sent it (`RebootRequest`).
    pub checkpoint: String,
    /// Seconds since the reboot began.
    pub elapsed: u64,
    /// Whether the time for the reboot is over, so that the task fails if the host is not ready.
    pub expired: bool,
    /// Set if the run continues with another plan than before, because the inventory has changed.
    pub replaced: Option<ReplacedPlan>,
}

/// The place of a run between two plans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedPlan {
    /// The index of the first play that the run has not begun.
    pub from_play: u32,
    /// The number of the first layer that comes from the plan before.
    pub layers_from: u32,
}

/// The modules that change the inventory for later plays.
pub(crate) const INVENTORY_MODULES: [&str; 2] = ["add_host", "group_by"];

/// The index of the play without tasks at which a run waits for a changed inventory.
const WAITING: u32 = u32::MAX;

impl Plan {
    /// The index of the first play from `from` on that has a task which changes the inventory.
    pub fn inventory_change_from(&self, from: u32) -> Option<u32> {
        let changes = |play: &&Play| {
            let mut any = false;
            play.each_task(&mut |task| any |= INVENTORY_MODULES.contains(&task.module.as_str()));
            any && play.index >= from
        };
        self.plays.iter().find(changes).map(|play| play.index)
    }

    /// Lets the run wait after its last play, until the controller knows whether a changed
    /// inventory has further plays for the host.
    pub fn wait_for_inventory(&mut self) {
        self.plays.push(Play { index: WAITING, ..Play::default() });
    }

    /// Whether the run waits for a changed inventory.
    pub fn waits_for_inventory(&self) -> bool {
        self.plays.last().is_some_and(|play| play.index == WAITING)
    }

    /// The index of the last play that has tasks.
    pub fn last_play(&self) -> u32 {
        self.plays.iter().rev().map(|play| play.index).find(|index| *index != WAITING).unwrap_or_default()
    }

    /// The plan with which a run of the plan `before` continues at the play `from_play`. The state
    /// of the run may refer to layers of that plan.
    pub fn continue_from(mut self, from_play: u32, before: &Plan, checkpoint: String) -> Self {
        let layers_from = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        self.layers.extend(before.layers.iter().cloned());
        self.secrets.add_all(&before.secrets);
        let replaced = Some(ReplacedPlan { from_play, layers_from });
        self.resumed = Some(ResumedRun { checkpoint, elapsed: 0, expired: false, replaced });
        self
    }

    /// The index of the first play that a run of this plan may begin.
    pub fn first_play(&self) -> u32 {
        self.resumed.as_ref().and_then(|resumed| resumed.replaced).map_or(0, |replaced| replaced.from_play)
    }
}

impl Task {
    /// Whether another host runs the module of this task. A module that touches no host, such as
    /// `set_fact`, runs on the plan's own host even if the task is delegated.
    pub fn runs_elsewhere(&self) -> bool {
        self.hosts.delegation.is_some() && !ANYBODY.contains(&self.module.as_str())
    }
}
