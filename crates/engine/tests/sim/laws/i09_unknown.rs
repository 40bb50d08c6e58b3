//! Invariant I9 (docs/design/invariants.md): unknown is not drift. A verdict of drift requires an
//! examination with a real result. No node is set up automatically while the last result about it
//! is unknown.

use super::*;
use std::collections::BTreeSet;

#[derive(Default)]
pub struct Unknown {
    found: BTreeSet<(NodeId, Sha256)>,
}

impl Law for Unknown {
    fn name(&self) -> &'static str {
        "I9"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Examined { node, outcome: ExamOutcome::Found(evidence) } => {
                self.found.insert((*node, evidence.exam.digest.root));
            }
            Fact::Applied { applied: Applied::Done, entry, .. } => {
                if let Command::Conclude { node, finding } = &entry.command
                    && finding.verdict.is_drifted()
                    && !finding.digest.is_some_and(|d| self.found.contains(&(*node, d)))
                {
                    return Err(format!("node {node} is called drifted, and nothing was found there"));
                }
            }
            Fact::Applied { applied: Applied::Job(job, _), before, .. } if before.job(*job).is_none() => {
                let job = world.state.job(*job).expect("was just opened");
                let finding = before.node(job.node).and_then(|n| n.examination.finding.as_ref());
                let unknown = finding.is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
                if unknown && job.spec.by.is_none() && job.spec.trigger != Trigger::Apply {
                    return Err(format!("job {} opens automatically on a node whose last result is unknown", job.id));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
