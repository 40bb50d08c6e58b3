//! Invariant I14 (docs/design/invariants.md): a leader opens no attempt if it knows that it does
//! not reach the node and that another manager does. The leader then transfers the leadership, but
//! only if no attempt runs and it has led for some time.

use super::*;
use remoor_engine::Reachability;
use std::collections::BTreeMap;

/// Maximum age in milliseconds of a manager's report that it reaches a node or not. An older report
/// is ignored.
const KNOWN_MS: u64 = 10_000;
/// Minimum duration of a leadership before it may be transferred, in milliseconds. The law measures
/// the duration in whole seconds.
const KEPT_MS: u64 = 4_000;

#[derive(Default)]
pub struct LeaderReach {
    /// For each term, node and manager: whether the manager reported that it reaches the node, and
    /// the time of this report.
    reports: BTreeMap<(u64, NodeId, NodeId), (bool, u64)>,
    /// The time at which each term was first observed.
    began: BTreeMap<u64, u64>,
}

impl LeaderReach {
    fn forget(&mut self, term: u64, node: NodeId) {
        self.reports.retain(|(of, about, _), _| (*of, *about) != (term, node));
    }

    fn reported_reachability(&self, world: &World, term: u64, node: NodeId, by: NodeId) -> Option<bool> {
        let (reached, at) = self.reports.get(&(term, node, by))?;
        (world.now - at <= KNOWN_MS).then_some(*reached)
    }
}

impl Law for LeaderReach {
    fn name(&self) -> &'static str {
        "I14"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Second => {
                if let Some(leader) = &world.leader {
                    self.began.entry(leader.term).or_insert(world.now);
                }
            }
            Fact::Told { term, event: EngineEvent::Reach { node, by, line } }
                if world.hosts[world.host_of(*node)].gossip_view.report.is_some() =>
            {
                self.reports.insert((*term, *node, *by), (*line == Reachability::Reachable, world.now));
            }
            // Earlier reports of managers about an absent node do not count any more.
            Fact::Told { term, event: EngineEvent::Gone { node } } => self.forget(*term, *node),
            Fact::Told { term, event: EngineEvent::Examined { node, outcome, .. } }
                if matches!(**outcome, ExamOutcome::Found(_)) =>
            {
                self.forget(*term, *node);
            }
            Fact::Proposed { term, host, command } => {
                let node = match command {
                    Command::OpenJob { node, .. } => *node,
                    Command::NextAttempt { job, .. } => match world.state.job(*job) {
                        Some(job) => job.node,
                        None => return Ok(()),
                    },
                    _ => return Ok(()),
                };
                let here = self.reported_reachability(world, *term, node, world.hosts[*host].id);
                let other = (0..3)
                    .filter(|m| m != host && world.hosts[*m].id != node)
                    .find(|m| self.reported_reachability(world, *term, node, world.hosts[*m].id) == Some(true));
                if let (Some(false), Some(other)) = (here, other) {
                    let (me, other) = (world.hosts[*host].name, world.hosts[other].name);
                    let node = world.hosts[world.host_of(node)].name;
                    return Err(format!("{me} opens an attempt on {node}, which {other} reaches and {me} does not"));
                }
            }
            Fact::HandsOver { term } => {
                let leader = world.leader.iter().chain(&world.deposed).find(|l| l.term == *term);
                let state = leader.and_then(|l| l.view.as_ref()).unwrap_or(&world.state);
                if let Some(job) = state.jobs.values().find(|j| j.open_attempt().is_some()) {
                    return Err(format!("leadership is passed on while job {} runs", job.id));
                }
                let began = self.began.get(term).copied().unwrap_or(world.now);
                if world.now - began < KEPT_MS {
                    return Err(format!("leadership is passed on {} ms after it was taken", world.now - began));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
