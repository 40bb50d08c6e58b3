//! The variables that the hosts of a run have set so far, as far as other hosts may read them. At
//! the end of a play they are complete. A host that reads some of them earlier waits until the
//! other hosts of its batch have passed the tasks that set them.

use remoor_playbook::{HostValues, OtherValues, PlayExchange, SharedNames, SharedValues};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Maximum size in bytes of the values of all hosts.
const VALUES_MAX: usize = 256 << 20;

/// The values of all hosts of a run.
#[derive(Debug, Default)]
pub(super) struct HostVariablesOfRun {
    state: Mutex<State>,
    /// Notified whenever a host of the batch begins, passes a task that sets variables, begins or
    /// ends to wait, or ends.
    changed: Notify,
}

/// The file and line of a task.
type Place = (String, u32);

/// A host of the present batch.
#[derive(Debug, Default)]
struct HostOfBatch {
    /// None: its plan exchanges no variables in this play.
    exchange: Option<PlayExchange>,
    begun: bool,
    ended: bool,
    waits: bool,
    /// The places of the tasks with variables for others that the host has passed.
    passed: BTreeSet<Place>,
}

impl HostOfBatch {
    /// Records that the host has come to this task, so that it has run or skipped the tasks before.
    /// True: the host has passed more tasks than before.
    fn reach(&mut self, task: u32) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let known = self.passed.len();
        let set = exchange.setters.iter().position(|(id, _)| *id == task).map(|at| at + 1);
        let before = set.or_else(|| exchange.readers.get(&task).copied()).unwrap_or_default();
        self.passed.extend(exchange.setters[..before].iter().map(|(_, place)| (place.file.clone(), place.line)));
        self.passed.len() > known
    }

    /// Whether the host has still to run a task at one of these places.
    fn is_before(&self, places: &[Place]) -> bool {
        let Some(exchange) = self.exchange.as_ref().filter(|_| !self.ended) else { return false };
        let has = |place: &Place| exchange.setters.iter().any(|(_, own)| own.file == place.0 && own.line == place.1);
        !self.begun || places.iter().any(|place| has(place) && !self.passed.contains(place))
    }
}

#[derive(Debug, Default)]
struct State {
    /// What hosts have sent in the current batch. Other hosts see it when the batch has ended, so
    /// that the result does not depend on which host is faster.
    sent: BTreeMap<String, SizedValues<SharedValues>>,
    /// By host: its own values.
    own: BTreeMap<String, SizedValues<HostValues>>,
    /// By host: what it has set in the current batch so far, as far as others read it there, in
    /// order.
    now: BTreeMap<String, Vec<SetValues>>,
    batch: BTreeMap<String, HostOfBatch>,
    /// By host: the values that other hosts have set for it.
    given: BTreeMap<String, SizedValues<HostValues>>,
}

/// Values, with the place of the task that has set them. None: they are those at the begin of the
/// play.
type SetValues = (Option<Place>, SizedValues<HostValues>);

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

fn too_large() -> String {
    let most = VALUES_MAX >> 20;
    format!("the variables that hosts share by `hostvars` are larger than {most} MiB; `register` or `set_fact` less")
}

impl State {
    /// What `host` may read of the other hosts.
    fn values_of_others(&self, host: &str, readable: Option<&SharedNames>) -> BTreeMap<String, HostValues> {
        let mut others: BTreeMap<String, HostValues> = BTreeMap::new();
        if let Some(readable) = readable {
            for (name, one) in self.own.iter().chain(&self.given).filter(|(name, _)| *name != host) {
                extend(others.entry(name.clone()).or_default(), &one.values, |name| readable.contains(name));
            }
        }
        others
    }
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
            return Some(too_large());
        }
        state.sent.insert(host.to_owned(), values);
        None
    }

    /// Stores values that hosts of the same batch may read. `host` has come to `task`, or begins
    /// the play. Some: the reason why they can't be stored.
    pub fn publish(&self, host: &str, task: Option<u32>, values: HostValues) -> Option<String> {
        let mut state = self.lock();
        let values = SizedValues::new(values);
        let now: usize = state.now.values().flatten().map(|(_, one)| one.size).sum();
        let known = total_size(&state.own) + total_size(&state.given) + total_size(&state.sent) + now;
        if known + values.size > VALUES_MAX {
            return Some(too_large());
        }
        let exchange = state.batch.get(host).and_then(|one| one.exchange.as_ref());
        let place = task.and_then(|task| exchange?.setters.iter().find(|(id, _)| *id == task));
        let place = place.map(|(_, place)| (place.file.clone(), place.line));
        state.now.entry(host.to_owned()).or_default().push((place, values));
        if let Some(one) = state.batch.get_mut(host) {
            let has_begun = !std::mem::replace(&mut one.begun, true);
            // A compromised host sends the same again and again, and every wake costs time.
            if task.is_some_and(|task| one.reach(task)) || has_begun {
                self.changed.notify_waiters();
            }
        }
        None
    }

    /// Waits until all hosts of the batch have passed the tasks that set what `task` of `host`
    /// reads. Returns the values of the other hosts.
    pub async fn await_others(
        &self,
        host: &str,
        task: u32,
        readable: Option<&SharedNames>,
    ) -> BTreeMap<String, HostValues> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(values) = self.try_read(host, task, readable) {
                return values;
            }
            changed.await;
        }
    }

    /// Records that `host` has come to `task`, and whether it must wait for others. Returns the
    /// values that the task reads. None: the host must wait.
    fn try_read(&self, host: &str, task: u32, readable: Option<&SharedNames>) -> Option<BTreeMap<String, HostValues>> {
        let mut state = self.lock();
        let exchange = state.batch.get(host).and_then(|one| one.exchange.as_ref());
        let before = exchange.and_then(|exchange| Some(&exchange.setters[..*exchange.readers.get(&task)?]));
        let places: Option<Vec<Place>> =
            before.map(|setters| setters.iter().map(|(_, place)| (place.file.clone(), place.line)).collect());
        let waits_for = |(name, one): (&String, &HostOfBatch)| {
            name != host && places.as_ref().is_some_and(|places| one.is_before(places))
        };
        let mut waits = state.batch.iter().any(waits_for);
        if let Some(one) = state.batch.get_mut(host) {
            if one.reach(task) || one.waits != waits {
                self.changed.notify_waiters();
            }
            one.waits = waits;
        }
        // Two hosts that reach the tasks in a different order must not wait for each other.
        waits &= !state.batch.values().all(|one| one.waits || one.ended);
        if waits {
            return None;
        }
        if let Some(one) = state.batch.get_mut(host).filter(|one| one.waits) {
            one.waits = false;
            self.changed.notify_waiters();
        }
        let mut others = state.values_of_others(host, readable);
        // A task that comes later does not change what this task reads.
        let exchange = state.batch.get(host).and_then(|one| one.exchange.as_ref());
        let is_later = |place: &Place| {
            let mut own = exchange.iter().flat_map(|exchange| &exchange.setters);
            own.any(|(_, own)| own.file == place.0 && own.line == place.1)
                && places.as_ref().is_some_and(|before| !before.contains(place))
        };
        for (name, sent) in state.now.iter().filter(|(name, _)| *name != host) {
            for (_, one) in sent.iter().filter(|(place, _)| !place.as_ref().is_some_and(is_later)) {
                let may = |name: &String| readable.is_some_and(|readable| readable.contains(name));
                extend(others.entry(name.clone()).or_default(), &one.values, may);
            }
        }
        Some(others)
    }

    /// Number of hosts that wait for others of the batch.
    pub fn count_waiting(&self) -> usize {
        self.lock().batch.values().filter(|one| one.waits).count()
    }

    /// Ends when `changed` is notified.
    pub fn next_change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Records that a host has completed the play or has ended, so no other host waits for it.
    pub fn end_host(&self, host: &str) {
        if let Some(one) = self.lock().batch.get_mut(host) {
            one.ended = true;
        }
        self.changed.notify_waiters();
    }

    /// Lets all hosts see what has been sent so far. `batch`: the hosts that begin a play, with
    /// what they exchange in it.
    pub fn begin_batch(&self, batch: impl IntoIterator<Item = (String, Option<PlayExchange>)>) {
        let mut state = self.lock();
        let of = |exchange| HostOfBatch { exchange, ..HostOfBatch::default() };
        state.batch = batch.into_iter().map(|(host, exchange)| (host, of(exchange))).collect();
        // A host that failed in the play has sent nothing at its end.
        for (host, now) in std::mem::take(&mut state.now) {
            let mut known = state.own.remove(&host).unwrap_or_default().values;
            now.iter().for_each(|(_, one)| extend(&mut known, &one.values, |_| true));
            state.own.insert(host, SizedValues::new(known));
        }
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
        OtherValues { own: given, others: state.values_of_others(host, readable) }
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
        all.begin_batch([]);
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
            all.begin_batch([]);
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
        all.begin_batch([]);
        assert_eq!(all.store("h1", large()), None, "the values of a host replace its earlier ones");
        assert!(all.store("h2", large()).unwrap().contains("larger than 256 MiB"));
    }

    /// What a plan exchanges: the task 1 in line 1 sets variables, and the task 2 reads some.
    fn exchange() -> Option<PlayExchange> {
        let place = remoor_playbook::SourcePlace { file: "site.yml".to_owned(), line: 1 };
        Some(PlayExchange { setters: vec![(1, place)], readers: [(2, 1)].into(), ..PlayExchange::default() })
    }

    fn batch_of(hosts: &[&str]) -> std::sync::Arc<HostVariablesOfRun> {
        let all = std::sync::Arc::new(HostVariablesOfRun::default());
        all.begin_batch(hosts.iter().map(|host| ((*host).to_owned(), exchange())));
        all
    }

    fn all_names() -> SharedNames {
        serde_json::from_value(json!({"names": [], "given": [], "all": true})).unwrap()
    }

    #[tokio::test]
    async fn a_host_waits_until_the_others_have_passed_the_task_that_sets_what_it_reads() {
        let all = batch_of(&["h1", "h2", "h3", "h4"]);
        assert_eq!(all.publish("h2", None, HostValues::default()), None);
        let names = all_names();
        let second = std::sync::Arc::clone(&all);
        let waiting = tokio::spawn(async move { second.await_others("h2", 2, Some(&all_names())).await });
        while all.count_waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(all.publish("h1", None, values(json!({"ansible_kernel": "k"}))), None);
        assert_eq!(all.try_read("h2", 2, Some(&names)), None, "h1 has not run the task");
        assert_eq!(all.publish("h1", Some(1), values(json!({"token": 1}))), None);
        assert_eq!(all.try_read("h2", 2, Some(&names)), None, "h3 has not begun");
        all.end_host("h3");
        assert_eq!(all.publish("h4", None, HostValues::default()), None);
        assert!(!waiting.is_finished());
        // h4 has skipped the task, for example with its block.
        assert!(all.try_read("h4", 2, Some(&names)).is_some());
        let read = waiting.await.unwrap();
        assert_eq!(read["h1"], values(json!({"ansible_kernel": "k", "token": 1})));
        assert_eq!(all.count_waiting(), 0);
        all.begin_batch([]);
        assert_eq!(all.values_for("h2", Some(&names)).others["h1"].set["token"], 1, "h1 failed after the task");
    }

    #[tokio::test]
    async fn a_host_that_sends_the_same_again_wakes_no_other_host() {
        let all = batch_of(&["h1", "h2"]);
        let wakes = |task: Option<u32>| {
            let mut changed = Box::pin(all.next_change());
            changed.as_mut().enable();
            assert_eq!(all.publish("h1", task, HostValues::default()), None);
            changed.as_mut().enable()
        };
        assert_eq!([None, None, Some(1), Some(1), Some(9)].map(wakes), [true, false, true, false, false]);
    }

    #[tokio::test]
    async fn hosts_that_all_wait_do_not_wait_for_ever() {
        let all = batch_of(&["h1", "h2"]);
        // Each of them reads before it has run the task.
        for host in ["h1", "h2"] {
            assert_eq!(all.publish(host, None, HostValues::default()), None);
        }
        all.lock().batch.get_mut("h1").unwrap().waits = true;
        assert!(all.try_read("h2", 2, None).is_some());
        assert!(all.try_read("h1", 2, None).is_some(), "h2 has passed the task");
    }
}
