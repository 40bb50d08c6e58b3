//! What one examination over SSH found: the evidence a verdict rests on.

use super::{BootId, CheckResult, Instance, NodeDigest, Wall};
use serde::{Deserialize, Serialize};

/// The agent's own persistent record, `agent.json` in its state directory; read by the executor also when the agent is dead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub boot: BootId,
    pub instance: Instance,
    pub started: Wall,
    /// Episodes without any live peer, ever.
    pub isolation: u32,
    pub last_isolation: Option<Isolation>,
    /// How the previous instance ended, in words (`signal 9`, `stopped`, `boot`), where systemd or the record tells.
    pub previous_end: Option<String>,
    /// The previous instance said goodbye before it ended.
    pub left: bool,
    /// Starts of the agent within one boot that followed no goodbye, ever.
    pub crashes: u32,
    /// When a record was found damaged and this one was begun in its place.
    #[serde(default)]
    pub damaged: Option<Wall>,
}

/// One episode in which the agent had no live peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    pub from: Wall,
    /// None while it lasts.
    pub to: Option<Wall>,
    pub peers_lost: u32,
}

/// Examinations at the same time: each is an SSH login. Whoever makes them has room for so many at once, so that an
/// examination's time begins when it does.
pub const EXAMINATIONS_MAX: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exam {
    pub boot: BootId,
    pub machine_id: String,
    pub uptime_ms: u64,
    /// systemd's own word: `running`, `degraded`, `starting`; None where it can't be asked.
    pub system_state: Option<String>,
    pub agent: Option<AgentRecord>,
    pub agent_running: bool,
    pub digest: NodeDigest,
    pub checks: Vec<CheckResult>,
    pub took_ms: u64,
    /// An attempt's run still goes on there, whose attempt may be closed already: what is found now is half done.
    #[serde(default)]
    pub busy: Option<String>,
    /// Files of the node's data directory that are damaged: `NAME.damaged` where they were put aside.
    #[serde(default)]
    pub damaged: Vec<String>,
}
