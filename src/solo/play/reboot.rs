//! Continues the run of a host that a task has restarted. The run on the host decides whether the
//! host is ready; this file opens sessions until it is.

use super::connection::HostConnection;
use super::host::{HostRun, open};
use super::prepare::Host;
use super::run::PlayStop;
use remoor_exec::ssh::SshError;
use remoor_exec::wire::Reply;
use remoor_playbook::{Plan, RebootRequest, ResumedRun};
use serde_json::json;
use std::time::{Duration, Instant};

/// The pause before the first attempt to reach the host. It is doubled after each attempt.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum pause between two attempts, as in Ansible.
const PAUSE_MAX: Duration = Duration::from_secs(12);
/// Maximum duration of a reboot. The host may be compromised and request any duration.
const REBOOT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// A reboot that a host has announced.
pub(super) struct PendingReboot {
    request: RebootRequest,
    begun: Instant,
}

impl PendingReboot {
    /// `before`: the reboot that the host has announced and not withdrawn. Announcing it again does
    /// not extend it.
    pub fn new(request: RebootRequest, before: Option<&Self>) -> Self {
        Self { request, begun: before.map_or_else(Instant::now, |before| before.begun) }
    }

    /// The time until the task fails.
    fn time_left(&self) -> Duration {
        let limit = Duration::from_secs(self.request.reboot_timeout).min(REBOOT_MAX);
        limit.saturating_sub(self.begun.elapsed())
    }
}

impl HostRun<'_, '_> {
    /// Continues the run after each reboot. `reply` is the end of the session before. Returns the
    /// end of the last session.
    pub async fn after_reboots(&mut self, host: &Host, mut reply: Result<Reply, SshError>) -> Result<Reply, SshError> {
        let mut pause = None;
        while let Some(reboot) = self.delegated.reboot().filter(|_| !has_ended(&reply)) {
            let (begun, left) = (reboot.begun, reboot.time_left());
            let first = Duration::from_secs(reboot.request.post_reboot_delay).max(PAUSE_MIN);
            let next = match pause {
                Some((of, last)) if of == begun => PAUSE_MAX.min(last * 2),
                _ => first,
            };
            pause = Some((begun, next.min(PAUSE_MAX)));
            tokio::select! {
                () = tokio::time::sleep(next.min(left)) => {}
                _ = self.ending.wait_for(|ending| *ending != PlayStop::Not) => {
                    return Err(SshError::Lost("stopped while the host was being restarted".to_owned()));
                }
            }
            let task = reboot.request.task;
            reply = self.try_to_continue(host).await.unwrap_or(reply);
            let waits = self.delegated.reboot().is_some_and(|reboot| reboot.begun == begun);
            if left.is_zero() && waits && !has_ended(&reply) {
                let how = match &reply {
                    Err(e) => e.to_string(),
                    Ok(Reply::Refused { why, .. } | Reply::Error { message: why }) => why.clone(),
                    Ok(_) => "the run ended".to_owned(),
                };
                return Ok(self.fail(host, task, &format!("the host did not continue after its reboot: {how}")).await);
            }
        }
        reply
    }

    /// Opens a session and continues the run. None: the host cannot be reached yet.
    async fn try_to_continue(&mut self, host: &Host) -> Option<Result<Reply, SshError>> {
        let reboot = self.delegated.reboot()?;
        let (left, request) = (reboot.time_left(), &reboot.request);
        let resumed = ResumedRun {
            checkpoint: request.checkpoint.clone(),
            elapsed: reboot.begun.elapsed().as_secs(),
            expired: left.is_zero(),
            replaced: None,
        };
        let mut road = host.road.clone();
        if let (HostConnection::Ssh(target), Some(limit)) = (&mut road, request.connect_timeout.filter(|s| *s > 0)) {
            target.connect_timeout = Duration::from_secs(limit).min(left.max(PAUSE_MAX));
        }
        let task = request.task;
        let plan = Plan { resumed: Some(resumed), ..(*host.plan).clone() };
        let plan = match rmp_serde::to_vec_named(&plan) {
            Ok(plan) => plan,
            Err(e) => return Some(Ok(self.fail(host, task, &format!("the plan can't be sent: {e}")).await)),
        };
        let shared = self.context().clone();
        let opened = tokio::select! {
            opened = open(&road, host.sudo, &shared) => opened,
            _ = self.ending.wait_for(|ending| *ending != PlayStop::Not) => return None,
        };
        match opened {
            Ok(session) => Some(self.in_session(session, plan).await),
            Err(e) if left.is_zero() => {
                Some(Ok(self.fail(host, task, &format!("the host did not answer after its reboot: {e}")).await))
            }
            Err(_) => None,
        }
    }

    /// Reports the failure of the task with this number. Returns the end of the run, which fails
    /// there.
    async fn fail(&mut self, host: &Host, id: u32, message: &str) -> Reply {
        let mut found = None;
        host.plan.each_task(&mut |task| found = found.or((task.id == id).then_some(task)));
        let (name, place) = found.map(|task| (task.name.clone(), task.place.clone())).unwrap_or_default();
        let event = json!({
            "event": "task", "i": id, "name": name, "module": "reboot", "item": null, "status": "failed",
            "msg": message, "rc": null, "took_ms": 0,
        });
        self.report_event(&event).await;
        let failure = json!({"task": name, "file": place.file, "line": place.line, "message": message, "rc": null});
        Reply::RunEnd(json!({"failure": failure, "failed": true}))
    }
}

/// Whether the run has ended, so that it cannot be continued. A run that waits for its host to shut
/// down says so in `rebooting`.
fn has_ended(reply: &Result<Reply, SshError>) -> bool {
    let Ok(Reply::RunEnd(end)) = reply else { return false };
    let is_set = |name: &str| end.get(name).is_some_and(|value| !value.is_null());
    is_set("failure") || !is_set("rebooting")
}
