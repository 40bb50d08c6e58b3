//! Reads the output of Ansible. Lines of remoor's callback plugin become events in the same form as
//! those of a native playbook; all other lines are stored as text. The reader also collects counts,
//! the first failure and the changed tasks.
//!
//! The sizes of events, names and stored lines are limited. This module does not decide the result
//! of the run.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

/// Maximum number of events that are passed on. One more event reports that events were omitted.
/// The counts include omitted events.
const EVENTS_MAX: usize = 20_000;
/// Maximum number of changed tasks that the summary at the end of a run names.
const CHANGED_MAX: usize = 50;
/// Maximum number of stored text lines of Ansible's output.
const TAIL_LINES: usize = 20;
/// Maximum length of Ansible's error text in bytes.
const COMPLAINT_MAX: usize = 1_000;
/// The text that replaces a password in the output.
const MASK: &str = "********";

/// One line of the output of `callback.py`.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum CallbackLine {
    TaskStart { i: u32, name: String },
    Task(TaskResult),
    Handler(TaskResult),
    NoHosts,
    Stats { host: String, rescued: u64 },
}

/// The result of one item, or of a task as a whole.
#[derive(Deserialize)]
struct TaskResult {
    i: u32,
    name: String,
    module: String,
    item: Option<String>,
    status: Status,
    whole: bool,
    msg: String,
    rc: Option<i32>,
    stdout_tail: String,
    took_ms: u64,
    host: String,
    file: String,
    line: u32,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Ok,
    Changed,
    Skipped,
    Failed,
    Ignored,
    Unreachable,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Changed => "changed",
            Status::Skipped => "skipped",
            Status::Failed => "failed",
            Status::Ignored => "ignored",
            Status::Unreachable => "unreachable",
        }
    }
}

/// A failed task, in the form in which a native playbook reports it.
#[derive(Debug, Clone)]
pub(super) struct TaskFailure {
    /// Whether Ansible could not connect to the host. The task then did nothing.
    pub unreachable: bool,
    task: String,
    file: String,
    line: u32,
    pub rc: Option<i32>,
    message: String,
    /// The last lines of the task's output.
    pub tail: Vec<String>,
}

impl TaskFailure {
    /// Formats the failure as `file:line: task: message`.
    pub fn describe(&self, host: &str) -> String {
        let place = if self.file.is_empty() { String::new() } else { format!("{}:{}: ", self.file, self.line) };
        let cannot = if self.unreachable { format!("Ansible can't reach {host}: ") } else { String::new() };
        // In later paragraphs of the message, Ansible only guesses the location of the error.
        let message = self.message.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        format!("{place}{}: {cannot}{message}", self.task)
    }
}

pub(super) struct CallbackReader {
    /// Prefix of each output line that the callback plugin writes.
    word: String,
    host: String,
    /// The path of the run's folder. `clean` removes this path from every text.
    dir: String,
    hide: Vec<String>,
    events: usize,
    counts: BTreeMap<Status, u64>,
    changed: Vec<String>,
    /// The running task: its number and name. `items` says whether the task reported results of
    /// single items.
    task: Option<(u32, String)>,
    items: bool,
    first: Option<TaskFailure>,
    last: Option<TaskFailure>,
    rescued: bool,
    no_hosts: bool,
    reached: bool,
    tail: VecDeque<String>,
}

impl CallbackReader {
    /// A reader for the run with the id `word` in `dir` on `host`. `hide` contains texts to mask,
    /// the longest first.
    pub fn new(word: String, host: String, dir: PathBuf, hide: Vec<String>) -> Self {
        Self {
            word: format!("{word} "),
            host,
            dir: dir.display().to_string(),
            hide,
            events: 0,
            counts: BTreeMap::new(),
            changed: Vec::new(),
            task: None,
            items: false,
            first: None,
            last: None,
            rescued: false,
            no_hosts: false,
            reached: false,
            tail: VecDeque::new(),
        }
    }

    /// Reads a line of Ansible's output. Returns the event of the line, if it has one.
    pub fn line(&mut self, line: &str) -> Option<Value> {
        let said = line.strip_prefix(&self.word).and_then(|json| serde_json::from_str::<CallbackLine>(json).ok());
        let event = match said {
            None => {
                let line = self.clean(line);
                if self.tail.len() == TAIL_LINES {
                    self.tail.pop_front();
                }
                self.tail.push_back(line.clone());
                json!({"event": "output", "i": self.task.as_ref().map_or(0, |(i, _)| *i), "line": line})
            }
            Some(CallbackLine::TaskStart { i, name }) => {
                let name = self.clean(&name);
                self.task = Some((i, name.clone()));
                self.items = false;
                json!({"event": "task-start", "i": i, "name": name, "item": null})
            }
            Some(CallbackLine::Task(result)) => self.result("task", result)?,
            Some(CallbackLine::Handler(result)) => self.result("handler", result)?,
            Some(CallbackLine::NoHosts) => {
                self.no_hosts = true;
                return None;
            }
            Some(CallbackLine::Stats { host, rescued }) => {
                self.reached |= host == self.host;
                self.rescued |= rescued > 0;
                return None;
            }
        };
        self.events += 1;
        match self.events {
            ..=EVENTS_MAX => Some(event),
            n if n == EVENTS_MAX + 1 => {
                Some(json!({"event": "output", "i": 0, "line": "[further lines are left out]"}))
            }
            _ => None,
        }
    }

    /// Handles a result of a task and returns its event. None if the result only summarizes items
    /// that were reported before.
    fn result(&mut self, kind: &str, result: TaskResult) -> Option<Value> {
        let summary = result.whole && self.items;
        self.items |= !result.whole;
        // After results of items, the result of the whole task only repeats them. It says something
        // new only if the host became unreachable after the last item.
        if summary && (result.status != Status::Unreachable || self.last.as_ref().is_some_and(|f| f.unreachable)) {
            return None;
        }
        let (name, msg) = (self.clean(&result.name), self.clean(&result.msg));
        let tail = self.clean(&result.stdout_tail);
        *self.counts.entry(result.status).or_default() += 1;
        if result.status == Status::Changed && self.changed.last() != Some(&name) && self.changed.len() <= CHANGED_MAX {
            self.changed.push(name.clone());
        }
        let unreachable = result.status == Status::Unreachable;
        if unreachable || result.status == Status::Failed {
            let of_host = if result.host == self.host { String::new() } else { format!("{}: ", result.host) };
            let failure = TaskFailure {
                unreachable,
                task: name.clone(),
                file: result.file.clone(),
                line: result.line,
                rc: result.rc,
                message: format!("{of_host}{msg}"),
                tail: tail.lines().map(str::to_owned).collect(),
            };
            self.first.get_or_insert_with(|| failure.clone());
            self.last = Some(failure);
        }
        // A reader of events knows only the task statuses of native playbooks, so an unreachable
        // host is reported as a failed task.
        let (status, msg) = match unreachable {
            true => ("failed", format!("unreachable: {msg}")),
            false => (result.status.as_str(), msg),
        };
        Some(json!({
            "event": kind, "i": result.i, "name": name, "module": result.module,
            "item": result.item.map(|item| self.clean(&item)), "status": status, "msg": msg, "rc": result.rc,
            "stdout_tail": tail, "diff": null, "took_ms": result.took_ms, "file": result.file, "line": result.line,
        }))
    }

    /// Output lines for the end of a run, with the counts and the names of the changed tasks. The
    /// list is empty if no task was started.
    pub fn recap(&self) -> Vec<Value> {
        if self.counts.is_empty() {
            return Vec::new();
        }
        let all = [Status::Ok, Status::Changed, Status::Skipped, Status::Failed, Status::Ignored, Status::Unreachable];
        let counts = all.map(|status| format!("{} {}", self.counts.get(&status).unwrap_or(&0), status.as_str()));
        let mut lines = vec![format!("{}: {}", self.host, counts.join(", "))];
        if !self.changed.is_empty() {
            let more = if self.changed.len() > CHANGED_MAX { ", and more" } else { "" };
            let names: Vec<&str> = self.changed.iter().take(CHANGED_MAX).map(String::as_str).collect();
            lines.push(format!("changed: {}{more}", names.join("; ")));
        }
        lines.into_iter().map(|line| json!({"event": "output", "i": 0, "line": line})).collect()
    }

    /// The failure that ended the run. Normally this is the first failure. If a `rescue` block
    /// handled a failure, it is the last failure of the run.
    pub fn failure(&self) -> Option<&TaskFailure> {
        if self.rescued { self.last.as_ref() } else { self.first.as_ref() }
    }

    /// Whether no play matched this host.
    pub fn matched_no_host(&self) -> bool {
        self.no_hosts && !self.reached
    }

    pub fn has_begun(&self) -> bool {
        self.task.is_some()
    }

    /// The text ` in: TASK` if a task was started, otherwise an empty text.
    pub fn task_suffix(&self) -> String {
        self.task.as_ref().map(|(_, name)| format!(" in: {name}")).unwrap_or_default()
    }

    /// The stored text lines, which are the last ones of the output.
    pub fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }

    /// Ansible's error message on one line.
    pub fn complaint(&self) -> String {
        let begins = |line: &String| line.starts_with("ERROR!") || line.starts_with("[ERROR]");
        let from = self.tail.iter().position(begins).unwrap_or(0);
        let words: Vec<&str> = self.tail.iter().skip(from).flat_map(|line| line.split_whitespace()).collect();
        let mut text = words.join(" ");
        for head in ["ERROR! ", "[ERROR]: "] {
            text = text.strip_prefix(head).map(str::to_owned).unwrap_or(text);
        }
        if text.len() > COMPLAINT_MAX {
            text.truncate(text.floor_char_boundary(COMPLAINT_MAX));
            text.push('…');
        }
        if text.is_empty() { "no error message".to_owned() } else { text }
    }

    /// Replaces passwords in `text` by a mask, and removes the path of the run's folder.
    fn clean(&self, text: &str) -> String {
        let text = text.replace(&format!("{}/", self.dir), "").replace(&self.dir, ".");
        self.hide.iter().fold(text, |text, secret| text.replace(secret.as_str(), MASK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reader() -> CallbackReader {
        CallbackReader::new("run-x".to_owned(), "w1".to_owned(), "/r/fleet".into(), vec!["hunter2".to_owned()])
    }

    fn result(i: u32, name: &str, status: &str, item: Option<&str>, msg: &str) -> String {
        let said = json!({"event": "task", "i": i, "name": name, "module": "command", "item": item, "status": status,
            "whole": item.is_none(), "msg": msg, "rc": 3, "stdout_tail": "a\nb", "took_ms": 1, "host": "w1",
            "file": "site.yml", "line": 7});
        format!("run-x {said}")
    }

    fn start(i: u32, name: &str) -> String {
        format!("run-x {}", json!({"event": "task-start", "i": i, "name": name, "item": null}))
    }

    #[test]
    fn items_are_counted_but_not_their_summary() {
        let mut told = reader();
        for line in [
            start(1, "one"),
            result(1, "one", "changed", Some("a"), ""),
            result(1, "one", "ok", Some("b"), ""),
            result(1, "one", "changed", None, "All items completed"),
            start(2, "two"),
            result(2, "two", "changed", None, ""),
            start(3, "three"),
            result(3, "three", "failed", Some("a"), "no hunter2 in /r/fleet/x"),
            result(3, "three", "failed", None, "One or more items failed"),
        ] {
            told.line(&line);
        }
        let recap: Vec<_> = told.recap().iter().map(|e| e["line"].as_str().unwrap().to_owned()).collect();
        assert_eq!(recap, ["w1: 1 ok, 2 changed, 0 skipped, 1 failed, 0 ignored, 0 unreachable", "changed: one; two"]);
        let failure = told.failure().unwrap();
        assert_eq!(failure.describe("w1"), "site.yml:7: three: no ******** in x");
        assert_eq!((failure.rc, failure.tail.join(" ")), (Some(3), "a b".to_owned()));
    }

    #[test]
    fn a_rescued_failure_is_not_what_ended_it_and_an_unreachable_host_is_named() {
        let mut told = reader();
        for line in [start(1, "one"), result(1, "one", "failed", None, "first")] {
            told.line(&line);
        }
        assert_eq!(told.failure().unwrap().describe("w1"), "site.yml:7: one: first");
        told.line(&start(2, "two"));
        let event = told.line(&result(2, "two", "unreachable", None, "timed out")).unwrap();
        assert_eq!((&event["status"], &event["msg"]), (&json!("failed"), &json!("unreachable: timed out")));
        assert_eq!(told.failure().unwrap().describe("w1"), "site.yml:7: one: first");
        told.line(r#"run-x {"event": "stats", "host": "w1", "rescued": 1}"#);
        assert_eq!(told.failure().unwrap().describe("w1"), "site.yml:7: two: Ansible can't reach w1: timed out");
        assert!(!told.matched_no_host());
    }

    #[test]
    fn lines_that_are_not_from_the_callback_are_text() {
        let mut told = reader();
        for line in
            ["run-y {\"event\": \"no-hosts\"}", "{\"event\": \"no-hosts\"}", "run-x {\"event\": \"new\"}", "run-x {"]
        {
            let event = told.line(line).unwrap();
            assert_eq!((&event["event"], &event["line"]), (&json!("output"), &json!(line)));
        }
        assert!(!told.matched_no_host() && !told.has_begun());
        told.line("run-x {\"event\": \"no-hosts\"}");
        assert!(told.matched_no_host());
        told.line("ERROR! the role 'x' was not found in");
        told.line("/r/fleet/roles:/r/fleet, hunter2");
        assert_eq!(told.complaint(), "the role 'x' was not found in roles:., ********");
    }

    #[test]
    fn passed_on_events_are_limited_and_all_are_counted() {
        let mut told = reader();
        told.line(&start(1, "one"));
        let passed =
            (0..EVENTS_MAX + 50).filter(|_| told.line(&result(1, "one", "ok", Some("x"), "")).is_some()).count();
        assert_eq!(passed, EVENTS_MAX, "with the start and one that says so");
        assert!(told.recap()[0]["line"].as_str().unwrap().contains(&format!("{} ok", EVENTS_MAX + 50)));
        for n in 0..100 {
            told.line(&format!("text {n}"));
        }
        assert_eq!((told.tail().len(), told.tail().last().map(String::as_str)), (TAIL_LINES, Some("text 99")));
    }

    proptest! {
        /// A password in any part of a line never appears in the output.
        #[test]
        fn a_password_never_appears_in_the_output(before in "[a-z ]{0,8}", after in "\\PC{0,8}", status in 0usize..6) {
            let status = ["ok", "changed", "skipped", "failed", "ignored", "unreachable"][status];
            let text = format!("{before}hunter2{after}");
            let mut told = reader();
            let lines = [text.clone(), start(1, &text), result(1, &text, status, Some(&text), &text)];
            let mut all: Vec<String> = lines.iter().filter_map(|l| told.line(l)).map(|e| e.to_string()).collect();
            all.extend(told.recap().iter().map(Value::to_string));
            all.extend(told.failure().map(|f| f.describe("w1")));
            all.extend([told.task_suffix(), told.complaint(), told.tail().join(" ")]);
            prop_assert!(all.iter().all(|told| !told.contains("hunter2")), "{all:?}");
        }
    }
}
