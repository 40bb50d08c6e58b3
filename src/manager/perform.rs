//! Carries out the engine's actions as calls, and passes the results to the engine as events. No
//! other module does this.

use super::attempt::Attempts;
use super::examination_limits::ExaminationLimits;
use super::{addresses, examine, members, reach, remote_examination};
use remoor_cluster::rpc::connect::verify_node;
use remoor_engine::{About, Action, EngineEvent};
use remoor_exec::ssh;
use remoor_model::{Applied, Command, InventoryEntry, NodeId, NodeName, Now, Report};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a handshake with a node's daemon. It is long enough for a round trip of 300 ms and
/// one lost packet. A longer timeout would open the absence of a dead machine later.
const GREET_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Performer {
    shared: Arc<super::ManagerContext>,
    events: mpsc::UnboundedSender<EngineEvent>,
    attempts: Attempts,
    looks: ExaminationLimits,
    members: members::Members,
}

impl Performer {
    pub fn new(shared: Arc<super::ManagerContext>, events: mpsc::UnboundedSender<EngineEvent>) -> Self {
        let attempts = Attempts::new(shared.clone(), events.clone());
        let members = members::Members::new(shared.clone());
        Self { shared, events, attempts, looks: ExaminationLimits::default(), members }
    }

    pub fn perform(&mut self, action: Action) {
        match action {
            Action::Propose { about, command } => self.propose(about, command),
            Action::Probe { node } => self.probe(node),
            Action::Greet { node } => self.greet(node),
            Action::Reach { node, managers } => self.reach(node, managers),
            Action::Examine { node, ticket, from, .. } => {
                let (shared, events, looks) = (self.shared.clone(), self.events.clone(), self.looks.clone());
                tokio::spawn(async move {
                    let _place = looks.examination().await;
                    let outcome = match from {
                        None => examine::examine(&shared, node).await,
                        Some(manager) => {
                            remote_examination::examine_by(&shared, manager, node, shared.inventory().applied).await
                        }
                    };
                    let outcome = Box::new(outcome);
                    let _ = events.send(EngineEvent::Examined { node, ticket, outcome });
                });
            }
            Action::Run { job, attempt, phase, node } => self.attempts.run(job, attempt, phase, node),
            Action::Stop { attempt, now } => self.attempts.stop(attempt, now),
            Action::Render { generation, moved } => {
                let (shared, events) = (self.shared.clone(), self.events.clone());
                tokio::spawn(async move {
                    if let Some(result) = addresses::render(&shared, generation).await {
                        let _ = events.send(EngineEvent::Rendered { generation, moved, result });
                    }
                });
            }
            Action::HandOver { why, to } => self.members.hand_over(why, to),
            Action::Notify { key, node, text } => {
                let name = node.and_then(|id| self.shared.inventory().node(id).map(|n| n.name().to_string()));
                self.shared.notices.notify(&key, name.as_deref(), &text);
            }
        }
    }

    /// Discards the role manager's steps of an earlier leadership. Must be called at the beginning
    /// and at the end of a leadership.
    pub fn forget_roles(&mut self) {
        self.members.forget();
    }

    /// Moves Raft's membership towards the desired roles. Must be called on the leader whenever the
    /// membership, the desired roles or the members of gossip may have changed.
    pub fn members_tick(&mut self, now: Now, present: &BTreeMap<NodeName, Report>) {
        self.members.tick(now, present);
    }

    /// Ends the sessions of all attempts. Each executor finishes its current task and starts no
    /// other.
    pub fn stop_all(&mut self) {
        self.attempts.stop_all();
    }

    fn propose(&self, about: About, command: Command) {
        let (shared, events) = (self.shared.clone(), self.events.clone());
        if matches!(command, Command::ForgetLeft { .. }) && !shared.compare_clocks().may_forget() {
            // The engine gets no answer to this action, so it proposes the command again later.
            tracing::debug!("no node that left is forgotten, because the clocks of the managers differ");
            return;
        }
        tokio::spawn(async move {
            let entry = InventoryEntry { at: shared.entry_time(), by: shared.identity.name.to_string(), command };
            let applied = match shared.raft.propose(entry).await {
                Ok((_, applied)) => Some(applied),
                Err(error) => {
                    tracing::debug!(%error, "a proposal was not applied");
                    None
                }
            };
            if let Some(Applied::Refused(refusal)) = &applied {
                tracing::debug!(%refusal, "a proposal was refused");
            }
            let _ = events.send(EngineEvent::Proposed { about, applied });
        });
    }

    fn reach(&self, node: NodeId, managers: Vec<NodeId>) {
        for by in managers {
            let (shared, events) = (self.shared.clone(), self.events.clone());
            tokio::spawn(async move {
                if let Some(line) = reach::ask(&shared, by, node).await {
                    let _ = events.send(EngineEvent::Reach { node, by, line });
                }
            });
        }
    }

    fn greet(&self, node: NodeId) {
        let (shared, events, looks) = (self.shared.clone(), self.events.clone(), self.looks.clone());
        tokio::spawn(async move {
            let _place = looks.wait_for_greeting_slot().await;
            let Some((addr, key)) =
                shared.inventory().node(node).map(|n| (n.spec.api.clone(), n.spec.public_key.clone()))
            else {
                return;
            };
            let greeted = verify_node(&addr, shared.peers.tls(), Some((node, &key)));
            let answers = matches!(tokio::time::timeout(GREET_TIMEOUT, greeted).await, Ok(Ok(_)));
            // The channel is closed only at the end of the manager.
            let _ = events.send(EngineEvent::Greeted { node, answers });
        });
    }

    fn probe(&self, node: NodeId) {
        let Some(ticket) = self.looks.probe(node) else { return };
        let (shared, events) = (self.shared.clone(), self.events.clone());
        tokio::spawn(async move {
            let _place = ticket.place().await;
            let target = match examine::target(&shared, node).await {
                Ok(target) => target,
                Err(error) => {
                    tracing::debug!(%error, "no SSH address to probe");
                    return;
                }
            };
            if target.uses_another_route() {
                return; // another host may answer at this address
            }
            let probe = ssh::probe(&target.host, target.port, PROBE_TIMEOUT).await;
            let answers = matches!(probe, ssh::Probe::Answers { .. });
            let _ = events.send(EngineEvent::Probed { node, answers });
        });
    }
}
