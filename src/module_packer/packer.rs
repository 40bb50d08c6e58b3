//! The packer of one directory: its Python process, and the answers that were given so far.

use super::process::{PackerProcess, find_python};
use remoor_model::Sha256;
use remoor_playbook::{Blob, ModuleRefusal, ModuleRequest, ModuleSource, PackedModule, PythonModule};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of answers that are kept. Then all are forgotten.
const ANSWERS_MAX: usize = 500;
/// A refusal is asked again after this time, because the missing software may be installed now.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(60);

type Answer = Result<Arc<PackedModule>, ModuleRefusal>;

/// Finds and packs the modules of the playbooks below one directory.
#[derive(Debug)]
pub struct Packer {
    /// The directory to which the names of files are relative.
    root: PathBuf,
    state: Mutex<PackerState>,
}

#[derive(Debug, Default)]
struct PackerState {
    process: Option<PackerProcess>,
    answers: BTreeMap<ModuleRequest, (Instant, Answer)>,
}

impl Packer {
    pub fn new(root: PathBuf) -> Self {
        Self { root, state: Mutex::default() }
    }

    fn ask(&self, state: &mut PackerState, request: &ModuleRequest) -> Answer {
        let root = std::path::absolute(&self.root).unwrap_or_else(|_| self.root.clone());
        let mut dirs: Vec<PathBuf> = request.dirs.iter().map(|dir| root.join(dir)).collect();
        if dirs.is_empty() {
            dirs.push(root);
        }
        let line = json!({"op": "pack", "name": request.name, "bases": dirs, "collections": request.collections});
        // The process ends when it is idle, so a failed request is repeated once with a new one.
        let fresh = state.process.is_none();
        let mut answer = self.request(state, &line);
        if answer.is_err() && !fresh {
            answer = self.request(state, &line);
        }
        let answer = answer.map_err(ModuleRefusal::NoCore)?;
        read_answer(&answer)
    }

    fn request(&self, state: &mut PackerState, line: &Value) -> Result<Value, String> {
        if state.process.is_none() {
            state.process = Some(PackerProcess::start(&find_python(), &self.root)?);
        }
        let Some(process) = &mut state.process else { return Err("no process".to_owned()) };
        let answer = process.request(line);
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
}

fn read_answer(answer: &Value) -> Answer {
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    if let Some(kind) = answer["refused"].as_str() {
        let message = text("message");
        return Err(match kind {
            "not-found" => ModuleRefusal::NotFound(message),
            "collection" => ModuleRefusal::NoCollection(message),
            "action" => ModuleRefusal::ActionPlugin(message),
            "core" => {
                let python = find_python().join(std::ffi::OsStr::new(" "));
                ModuleRefusal::NoCore(format!("{} has none ({message})", python.display()))
            }
            _ => ModuleRefusal::Failed(message),
        });
    }
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
    Ok(Arc::new(PackedModule { name: text("name"), module, archive }))
}
