//! This machine as far as it is known without a cluster: what templates see of it, and the environment.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `node` of a template. Address, group and role are the cluster's words on a machine, so they are not there.
pub(super) fn node() -> Value {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    json!({"name": name, "hostname": name})
}

/// The environment; what is no text is left out.
pub(super) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
