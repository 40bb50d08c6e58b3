//! Finds a node's current digest by requests. It begins with a known digest, so that the node sends
//! only differences.
//!
//! The result is the complete digest, and its roots equal the roots that the node reported. A wrong
//! answer ends the walk with an error. It never leads to a digest that the node does not have.

use super::digest_summary::{
    BranchContent, BranchQuestion, DigestSummary, DigestTree, QUESTIONS_MAX, is_empty, parse_branches, parse_hex_digits,
};
use super::{FileEntry, NodeDigest, ServiceDigest};
use crate::{ServiceName, Sha256};
use std::collections::BTreeMap;

/// Maximum depth of branches, in digits. Below that depth, all file entries are requested.
const DEPTH_MAX: usize = 8;

/// Maximum number of file entries that a node sends in one walk. If it sends more, its answers
/// count as inconsistent.
const ENTRIES_MAX: usize = 200_000;

/// A walk through the services that differ. It owns its data, so it can run on a thread of its own,
/// where its hashing blocks no other work.
#[derive(Debug)]
pub struct DigestWalk {
    /// Digests of the services that did not differ, or whose walk is complete.
    found: BTreeMap<ServiceName, ServiceDigest>,
    walked: BTreeMap<ServiceName, WalkedService>,
    asked: Vec<BranchQuestion>,
    /// Number of file entries that the node has sent.
    received: usize,
}

/// A service whose digest differs.
#[derive(Debug)]
struct WalkedService {
    /// The file entries of the known digest, as a tree.
    tree: DigestTree,
    /// The node's current file entries by path, as far as they are known.
    entries: BTreeMap<String, FileEntry>,
    outline: DigestSummary,
}

/// The next step of a walk.
#[derive(Debug)]
pub enum WalkStep {
    /// Request these branches. Then pass the answers, in the same order, to
    /// [`DigestWalk::answers`].
    Ask(Vec<BranchQuestion>),
    Found(Box<NodeDigest>),
}

/// The node's answers are inconsistent. The caller must request the complete digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: the node's answers about its digest are inconsistent")]
pub struct InconsistentAnswers(pub ServiceName);

impl DigestWalk {
    /// Begins with the summaries that the node sent first. `known` is the digest whose roots were
    /// sent to the node.
    pub fn begin(
        known: NodeDigest,
        outlines: BTreeMap<ServiceName, DigestSummary>,
    ) -> Result<(Self, WalkStep), InconsistentAnswers> {
        let mut known = known.services;
        let mut walk = Self { found: BTreeMap::new(), walked: BTreeMap::new(), asked: Vec::new(), received: 0 };
        let mut first = Vec::new();
        for (name, mut outline) in outlines {
            let was = known.remove(&name).unwrap_or_default();
            match outline.content.take() {
                None if was.root == outline.root => {
                    let DigestSummary { root, unreadable, unreadable_more, .. } = outline;
                    let entries = was.entries;
                    walk.found.insert(name, ServiceDigest { root, entries, unreadable, unreadable_more });
                }
                None => return Err(InconsistentAnswers(name)),
                Some(below) => {
                    let entries = was.entries.iter().map(|e| (e.path.clone(), e.clone())).collect();
                    let tree = DigestTree::new(was.entries);
                    walk.walked.insert(name.clone(), WalkedService { tree, entries, outline });
                    first.push((BranchQuestion { service: name, branch: String::new(), whole: false }, below));
                }
            }
        }
        let next = walk.take(first)?;
        Ok((walk, next))
    }

    /// The roots of the known digest. For a service with the same root, the node sends no content.
    pub fn roots(known: &NodeDigest) -> BTreeMap<ServiceName, Sha256> {
        known.services.iter().map(|(name, service)| (name.clone(), service.root)).collect()
    }

    /// Processes the node's answers to the last requests.
    pub fn answers(&mut self, answers: Vec<BranchContent>) -> Result<WalkStep, InconsistentAnswers> {
        let asked = std::mem::take(&mut self.asked);
        if asked.len() != answers.len() {
            return Err(InconsistentAnswers(asked.into_iter().next().map(|q| q.service).unwrap_or_default()));
        }
        self.take(asked.into_iter().zip(answers).collect())
    }

    fn take(&mut self, told: Vec<(BranchQuestion, BranchContent)>) -> Result<WalkStep, InconsistentAnswers> {
        let mut next = Vec::new();
        for (question, below) in told {
            let astray = InconsistentAnswers(question.service.clone());
            if let BranchContent::Entries(entries) = &below {
                self.received += entries.len();
            }
            if self.received > ENTRIES_MAX {
                return Err(astray);
            }
            let walked = self.walked.get_mut(&question.service);
            next.extend(walked.and_then(|walked| walked.take(&question, below)).ok_or(astray)?);
        }
        if next.len() > QUESTIONS_MAX {
            // So much differs that it is cheaper to request all file entries of the remaining
            // services.
            let mut services: Vec<ServiceName> = next.into_iter().map(|q| q.service).collect();
            services.dedup();
            let whole = |service| BranchQuestion { service, branch: String::new(), whole: true };
            next = services.into_iter().map(whole).take(QUESTIONS_MAX).collect();
        }
        if next.is_empty() {
            return self.end();
        }
        self.asked = next.clone();
        Ok(WalkStep::Ask(next))
    }

    fn end(&mut self) -> Result<WalkStep, InconsistentAnswers> {
        let mut services = std::mem::take(&mut self.found);
        for (name, WalkedService { entries, outline, .. }) in std::mem::take(&mut self.walked) {
            let entries: Vec<FileEntry> = entries.into_values().collect();
            if ServiceDigest::root_of(&entries) != outline.root {
                return Err(InconsistentAnswers(name));
            }
            let DigestSummary { root, unreadable, unreadable_more, .. } = outline;
            services.insert(name, ServiceDigest { root, entries, unreadable, unreadable_more });
        }
        Ok(WalkStep::Found(Box::new(NodeDigest { root: NodeDigest::root_of(&services), services })))
    }
}

impl WalkedService {
    /// Applies the content below one branch, and returns the next requests. None if the content is
    /// no answer to `question`.
    fn take(&mut self, question: &BranchQuestion, below: BranchContent) -> Option<Vec<BranchQuestion>> {
        let branch = parse_hex_digits(&question.branch)?;
        match below {
            BranchContent::Entries(entries) => {
                self.forget(&branch);
                for entry in entries {
                    let key = Sha256::digest(entry.path.as_bytes()).to_string();
                    if !key.starts_with(&question.branch) || self.entries.insert(entry.path.clone(), entry).is_some() {
                        return None;
                    }
                }
                Some(Vec::new())
            }
            BranchContent::Branches(_) if question.whole => None,
            BranchContent::Branches(text) => {
                let mut next = Vec::new();
                for (n, (is, was)) in parse_branches(&text)?.into_iter().zip(self.tree.branches(&branch)).enumerate() {
                    let inner = format!("{}{n:x}", question.branch);
                    if is == was {
                        continue;
                    } else if is_empty(is) {
                        self.forget(&parse_hex_digits(&inner)?);
                    } else {
                        let whole = inner.len() >= DEPTH_MAX;
                        next.push(BranchQuestion { service: question.service.clone(), branch: inner, whole });
                    }
                }
                Some(next)
            }
        }
    }

    fn forget(&mut self, branch: &[u8]) {
        if branch.is_empty() {
            // Remove every known entry, including the entries that earlier answers added.
            self.entries.clear();
        }
        for entry in self.tree.entries(branch) {
            self.entries.remove(&entry.path);
        }
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
