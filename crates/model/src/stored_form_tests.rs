//! Tests that fix the stored form of the large types: the JSON text, the MessagePack bytes, and the
//! fields that may be missing. The Raft log and snapshots contain these forms, and so do messages
//! from managers of another version.

use crate::{Inventory, Job, Node, ResetupRequest, Sha256};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::fmt::Debug;

/// Checks the stored form of `T`. `text` is the JSON text of a value in which no field has its
/// default. `digest` is the hash of the MessagePack form. `optional` lists the fields that may be
/// missing.
fn assert_stored_form<T: Serialize + DeserializeOwned + PartialEq + Debug>(text: &str, digest: &str, optional: &str) {
    let value: T = serde_json::from_str(text).expect("the JSON form");
    let written = serde_json::to_string_pretty(&value).expect("JSON");
    assert_eq!(written, text.trim_end(), "the JSON form and the order of its fields");
    let packed = rmp_serde::to_vec_named(&value).expect("MessagePack");
    assert_eq!(rmp_serde::from_slice::<T>(&packed).expect("the MessagePack form"), value);
    let packed_digest = Sha256::digest(&packed).short_hex();

    let fields: Map<String, Value> = serde_json::from_str(text).expect("a JSON object");
    let unset = [Value::Null, false.into(), 0.into(), "".into(), Value::Array(Vec::new()), Value::Object(Map::new())];
    assert_eq!(fields.iter().find(|(_, value)| unset.contains(value)), None, "each field has a value");
    let unpack = |fields: &Map<String, Value>| {
        let packed = rmp_serde::to_vec_named(fields).expect("MessagePack");
        rmp_serde::from_slice::<T>(&packed).ok()
    };
    // In JSON, a numeric key of a map becomes a text. MessagePack does not read that text as a
    // number.
    let unpacks = unpack(&fields).is_some();
    let read = |fields: &Map<String, Value>| {
        let read = serde_json::from_value::<T>(Value::Object(fields.clone())).ok();
        assert!(!unpacks || unpack(fields) == read, "both forms are read alike: {fields:?}");
        read
    };
    let without = |names: &[&str]| {
        let kept = fields.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<String, Value>>()
    };
    let mut missing: Vec<&str> =
        fields.keys().map(String::as_str).filter(|name| read(&without(&[name])).is_some()).collect();
    missing.sort_unstable();
    assert_eq!(
        (packed_digest.as_str(), missing.join(" ").as_str()),
        (digest, optional),
        "the MessagePack form, and the fields that may be missing"
    );
    let least = serde_json::to_value(read(&without(&missing)).expect("the smallest form")).expect("JSON");
    for (name, value) in least.as_object().expect("an object") {
        let is_default = unset.contains(value) || *value == serde_json::json!({"since": 0, "by": "", "old": null});
        let is_optional = missing.contains(&name.as_str());
        let is_structure = ["gossip", "authority"].contains(&name.as_str());
        assert!(!is_optional || is_default || is_structure, "{name} has the default {value}");
        assert!(is_optional || *value == fields[name], "{name}");
    }
    let mut newer = fields.clone();
    newer.insert("field_of_a_newer_version".to_owned(), 1.into());
    assert_eq!(read(&newer), Some(value), "unknown fields are ignored");
}

#[test]
fn the_stored_form_of_a_node() {
    assert_stored_form::<Node>(
        include_str!("stored_form/node.json"),
        "47dccfd68649",
        "absence baseline drifted_since failed finding hold job key_changed lost \
         maintenance marks moved provisioned_at raft removing trusted unseen want watched",
    );
}

#[test]
fn the_stored_form_of_an_inventory() {
    assert_stored_form::<Inventory>(
        include_str!("stored_form/inventory.json"),
        "a3922e82b1b8",
        "authority breaker denied gossip invites lapsed left manager_token \
         moved only_listed_operators operators pending removed worker_token",
    );
}

#[test]
fn the_stored_form_of_a_job() {
    assert_stored_form::<Job>(
        include_str!("stored_form/job.json"),
        "91f4c1e6b340",
        "by closed cut force result retry_at rollout undo vars",
    );
}

#[test]
fn the_stored_form_of_a_resetup_request() {
    assert_stored_form::<ResetupRequest>(
        include_str!("stored_form/resetup_request.json"),
        "c1769ead5c9b",
        "by commission examined force rollout undo vars",
    );
}
