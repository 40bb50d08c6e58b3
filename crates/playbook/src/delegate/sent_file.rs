//! Files of the controller that a run asks for, because they were not there when the plan was made,
//! or are outside of the directory of the playbook.
//!
//! ```text
//! run ──Read: task, name──> controller opens the file
//! run <──FileAnswer──────── the first part
//! run ──More──> ... until the last part
//! ```
//! The host may be compromised. So the plan lists the names: they are computed before the run, and
//! no value of the host is part of them. If only the run knows a name, the controller sends a file
//! that the plan has for the task, or one below a path that `tempfile` has made on the controller
//! in this run. If the plan has no file for the task, it may send a file below the directory of all
//! files, whose name fits the fixed texts that the playbook writes.

use super::{ControllerLink, DelegationError, Request, RequestedTask};
use crate::compile;
use crate::modules;
use crate::plan::{Asset, Blob, NamesOfRun, Plan, Task};
use crate::run::Run;
use crate::vars::var_map;
use base64::Engine as _;
use remoor_model::Sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum size in bytes of a file that a run asks for.
pub const SENT_MAX: usize = 128 << 20;

/// A file of the controller that the plan lists.
#[derive(Debug)]
pub struct ControllerFile<'p> {
    pub requested: RequestedTask<'p>,
    /// The name as the task writes it: absolute, or relative to one of `search_places`.
    pub name: String,
    /// Set if the host has chosen the name, because only the run knows it.
    pub of_run: Option<&'p NamesOfRun>,
}

impl<'p> ControllerFile<'p> {
    pub(super) fn find(plan: &'p Plan, task: u32, name: String) -> Result<Self, DelegationError> {
        let requested = RequestedTask::find(plan, task, |task| may_ask(task, &name));
        let why = || DelegationError::Forbidden(format!("the task {task} does not read the file `{name}`"));
        let requested = requested.ok_or_else(why)?;
        let names = &requested.task.files.on_controller;
        let of_run = (!names.known.contains(&name)).then_some(&names.of_run);
        Ok(Self { requested, name, of_run })
    }

    /// The paths of the files that the plan has for the task, in the directory of all files.
    pub fn planned_paths(&self) -> impl Iterator<Item = &'p str> {
        self.requested.task.files.assets.values().map(|asset| asset.path.as_str())
    }

    /// The subdirectory in which the module searches first.
    pub fn subdirectory(&self) -> &'static str {
        compile::subdir(&self.requested.task.module)
    }
}

/// Whether a run may ask the controller for a file by this name.
fn may_ask(task: &Task, name: &str) -> bool {
    let names = &task.files.on_controller;
    names.known.contains(name) || names.of_run != NamesOfRun::None
}

/// The answer of the controller to a request for a file, and for each further part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileAnswer {
    Part {
        /// The path on the controller.
        path: String,
        /// The permission bits of the file.
        mode: u32,
        /// The bytes in base64.
        content: String,
        last: bool,
    },
    /// The task fails with this message.
    Failed(String),
}

impl FileAnswer {
    /// A part of the file.
    pub fn part(path: String, mode: u32, content: &[u8], last: bool) -> Self {
        Self::Part { path, mode, content: base64::engine::general_purpose::STANDARD.encode(content), last }
    }

    /// The answer in the form of messages.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Plan {
    /// Adds a file to `task` and its content to the plan, as if it had been there when the plan was
    /// made.
    fn add_file(&mut self, task: &mut Task, name: &str, file: (String, u32, Vec<u8>)) {
        let (path, mode, content) = file;
        let sha256 = Sha256::digest(&content).to_string();
        self.blobs.insert(sha256.clone(), Blob(content));
        task.files.assets.insert(name.to_owned(), Asset { path, sha256, mode: Some(mode) });
    }
}

impl<'a> Run<'a, '_> {
    /// Asks the controller for the file that a task reads, if the plan has only its name. Returns
    /// the plan and the task with the file.
    pub(crate) fn with_controller_file(
        &self,
        task: &Task,
        args: &Map<String, Value>,
    ) -> Result<Option<(Plan, Task)>, String> {
        let flag = |name: &str| args.get(name).and_then(var_map::boolean);
        let of_node = flag("remote_src") == Some(true) || task.module == "unarchive" && flag("copy") == Some(false);
        let name = args.get("src").and_then(Value::as_str).unwrap_or_default();
        if task.files.on_controller.is_empty() || of_node || modules::find_asset(task, name).is_some() {
            return Ok(None);
        }
        if !may_ask(task, name) {
            return Err(format!("`{name}` was not known as a file of this task before the run, so it is not sent"));
        }
        let Some(link) = &self.options.controller else {
            return Err(format!("`{name}` can be read only during `remoor play`, and not by a delegated task"));
        };
        let file = receive(link, Request::Read { task: task.id, name: name.to_owned() })?;
        let plan = self.frame.plan();
        let mut own =
            Plan { version: plan.version, playbook: plan.playbook.clone(), host: plan.host.clone(), ..Plan::default() };
        let mut task = task.clone();
        own.add_file(&mut task, name, file);
        Ok(Some((own, task)))
    }
}

/// The path, the mode and the content of a file.
fn receive(link: &ControllerLink, first: Request) -> Result<(String, u32, Vec<u8>), String> {
    let mut whole = Vec::new();
    let mut request = first;
    loop {
        let answer = link.ask(&request)?;
        let unreadable = |e: &dyn std::fmt::Display| format!("the answer of the controller is not readable: {e}");
        match serde_json::from_slice(&answer).map_err(|e| unreadable(&e))? {
            FileAnswer::Failed(why) => return Err(why),
            FileAnswer::Part { path, mode, content, last } => {
                let part = base64::engine::general_purpose::STANDARD.decode(content).map_err(|e| unreadable(&e))?;
                if whole.len() + part.len() > SENT_MAX || part.is_empty() && !last {
                    return Err(format!("{path}: the controller sends other parts than it may"));
                }
                whole.extend(part);
                if last {
                    return Ok((path, mode, whole));
                }
            }
        }
        request = Request::More;
    }
}
