//! Reports that agents send to managers with their regular requests. Gossip normally delivers the
//! same reports earlier. If an attacker suppresses a node's gossip, or sends an old record of the
//! node again, the request still shows a change on the node.
//!
//! ```text
//!  GET /agent/v1/peers?report=.. ─> receive() ─┬─ on the leader ─────> Event::Reported ─> engine
//!                                              └─ else POST /manager/v1/report ──┘
//! ```

use super::{ManagerContext, reach};
use remoor_model::{Node, NodeId, NodeName, Report};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SEND_TIMEOUT: Duration = Duration::from_secs(8);

/// The last report of each node that the engine has not received yet. Only known nodes can send
/// reports, so the number of nodes limits the size.
#[derive(Default)]
pub struct AgentReports(Mutex<BTreeMap<NodeId, Report>>);

impl AgentReports {
    pub fn take(&self) -> BTreeMap<NodeId, Report> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, node: NodeId, report: Report) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node, report);
    }
}

/// Whether gossip does not show `report` yet, nor a later report of the node. A report without a
/// sequence number is from an older agent and cannot be compared.
fn is_news(shared: &ManagerContext, name: &NodeName, report: &Report) -> bool {
    let known = shared.observed.report_of(name).map(|known| known.order());
    report.sequence != 0 && known.is_none_or(|known| known != report.order() && !report.order().is_older_than(known))
}

/// Receives the report of a node's agent. The TLS connection proves that the report is from this
/// node. If gossip does not show the report, it is passed to the leader.
pub fn receive(shared: &Arc<ManagerContext>, node: &Node, report: Report) {
    if !is_news(shared, node.name(), &report) {
        return;
    }
    if shared.raft.status().borrow().leads() {
        shared.observed.agent_reports.put(node.id, report);
        return;
    }
    let Some(addr) = reach::leader_address(shared) else { return };
    let (shared, path) = (shared.clone(), format!("/manager/v1/report/{}", node.id));
    tokio::spawn(async move {
        let sent: Result<(), _> = shared.peers.client(&addr).with_timeout(SEND_TIMEOUT).post(&path, &report).await;
        // The agent sends its report again with its next request.
        sent.unwrap_or_else(|error| tracing::debug!(%error, "the leader did not receive the report of an agent"));
    });
}
