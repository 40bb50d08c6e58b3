//! Observations of one manager about the other nodes since its start. They are not stored or
//! replicated, so no decision may depend on them alone.

use super::agent_reports::AgentReports;
use super::certificates::Certificates;
use super::gossip_key::Confirmations;
use super::reach::ReachabilityReports;
use crate::telemetry::{self, Registry};
use remoor_model::{NodeName, Report};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub struct Observations {
    /// The nodes that this manager reaches over SSH, and the reports of other managers.
    pub reaches: ReachabilityReports,
    /// Reports that agents sent and that gossip does not show.
    pub agent_reports: AgentReports,
    pub certificates: Certificates,
    /// The step of the gossip key rotation that each node has confirmed.
    pub key_confirmed: Confirmations,
    /// The step of the CA rotation that each node has confirmed.
    pub ca_confirmed: Confirmations,
    /// The registry of this process's counters, which include the unanswered pings.
    counts: Registry,
    /// The members in gossip, by name.
    gossip: Mutex<BTreeMap<NodeName, GossipedMember>>,
    /// Time of the last message of a leader.
    leader_heard_at: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct GossipedMember {
    /// The gossip address as signed by the member itself.
    signed_address: Option<SocketAddr>,
    report: Option<Report>,
}

impl Observations {
    pub(super) fn new(counts: Registry) -> Self {
        Self {
            reaches: ReachabilityReports::default(),
            agent_reports: AgentReports::default(),
            certificates: Certificates::default(),
            key_confirmed: Confirmations::default(),
            ca_confirmed: Confirmations::default(),
            counts,
            gossip: Mutex::default(),
            leader_heard_at: Mutex::default(),
        }
    }

    /// Number of this manager's gossip pings that the node did not answer, since this daemon
    /// started.
    pub fn unanswered_pings(&self, name: &NodeName) -> u64 {
        telemetry::unanswered_pings(&self.counts, name.as_str())
    }

    /// Stores the signed gossip address of a member. None if its address is not signed.
    pub(super) fn set_signed_address(&self, name: &NodeName, addr: Option<SocketAddr>) {
        self.members().entry(name.clone()).or_default().signed_address = addr;
    }

    /// The gossip address of a member as signed by the member itself.
    pub(super) fn signed_address(&self, name: &NodeName) -> Option<SocketAddr> {
        self.members().get(name).and_then(|member| member.signed_address)
    }

    /// Stores the latest gossip report of a member.
    pub(super) fn set_report(&self, name: &NodeName, report: Report) {
        self.members().entry(name.clone()).or_default().report = Some(report);
    }

    /// The latest gossip report of a member. It is a hint, not replicated state.
    pub fn report_of(&self, name: &NodeName) -> Option<Report> {
        self.members().get(name).and_then(|member| member.report.clone())
    }

    /// Removes the address and the report of a member that is no longer in gossip.
    pub(super) fn forget_member(&self, name: &NodeName) {
        self.members().remove(name);
    }

    /// Records the arrival of entries or of a heartbeat of a leader.
    pub fn note_leader_heard(&self) {
        *self.leader_heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(super) fn leader_heard_at(&self) -> Option<Instant> {
        *self.leader_heard_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<NodeName, GossipedMember>> {
        self.gossip.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_forgotten_with_its_address_and_report() {
        let observed = Observations::new(Registry::new());
        let (name, addr) = (NodeName::from("w1"), SocketAddr::from(([10, 0, 0, 1], 7946)));
        observed.set_report(&name, Report::default());
        assert_eq!((observed.report_of(&name), observed.signed_address(&name)), (Some(Report::default()), None));
        observed.set_signed_address(&name, Some(addr));
        assert_eq!((observed.report_of(&name), observed.signed_address(&name)), (Some(Report::default()), Some(addr)));
        observed.set_signed_address(&name, None);
        assert_eq!((observed.report_of(&name), observed.signed_address(&name)), (Some(Report::default()), None));
        observed.forget_member(&name);
        assert_eq!((observed.report_of(&name), observed.signed_address(&name)), (None, None));
    }
}
