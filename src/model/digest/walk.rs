//! Finds out by questions what a node's digest is, from one that is known: only what differs travels.
//!
//! What is put together is the whole digest, and its roots are those that the node told; what a node may answer wrongly ends
//! the walk and never a digest that nobody has.

use super::outline::{Below, BranchQuestion, Outline, QUESTIONS_MAX, Tree, digits, is_empty, parse_branches};
use super::{FileEntry, NodeDigest, ServiceDigest};
use crate::model::{ServiceName, Sha256};
use std::collections::BTreeMap;

/// Branches are told apart by so many digits at most; below that every entry is asked for.
const DEPTH_MAX: usize = 8;

/// A walk through the services that differ. Owns what it needs, so that it can be taken to where hashing disturbs nobody.
#[derive(Debug)]
pub struct Walk {
    /// What is known already, or found out.
    found: BTreeMap<ServiceName, ServiceDigest>,
    walked: BTreeMap<ServiceName, Walked>,
    asked: Vec<BranchQuestion>,
}

/// A service that differs.
#[derive(Debug)]
struct Walked {
    /// As it was known.
    tree: Tree,
    /// As it is, by path.
    entries: BTreeMap<String, FileEntry>,
    outline: Outline,
}

/// What is to be done next.
#[derive(Debug)]
pub enum Next {
    /// The answers to these, in order, go to [`Walk::answers`].
    Ask(Vec<BranchQuestion>),
    Found(Box<NodeDigest>),
}

/// The answers do not fit together: the digest is to be asked for whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: what the node tells does not fit together")]
pub struct Astray(pub ServiceName);

impl Walk {
    /// From what the node told at once. `known` is the digest whose roots it was told.
    pub fn begin(known: NodeDigest, outlines: BTreeMap<ServiceName, Outline>) -> Result<(Self, Next), Astray> {
        let mut known = known.services;
        let mut walk = Self { found: BTreeMap::new(), walked: BTreeMap::new(), asked: Vec::new() };
        let mut first = Vec::new();
        for (name, mut outline) in outlines {
            let was = known.remove(&name).unwrap_or_default();
            match outline.below.take() {
                None if was.root == outline.root => {
                    let Outline { root, unreadable, unreadable_more, .. } = outline;
                    let entries = was.entries;
                    walk.found.insert(name, ServiceDigest { root, entries, unreadable, unreadable_more });
                }
                None => return Err(Astray(name)),
                Some(below) => {
                    let entries = was.entries.iter().map(|e| (e.path.clone(), e.clone())).collect();
                    let tree = Tree::new(was.entries);
                    walk.walked.insert(name.clone(), Walked { tree, entries, outline });
                    first.push((BranchQuestion { service: name, branch: String::new(), whole: false }, below));
                }
            }
        }
        let next = walk.take(first)?;
        Ok((walk, next))
    }

    /// The roots that a node is told, so that it can leave out what is known.
    pub fn roots(known: &NodeDigest) -> BTreeMap<ServiceName, Sha256> {
        known.services.iter().map(|(name, service)| (name.clone(), service.root)).collect()
    }

    /// What the node answered to the last questions.
    pub fn answers(&mut self, answers: Vec<Below>) -> Result<Next, Astray> {
        let asked = std::mem::take(&mut self.asked);
        if asked.len() != answers.len() {
            return Err(Astray(asked.into_iter().next().map(|q| q.service).unwrap_or_default()));
        }
        self.take(asked.into_iter().zip(answers).collect())
    }

    fn take(&mut self, told: Vec<(BranchQuestion, Below)>) -> Result<Next, Astray> {
        let mut next = Vec::new();
        for (question, below) in told {
            let astray = Astray(question.service.clone());
            let walked = self.walked.get_mut(&question.service);
            next.extend(walked.and_then(|walked| walked.take(&question, below)).ok_or(astray)?);
        }
        if next.len() > QUESTIONS_MAX {
            // So much differs that the rest is cheaper whole.
            let mut services: Vec<ServiceName> = next.into_iter().map(|q| q.service).collect();
            services.dedup();
            let whole = |service| BranchQuestion { service, branch: String::new(), whole: true };
            next = services.into_iter().map(whole).take(QUESTIONS_MAX).collect();
        }
        if next.is_empty() {
            return self.end();
        }
        self.asked = next.clone();
        Ok(Next::Ask(next))
    }

    fn end(&mut self) -> Result<Next, Astray> {
        let mut services = std::mem::take(&mut self.found);
        for (name, Walked { entries, outline, .. }) in std::mem::take(&mut self.walked) {
            let entries: Vec<FileEntry> = entries.into_values().collect();
            if ServiceDigest::root_of(&entries) != outline.root {
                return Err(Astray(name));
            }
            let Outline { root, unreadable, unreadable_more, .. } = outline;
            services.insert(name, ServiceDigest { root, entries, unreadable, unreadable_more });
        }
        Ok(Next::Found(Box::new(NodeDigest { root: NodeDigest::root_of(&services), services })))
    }
}

impl Walked {
    /// Takes in what is below one branch; the questions that follow from it. None: it is no answer to `question`.
    fn take(&mut self, question: &BranchQuestion, below: Below) -> Option<Vec<BranchQuestion>> {
        let branch = digits(&question.branch)?;
        match below {
            Below::Entries(entries) => {
                self.forget(&branch);
                for entry in entries {
                    let key = Sha256::of(entry.path.as_bytes()).to_string();
                    if !key.starts_with(&question.branch) || self.entries.insert(entry.path.clone(), entry).is_some() {
                        return None;
                    }
                }
                Some(Vec::new())
            }
            Below::Branches(_) if question.whole => None,
            Below::Branches(text) => {
                let mut next = Vec::new();
                for (n, (is, was)) in parse_branches(&text)?.into_iter().zip(self.tree.branches(&branch)).enumerate() {
                    let inner = format!("{}{n:x}", question.branch);
                    if is == was {
                        continue;
                    } else if is_empty(is) {
                        self.forget(&digits(&inner)?);
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
            // Also what was found out on the way here.
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
