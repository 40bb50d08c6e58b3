//! Performs lookups, and calls filters and tests, with the plugins of the ansible-core that is
//! installed on this machine, in Python processes as that of `Packer`. They are other processes,
//! because a lookup may take long.

use super::process::{PackerError, PackerProcess, find_python};
use remoor_playbook::{LookupAnswer, LookupCall};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time of one lookup. The process ends a request itself a little sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of processes. A host waits for one answer at a time, so it uses one process, and
/// a slow lookup of one host does not delay those of the other hosts.
const PROCESSES_MAX: usize = 4;
/// Maximum number of processes of heavy hosts, so that one process stays free for the others.
const HEAVY_MAX: usize = PROCESSES_MAX - 1;
/// A host whose calls have taken longer than this in total is heavy.
const HEAVY_AFTER: Duration = Duration::from_secs(20);
/// Maximum size in bytes of a request, which the process reads as one line.
const REQUEST_MAX: usize = (1 << 20) - 2;

/// The plugins for the playbooks below one directory.
#[derive(Debug)]
pub struct LookupPlugins {
    root: PathBuf,
    /// The program with its arguments. None: the Python that has ansible-core.
    python: Option<Vec<OsString>>,
    processes: Mutex<Processes>,
    /// Signals that a process is free.
    freed: Condvar,
    heavy_after: Duration,
}

#[derive(Debug, Default)]
struct Processes {
    idle: Vec<PackerProcess>,
    busy: usize,
    /// Number of busy processes of heavy hosts.
    heavy: usize,
    /// Number of calls that wait for a process.
    waiting: usize,
    /// The time that the calls of each host have taken.
    spent: BTreeMap<String, Duration>,
}

/// A process that a host may use.
struct Permit<'h> {
    /// None: the caller starts one.
    process: Option<PackerProcess>,
    host: &'h str,
    /// Whether the host counts as heavy.
    heavy: bool,
    begun: Instant,
}

impl LookupPlugins {
    pub fn new(root: PathBuf) -> Self {
        Self { root, python: None, processes: Mutex::default(), freed: Condvar::new(), heavy_after: HEAVY_AFTER }
    }

    /// Performs a lookup, or calls a filter or test. `dirs` are absolute paths. A lookup searches
    /// these directories in order, and the last one is that of the playbook. The plugins of filters
    /// and tests are in these directories.
    pub fn perform(&self, call: &LookupCall, dirs: &[PathBuf], variables: &Map<String, Value>) -> LookupAnswer {
        let LookupCall { plugin, name, terms, options } = call;
        let line = json!({
            "op": plugin.as_word(), "name": name, "terms": terms, "options": options, "dirs": dirs, "variables": variables,
        });
        if line.to_string().len() > REQUEST_MAX {
            return LookupAnswer::Failed("its arguments are larger than 1 MiB".to_owned());
        }
        let host = variables.get("inventory_hostname").and_then(Value::as_str).unwrap_or_default();
        let mut permit = self.take_process(host);
        let fresh = permit.process.is_none();
        let mut answer = self.request(&mut permit.process, &line);
        // The process ends when it is idle.
        if matches!(answer, Err(PackerError::Ended(_))) && !fresh {
            answer = self.request(&mut permit.process, &line);
        }
        self.give_back(permit);
        match answer {
            Err(PackerError::Ended(why) | PackerError::TooSlow(why)) => LookupAnswer::Failed(why),
            Ok(mut answer) => match answer["items"].take() {
                Value::Array(items) => LookupAnswer::Items(items),
                _ => LookupAnswer::Failed(refusal(&answer)),
            },
        }
    }
}

impl LookupPlugins {
    /// Waits until `host` may use a process.
    fn take_process<'h>(&self, host: &'h str) -> Permit<'h> {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.waiting += 1;
        let heavy = processes.spent.get(host).is_some_and(|spent| *spent > self.heavy_after);
        let wait = |processes: &mut Processes| processes.busy >= PROCESSES_MAX || heavy && processes.heavy >= HEAVY_MAX;
        let mut processes = self.freed.wait_while(processes, wait).unwrap_or_else(PoisonError::into_inner);
        processes.waiting -= 1;
        processes.busy += 1;
        processes.heavy += usize::from(heavy);
        Permit { process: processes.idle.pop(), host, heavy, begun: Instant::now() }
    }

    fn give_back(&self, permit: Permit) {
        let Permit { process, host, heavy, begun } = permit;
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.busy -= 1;
        processes.heavy -= usize::from(heavy);
        *processes.spent.entry(host.to_owned()).or_default() += begun.elapsed();
        processes.idle.extend(process);
        // One waiting thread may be that of a heavy host, which may not begin yet.
        self.freed.notify_all();
    }

    fn request(&self, process: &mut Option<PackerProcess>, line: &Value) -> Result<Value, PackerError> {
        let mut running = match process.take() {
            Some(running) => running,
            None => {
                let python = self.python.clone().unwrap_or_else(find_python);
                PackerProcess::start(&python, &self.root).map_err(PackerError::Ended)?
            }
        };
        let answer = running.request(line, ANSWER_TIMEOUT)?;
        *process = Some(running);
        Ok(answer)
    }
}

fn refusal(answer: &Value) -> String {
    let message = answer["message"].as_str().unwrap_or("the Python process gave an answer that remoor cannot read");
    match answer["refused"].as_str() {
        Some("core") => {
            let python = find_python().join(std::ffi::OsStr::new(" "));
            let python = python.display();
            format!("it needs ansible-core on this machine, and {python} has none ({message})")
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Arc;

    #[test]
    fn a_slow_call_of_one_host_does_not_delay_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (begun, end) = (dir.path().join("begun"), dir.path().join("end"));
        let script = format!(
            "while read -r line; do case $line in *slow*) : > {}; while [ ! -e {} ]; do sleep 0.05; done;; esac; \
             echo '{{\"items\": [1]}}'; done",
            begun.display(),
            end.display()
        );
        let python = Some(["sh", "-c", &script, "sh"].map(OsString::from).to_vec());
        let plugins = Arc::new(LookupPlugins { python, ..LookupPlugins::new(dir.path().to_owned()) });
        let call = |name: &str| LookupCall::new(name, Vec::new());
        let (slow, own) = (call("slow"), Arc::clone(&plugins));
        let slow = std::thread::spawn(move || own.perform(&slow, &[], &Map::new()));
        let deadline = Instant::now() + ANSWER_TIMEOUT / 2;
        while !begun.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(begun.exists(), "the slow call did not begin");
        for _ in 0..2 {
            assert_eq!(plugins.perform(&call("fast"), &[], &Map::new()), LookupAnswer::Items(vec![json!(1)]));
        }
        assert!(!slow.is_finished(), "the other calls waited for the slow one");
        fs::write(&end, "").unwrap();
        assert_eq!(slow.join().unwrap(), LookupAnswer::Items(vec![json!(1)]));
        assert_eq!(plugins.processes.lock().unwrap().idle.len(), 2);

        let large = LookupCall { terms: vec![json!("x".repeat(REQUEST_MAX))], ..call("fast") };
        let LookupAnswer::Failed(why) = plugins.perform(&large, &[], &Map::new()) else { panic!() };
        assert_eq!(why, "its arguments are larger than 1 MiB");
    }

    #[test]
    fn heavy_hosts_leave_a_process_to_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let end = dir.path().join("end");
        let script = format!(
            "while read -r line; do case $line in *slow*) : > {}/$$; while [ ! -e {} ]; do sleep 0.05; done;; esac; \
             echo '{{\"items\": [1]}}'; done",
            dir.path().display(),
            end.display()
        );
        let python = Some(["sh", "-c", &script, "sh"].map(OsString::from).to_vec());
        let heavy_after = Duration::ZERO;
        let plugins = Arc::new(LookupPlugins { python, heavy_after, ..LookupPlugins::new(dir.path().to_owned()) });
        let perform = |plugins: &LookupPlugins, host: &str, name: &str| {
            let variables = Map::from_iter([("inventory_hostname".to_owned(), json!(host))]);
            plugins.perform(&LookupCall::new(name, Vec::new()), &[], &variables)
        };
        let one = LookupAnswer::Items(vec![json!(1)]);
        let hosts = ["a", "b", "c", "d"];
        for host in hosts {
            assert_eq!(perform(&plugins, host, "fast"), one);
        }
        let calls = hosts.map(|host| {
            let own = Arc::clone(&plugins);
            std::thread::spawn(move || perform(&own, host, "slow"))
        });
        let deadline = Instant::now() + ANSWER_TIMEOUT / 2;
        let state = || {
            let processes = plugins.processes.lock().unwrap();
            (fs::read_dir(dir.path()).unwrap().count(), processes.busy, processes.waiting)
        };
        while state() != (HEAVY_MAX, HEAVY_MAX, 1) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(state(), (HEAVY_MAX, HEAVY_MAX, 1), "the fourth heavy host waits");
        assert_eq!(perform(&plugins, "e", "fast"), one);
        fs::write(&end, "").unwrap();
        for call in calls {
            assert_eq!(call.join().unwrap(), one);
        }
    }
}
