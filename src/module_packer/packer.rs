//! The packer of one directory: its Python process, and the answers that were given so far.

use super::process::{PackerError, PackerProcess, find_python};
use remoor_model::Sha256;
use remoor_playbook::{
    Blob, ModuleOrigin, ModuleRefusal, ModuleRequest, ModuleSource, PackedModule, PluginRequest, PythonModule,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of answers that are kept. Then all are forgotten.
const ANSWERS_MAX: usize = 500;
/// A refusal is asked again after this time, because the missing software may be installed now.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(60);

/// Time limits for a hung ansible-core.
const TIME_LIMITS: PackerTimeLimits =
    PackerTimeLimits { answer: Duration::from_secs(60), total: Duration::from_secs(600) };

/// Time limits for the answers of one packer.
#[derive(Debug, Clone, Copy)]
struct PackerTimeLimits {
    /// For one answer. The process ends a request itself a little sooner. The first answer also
    /// waits for the start of Python.
    answer: Duration,
    /// For all answers together. After this time every further request is refused.
    total: Duration,
}

/// Maximum size in bytes of a template whose syntax is checked.
const TEMPLATE_MAX: usize = 128 << 10;

type Answer = Result<Arc<PackedModule>, ModuleRefusal>;

/// Finds and packs the modules of the playbooks below one directory.
#[derive(Debug)]
pub struct Packer {
    /// The directory to which the names of files are relative.
    root: PathBuf,
    /// The program with its arguments. None: the Python that has ansible-core.
    python: Option<Vec<OsString>>,
    limits: PackerTimeLimits,
    state: Mutex<PackerState>,
}

#[derive(Debug, Default)]
struct PackerState {
    process: Option<PackerProcess>,
    answers: BTreeMap<ModuleRequest, (Instant, Answer)>,
    plugins: BTreeMap<PluginRequest, (Instant, Result<(), ModuleRefusal>)>,
    /// The time that all requests together have waited for answers.
    waited: Duration,
}

impl Packer {
    pub fn new(root: PathBuf) -> Self {
        Self { root, python: None, limits: TIME_LIMITS, state: Mutex::default() }
    }

    fn ask(&self, state: &mut PackerState, request: &ModuleRequest) -> Answer {
        let root = std::path::absolute(&self.root).unwrap_or_else(|_| self.root.clone());
        let mut dirs: Vec<PathBuf> = request.dirs.iter().map(|dir| root.join(dir)).collect();
        if dirs.is_empty() {
            dirs.push(root.clone());
        }
        let (name, collections) = (&request.name, &request.collections);
        let line = json!({"op": "pack", "name": name, "bases": dirs, "collections": collections, "root": root});
        read_answer(&self.ask_again(state, &line)?, &root)
    }

    fn ask_again(&self, state: &mut PackerState, line: &Value) -> Result<Value, ModuleRefusal> {
        // The process ends when it is idle, so a failed request is repeated once with a new one. If
        // an answer takes too long, the next one would too.
        let fresh = state.process.is_none();
        let mut answer = self.request(state, line);
        if matches!(answer, Err(PackerError::Ended(_))) && !fresh {
            answer = self.request(state, line);
        }
        answer.map_err(|error| match error {
            PackerError::Ended(why) => ModuleRefusal::NoCore(why),
            PackerError::TooSlow(why) => ModuleRefusal::Failed(why),
        })
    }

    fn request(&self, state: &mut PackerState, line: &Value) -> Result<Value, PackerError> {
        let left = self.limits.total.saturating_sub(state.waited);
        if left.is_zero() {
            let seconds = self.limits.total.as_secs();
            return Err(PackerError::TooSlow(format!(
                "the Python process that packs modules took more than {seconds} s in all; next: find out which \
                 module or which part of ansible-core hangs, and run the command again"
            )));
        }
        let begun = Instant::now();
        let answer = self.timed_request(state, line, self.limits.answer.min(left));
        state.waited += begun.elapsed();
        answer
    }

    fn timed_request(&self, state: &mut PackerState, line: &Value, timeout: Duration) -> Result<Value, PackerError> {
        let python = self.python.clone().unwrap_or_else(find_python);
        let process = match &mut state.process {
            Some(process) => process,
            free => free.insert(PackerProcess::start(&python, &self.root).map_err(PackerError::Ended)?),
        };
        let answer = process.request(line, timeout);
        if answer.is_err() {
            state.process = None;
        }
        answer
    }
}

impl ModuleSource for Packer {
    fn pack(&self, request: &ModuleRequest) -> Answer {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((at, answer)) = state.answers.get(request)
            && (answer.is_ok() || at.elapsed() < REFUSAL_LIFETIME)
        {
            return answer.clone();
        }
        let answer = self.ask(&mut state, request);
        if state.answers.len() >= ANSWERS_MAX {
            state.answers.clear();
        }
        state.answers.insert(request.clone(), (Instant::now(), answer.clone()));
        answer
    }

    fn find_plugin(&self, request: &PluginRequest) -> Result<(), ModuleRefusal> {
        if request.in_files {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((at, answer)) = state.plugins.get(request)
            && (answer.is_ok() || at.elapsed() < REFUSAL_LIFETIME)
        {
            return answer.clone();
        }
        let line = json!({"op": "plugin", "kind": request.kind.as_word(), "name": request.name});
        let answer = self.ask_again(&mut state, &line).and_then(|answer| read_refusal(&answer, &self.root));
        if state.plugins.len() >= ANSWERS_MAX {
            state.plugins.clear();
        }
        state.plugins.insert(request.clone(), (Instant::now(), answer.clone()));
        answer
    }

    fn refuses_template(&self, text: &str) -> bool {
        if text.len() > TEMPLATE_MAX {
            return false;
        }
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let answer = self.ask_again(&mut state, &json!({"op": "template", "text": text}));
        answer.is_ok_and(|answer| answer["refused"] == "syntax")
    }
}

fn read_refusal(answer: &Value, root: &Path) -> Result<(), ModuleRefusal> {
    let Some(kind) = answer["refused"].as_str() else { return Ok(()) };
    let message = answer["message"].as_str().unwrap_or_default();
    // Faults name files below the directory by their relative paths.
    let message = message.replace(&format!("{}/", root.display()), "");
    Err(match kind {
        "not-found" => ModuleRefusal::NotFound(message),
        "collection" => ModuleRefusal::NoCollection(message),
        "action" => ModuleRefusal::ActionPlugin(message),
        "core" => {
            let python = find_python().join(std::ffi::OsStr::new(" "));
            ModuleRefusal::NoCore(format!("{} has none ({message})", python.display()))
        }
        _ => ModuleRefusal::Failed(message),
    })
}

fn read_answer(answer: &Value, root: &Path) -> Answer {
    read_refusal(answer, root)?;
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let archive = serde_json::from_value::<Blob>(answer["zip"].clone());
    let Blob(archive) = archive.map_err(|e| ModuleRefusal::Failed(format!("the packed module is not base64: {e}")))?;
    let internals = answer["internals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let module = PythonModule {
        sha256: Sha256::digest(&archive).to_string(),
        entry: text("entry"),
        profile: text("profile"),
        core: text("core"),
        min_python: text("min_python"),
        internals: internals.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        facts: answer["facts"] == true,
    };
    if module.entry.is_empty() || !text("name").contains('.') {
        return Err(ModuleRefusal::Failed(
            "the Python process that packs modules gave an answer that remoor cannot read".to_owned(),
        ));
    }
    let origin: ModuleOrigin = serde_json::from_value(answer["origin"].clone()).unwrap_or_default();
    Ok(Arc::new(PackedModule { name: text("name"), module, origin, archive }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str) -> ModuleRequest {
        ModuleRequest { name: name.to_owned(), ..ModuleRequest::default() }
    }

    /// A packer whose process is a shell with this script.
    fn packer(script: &str, limits: PackerTimeLimits) -> Packer {
        let python = ["sh", "-c", script].map(OsString::from).to_vec();
        Packer { python: Some(python), limits, ..Packer::new(PathBuf::from("/")) }
    }

    #[test]
    fn a_process_that_never_answers_costs_the_total_limit_once() {
        let (answer, total) = (Duration::from_millis(200), Duration::from_millis(500));
        let packer = packer("exec sleep 600", PackerTimeLimits { answer, total });
        let begun = Instant::now();
        let reasons: Vec<String> =
            (0..50).map(|n| format!("{:?}", packer.pack(&request(&format!("m{n}"))).unwrap_err())).collect();
        // Without the total limit, fifty requests would take 10 s.
        assert!(begun.elapsed() < 10 * total, "{:?}", begun.elapsed());
        assert!(reasons[0].contains("did not answer"), "{reasons:?}");
        assert!(reasons[49].contains("in all"), "{reasons:?}");
    }

    #[test]
    fn a_process_that_ends_is_started_once_again() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("starts");
        let answer = r#"{"refused": "not-found", "message": "none"}"#;
        // The process answers one request and ends.
        let script = format!("echo x >> {}; read line; echo '{answer}'; exit 0", log.display());
        let packer = packer(&script, TIME_LIMITS);
        for n in 0..3 {
            let refused = packer.pack(&request(&format!("m{n}"))).unwrap_err();
            assert_eq!(refused, ModuleRefusal::NotFound("none".to_owned()), "{n}");
        }
        assert_eq!(std::fs::read_to_string(log).unwrap().lines().count(), 3);
    }
}
