//! The variables that the hosts of a run have set so far, as far as other hosts may read them.

use remoor_playbook::{HostValues, OtherValues, SharedNames, SharedValues};
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
    sent: Vec<(String, SharedValues)>,
    /// By host: its own values, and their size.
    own: BTreeMap<String, (HostValues, usize)>,
    /// By host: the values that other hosts have set for it.
    given: BTreeMap<String, HostValues>,
    given_size: usize,
}

impl HostVariablesOfRun {
    /// Stores the values of `host`. Some: the reason why they can't be stored.
    pub fn store(&self, host: &str, values: SharedValues) -> Option<String> {
        let mut state = self.lock();
        let size = |values: &SharedValues| size_of(&values.own) + values.others.values().map(size_of).sum::<usize>();
        // A host sends its values once in a batch. If it sends them again, the last ones count.
        state.sent.retain(|(name, _)| name != host);
        let sent = state.sent.iter().map(|(_, values)| size(values)).sum::<usize>() + size(&values);
        let own =
            state.own.iter().filter(|(name, _)| *name != host && !state.sent.iter().any(|(sent, _)| sent == *name));
        let all = sent + state.given_size + own.map(|(_, (_, size))| size).sum::<usize>();
        if all > VALUES_MAX {
            return Some(format!(
                "the variables that hosts share by `hostvars` are larger than {} MiB; `register` or `set_fact` less",
                VALUES_MAX >> 20
            ));
        }
        state.sent.push((host.to_owned(), values));
        None
    }

    /// Lets all hosts see what has been sent so far.
    pub fn begin_batch(&self) {
        let mut state = self.lock();
        for (host, values) in std::mem::take(&mut state.sent) {
            let size = size_of(&values.own);
            state.own.insert(host, (values.own, size));
            for (other, values) in values.others {
                state.given_size += size_of(&values);
                let given = state.given.entry(other).or_default();
                given.facts.extend(values.facts);
                given.set.extend(values.set);
            }
        }
    }

    /// The values that `host` receives, of other hosts only those that it may read. Those that
    /// other hosts have set for it are delivered once, because the host may change them afterwards.
    pub fn values_for(&self, host: &str, readable: Option<&SharedNames>) -> OtherValues {
        let mut state = self.lock();
        let given = state.given.remove(host).unwrap_or_default();
        let (known, _) = state.own.entry(host.to_owned()).or_default();
        known.facts.extend(given.facts.clone());
        known.set.extend(given.set.clone());
        let mut others: BTreeMap<String, HostValues> = BTreeMap::new();
        let own = state.own.iter().map(|(name, (values, _))| (name, values));
        let may_read = |name: &String| readable.is_some_and(|names| names.contains(name));
        let copy = |values: &Map<String, Value>, into: &mut Map<String, Value>| {
            into.extend(
                values.iter().filter(|(name, _)| may_read(name)).map(|(name, value)| (name.clone(), value.clone())),
            );
        };
        for (name, values) in own.chain(&state.given).filter(|(name, _)| *name != host && readable.is_some()) {
            let merged = others.entry(name.clone()).or_default();
            copy(&values.facts, &mut merged.facts);
            copy(&values.set, &mut merged.set);
        }
        OtherValues { own: given, others }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size_of(values: &HostValues) -> usize {
    serde_json::to_vec(values).map_or(0, |text| text.len())
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
        assert_eq!(all.values_for("h1", all_names).others["h2"], values(json!({"b": 2, "given": 1})));
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
