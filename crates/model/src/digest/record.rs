//! The recorded state of a node. It is recorded after the node, or some of its services, was
//! provisioned or adopted.

use super::{NodeDigest, ServiceDigest};
use crate::{ClusterContext, ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The content of a baseline's blob: the digest, and the paths that the manager can render itself.
/// Older blobs contain only the digest, and can be read too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub root: Sha256,
    pub services: BTreeMap<ServiceName, ServiceDigest>,
    /// Facts of the node that its last provisioning could use.
    #[serde(default)]
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Paths whose recorded content equals the content that the manager renders. The content of all
    /// other paths is known only from the record. None if the contents were not compared.
    #[serde(default)]
    pub rendered: Option<BTreeSet<String>>,
    /// Addresses and roles with which the last provisioning was rendered. A comparison uses them
    /// and not the current ones. None if they were not recorded.
    #[serde(default)]
    pub known: Option<ClusterContext>,
}

impl Record {
    /// The recorded digest.
    pub fn digest(&self) -> NodeDigest {
        NodeDigest { root: self.root, services: self.services.clone() }
    }

    /// The record after a job about `services`, or about all services if `services` is empty.
    /// `self` is the complete state that was found. The result has these services from `self` and
    /// all others from `before`, so drift of the others remains drift. Newer facts override older
    /// ones.
    pub fn of_part(self, services: &[ServiceName], before: Option<&Record>) -> Record {
        let Some(before) = before.filter(|_| !services.is_empty()) else { return self };
        let (known, mut facts) = (before.known.clone(), before.facts.clone());
        facts.extend(self.facts.clone());
        Record {
            facts,
            known,
            ..self.with_services_from(|name| !services.contains(name), before, before.rendered.as_ref())
        }
    }

    /// The record after a job about all services. Services that are only monitored are taken from
    /// `before` if it contains them. No job provisioned their current state, so only an adoption
    /// may accept that state.
    pub fn except_monitored(self, watched: impl Fn(&ServiceName) -> bool, before: Option<&Record>) -> Record {
        let Some(before) = before else { return self };
        let both = |name: &ServiceName| self.services.contains_key(name) && before.services.contains_key(name);
        let kept: BTreeSet<ServiceName> =
            self.services.keys().filter(|name| watched(name) && both(name)).cloned().collect();
        self.with_services_from(
            |name| kept.contains(name),
            before,
            Some(before.rendered.as_ref().unwrap_or(&BTreeSet::new())),
        )
    }

    /// Takes the selected services from `before`, with their paths of `rendered`. All other
    /// services are taken from `self`.
    fn with_services_from(
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
