//! Invariant I11 (docs/design/invariants.md): every absence of every node ends in exactly one
//! verdict, in the order in which the absences began.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct OneVerdict {
    opened: BTreeMap<NodeId, AbsenceNo>,
    concluded: BTreeSet<(NodeId, AbsenceNo)>,
}

impl Law for OneVerdict {
    fn name(&self) -> &'static str {
        "I11"
    }

    fn check(&mut self, _: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Applied { applied: Applied::Done, entry, .. } => match &entry.command {
                Command::AbsenceOpened { node, no, .. } => {
                    let last = self.opened.insert(*node, *no).unwrap_or_default();
                    if no.0 != last.0 + 1 || last.0 > 0 && !self.concluded.contains(&(*node, last)) {
                        return Err(format!("absence {no} of node {node} opens after {last}"));
                    }
                }
                Command::Conclude { node, finding } => {
                    if let Some(no) = finding.absence
                        && !self.concluded.insert((*node, no))
                    {
                        return Err(format!("absence {no} of node {node} has two verdicts"));
                    }
                }
                _ => {}
            },
            Fact::Over => {
                let open = self.opened.iter().find(|(node, no)| !self.concluded.contains(&(**node, **no)));
                if let Some((node, no)) = open {
                    return Err(format!("absence {no} of node {node} has no verdict"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
