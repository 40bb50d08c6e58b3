//! Performs lookups with the plugins of the ansible-core that is installed on this machine, in a
//! Python process as that of `Packer`. A second process is used, because a lookup may take long.

use super::process::{PackerError, PackerProcess, find_python};
use remoor_playbook::{LookupAnswer, LookupCall};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Maximum time of one lookup. The process ends a request itself a little sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The lookup plugins for the playbooks below one directory.
#[derive(Debug)]
pub struct LookupPlugins {
    root: PathBuf,
    process: Mutex<Option<PackerProcess>>,
}

impl LookupPlugins {
    pub fn new(root: PathBuf) -> Self {
        Self { root, process: Mutex::default() }
    }

    /// Performs a lookup. `dirs` are absolute paths: the directories that it searches, in order.
    /// The last one is that of the playbook.
    pub fn perform(&self, call: &LookupCall, dirs: &[PathBuf], variables: &Map<String, Value>) -> LookupAnswer {
        let LookupCall { name, terms, options } = call;
        let line = json!({
            "op": "lookup", "name": name, "terms": terms, "options": options, "dirs": dirs, "variables": variables,
        });
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = process.is_none();
        let mut answer = request(&mut process, &self.root, &line);
        // The process ends when it is idle.
        if matches!(answer, Err(PackerError::Ended(_))) && !fresh {
            answer = request(&mut process, &self.root, &line);
        }
        match answer {
            Err(PackerError::Ended(why) | PackerError::TooSlow(why)) => LookupAnswer::Failed(why),
            Ok(mut answer) => match answer["items"].take() {
                Value::Array(items) => LookupAnswer::Items(items),
                _ => LookupAnswer::Failed(refusal(&answer)),
            },
        }
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
