//! The variables that the hosts of a run have set so far, as far as other hosts may read them.

use remoor_playbook::{HostValues, OtherValues, SharedNames, SharedValues};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum size in bytes of the values of all hosts.
const VALUES_MAX: usize = 256 << 20;

/// The values of all hosts of a run.
#[derive(Debug, Default)]
pub(super) struct HostVariablesOfRun {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What hosts have sent in the current batch. Other hosts see it when the batch has ended, so
    /// that the result does not depend on which host is faster.
    sent: BTreeMap<String, SizedValues<SharedValues>>,
    /// By host: its own values.
    own: BTreeMap<String, SizedValues<HostValues>>,
    /// By host: the values that other hosts have set for it.
    given: BTreeMap<String, SizedValues<HostValues>>,
}

/// Values with their size in bytes, because it takes long to determine the size.
#[derive(Debug, Default)]
struct SizedValues<T> {
    values: T,
    size: usize,
}

impl<T: Serialize> SizedValues<T> {
    fn new(values: T) -> Self {
        let size = serde_json::to_vec(&values).map_or(0, |text| text.len());
        Self { values, size }
    }
}

/// The size of all values.
fn total_size<T>(all: &BTreeMap<String, SizedValues<T>>) -> usize {
    all.values().map(|one| one.size).sum()
}

/// Adds the values of `more` for which `may` is true.
fn extend(values: &mut HostValues, more: &HostValues, may: impl Fn(&String) -> bool) {
    let copy = |from: &Map<String, Value>, into: &mut Map<String, Value>| {
        into.extend(from.iter().filter(|(name, _)| may(name)).map(|(name, value)| (name.clone(), value.clone())));
    };
    copy(&more.facts, &mut values.facts);
    copy(&more.set, &mut values.set);
}

impl HostVariablesOfRun {
    /// Stores the values of `host`. Some: the reason why they can't be stored.
    pub fn store(&self, host: &str, values: SharedValues) -> Option<String> {
        let mut state = self.lock();
        let values = SizedValues::new(values);
        // A host sends its values once in a batch. If it sends them again, the last ones count.
        // They replace its values of earlier batches.
        state.sent.remove(host);
        let replaced = state.own.iter().filter(|(name, _)| *name == host || state.sent.contains_key(*name));
        let replaced: usize = replaced.map(|(_, one)| one.size).sum();
        let known = total_size(&state.sent) + total_size(&state.own) + total_size(&state.given) - replaced;
        if known + values.size > VALUES_MAX {
            return Some(format!(
                "the variables that hosts share by `hostvars` are larger than {} MiB; `register` or `set_fact` less",
                VALUES_MAX >> 20
            ));
        }
        state.sent.insert(host.to_owned(), values);
        None
    }

    /// Lets all hosts see what has been sent so far.
    pub fn begin_batch(&self) {
        let mut state = self.lock();
        for (host, sent) in std::mem::take(&mut state.sent) {
            state.own.insert(host, SizedValues::new(sent.values.own));
            for (other, more) in sent.values.others {
                let mut given = state.given.remove(&other).unwrap_or_default().values;
                extend(&mut given, &more, |_| true);
                state.given.insert(other, SizedValues::new(given));
            }
        }
    }

    /// The values that `host` receives, of other hosts only those that it may read. Those that
    /// other hosts have set for it are delivered once, because the host may change them afterwards.
    pub fn values_for(&self, host: &str, readable: Option<&SharedNames>) -> OtherValues {
        let mut state = self.lock();
        let given = state.given.remove(host).unwrap_or_default().values;
        if given != HostValues::default() {
            let mut known = state.own.remove(host).unwrap_or_default().values;
            extend(&mut known, &given, |_| true);
            state.own.insert(host.to_owned(), SizedValues::new(known));
        }
        let mut others: BTreeMap<String, HostValues> = BTreeMap::new();
        if let Some(readable) = readable {
            for (name, one) in state.own.iter().chain(&state.given).filter(|(name, _)| *name != host) {
                extend(others.entry(name.clone()).or_default(), &one.values, |name| readable.contains(name));
            }
        }
        OtherValues { own: given, others }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(set: serde_json::Value) -> HostValues {
        HostValues { set: set.as_object().cloned().unwrap(), ..HostValues::default() }
    }

    #[test]
    fn a_host_receives_the_values_of_others_and_those_that_others_set_for_it() {
        let all = HostVariablesOfRun::default();
        let names: SharedNames = serde_json::from_value(json!({"names": [], "given": [], "all": true})).unwrap();
        let all_names = Some(&names);
        let given = [("h2".to_owned(), values(json!({"given": 1}))), ("db".to_owned(), values(json!({"x": 2})))];
        let shared = SharedValues { own: values(json!({"a": 1})), others: given.into() };
        assert_eq!(all.store("h1", shared), None);
        assert_eq!(all.store("h2", SharedValues { own: values(json!({"b": 1})), ..SharedValues::default() }), None);
        assert_eq!(all.store("h2", SharedValues { own: values(json!({"b": 2})), ..SharedValues::default() }), None);
        assert_eq!(all.values_for("h2", all_names), OtherValues::default(), "the batch has not ended");
        all.begin_batch();
        let second = all.values_for("h2", all_names);
        assert_eq!(second.own, values(json!({"given": 1})));
        let expected = [("db".to_owned(), values(json!({"x": 2}))), ("h1".to_owned(), values(json!({"a": 1})))];
        assert_eq!(second.others, expected.into());
        assert_eq!(all.values_for("h2", all_names).own, HostValues::default(), "they are delivered once");
        assert_eq!(all.values_for("h1", None).others, BTreeMap::new(), "its plan reads no variables of others");
        let one: SharedNames = serde_json::from_value(json!({"names": ["b"], "given": [], "all": false})).unwrap();
        assert_eq!(all.values_for("h1", Some(&one)).others["h2"], values(json!({"b": 2})), "only what it may read");
        assert_eq!(all.values_for("h1", all_names).others["h2"], values(json!({"b": 2, "given": 1})));
    }

    #[test]
    fn values_that_are_given_in_each_batch_count_once() {
        let all = HostVariablesOfRun::default();
        for _ in 0..3 {
            let others = [("db".to_owned(), values(json!({"x": "same"})))].into();
            assert_eq!(all.store("h1", SharedValues { others, ..SharedValues::default() }), None);
            all.begin_batch();
        }
        let given = SizedValues::new(values(json!({"x": "same"}))).size;
        assert_eq!(total_size(&all.lock().given), given);
    }

    #[test]
    fn the_values_of_all_hosts_are_limited() {
        let all = HostVariablesOfRun::default();
        let large =
            || SharedValues { own: values(json!({"a": "x".repeat(VALUES_MAX / 2)})), ..SharedValues::default() };
        assert_eq!(all.store("h1", large()), None);
        all.begin_batch();
        assert_eq!(all.store("h1", large()), None, "the values of a host replace its earlier ones");
        assert!(all.store("h2", large()).unwrap().contains("larger than 256 MiB"));
    }
}
