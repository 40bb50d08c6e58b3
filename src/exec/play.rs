//! A plan that a person runs (`remoor play`): the node is taken for the time of the run, nobody is ended for it, and what the
//! run leaves is its audit line and the handlers that it owes.

use super::cancel::Cancel;
use super::executor::{Outcome, chain, guarded, outcome_of, refused};
use super::lock::{LockError, RunLock};
use super::outbox::Outbox;
use super::wire::{PlayOrder, Reply};
use super::work::Work;
use super::{FenceStore, runs};
use crate::model::Sha256;
use std::path::{Path, PathBuf};

/// Where a node's daemon answers. Who is not root sees no more of a fleet than this.
const AGENT: &str = "/run/remoor/remoor.sock";

/// Runs the plan of `order`. The reply is the final one; its events went to `outbox` before.
pub(super) fn play(
    order: &PlayOrder,
    state_dir: &Path,
    work: &dyn Work,
    cancel: &Cancel,
    outbox: &Outbox,
) -> (Reply, Outcome) {
    if let Some(stop) = cancel.stopped() {
        return (refused(None, stop.as_str()), Outcome::Cancelled);
    }
    if !order.force
        && !order.check
        && let Some(why) = of_a_fleet(state_dir)
    {
        return (refused(None, &why), Outcome::Fenced);
    }
    let lock = match RunLock::take_for_play(state_dir, &order.run_id) {
        Ok(lock) => lock,
        Err(e @ (LockError::Held(_) | LockError::Unnamed)) => {
            let why = format!("{e}; nothing was run, try again when that is over");
            return (refused(None, &why), Outcome::Fenced);
        }
        Err(e) => return (Reply::Error { message: chain(&e) }, Outcome::PlanRefused),
    };
    let audit = |what: &str| runs::audit_play(state_dir, &order.run_id, order.check, &order.tags, what);
    if let Err(e) = audit("started") {
        let message = format!("no audit line could be written: {e}");
        return (Reply::Error { message }, Outcome::PlanRefused);
    }
    cancel.watch(Some(Box::new(lock.recorder())));
    let end = guarded("running", || {
        work.play(order, &journal(state_dir, order), cancel, &mut |event| outbox.send(&Reply::Event { event }))
    });
    cancel.watch(None);
    let (reply, outcome) = match end {
        Err(message) => (Reply::Error { message }, Outcome::Failed),
        Ok(end) => {
            let outcome = outcome_of(&end, cancel.stopped());
            (Reply::RunEnd(end), outcome)
        }
    };
    // The run has happened; that its end could not be noted does not undo it.
    let _disk_full = audit(outcome.word());
    (reply, outcome)
}

/// Where handlers that this playbook owes are kept. A check owes nothing and forgets nothing.
fn journal(state_dir: &Path, order: &PlayOrder) -> PathBuf {
    if order.check {
        return PathBuf::new();
    }
    let name = Sha256::of(order.name.as_bytes()).to_string();
    state_dir.join(format!("journal-play-{}.json", &name[..16]))
}

/// Why a person may not simply run something here: the managers set this node up.
fn of_a_fleet(state_dir: &Path) -> Option<String> {
    let text = "managers of remoor set this node up, and would find what is changed here; --force runs it all the same";
    match FenceStore::new(state_dir).current() {
        Ok(None) if state_dir.join(crate::disk::IDENTITY).exists() => Some(text.to_owned()),
        Ok(None) if !rustix::process::geteuid().is_root() && Path::new(AGENT).exists() => {
            Some(format!("{text}; as root (--become) it is at least kept apart from theirs"))
        }
        Ok(None) => None,
        Ok(Some(_)) | Err(_) => Some(text.to_owned()),
    }
}
