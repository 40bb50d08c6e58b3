//! The nodes that this node has asked for an acknowledgement. memberlist believes every
//! acknowledgement with the right number, and the numbers can be guessed. So without this check,
//! one node could hide the failure of another one. Pure.

use remoor_model::NodeName;
use std::collections::BTreeMap;

/// Maximum pings that wait for an acknowledgement. A ping waits for some seconds.
const PINGS_MAX: usize = 1024;
/// Maximum nodes that are asked with one number: the pinged node, and the nodes that ping it for
/// us.
const ASKED_MAX: usize = 8;

/// The asked nodes by the number of the ping. None stands for a node whose name is not known here.
#[derive(Debug, Default)]
pub struct AskedNodes(BTreeMap<u32, Vec<Option<NodeName>>>);

impl AskedNodes {
    /// Records that `node` will answer with this number.
    pub fn ask(&mut self, number: u32, node: Option<NodeName>) {
        if self.0.len() >= PINGS_MAX && !self.0.contains_key(&number) {
            self.0.pop_first();
        }
        let asked = self.0.entry(number).or_default();
        if asked.len() < ASKED_MAX && !asked.contains(&node) {
            asked.push(node);
        }
    }

    /// The nodes that may answer with this number.
    pub fn get(&self, number: u32) -> &[Option<NodeName>] {
        self.0.get(&number).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_pings_are_kept() {
        let mut asked = AskedNodes::default();
        for number in 0..5_000 {
            asked.ask(number, Some("w1".into()));
        }
        (0..100).for_each(|n| asked.ask(4_999, Some(NodeName(format!("w{n}")))));
        assert_eq!((asked.0.len(), asked.get(4_999).len()), (PINGS_MAX, ASKED_MAX));
        assert_eq!((asked.get(0).len(), asked.get(4_998)), (0, &[Some("w1".into())][..]));
    }
}
