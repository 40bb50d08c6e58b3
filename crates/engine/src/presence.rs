//! The presence of nodes: absences that open, end and resume, and the probe of a silent host.
//! Concludes nothing.

use super::event::{Action, Purpose};
use super::manager::{FIRST_SIGHT_MS, Manager, Moment, in_attempt, marks_of};
use remoor_model::{AbsenceNo, Command, Gone, Marks, Node, NodeId, Report};

/// Gossip may lose a member for less than this without an absence. A node that was cut off returns
/// with its own suspicions of all other nodes, which these refute within one or two rounds.
const COALESCE_MS: u64 = 1_000;

/// The agent reports the recorded boot id, instance and isolation count.
fn as_known(report: &Report, known: &Marks) -> bool {
    (&report.boot, &report.instance, report.isolation) == (&known.boot, &known.instance, known.isolation)
}

impl Manager {
    pub(super) fn presence(&mut self, at: Moment, node: &Node, out: &mut Vec<Action>) {
        // Copies nothing before there is something to propose, because this runs for each node at
        // every entry.
        let seen = self.seen.entry(node.id).or_default();
        let (alive, since, since_wall, reported) = (seen.alive, seen.since, seen.since_wall, seen.report.is_some());
        let sighted = seen.sighted.unwrap_or(node.seen);
        let leaving = seen.report.as_ref().is_some_and(|r| r.leaving);
        let settled = !reported || leaving || at.now.since(since) >= COALESCE_MS;
        match &node.absence {
            None if alive => {
                // An agent whose report is unreadable is alive. Such a report indicates no absence.
                let Some(report) = seen.report.as_ref().filter(|r| !r.is_blank() && !leaving) else { return };
                match &node.marks {
                    Some(before) if as_known(report, before) => seen.outlived = None,
                    Some(_) if seen.outlived.as_ref().is_some_and(|known| as_known(report, known)) => {}
                    None => {
                        let marks = marks_of(report);
                        self.propose(at, node.id, Command::Marks { node: node.id, marks }, out);
                    }
                    Some(_) if in_attempt(at, node) => {}
                    Some(_) => {
                        let command = Command::AbsenceOpened {
                            node: node.id,
                            no: AbsenceNo(node.absences.0 + 1),
                            last_seen: sighted,
                            seen_by: Vec::new(),
                            gone: Gone::Away,
                            planned: false,
                            returned: Some(marks_of(report)),
                        };
                        self.propose(at, node.id, command, out);
                    }
                }
            }
            None => {
                let gone_now = reported || at.now.since(self.began) > FIRST_SIGHT_MS;
                if node.marks.is_some() && gone_now && settled {
                    let command = Command::AbsenceOpened {
                        node: node.id,
                        no: AbsenceNo(node.absences.0 + 1),
                        last_seen: if reported { since_wall } else { sighted },
                        seen_by: vec![self.me.clone()],
                        gone: if leaving { Gone::Left } else { Gone::Away },
                        planned: leaving,
                        returned: None,
                    };
                    self.propose(at, node.id, command, out);
                }
            }
            Some(absence) if absence.returned.is_none() => {
                if alive && !leaving {
                    let after = seen.report.as_ref().map(marks_of).unwrap_or_default();
                    self.propose(at, node.id, Command::Returned { node: node.id, no: absence.no, after }, out);
                } else if absence.gone != Gone::Left {
                    let every = at.inventory.limits().probe_ms;
                    if seen.probed.is_none_or(|last| at.now.since(last) >= every) {
                        seen.probed = Some(at.now);
                        out.push(Action::Probe { node: node.id });
                    }
                }
            }
            Some(absence) => {
                if !alive && settled && at.now.since(self.began) > FIRST_SIGHT_MS {
                    self.propose(at, node.id, Command::AwayAgain { node: node.id, no: absence.no }, out);
                } else if alive && node.key_changed.is_none() && !in_attempt(at, node) {
                    self.examine(at, node, Purpose::Absence(absence.no), out);
                }
            }
        }
    }

    pub(super) fn probed(&mut self, at: Moment, id: NodeId, answers: bool, out: &mut Vec<Action>) {
        let Some(node) = at.inventory.node(id) else { return };
        let Some(absence) = node.absence.as_ref().filter(|a| a.returned.is_none()) else { return };
        let gone = if answers { Gone::AgentDown } else { Gone::Away };
        if absence.gone == gone || absence.gone == Gone::Left {
            return;
        }
        if gone == Gone::AgentDown {
            let key = format!("agent-down {id} {}", absence.no);
            let text = format!("{}: its host answers on SSH, its agent is silent", node.name());
            out.push(Action::Notify { key, node: Some(id), text });
        }
        self.propose(at, id, Command::Gone { node: id, no: absence.no, gone }, out);
    }
}
