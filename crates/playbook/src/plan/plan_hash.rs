//! The hash of a plan, by which a node's desired state is compared.

use crate::plan::{Blob, Plan, Play, PythonModule};
use crate::vars::var_map::SharedVar;
use remoor_model::Sha256;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The fields of [`Plan`] in the form that is hashed.
#[derive(Serialize)]
struct HashedPlan<'a> {
    version: u32,
    playbook: &'a str,
    host: &'a str,
    vars: SerializedMap<'a>,
    shared: BTreeMap<&'a String, &'a SharedVar>,
    extra: &'a Map<String, Value>,
    layers: &'a [Map<String, Value>],
    plays: &'a [Play],
    blobs: &'a BTreeMap<String, Blob>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    modules: &'a BTreeMap<String, PythonModule>,
}

/// A map that is serialized in the order of its pairs.
struct SerializedMap<'a>(Vec<(&'a String, &'a Value)>);

impl Serialize for SerializedMap<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().copied())
    }
}

impl Plan {
    /// The hash of the plan. Equal plans of the same compiler have equal hashes. The hash of a plan
    /// with secrets is keyed, see [`PlanSecrets::keyed_hash`](crate::PlanSecrets::keyed_hash).
    pub fn sha256(&self) -> Sha256 {
        let Self {
            version,
            playbook,
            host,
            vars,
            shared,
            extra,
            layers,
            plays,
            blobs,
            modules,
            delegated: _,
            resumed: _,
            shares: _,
            secrets,
        } = self;
        // A shared variable can also be a variable of the host. It is then hashed at the place of
        // the host's variable, as if the plan contained a copy.
        let own = vars.iter().map(|(name, value)| (name, shared.get(name).map_or(value, SharedVar::json)));
        let others = shared.iter().filter(|(name, _)| !vars.contains_key(*name));
        let hashed = HashedPlan {
            version: *version,
            playbook,
            host,
            vars: SerializedMap(own.collect()),
            shared: others.collect(),
            extra,
            layers,
            plays,
            blobs,
            modules,
        };
        secrets.keyed_hash(&serde_json::to_vec(&hashed).unwrap_or_default())
    }
}
