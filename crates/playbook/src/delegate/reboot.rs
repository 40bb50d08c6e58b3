//! The request of a run whose host is about to be restarted. The controller starts the run again
//! after the reboot, see `run::checkpoint`.

use super::include_chain::TaskPath;
use super::{ControllerLink, DelegationError, Request};
use crate::modules::REBOOT;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};

/// What the controller needs to continue a run after a reboot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RebootRequest {
    /// The number of the task that restarts the host.
    pub task: u32,
    /// Only for the run that continues on the same host.
    pub checkpoint: String,
    /// Seconds before the first attempt to reach the host.
    pub post_reboot_delay: u64,
    /// Seconds after which the task fails if the host is not ready.
    pub reboot_timeout: u64,
    /// Maximum seconds of a login. None: that of the other logins.
    pub connect_timeout: Option<u64>,
}

/// Sends the checkpoint to the controller. The error says why the host must not be restarted.
pub(crate) fn request_reboot(link: &ControllerLink, request: RebootRequest) -> Result<(), String> {
    ask(link, Some(request))
}

/// Tells the controller that the session does not end for a reboot any more.
pub(crate) fn withdraw_reboot(link: &ControllerLink) -> Result<(), String> {
    ask(link, None)
}

fn ask(link: &ControllerLink, request: Option<RebootRequest>) -> Result<(), String> {
    let answer = link.ask(&Request::Reboot(request))?;
    serde_json::from_slice::<Option<String>>(&answer).map_err(|e| e.to_string())?.map_or(Ok(()), Err)
}

/// Refuses a request for a task that restarts no host.
pub(super) fn check_reboot(
    plan: &Plan,
    request: Option<RebootRequest>,
) -> Result<Option<RebootRequest>, DelegationError> {
    let restarts =
        |request: &RebootRequest| TaskPath::find(plan, request.task).is_some_and(|path| path.task.module == REBOOT);
    match request {
        Some(request) if !restarts(&request) => {
            Err(DelegationError::Forbidden("the task does not restart the host".to_owned()))
        }
        request => Ok(request),
    }
}
