//! A request for a re-setup. It exists from the order or the verdict until the job begins.

use super::{AttemptId, JobSpec, JobVars, Reason, ServiceName, Trigger, Wall};
use crate::flat_form;

/// A requested re-setup, decommissioning or undo that has not begun. It is part of the state, so a
/// crash does not lose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetupRequest {
    /// The job that begins when all preconditions are met. An undo is dropped when the node goes
    /// away.
    pub spec: JobSpec,
    pub since: Wall,
    /// The time of the examination on which the request is based. None for an operator's order,
    /// which needs no examination.
    pub examined: Option<Wall>,
    /// Whether the re-setup takes the node into service, even if the node was decommissioned. No
    /// other request does so.
    pub commission: bool,
}

flat_form! {
    ResetupRequest {
        #[serde(rename = "occasion")]
        trigger: Trigger,
        reasons: Vec<Reason>,
        services: Vec<ServiceName>,
        since: Wall,
        examined: Option<Wall>,
        by: Option<String>,
        now: bool,
        decommission: bool,
        #[serde(default)]
        force: bool,
        #[serde(default)]
        undo: Option<AttemptId>,
        #[serde(default)]
        commission: bool,
        #[serde(default)]
        vars: JobVars,
        #[serde(default)]
        rollout: bool,
    } = Self {
        spec: JobSpec { trigger, reasons, services, by, now, decommission, force, undo, vars, rollout },
        since,
        examined,
        commission,
    }
}
