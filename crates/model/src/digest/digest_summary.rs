//! The parts of a digest that a node sends to a manager that searches for differences. The file
//! entries of a service form a tree of hashes. The node first sends the roots of these trees, and
//! then hashes of single branches on request. So it sends only file entries that may differ.
//!
//! ```text
//! service whose root the manager does not know   its root; also all entries if few, else 16 hashes
//! branch `3`, then `3f`, ..                      16 hashes, or all entries if few are left
//! ```

use super::tree::{BUCKET_SIZE, KEY_DIGITS, Leaf, hex_digit, subtree};
use super::{FileEntry, NodeDigest, ServiceDigest};
use crate::{ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of file entries of a service that are sent completely in one message.
pub const FLAT_MAX: usize = 200;
/// Maximum number of branches in one request.
pub const QUESTIONS_MAX: usize = 256;
/// Number of hex digits of a branch's hash that are sent. They suffice to detect a change, because
/// the final result is checked against the full root.
const HASH_DIGITS: usize = 16;
const BRANCHES: usize = 16;

/// The summary of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestSummary {
    pub root: Sha256,
    pub unreadable: BTreeMap<String, String>,
    #[serde(default)]
    pub unreadable_more: u64,
    /// The content of the service's tree below the root. None if the manager already knows this
    /// root.
    #[serde(rename = "below")]
    pub content: Option<BranchContent>,
}

/// The content below one branch of a service's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BranchContent {
    /// The hashes of the 16 child branches in hex, each cut to 16 digits. A branch without file
    /// entries has zeros.
    Branches(String),
    /// All entries below the branch, sorted by path.
    Entries(Vec<FileEntry>),
}

/// A request for the content below one branch of a service's tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BranchQuestion {
    pub service: ServiceName,
    /// The hex digits with which the SHA-256 of each path in the branch begins. Empty for the whole
    /// tree.
    pub branch: String,
    /// Whether the request is for all file entries below the branch, whatever their number is.
    #[serde(default)]
    pub whole: bool,
}

/// The file entries of one service as a tree. The place of a file entry depends on the SHA-256 of
/// its path.
#[derive(Debug, Clone, Default)]
pub struct DigestTree {
    leaves: Vec<(Leaf, FileEntry)>,
}

impl DigestTree {
    /// The tree over `entries`, which may be in any order.
    pub fn new(entries: Vec<FileEntry>) -> Self {
        let mut leaves: Vec<(Leaf, FileEntry)> =
            entries.into_iter().map(|entry| (Leaf::from_entry(&entry), entry)).collect();
        leaves.sort_unstable_by_key(|(leaf, _)| *leaf);
        Self { leaves }
    }

    /// The content below `branch`. None if `branch` has too many characters or one that is no hex
    /// digit.
    pub fn branch_content(&self, branch: &str, whole: bool) -> Option<BranchContent> {
        let inside = self.branch(&parse_hex_digits(branch)?);
        if whole
            || inside.len() <= BUCKET_SIZE
            || branch.is_empty() && inside.len() <= FLAT_MAX
            || branch.len() == KEY_DIGITS
        {
            let mut entries: Vec<FileEntry> = inside.iter().map(|(_, entry)| entry.clone()).collect();
            entries.sort();
            return Some(BranchContent::Entries(entries));
        }
        Some(BranchContent::Branches(hashes(inside, branch.len()).concat()))
    }

    /// The hashes of the child branches of `branch`, in the form in which they are sent.
    pub(super) fn branches(&self, branch: &[u8]) -> Vec<String> {
        hashes(self.branch(branch), branch.len())
    }

    /// The entries below `branch`.
    pub(super) fn entries(&self, branch: &[u8]) -> impl Iterator<Item = &FileEntry> {
        self.branch(branch).iter().map(|(_, entry)| entry)
    }

    fn branch(&self, branch: &[u8]) -> &[(Leaf, FileEntry)] {
        let place =
            |leaf: &Leaf| (0..branch.len()).map(|digit| hex_digit(&leaf.key, digit)).cmp(branch.iter().copied());
        let from = self.leaves.partition_point(|(leaf, _)| place(leaf).is_lt());
        let to = self.leaves.partition_point(|(leaf, _)| place(leaf).is_le());
        &self.leaves[from..to]
    }
}

fn hashes(inside: &[(Leaf, FileEntry)], digit: usize) -> Vec<String> {
    let leaves: Vec<Leaf> = inside.iter().map(|(leaf, _)| *leaf).collect();
    let mut rest = &leaves[..];
    let mut out = Vec::with_capacity(BRANCHES);
    for child in 0..BRANCHES as u8 {
        let (mine, others) = rest.split_at(rest.partition_point(|leaf| hex_digit(&leaf.key, digit) <= child));
        out.push(subtree(mine, digit + 1).to_string()[..HASH_DIGITS].to_owned());
        rest = others;
    }
    out
}

/// Splits the text of [`BranchContent::Branches`] into its hashes. None if the text is invalid.
pub(super) fn parse_branches(text: &str) -> Option<Vec<&str>> {
    let whole = text.len() == BRANCHES * HASH_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    whole.then(|| (0..BRANCHES).map(|n| &text[n * HASH_DIGITS..(n + 1) * HASH_DIGITS]).collect())
}

/// Whether the hash is that of a branch without file entries.
pub(super) fn is_empty(hash: &str) -> bool {
    hash.bytes().all(|b| b == b'0')
}

pub(super) fn parse_hex_digits(branch: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = branch.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
    digits.filter(|digits| digits.len() <= KEY_DIGITS)
}

/// The part of its digest that a node keeps for the manager's requests.
#[derive(Debug, Default)]
pub struct DigestTrees {
    services: BTreeMap<ServiceName, DigestTree>,
}

impl DigestTrees {
    /// Splits a digest into the summaries, which are sent at once, and the trees, which are kept
    /// for requests. `known` contains the roots that the manager knows.
    pub fn summarize(
        digest: NodeDigest,
        known: &BTreeMap<ServiceName, Sha256>,
    ) -> (BTreeMap<ServiceName, DigestSummary>, Self) {
        let (mut outlines, mut trees) = (BTreeMap::new(), Self::default());
        for (name, service) in digest.services {
            let ServiceDigest { root, entries, unreadable, unreadable_more } = service;
            let mut below = None;
            if known.get(&name) != Some(&root) {
                let tree = DigestTree::new(entries);
                below = tree.branch_content("", false);
                trees.services.insert(name.clone(), tree);
            }
            outlines.insert(name, DigestSummary { root, unreadable, unreadable_more, content: below });
        }
        (outlines, trees)
    }

    /// One answer for each request, in the same order. An error means that a request is invalid, or
    /// that there are too many.
    pub fn answer(&self, questions: &[BranchQuestion]) -> Result<Vec<BranchContent>, String> {
        if questions.len() > QUESTIONS_MAX {
            return Err(format!("{} branches requested at once, the maximum is {QUESTIONS_MAX}", questions.len()));
        }
        let answer = |q: &BranchQuestion| {
            let tree = self.services.get(&q.service).ok_or_else(|| format!("no digest is kept of {}", q.service))?;
            tree.branch_content(&q.branch, q.whole).ok_or_else(|| format!("`{}` is not a branch", q.branch))
        };
        questions.iter().map(answer).collect()
    }
}
