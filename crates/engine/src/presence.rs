//! The presence of nodes: opens, ends and resumes absences, and probes hosts that are not in
//! gossip. It makes no verdict.

use super::event::{Action, Purpose};
use super::manager::{FIRST_SIGHT_MS, Greeting, ManagerEngine, StepContext, in_attempt, reported_fingerprint};
use remoor_model::{AbsenceKind, AbsenceNo, Command, HostFingerprint, Node, NodeId, Report};

/// Minimum time for which gossip must have lost a node before an absence is opened. A shorter loss
/// may be an error. A node that was isolated returns with its own suspicions of all other nodes.
/// The other nodes refute these suspicions within one or two rounds of gossip.
const COALESCE_MS: u64 = 1_000;

/// Maximum wait for the result of a handshake with a node's daemon. Without a result after this
/// time, the daemon counts as silent, so that a missing result cannot hide a dead node.
const GREET_MAX_MS: u64 = 5_000;
/// Interval of the handshakes with a daemon that answered the last one, while gossip has lost its
/// node.
const GREET_EVERY_MS: u64 = 10_000;

/// Whether the agent reports the recorded boot id, instance and isolation count.
fn matches_known(report: &Report, known: &HostFingerprint) -> bool {
    (&report.boot, &report.instance, report.isolation) == (&known.boot, &known.instance, known.isolation)
}

impl ManagerEngine {
    pub(super) fn presence(&mut self, at: StepContext, node: &Node, out: &mut Vec<Action>) {
        // This code runs for each node at every log entry, so it copies nothing unless there is a
        // proposal.
        let seen = self.seen.entry(node.id).or_default();
        let (since, since_wall, reported) = (seen.since, seen.since_wall, seen.report.is_some());
        let (alive, present) = (seen.alive, seen.is_present());
        let sighted = seen.last_seen_before.unwrap_or(node.examination.seen);
        let leaving = seen.report.as_ref().is_some_and(|r| r.leaving);
        let settled = !reported || leaving || at.now.ms_since(since) >= COALESCE_MS;
        match &node.absence {
            None if present => {
                // An agent whose report is unreadable is alive, and its report does not indicate an
                // absence.
                if !alive && self.is_silent(at, node, out) {
                    return;
                }
                let seen = self.seen.entry(node.id).or_default();
                let Some(report) = seen.report.as_ref().filter(|r| !r.is_blank() && !leaving) else { return };
                match &node.examination.last_identity {
                    Some(before) if matches_known(report, before) => seen.outdated_report = None,
                    Some(_) if seen.outdated_report.as_ref().is_some_and(|known| matches_known(report, known)) => {}
                    None => {
                        let marks = reported_fingerprint(report);
                        self.propose(at, node.id, Command::Fingerprint { node: node.id, marks }, out);
                    }
                    Some(_) if in_attempt(at, node) => {}
                    Some(_) => {
                        let command = Command::AbsenceOpened {
                            node: node.id,
                            no: AbsenceNo(node.absences.count.0 + 1),
                            last_seen: sighted,
                            seen_by: Vec::new(),
                            gone: AbsenceKind::Away,
                            planned: false,
                            returned: Some(reported_fingerprint(report)),
                        };
                        self.propose(at, node.id, command, out);
                    }
                }
            }
            None => {
                let gone_now = reported || at.now.ms_since(self.leading_since) > FIRST_SIGHT_MS;
                let gone_now = gone_now && node.examination.last_identity.is_some();
                if gone_now && (leaving || self.is_silent(at, node, out)) && settled {
                    let command = Command::AbsenceOpened {
                        node: node.id,
                        no: AbsenceNo(node.absences.count.0 + 1),
                        last_seen: if reported { since_wall } else { sighted },
                        seen_by: vec![self.me.clone()],
                        gone: if leaving { AbsenceKind::Left } else { AbsenceKind::Away },
                        planned: leaving,
                        returned: None,
                    };
                    self.propose(at, node.id, command, out);
                }
            }
            Some(absence) if absence.returned.is_none() => {
                if alive && !leaving {
                    let after = seen.report.as_ref().map(reported_fingerprint).unwrap_or_default();
                    self.propose(at, node.id, Command::Returned { node: node.id, no: absence.no, after }, out);
                } else if absence.kind != AbsenceKind::Left {
                    let every = at.inventory.limits().probe_ms;
                    if seen.probed.is_none_or(|last| at.now.ms_since(last) >= every) {
                        seen.probed = Some(at.now);
                        out.push(Action::Probe { node: node.id });
                    }
                }
            }
            Some(absence) => {
                let begins = at.now.ms_since(self.leading_since) <= FIRST_SIGHT_MS;
                if !alive && !begins && (leaving || self.is_silent(at, node, out)) {
                    if settled {
                        self.propose(at, node.id, Command::AwayAgain { node: node.id, no: absence.no }, out);
                    }
                } else if present && node.host_key.changed.is_none() && !in_attempt(at, node) {
                    self.examine(at, node, Purpose::Absence(absence.no), out);
                }
            }
        }
    }

    /// Whether the daemon of a node that is not in gossip does not answer a handshake either. An
    /// attacker can make gossip lose a node, but only the node itself can complete the handshake.
    ///
    /// Requests a handshake if one is due. Until its result arrives, the daemon does not count as
    /// silent.
    fn is_silent(&mut self, at: StepContext, node: &Node, out: &mut Vec<Action>) -> bool {
        let seen = self.seen.entry(node.id).or_default();
        let age = |greeting: Greeting| at.now.ms_since(greeting.at);
        match seen.greeting {
            Some(Greeting { pending: false, answered: false, .. }) => true,
            Some(greeting) if greeting.pending && age(greeting) < GREET_MAX_MS => false,
            Some(greeting) if greeting.pending => {
                seen.greeting = Some(Greeting { pending: false, answered: false, ..greeting });
                true
            }
            Some(greeting) if age(greeting) < GREET_EVERY_MS => false,
            before => {
                let answered = before.is_some_and(|greeting| greeting.answered);
                seen.greeting = Some(Greeting { at: at.now, pending: true, answered });
                out.push(Action::Greet { node: node.id });
                false
            }
        }
    }

    /// Stores the result of a handshake. It is ignored if the daemon counts as silent meanwhile.
    pub(super) fn handle_greeting(&mut self, at: StepContext, id: NodeId, answers: bool, out: &mut Vec<Action>) {
        let Some(seen) = self.seen.get_mut(&id) else { return };
        let Some(before) = seen.greeting.filter(|greeting| greeting.pending) else { return };
        seen.greeting = Some(Greeting { at: at.now, pending: false, answered: answers });
        if !answers {
            return;
        }
        (seen.since, seen.since_wall) = (at.now, at.wall);
        // The loss may be a short error of gossip. So the notice is sent only after the second
        // answer in sequence.
        if let Some(node) = at.inventory.node(id).filter(|_| before.answered) {
            let text = format!("gossip lost {}, but its daemon answers: is gossip blocked or forged?", node.name());
            out.push(Action::Notify { key: format!("gossip-lost {id}"), node: Some(id), text });
        }
    }

    pub(super) fn handle_probe(&mut self, at: StepContext, id: NodeId, answers: bool, out: &mut Vec<Action>) {
        let Some(node) = at.inventory.node(id) else { return };
        let Some(absence) = node.absence.as_ref().filter(|a| a.returned.is_none()) else { return };
        let gone = if answers { AbsenceKind::AgentDown } else { AbsenceKind::Away };
        if absence.kind == gone || absence.kind == AbsenceKind::Left {
            return;
        }
        if gone == AbsenceKind::AgentDown {
            let key = format!("agent-down {id} {}", absence.no);
            let text = format!("{}: its host answers on SSH, its agent is silent", node.name());
            out.push(Action::Notify { key, node: Some(id), text });
        }
        self.propose(at, id, Command::SetAbsenceKind { node: id, no: absence.no, gone }, out);
    }
}
