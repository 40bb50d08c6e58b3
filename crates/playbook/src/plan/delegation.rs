//! Tasks that concern other hosts than that of the plan: delegated tasks, and tasks that one host
//! runs for all hosts.

use super::Task;
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
}

impl Task {
    /// Whether another host runs the module of this task. A module that touches no host, such as
    /// `set_fact`, runs on the plan's own host even if the task is delegated.
    pub fn runs_elsewhere(&self) -> bool {
        self.hosts.delegation.is_some() && !ANYBODY.contains(&self.module.as_str())
    }
}
