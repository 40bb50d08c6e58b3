//! Performs lookups, and calls filters and tests, with the plugins of the ansible-core that is
//! installed on this machine, in Python processes as that of `Packer`. They are other processes,
//! because a lookup may take long.

use super::process::{PackerError, PackerProcess, find_python};
use remoor_playbook::{LookupAnswer, LookupCall};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Maximum time of one lookup. The process ends a request itself a little sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of processes. A host waits for one answer at a time, so it uses one process, and
/// a slow lookup of one host does not delay those of the other hosts.
const PROCESSES_MAX: usize = 4;
/// Maximum size in bytes of a request, which the process reads as one line.
const REQUEST_MAX: usize = (1 << 20) - 2;

/// The plugins for the playbooks below one directory.
#[derive(Debug)]
pub struct LookupPlugins {
    root: PathBuf,
    processes: Mutex<Processes>,
    /// Signals that a process is free.
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Processes {
    idle: Vec<PackerProcess>,
    busy: usize,
}

impl LookupPlugins {
    pub fn new(root: PathBuf) -> Self {
        Self { root, processes: Mutex::default(), freed: Condvar::new() }
    }

    /// Performs a lookup, or calls a filter or test. `dirs` are absolute paths. A lookup searches
    /// these directories in order, and the last one is that of the playbook. The plugins of filters
    /// and tests are in these directories.
    pub fn perform(&self, call: &LookupCall, dirs: &[PathBuf], variables: &Map<String, Value>) -> LookupAnswer {
        let LookupCall { plugin, name, terms, options } = call;
        let line = json!({
            "op": plugin.word(), "name": name, "terms": terms, "options": options, "dirs": dirs, "variables": variables,
        });
        if line.to_string().len() > REQUEST_MAX {
            return LookupAnswer::Failed("its arguments are larger than 1 MiB".to_owned());
        }
        let mut process = self.take_process();
        let fresh = process.is_none();
        let mut answer = request(&mut process, &self.root, &line);
        // The process ends when it is idle.
        if matches!(answer, Err(PackerError::Ended(_))) && !fresh {
            answer = request(&mut process, &self.root, &line);
        }
        self.give_back(process);
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
    /// Waits until a process may be used. None: the caller starts one.
    fn take_process(&self) -> Option<PackerProcess> {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = |processes: &mut Processes| processes.busy >= PROCESSES_MAX;
        let mut processes = self.freed.wait_while(processes, wait).unwrap_or_else(PoisonError::into_inner);
        processes.busy += 1;
        processes.idle.pop()
    }

    fn give_back(&self, process: Option<PackerProcess>) {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.busy -= 1;
        processes.idle.extend(process);
        self.freed.notify_one();
    }
}

fn request(process: &mut Option<PackerProcess>, root: &Path, line: &Value) -> Result<Value, PackerError> {
    let mut running = match process.take() {
        Some(running) => running,
        None => PackerProcess::start(&find_python(), root).map_err(PackerError::Ended)?,
    };
    let answer = running.request(line, ANSWER_TIMEOUT)?;
    *process = Some(running);
    Ok(answer)
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
