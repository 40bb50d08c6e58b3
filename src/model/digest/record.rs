//! What is recorded of a node after a provisioning, an adoption or a part of either.

use super::{NodeDigest, ServiceDigest};
use crate::model::{Known, ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a baseline's blob holds: the digest, and how far the manager can render it itself. Reads the blobs of before,
/// which held the digest alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub root: Sha256,
    pub services: BTreeMap<ServiceName, ServiceDigest>,
    /// Facts of the node that its last provisioning could read.
    #[serde(default)]
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Paths whose recorded content is what the manager renders; all others are recorded only. None: nobody compared.
    #[serde(default)]
    pub rendered: Option<BTreeSet<String>>,
    /// Addresses and roles that its last provisioning was rendered with: it is compared by these, not by those of now.
    /// None: nobody noted them.
    #[serde(default)]
    pub known: Option<Known>,
}

impl Record {
    pub fn digest(&self) -> NodeDigest {
        NodeDigest { root: self.root, services: self.services.clone() }
    }

    /// What is recorded after a job about `services` (empty: about all), where `self` is all that was found: of these what
    /// was found, of all others what stood in `before`, so that what had drifted there stays drift. Of the facts, the
    /// newer ones hold.
    pub fn of_part(self, services: &[ServiceName], before: Option<&Record>) -> Record {
        let Some(before) = before.filter(|_| !services.is_empty()) else { return self };
        let (known, mut facts) = (before.known.clone(), before.facts.clone());
        facts.extend(self.facts.clone());
        Record { facts, known, ..self.keeping(|name| !services.contains(name), before, before.rendered.as_ref()) }
    }

    /// The same after a job about all: of services that are only `watched`, what stood in `before`, if it knows them. No job made
    /// them what they are now, so only an adoption takes that for good.
    pub fn but_watched(self, watched: impl Fn(&ServiceName) -> bool, before: Option<&Record>) -> Record {
        let Some(before) = before else { return self };
        let both = |name: &ServiceName| self.services.contains_key(name) && before.services.contains_key(name);
        let kept: BTreeSet<ServiceName> =
            self.services.keys().filter(|name| watched(name) && both(name)).cloned().collect();
        self.keeping(|name| kept.contains(name), before, Some(before.rendered.as_ref().unwrap_or(&BTreeSet::new())))
    }

    /// Such services as they are in `before`, of which `rendered` is; all others as they are here.
    fn keeping(
        self,
        such: impl Fn(&ServiceName) -> bool,
        before: &Record,
        rendered: Option<&BTreeSet<String>>,
    ) -> Record {
        let others: BTreeMap<_, _> = before.services.iter().filter(|(name, _)| such(name)).collect();
        let made: BTreeMap<_, _> = self.services.iter().filter(|(name, _)| !such(name)).collect();
        let (kept, new) = (paths(&others), paths(&made));
        let rendered = rendered.zip(self.rendered.as_ref()).map(|(old, now)| {
            let old = old.iter().filter(|path| kept.contains(path.as_str()));
            old.chain(now.iter().filter(|path| new.contains(path.as_str()))).cloned().collect()
        });
        let services = others.into_iter().chain(made).map(|(name, s)| (name.clone(), s.clone())).collect();
        Record { root: NodeDigest::root_of(&services), services, rendered, ..self }
    }
}

fn paths<'a>(services: &BTreeMap<&ServiceName, &'a ServiceDigest>) -> BTreeSet<&'a str> {
    services.values().flat_map(|s| &s.entries).map(|entry| entry.path.as_str()).collect()
}
