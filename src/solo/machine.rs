//! Facts about this machine that need no cluster: the `node` of templates, and the environment.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The variable `node` of a template. Only a cluster assigns address, group and role, so these are
/// missing.
pub(super) fn node() -> Value {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    json!({"name": name, "hostname": name})
}

/// The environment. Variables that are not UTF-8 are omitted.
pub(super) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
