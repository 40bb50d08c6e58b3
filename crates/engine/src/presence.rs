//! The presence of nodes: opens, ends and resumes absences, and probes hosts that are not in
//! gossip. It makes no verdict.

use super::event::{Action, Purpose};
use super::manager::{FIRST_SIGHT_MS, ManagerEngine, StepContext, in_attempt, reported_fingerprint};
use remoor_model::{AbsenceKind, AbsenceNo, Command, HostFingerprint, Node, NodeId, Report};

/// Minimum time for which gossip must have lost a node before an absence is opened. A shorter loss
/// may be an error. A node that was isolated returns with its own suspicions of all other nodes.
/// The other nodes refute these suspicions within one or two rounds of gossip.
const COALESCE_MS: u64 = 1_000;

/// Whether the agent reports the recorded boot id, instance and isolation count.
fn matches_known(report: &Report, known: &HostFingerprint) -> bool {
    (&report.boot, &report.instance, report.isolation) == (&known.boot, &known.instance, known.isolation)
}

impl ManagerEngine {
    pub(super) fn presence(&mut self, at: StepContext, node: &Node, out: &mut Vec<Action>) {
        // This code runs for each node at every log entry, so it copies nothing unless there is a
        // proposal.
        let seen = self.seen.entry(node.id).or_default();
        let (alive, since, since_wall, reported) = (seen.alive, seen.since, seen.since_wall, seen.report.is_some());
        let sighted = seen.last_seen_before.unwrap_or(node.examination.seen);
        let leaving = seen.report.as_ref().is_some_and(|r| r.leaving);
        let settled = !reported || leaving || at.now.ms_since(since) >= COALESCE_MS;
        match &node.absence {
            None if alive => {
                // An agent whose report is unreadable is alive, and its report does not indicate an
                // absence.
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
                if node.examination.last_identity.is_some() && gone_now && settled {
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
                if !alive && settled && at.now.ms_since(self.leading_since) > FIRST_SIGHT_MS {
                    self.propose(at, node.id, Command::AwayAgain { node: node.id, no: absence.no }, out);
                } else if alive && node.host_key.changed.is_none() && !in_attempt(at, node) {
                    self.examine(at, node, Purpose::Absence(absence.no), out);
                }
            }
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
