//! The result of one examination over SSH: the evidence for a verdict.

use super::{BootId, CheckResult, Instance, NodeDigest, Wall};
use serde::{Deserialize, Serialize};

/// The agent's persistent record in the file `agent.json` of its state directory. The executor can
/// read the file even if the agent does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub boot: BootId,
    pub instance: Instance,
    pub started: Wall,
    /// Number of episodes without any live peer since this record of the agent began.
    pub isolation: u32,
    pub last_isolation: Option<Isolation>,
    /// The way in which the previous instance of the agent ended (`signal 9`, `stopped`, `boot`).
    /// None if neither systemd nor the record shows it.
    pub previous_end: Option<String>,
    /// Whether the previous instance of the agent announced before its end that it leaves.
    pub left: bool,
    /// Number of crashes of the agent since this record began. A start without a reboot counts as a
    /// crash if the previous instance did not announce that it leaves.
    pub crashes: u32,
    /// The time at which a damaged `agent.json` was found and replaced by this record.
    #[serde(default)]
    pub damaged: Option<Wall>,
    /// Number of starts of the agent since this record began, the present start included. 0 in a
    /// record of an older agent.
    #[serde(default)]
    pub starts: u32,
}

/// One episode in which the agent had no live peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    pub from: Wall,
    /// The end of the episode. None while the episode lasts.
    pub to: Option<Wall>,
    pub peers_lost: u32,
}

/// Maximum number of concurrent examinations. Each one is an SSH login. The part of the manager
/// that executes examinations has capacity for this number, so no examination waits there while its
/// timeout runs.
pub const EXAMINATIONS_MAX: usize = 16;

/// The result of one examination of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exam {
    pub boot: BootId,
    pub machine_id: String,
    pub uptime_ms: u64,
    /// The state that systemd reports: `running`, `degraded`, `starting`. None if systemd does not
    /// answer.
    pub system_state: Option<String>,
    pub agent: Option<AgentRecord>,
    pub agent_running: bool,
    pub digest: NodeDigest,
    pub checks: Vec<CheckResult>,
    pub took_ms: u64,
    /// The attempt whose processes still run on the node. The managers may have closed the attempt
    /// already. If it is set, the results of this examination describe an unfinished state.
    #[serde(default)]
    pub busy: Option<String>,
    /// Damaged files of the node's data directory. A damaged file that was moved away has the name
    /// `NAME.damaged`.
    #[serde(default)]
    pub damaged: Vec<String>,
}
