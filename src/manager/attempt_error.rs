//! Errors of an attempt's phase. Each function assigns the failure class.

use remoor_exec::ssh::SshError;
use remoor_exec::wire::Reply;
use remoor_model::{Failure, FailureClass, Phase};
use std::time::Duration;

/// The failure of a task or order of the phase. A retry may help.
pub(super) fn step(phase: Phase, rc: Option<i32>, message: String, tail: Vec<String>) -> Box<Failure> {
    Box::new(Failure { class: FailureClass::Step, phase, rc, message, tail })
}

/// The failure of a phase that can't be carried out at all, so no retry helps.
pub(super) fn plan(phase: Phase, message: &str) -> Box<Failure> {
    Box::new(Failure { class: FailureClass::Plan, phase, rc: None, message: message.to_owned(), tail: Vec::new() })
}

/// The message of an attempt that ends before it changes anything, because `phase` is not possible.
pub(super) fn nothing_run(phase: Phase, why: &str) -> String {
    format!("nothing was run, because its {phase} is not possible: {why}")
}

/// Text to add to a failure if the executor ended the run at its time limit; otherwise an empty
/// text.
pub(super) fn too_long(end: &serde_json::Value, limit: Duration) -> String {
    match end.get("stopped").and_then(|s| s.as_str()) {
        Some("out of time") => format!(" after {} s, the maximum for a phase", limit.as_secs()),
        _ => String::new(),
    }
}

/// The failure of a phase whose SSH session has ended.
pub(super) fn session_lost(phase: Phase) -> Box<Failure> {
    ssh(phase, SshError::Lost("the session has ended".to_owned()))
}

/// The failure for a reply of the executor that does not match the order.
pub(super) fn unexpected_reply(phase: Phase, reply: &Reply) -> Box<Failure> {
    step(phase, None, format!("unexpected reply to the order: {reply:?}"), Vec::new())
}

/// The failure of a session that gave no answer. A timeout of an order after the fence counts as a
/// failed attempt. The next attempt would time out too, and attempts that only fail to reach the
/// node are repeated without counting as failed.
pub(super) fn ssh(phase: Phase, error: SshError) -> Box<Failure> {
    let class = match &error {
        SshError::Timeout(_) if phase != Phase::Fence => FailureClass::Step,
        SshError::HostKeyChanged { .. } => FailureClass::HostKey,
        SshError::Unsupported(_) | SshError::Protocol(_) | SshError::Upload(_) => FailureClass::Step,
        _ => FailureClass::Unreachable,
    };
    Box::new(Failure { class, phase, rc: None, message: error.to_string(), tail: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_after_the_fence_counts_as_a_failed_step() {
        let late = || SshError::Timeout("no answer to an order");
        let class = |phase, error| ssh(phase, error).class;
        assert_eq!(class(Phase::Fence, late()), FailureClass::Unreachable, "nothing was changed yet");
        for phase in [Phase::Cleanup, Phase::Cleaned, Phase::Provision, Phase::Verify, Phase::Undo] {
            assert_eq!(class(phase, late()), FailureClass::Step, "{phase}");
            let lost = SshError::Lost("the session is over".to_owned());
            assert_eq!(class(phase, lost), FailureClass::Unreachable, "{phase}: the network may be the cause");
        }
    }
}
