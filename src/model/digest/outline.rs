//! A digest from above: the roots of its services, and branch by branch what is below them. What a node answers to a manager
//! that looks for differences without being sent every entry.
//!
//! ```text
//! services that are not as the manager knows them   root, and of a small one every entry, else hashes of 16 branches
//! branch `3`, branch `3f`, ..                       hashes of 16 branches, or where few are left their entries
//! ```

use super::tree::{BUCKET_SIZE, KEY_DIGITS, Leaf, hex_digit, subtree};
use super::{FileEntry, NodeDigest, ServiceDigest};
use crate::model::{ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A service with so many entries is told whole, in one message.
pub const FLAT_MAX: usize = 200;
/// So many branches are asked for in one message.
pub const QUESTIONS_MAX: usize = 256;
/// Of a branch's hash so many hex digits travel: enough to see a change; what is found in the end is held against the root.
const SHORT: usize = 16;
const BRANCHES: usize = 16;

/// One service, seen from above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    pub root: Sha256,
    pub unreadable: BTreeMap<String, String>,
    #[serde(default)]
    pub unreadable_more: u64,
    /// None: the root is the one that the manager knows.
    pub below: Option<Below>,
}

/// What is below one branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Below {
    /// The hashes of its 16 branches as hex, cut to 16 digits each; zeros where there is no entry.
    Branches(String),
    /// Every entry below it, by path.
    Entries(Vec<FileEntry>),
}

/// Asks for what is below one branch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BranchQuestion {
    pub service: ServiceName,
    /// Hex digits with which the SHA-256 of a path begins; empty: the root.
    pub branch: String,
    /// Every entry, however many they are.
    #[serde(default)]
    pub whole: bool,
}

/// The entries of one service, in the order of their tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    leaves: Vec<(Leaf, FileEntry)>,
}

impl Tree {
    pub fn new(entries: Vec<FileEntry>) -> Self {
        let mut leaves: Vec<(Leaf, FileEntry)> = entries.into_iter().map(|entry| (Leaf::of(&entry), entry)).collect();
        leaves.sort_unstable_by_key(|(leaf, _)| *leaf);
        Self { leaves }
    }

    /// None: `branch` is none, since it has a character that is no hex digit, or too many.
    pub fn below(&self, branch: &str, whole: bool) -> Option<Below> {
        let inside = self.branch(&digits(branch)?);
        if whole
            || inside.len() <= BUCKET_SIZE
            || branch.is_empty() && inside.len() <= FLAT_MAX
            || branch.len() == KEY_DIGITS
        {
            let mut entries: Vec<FileEntry> = inside.iter().map(|(_, entry)| entry.clone()).collect();
            entries.sort();
            return Some(Below::Entries(entries));
        }
        Some(Below::Branches(hashes(inside, branch.len()).concat()))
    }

    /// The hashes of the branches of `branch`, as they travel.
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
        out.push(subtree(mine, digit + 1).to_string()[..SHORT].to_owned());
        rest = others;
    }
    out
}

/// The hashes that travelled as `text`; None: they are none.
pub(super) fn parse_branches(text: &str) -> Option<Vec<&str>> {
    let whole = text.len() == BRANCHES * SHORT && text.bytes().all(|b| b.is_ascii_hexdigit());
    whole.then(|| (0..BRANCHES).map(|n| &text[n * SHORT..(n + 1) * SHORT]).collect())
}

/// Whether such a hash says that there is nothing.
pub(super) fn is_empty(hash: &str) -> bool {
    hash.bytes().all(|b| b == b'0')
}

pub(super) fn digits(branch: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = branch.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
    digits.filter(|digits| digits.len() <= KEY_DIGITS)
}

/// What a node keeps of its digest while a manager asks.
#[derive(Debug, Default)]
pub struct Trees {
    services: BTreeMap<ServiceName, Tree>,
}

impl Trees {
    /// Splits a digest into what is told at once and what is kept to be asked for. `known`: the roots that the manager knows.
    pub fn outlined(
        digest: NodeDigest,
        known: &BTreeMap<ServiceName, Sha256>,
    ) -> (BTreeMap<ServiceName, Outline>, Self) {
        let (mut outlines, mut trees) = (BTreeMap::new(), Self::default());
        for (name, service) in digest.services {
            let ServiceDigest { root, entries, unreadable, unreadable_more } = service;
            let mut below = None;
            if known.get(&name) != Some(&root) {
                let tree = Tree::new(entries);
                below = tree.below("", false);
                trees.services.insert(name.clone(), tree);
            }
            outlines.insert(name, Outline { root, unreadable, unreadable_more, below });
        }
        (outlines, trees)
    }

    /// One answer for each question, in order. Err: a question that has no answer, or too many.
    pub fn answer(&self, questions: &[BranchQuestion]) -> Result<Vec<Below>, String> {
        if questions.len() > QUESTIONS_MAX {
            return Err(format!("{} branches at once, more than {QUESTIONS_MAX}", questions.len()));
        }
        let answer = |q: &BranchQuestion| {
            let tree = self.services.get(&q.service).ok_or_else(|| format!("nothing is kept of {}", q.service))?;
            tree.below(&q.branch, q.whole).ok_or_else(|| format!("`{}` is no branch", q.branch))
        };
        questions.iter().map(answer).collect()
    }
}
