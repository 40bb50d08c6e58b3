//! Runs a plan for a person (`remoor play`). The run holds the node and kills nothing. It leaves
//! its audit line and its pending handlers on the node.

use super::cancel::SessionCancel;
use super::executor::{SessionOutcome, catch_panic, outcome_of, refusal_reply};
use super::lock::{LockError, RunLock};
use super::reply_queue::ReplyQueue;
use super::wire::{PlayOrder, Reply};
use super::work::{AskController, ExecutorWork};
use super::{FenceStore, runs};
use remoor_model::{Sha256, error_with_causes};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The socket of a node's daemon. For a user other than root, only this socket shows that the node
/// belongs to a cluster.
const AGENT: &str = "/run/remoor/remoor.sock";

/// Runs the plan of `order`. Returns the final reply. All events of the run were sent to `outbox`
/// before that.
pub(super) fn play(
    order: &PlayOrder,
    state_dir: &Path,
    work: &dyn ExecutorWork,
    cancel: &SessionCancel,
    outbox: &ReplyQueue,
) -> (Reply, SessionOutcome) {
    if let Some(stop) = cancel.stop_reason() {
        return (refusal_reply(None, stop.as_str()), SessionOutcome::Cancelled);
    }
    if !order.force
        && !order.check
        && let Some(why) = why_managed(state_dir)
    {
        return (refusal_reply(None, &why), SessionOutcome::Fenced);
    }
    let lock = match RunLock::take_for_play(state_dir, &order.run_id) {
        Ok(lock) => lock,
        Err(e @ (LockError::Held(_) | LockError::Unnamed)) => {
            let why = format!("{e}; nothing was run, try again after it has ended");
            return (refusal_reply(None, &why), SessionOutcome::Fenced);
        }
        Err(e) => return (Reply::Error { message: error_with_causes(&e) }, SessionOutcome::PlanRefused),
    };
    let audit = |what: &str| runs::audit_play(state_dir, &order.run_id, order.check, &order.tags, what);
    if let Err(e) = audit("started") {
        let message = format!("the audit line could not be written: {e}");
        return (Reply::Error { message }, SessionOutcome::PlanRefused);
    }
    cancel.watch(Some(Box::new(lock.recorder())));
    let end = catch_panic("running", || {
        let ask = ask_controller(cancel, outbox);
        work.play(order, &journal(state_dir, order), cancel, ask, &mut |event| outbox.send(&Reply::Event { event }))
    });
    cancel.watch(None);
    let (reply, outcome) = match end {
        Err(message) => (Reply::Error { message }, SessionOutcome::Failed),
        Ok(end) => {
            let outcome = outcome_of(&end, cancel.stop_reason());
            (Reply::RunEnd(end), outcome)
        }
    };
    // The run is already over, so a failure to write its end to the audit log changes nothing.
    let _disk_full = audit(outcome.audit_word());
    (reply, outcome)
}

/// Maximum size of a request in bytes. The limit of its frame is a little larger.
const REQUEST_MAX: usize = (4 << 20) - 1024;

/// Sends the requests of a run to the controller.
fn ask_controller(cancel: &SessionCancel, outbox: &ReplyQueue) -> AskController {
    let (asks, outbox) = (Arc::clone(cancel.asks()), outbox.clone());
    Arc::new(move |request: &[u8]| {
        if request.len() > REQUEST_MAX {
            let most = REQUEST_MAX >> 20;
            return Err(format!("the values that this task reads are too large for the controller ({most} MiB)"));
        }
        let answer = asks.ask(|id| outbox.send(&Reply::Ask { id, request: request.to_vec() }));
        answer.ok_or_else(|| "the run was stopped before the controller answered".to_owned())
    })
}

/// The file for pending handlers of this playbook. A run with `--check` gets an empty path, because
/// it neither adds nor removes pending handlers.
fn journal(state_dir: &Path, order: &PlayOrder) -> PathBuf {
    if order.check {
        return PathBuf::new();
    }
    let name = Sha256::digest(order.name.as_bytes()).to_string();
    state_dir.join(format!("journal-play-{}.json", &name[..16]))
}

/// The reason why this node refuses a person's plan unless `--force` is given: managers provision
/// the node. None if no manager does.
fn why_managed(state_dir: &Path) -> Option<String> {
    let text =
        "remoor managers provision this node and would report the changes as drift; --force runs the plan anyway";
    match FenceStore::new(state_dir).current() {
        Ok(None) if state_dir.join(remoor_host::disk::IDENTITY).exists() => Some(text.to_owned()),
        Ok(None) if !rustix::process::geteuid().is_root() && Path::new(AGENT).exists() => {
            Some(format!("{text}; with --become it at least does not overlap with their runs"))
        }
        Ok(None) => None,
        Ok(Some(_)) | Err(_) => Some(text.to_owned()),
    }
}
