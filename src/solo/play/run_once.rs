//! The results of tasks that one host runs for all hosts of its batch (`run_once`), and the choice
//! of that host.
//!
//! A host runs such a task if each host before it in the batch has completed the play or has
//! failed. Otherwise it waits for a host before it. So no two hosts wait for each other, and the
//! wait ends when the host before it ends, in any way.

use remoor_playbook::{OnceAnswer, SourcePlace};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// Maximum size in bytes of all results of one batch.
const RESULTS_MAX: usize = 64 << 20;

/// The results of the current batch. All hosts of a run share them.
#[derive(Debug)]
pub(super) struct RunOnceResults {
    state: watch::Sender<State>,
}

/// A task that runs once: its file and line, and how often a host has reached this line before.
type Occurrence = (String, u32, u32);

#[derive(Debug, Default)]
struct State {
    /// The hosts of the batch, in the order in which they run tasks for the others.
    batch: Vec<String>,
    /// The hosts of the batch that have completed the play or have ended.
    ended: BTreeSet<String>,
    /// How often each host has asked for a task.
    asked: BTreeMap<(String, String, u32), u32>,
    tasks: BTreeMap<Occurrence, Progress>,
    size: usize,
}

#[derive(Debug)]
enum Progress {
    /// This host was chosen to run the task.
    Chosen(String),
    Done {
        host: String,
        content: Value,
    },
}

impl Default for RunOnceResults {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::default()) }
    }
}

impl RunOnceResults {
    /// Forgets the results of the previous batch.
    pub fn begin_batch(&self, batch: Vec<String>) {
        self.state.send_replace(State { batch, ..State::default() });
    }

    /// Records that a host has completed the play or has ended, so no other host waits for it.
    pub fn end_host(&self, host: &str) {
        self.state.send_if_modified(|state| state.ended.insert(host.to_owned()));
    }

    /// Waits until `host` must run the task at `place`, or until another host has its result.
    pub async fn take_turn(&self, host: &str, place: &SourcePlace) -> OnceAnswer {
        let mut changes = self.state.subscribe();
        let mut task = None;
        self.state.send_if_modified(|state| {
            let asked = state.asked.entry((host.to_owned(), place.file.clone(), place.line)).or_default();
            task = Some((place.file.clone(), place.line, *asked));
            *asked += 1;
            false
        });
        let Some(task) = task else { return OnceAnswer::Stopped };
        loop {
            let mut answer = None;
            self.state.send_if_modified(|state| {
                answer = state.answer(host, &task);
                false
            });
            if let Some(answer) = answer {
                return answer;
            }
            if changes.changed().await.is_err() {
                return OnceAnswer::Stopped;
            }
        }
    }

    /// Stores the result of the task at `place`, for which `host` was chosen. Fails if it was not.
    /// Some: the reason why the result cannot be stored, with which the task must fail.
    pub fn publish(&self, host: &str, place: &SourcePlace, content: Value) -> Result<Option<String>, String> {
        let mut outcome = Ok(None);
        self.state.send_modify(|state| outcome = state.store(host, place, content));
        outcome
    }
}

impl State {
    /// What `host` must do now. None: it waits.
    fn answer(&mut self, host: &str, task: &Occurrence) -> Option<OnceAnswer> {
        // A host outside the batch is alone in its play, and gives its result to nobody.
        if !self.is_in_batch(host) {
            return Some(OnceAnswer::Run);
        }
        if let Some(Progress::Done { host, content }) = self.tasks.get(task) {
            return Some(OnceAnswer::Known { host: host.clone(), content: content.clone() });
        }
        if self.batch.iter().take_while(|other| *other != host).any(|other| !self.ended.contains(other)) {
            return None;
        }
        self.tasks.insert(task.clone(), Progress::Chosen(host.to_owned()));
        Some(OnceAnswer::Run)
    }

    fn is_in_batch(&self, host: &str) -> bool {
        self.batch.iter().any(|other| other == host)
    }

    fn store(&mut self, host: &str, place: &SourcePlace, content: Value) -> Result<Option<String>, String> {
        if !self.is_in_batch(host) {
            return Ok(None);
        }
        let last = self.asked.get(&(host.to_owned(), place.file.clone(), place.line)).and_then(|n| n.checked_sub(1));
        let task = last.map(|n| (place.file.clone(), place.line, n));
        let chosen =
            |(_, progress): &(&Occurrence, &mut Progress)| matches!(progress, Progress::Chosen(by) if by == host);
        let found = task.and_then(|task| self.tasks.iter_mut().find(|(known, _)| **known == task).filter(chosen));
        let Some((_, progress)) = found else {
            return Err(format!(
                "a result of the task at {}:{}, which it was not chosen to run",
                place.file, place.line
            ));
        };
        let size = self.size + content.to_string().len();
        if size > RESULTS_MAX {
            return Ok(Some(format!(
                "the results of the `run_once` tasks of this batch are larger than {} MiB; register less, or use a \
                 smaller `serial`",
                RESULTS_MAX >> 20
            )));
        }
        self.size = size;
        *progress = Progress::Done { host: host.to_owned(), content };
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn place() -> SourcePlace {
        SourcePlace { file: "site.yml".to_owned(), line: 3 }
    }

    fn of_batch(hosts: &[&str]) -> Arc<RunOnceResults> {
        let once = Arc::new(RunOnceResults::default());
        once.begin_batch(hosts.iter().map(|host| (*host).to_owned()).collect());
        once
    }

    /// Starts the wait of a host and lets it run until it waits.
    async fn wait_for_turn(once: &Arc<RunOnceResults>, host: &'static str) -> tokio::task::JoinHandle<OnceAnswer> {
        let once = Arc::clone(once);
        let waiting = tokio::spawn(async move { once.take_turn(host, &place()).await });
        tokio::task::yield_now().await;
        waiting
    }

    #[tokio::test]
    async fn a_host_outside_the_batch_neither_takes_a_turn_nor_gives_or_gets_a_result() {
        let once = of_batch(&["h1", "h2"]);
        assert_eq!(once.take_turn("h9", &place()).await, OnceAnswer::Run);
        assert_eq!(once.publish("h9", &place(), json!("of h9")), Ok(None));
        assert_eq!(once.take_turn("h1", &place()).await, OnceAnswer::Run);
        once.publish("h1", &place(), json!(1)).unwrap();
        assert_eq!(once.take_turn("h9", &place()).await, OnceAnswer::Run);
        let known = OnceAnswer::Known { host: "h1".to_owned(), content: json!(1) };
        assert_eq!(once.take_turn("h2", &place()).await, known);
    }

    #[tokio::test]
    async fn the_first_host_runs_and_the_others_get_its_result() {
        let once = of_batch(&["h1", "h2", "h3"]);
        let second = wait_for_turn(&once, "h2").await;
        assert!(!second.is_finished());
        assert_eq!(once.take_turn("h1", &place()).await, OnceAnswer::Run);
        once.publish("h1", &place(), json!(1)).unwrap();
        let known = |content| OnceAnswer::Known { host: "h1".to_owned(), content: json!(content) };
        assert_eq!(second.await.unwrap(), known(1));
        assert_eq!(once.take_turn("h3", &place()).await, known(1));
        // A loop reaches the same line again.
        let again = wait_for_turn(&once, "h2").await;
        assert_eq!(once.take_turn("h1", &place()).await, OnceAnswer::Run);
        once.publish("h1", &place(), json!(2)).unwrap();
        assert_eq!(again.await.unwrap(), known(2));
    }

    #[tokio::test]
    async fn the_next_host_runs_if_the_first_one_ends() {
        let once = of_batch(&["h1", "h2", "h3"]);
        assert_eq!(once.take_turn("h1", &place()).await, OnceAnswer::Run);
        let (third, second) = (wait_for_turn(&once, "h3").await, wait_for_turn(&once, "h2").await);
        assert!(!second.is_finished());
        once.end_host("h1");
        assert_eq!(second.await.unwrap(), OnceAnswer::Run);
        assert!(!third.is_finished());
        once.publish("h2", &place(), json!("of h2")).unwrap();
        let known = OnceAnswer::Known { host: "h2".to_owned(), content: json!("of h2") };
        assert_eq!(third.await.unwrap(), known);
    }

    #[tokio::test]
    async fn only_the_chosen_host_stores_a_result_and_only_once() {
        let once = of_batch(&["h1", "h2"]);
        assert!(once.publish("h1", &place(), json!(0)).unwrap_err().contains("not chosen"));
        assert_eq!(once.take_turn("h1", &place()).await, OnceAnswer::Run);
        let second = wait_for_turn(&once, "h2").await;
        assert!(once.publish("h2", &place(), json!(2)).unwrap_err().contains("not chosen"));
        once.publish("h1", &place(), json!(1)).unwrap();
        assert!(once.publish("h1", &place(), json!(3)).is_err());
        assert!(matches!(second.await.unwrap(), OnceAnswer::Known { content, .. } if content == json!(1)));
        let large = json!("x".repeat(RESULTS_MAX));
        assert_eq!(once.take_turn("h1", &place()).await, OnceAnswer::Run);
        assert!(once.publish("h1", &place(), large).unwrap().unwrap().contains("larger than 64 MiB"));
    }
}
