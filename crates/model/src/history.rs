//! The journal for people: decisions and their results. It is bounded, and the newest item is the
//! last.

use super::{
    AbsenceCause, AbsenceKind, AbsenceNo, AttemptId, AttemptOutcome, Finding, GenerationSeq, JobId, NodeId, NodeName,
    Phase, Reason, ServiceName, Wall,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// Maximum number of items. Beyond it, older items are dropped.
pub const HISTORY_MAX: usize = 5_000;
/// Number of items in a full part. When the history is full, whole parts are dropped at once, with
/// [`HISTORY_MAX`] / 10 items in total.
const PART: usize = 50;

/// The items, bounded. The oldest item is the first. Clones share the full parts. The state is
/// cloned for every batch of entries, and cloning 5000 single `Arc`s would cost more than applying
/// the batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Parts of [`PART`] items each.
    full: Vec<Arc<Vec<HistoryItem>>>,
    last: Vec<Arc<HistoryItem>>,
}

impl History {
    /// Appends an item. If the history is full, the oldest tenth is dropped first.
    pub fn push(&mut self, item: HistoryItem) {
        if self.len() >= HISTORY_MAX {
            self.full.drain(..HISTORY_MAX / 10 / PART);
        }
        self.last.push(Arc::new(item));
        if self.last.len() >= PART {
            let part = std::mem::take(&mut self.last).into_iter().map(Arc::unwrap_or_clone);
            self.full.push(Arc::new(part.collect()));
        }
    }

    /// The items. The oldest item is the first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &HistoryItem> {
        self.full.iter().flat_map(|part| part.iter()).chain(self.last.iter().map(Arc::as_ref))
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.full.len() * PART + self.last.len()
    }

    /// True if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest item.
    pub fn last(&self) -> Option<&HistoryItem> {
        self.iter().next_back()
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut items = to.serialize_seq(Some(self.len()))?;
        self.iter().try_for_each(|item| items.serialize_element(item))?;
        items.end()
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut history = Self::default();
        Vec::<HistoryItem>::deserialize(from)?.into_iter().for_each(|item| history.push(item));
        Ok(history)
    }
}

/// One item of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryItem {
    /// Index of the log entry that caused the item.
    pub index: u64,
    pub at: Wall,
    pub by: String,
    pub node: Option<NodeId>,
    #[serde(flatten)]
    pub what: JournalEvent,
}

/// The event of an item. The variant is stored as `what`, in kebab-case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum JournalEvent {
    Accepted {
        name: NodeName,
    },
    Generation {
        seq: GenerationSeq,
    },
    Away {
        absence: AbsenceNo,
        last_seen: Wall,
        gone: AbsenceKind,
        seen_by: Vec<NodeName>,
        retrospect: bool,
    },
    Gone {
        absence: AbsenceNo,
        gone: AbsenceKind,
    },
    Returned {
        absence: AbsenceNo,
    },
    Concluded {
        finding: Box<Finding>,
    },
    Wanted {
        services: Vec<ServiceName>,
        operator: Option<String>,
        #[serde(default)]
        undo: Option<AttemptId>,
    },
    WantDropped {
        why: String,
    },
    JobOpened {
        job: JobId,
        services: Vec<ServiceName>,
        reasons: Vec<Reason>,
        generation: GenerationSeq,
        #[serde(default)]
        undo: Option<AttemptId>,
    },
    AttemptOpened {
        job: JobId,
        attempt: AttemptId,
        no: u32,
        runner: NodeName,
        why: String,
    },
    Phase {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
    },
    AttemptClosed {
        job: JobId,
        attempt: AttemptId,
        outcome: AttemptOutcome,
    },
    JobHeld {
        job: JobId,
        why: String,
    },
    JobCancelled {
        job: JobId,
        why: String,
    },
    JobDone {
        job: JobId,
    },
    Adopted {
        files: bool,
    },
    KeyChanged {
        fingerprint: String,
    },
    KeyTrusted {
        keys: Vec<String>,
    },
    /// The node's gossip address changed.
    Moved {
        from: String,
        to: String,
    },
    /// The desired state of this number of hosts changed, because addresses of nodes changed.
    Rendered {
        changed: u32,
        fault: Option<String>,
    },
    Breaker {
        why: String,
    },
    Resumed,
    AgentFault {
        cause: AbsenceCause,
        count: u32,
    },
    Operator {
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_a_bounded_list_independent_of_its_parts() {
        let item = |index: u64| {
            let what = JournalEvent::Operator { text: index.to_string() };
            HistoryItem { index, at: Wall(index), by: "alice".to_owned(), node: None, what }
        };
        let mut history = History::default();
        assert!(history.is_empty() && history.last().is_none());
        let many = HISTORY_MAX as u64 + 7;
        for index in 1..=many {
            history.push(item(index));
            assert_eq!(history.last().map(|i| i.index), Some(index));
        }
        let kept: Vec<u64> = history.iter().map(|i| i.index).collect();
        assert_eq!(kept, (HISTORY_MAX as u64 / 10 + 1..=many).collect::<Vec<_>>(), "a tenth was dropped");
        assert_eq!(kept.len(), history.len());
        assert!(history.iter().rev().map(|i| i.index).eq(kept.into_iter().rev()));
        // The stored form is a plain list, as in earlier versions.
        let json = serde_json::to_value(&history).expect("JSON");
        assert_eq!(json.as_array().map(Vec::len), Some(history.len()));
        assert_eq!(serde_json::from_value::<History>(json).expect("read back"), history);
    }
}
