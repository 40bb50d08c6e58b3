//! Examinations by another manager. A manager that cannot reach a node asks one that can. No log
//! entry is needed for this, because an examination changes nothing on the node. The manager that
//! asked determines the verdict.

use super::{ManagerContext, examine, reach};
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::wire::Code;
use remoor_engine::{ExamOutcome, Reachability};
use remoor_model::NodeId;
use std::sync::Arc;
use std::time::Duration;

/// Additional time to wait for the other manager's answer after the examination's own time limit.
/// The engine waits a little longer than this.
const SLACK: Duration = Duration::from_secs(8);
/// Maximum time in which the other manager must apply the entries that the asking manager had
/// applied.
const CATCH_UP: Duration = Duration::from_secs(3);
/// Maximum wait for a free examination slot.
const PLACE_MAX: Duration = Duration::from_secs(3);
/// Maximum number of requests to a manager that has no free slot or has not caught up, with a pause
/// of `ASK_AGAIN`. The total time limit applies too.
const ASKS_MAX: usize = 4;
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Maximum size in bytes of the answer to an examination request.
const ANSWER_MAX: usize = 16 << 20;

/// Asks `manager` to examine the node. That manager must have applied at least the entry `basis`.
pub async fn examine_by(shared: &Arc<ManagerContext>, manager: NodeId, node: NodeId, basis: u64) -> ExamOutcome {
    let inventory = shared.inventory();
    let name = inventory.node(manager).map_or_else(|| format!("node {manager}"), |n| n.name().to_string());
    let Some(addr) = reach::address(shared, manager) else {
        return ExamOutcome::Unreachable(format!("{name} was asked to examine it, but is not a manager"));
    };
    let within = Duration::from_millis(inventory.limits().exam_timeout_ms) + SLACK;
    let path = format!("/manager/v1/examine/{node}?basis={basis}");
    let send = |left| {
        let (peers, addr, path) = (shared.peers.clone(), addr.clone(), path.clone());
        async move { peers.get_bytes(&addr, &path, left).await }
    };
    match send_with_retries(within, ASK_AGAIN, send).await {
        Ok(bytes) => {
            unpack(&bytes).unwrap_or_else(|| ExamOutcome::Failed(format!("the answer of {name} can't be decoded")))
        }
        Err(error @ (ApiError::Unreachable { .. } | ApiError::Timeout { .. })) => {
            ExamOutcome::Unreachable(format!("{name} was asked to examine it: {error}"))
        }
        Err(error) => ExamOutcome::Failed(format!("{name} was asked to examine it: {error}")),
    }
}

/// Repeats the request to the other manager as long as its answer is `retry`, because such an
/// answer contains nothing about the node. Returns the last answer. `send` receives the remaining
/// time.
async fn send_with_retries<T, F>(within: Duration, pause: Duration, send: impl Fn(Duration) -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let until = tokio::time::Instant::now() + within;
    let mut asked = 1;
    loop {
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        let answer = send(left).await;
        let busy = answer.as_ref().is_err_and(|e| e.code() == Some(Code::Retry.as_str()));
        if !busy || asked == ASKS_MAX || tokio::time::Instant::now() + pause >= until {
            return answer;
        }
        asked += 1;
        tokio::time::sleep(pause).await;
    }
}

/// Examines a node for another manager. Err contains the reason for a failure, as text for that
/// manager.
pub async fn serve(shared: &Arc<ManagerContext>, node: NodeId, basis: u64) -> Result<Vec<u8>, String> {
    let place = tokio::time::timeout(PLACE_MAX, shared.observed.reaches.remote_examinations.acquire()).await;
    let _place = place.map_err(|_| "this manager already runs the maximum number of examinations")?;
    let mut state = shared.raft.state();
    let caught_up = tokio::time::timeout(CATCH_UP, state.wait_for(|i| i.applied >= basis)).await;
    if !caught_up.is_ok_and(|applied| applied.is_ok()) {
        return Err(format!("entry {basis} is not applied here yet"));
    }
    let bytes = rmp_serde::to_vec_named(&examine::examine(shared, node).await).map_err(|e| e.to_string())?;
    match bytes.len() {
        0..=ANSWER_MAX => Ok(bytes),
        long => Err(format!("the result has {long} bytes, and the maximum is {ANSWER_MAX}")),
    }
}

fn unpack(bytes: &[u8]) -> Option<ExamOutcome> {
    (bytes.len() <= ANSWER_MAX).then(|| rmp_serde::from_slice(bytes).ok()).flatten()
}

/// None of the managers that answered reaches the node. The text is the reason why this manager
/// does not reach it.
pub struct NoRoute(pub String);

/// Examines the node from this manager. If this manager cannot reach the node, asks another manager
/// that reaches the node to examine it.
pub async fn examine_via_any_manager(shared: &Arc<ManagerContext>, node: NodeId) -> Result<ExamOutcome, NoRoute> {
    if shared.observed.reaches.unreachable_reason(node).is_none() {
        let outcome = examine::examine(shared, node).await;
        if !matches!(outcome, ExamOutcome::Unreachable(_)) {
            return Ok(outcome);
        }
    }
    let lines = reach::ask_all(shared, node).await;
    let open = |by: &NodeId| lines.get(by) == Some(&Reachability::Reachable);
    let basis = shared.inventory().applied;
    match (lines.get(&shared.identity.node), lines.keys().find(|by| **by != shared.identity.node && open(by))) {
        (Some(Reachability::Unreachable { .. }), Some(other)) => Ok(examine_by(shared, *other, node, basis).await),
        (Some(Reachability::Unreachable { why, .. }), None) => Err(NoRoute(why.clone())),
        (Some(Reachability::Reachable) | None, _) => Ok(examine::examine(shared, node).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_engine::Evidence;
    use remoor_model::{Exam, FileEntry, FileKind, NodeDigest, ServiceDigest, Sha256};
    use std::cell::Cell;

    #[tokio::test]
    async fn a_busy_manager_is_asked_again_within_limits_of_number_and_time() {
        let busy = || ApiError::Status {
            code: Code::Retry.as_str().to_owned(),
            message: "busy".to_owned(),
            next: None,
            details: Box::default(),
            http: 503,
        };
        let asked = Cell::new(0);
        let free_at = |n: usize, slow: Duration| {
            let asked = &asked;
            asked.set(0);
            move |_| async move {
                tokio::time::sleep(slow).await;
                asked.set(asked.get() + 1);
                if asked.get() >= n { Ok(7) } else { Err(busy()) }
            }
        };
        let (minute, pause) = (Duration::from_secs(60), Duration::from_millis(1));
        assert_eq!(send_with_retries(minute, pause, free_at(3, Duration::ZERO)).await, Ok(7));
        assert_eq!(send_with_retries(minute, pause, free_at(99, Duration::ZERO)).await, Err(busy()));
        assert_eq!(asked.get(), ASKS_MAX);
        assert_eq!(
            send_with_retries(Duration::from_millis(50), pause, free_at(99, Duration::from_millis(60))).await,
            Err(busy())
        );
        assert_eq!(asked.get(), 1, "no longer than the time limit");
        let broken = || ApiError::Protocol { addr: String::new(), reason: String::new() };
        asked.set(0);
        let fails = |_| {
            asked.set(asked.get() + 1);
            async { Err::<(), _>(broken()) }
        };
        assert_eq!((send_with_retries(minute, pause, fails).await, asked.get()), (Err(broken()), 1));
    }

    #[test]
    fn an_outcome_is_decoded_as_it_was_sent() {
        let entries = vec![FileEntry {
            path: "/etc/x".to_owned(),
            kind: FileKind::File,
            mode: 0o644,
            owner: "root".to_owned(),
            group: "root".to_owned(),
            sha256: Some(Sha256([7; 32])),
            target: None,
            secret: true,
        }];
        let service = ServiceDigest { root: ServiceDigest::root_of(&entries), entries, ..Default::default() };
        let digest = NodeDigest { services: [("web".into(), service)].into(), ..NodeDigest::default() };
        let exam = Exam { digest: digest.clone(), boot: "b".into(), ..Exam::default() };
        let evidence = Evidence { exam, expected: Some(digest), rendered: ["/etc/x".to_owned()].into() };
        for outcome in [
            ExamOutcome::Found(evidence),
            ExamOutcome::Unreachable("timed out".to_owned()),
            ExamOutcome::HostKey("SHA256:x".to_owned()),
        ] {
            let bytes = rmp_serde::to_vec_named(&outcome).expect("it can be written");
            assert_eq!(unpack(&bytes), Some(outcome));
        }
        assert_eq!(unpack(b"nonsense"), None);
    }
}
