//! The module `fetch`: the run sends a file of its host to the controller, which stores it.
//!
//! ```text
//! run ──Fetch: task, values, size, checksum──> controller: plan_fetch -> FetchTarget
//! run ──Part──> controller: IncomingFile        (until all bytes are there)
//! ```
//! The controller computes the path from its own plan, because the host may be compromised. A value
//! of the host can choose only a file below the directory that the task names.

use super::{
    ControllerLink, ControllerView, DelegatedRequest, DelegationError, EvaluatedTask, Request, RequestLimits, evaluate,
};
use crate::modules::{self, ModuleResult, TaskOutcome};
use crate::os::atomic_fs;
use crate::plan::{Plan, Task};
use crate::run::Run;
use crate::template::expr;
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::var_map;
use crate::vars::variable_scope::{self, VariableScope};
use base64::Engine as _;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// The name of the module.
pub(crate) const FETCH: &str = "fetch";
/// Maximum size of a fetched file in bytes.
pub(super) const FETCHED_MAX: u64 = 1 << 30;
/// Size in bytes of the parts in which a file is sent. Its base64 fits into a request.
const PART: usize = 2 << 20;

/// A request to store a file of the host on the controller.
#[derive(Debug, Serialize, Deserialize)]
pub struct FetchRequest {
    #[serde(flatten)]
    task: DelegatedRequest,
    pub size: u64,
    /// The SHA-1 of the file in hex, as Ansible reports it.
    pub sha1: String,
}

/// The place of a fetched file on the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTarget {
    pub limits: RequestLimits,
    /// The directory that the task names. It may be a link of the user.
    pub base: PathBuf,
    /// The file below `base`, which must not be reached through links.
    pub file: PathBuf,
    /// Whether the content must have the checksum of the request.
    pub validate: bool,
}

/// The answer of the controller to `FetchRequest` and to each part of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FetchAnswer {
    /// The next part is missing.
    More,
    /// The file is on the controller, with this checksum and MD5 of its content.
    Stored { changed: bool, path: String, sha1: String, md5: String },
    /// The task fails with this message.
    Failed(String),
}

impl FetchAnswer {
    /// The answer in the form of messages.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The place of the file that a run of `plan` requests to store. `directory`: the directory of the
/// playbook, for relative paths. `home`: the home directory of the user.
pub fn plan_fetch(
    plan: &Plan,
    request: FetchRequest,
    controller: &ControllerView,
    directory: &Path,
    home: Option<&Path>,
) -> Result<FetchTarget, DelegationError> {
    let failed = DelegationError::Failed;
    if controller.check {
        return Err(DelegationError::Forbidden("check mode fetches no file".to_owned()));
    }
    if request.size > FETCHED_MAX {
        return Err(failed(format!("the file is larger than {} MiB", FETCHED_MAX >> 20)));
    }
    let is_fetch = |task: &Task| task.module == FETCH;
    let EvaluatedTask { play, task, scope, limits, .. } =
        evaluate(plan, request.task, controller, (&is_fetch, "the task fetches no file"))?;
    let (args, trace) = with_trace(|| variable_scope::args(&scope, task));
    if trace.unknown {
        return Err(DelegationError::Unknown);
    }
    let args = args.map_err(failed)?;
    let frame = VariableScope::new(plan, &Map::new());
    let own = frame.scope(play, task);
    let place = Place { scope: &scope, own: &own, directory, home };
    let (base, file) = place.find(task, &args, &plan.host).map_err(failed)?;
    Ok(FetchTarget { limits, base, file, validate: read_flag(&args, "validate_checksum", true) })
}

fn read_flag(args: &Map<String, Value>, name: &str, default: bool) -> bool {
    args.get(name).and_then(var_map::boolean).unwrap_or(default)
}

/// Computes the path of a fetched file.
struct Place<'a> {
    /// The scope with the values of the host.
    scope: &'a ExprScope,
    /// The scope with the values of the controller only.
    own: &'a ExprScope,
    directory: &'a Path,
    home: Option<&'a Path>,
}

impl Place<'_> {
    /// The directory that the task names, and the file below it.
    fn find(&self, task: &Task, args: &Map<String, Value>, host: &str) -> Result<(PathBuf, PathBuf), String> {
        let text = |name: &str| args.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let src = parse_source(text("src"))?;
        let dest = text("dest").ok_or("`dest` is not a path")?;
        let template = task.args.get("dest").and_then(Value::as_str).ok_or("`dest` is not a path")?;
        let (base, rest) = match self.trusted_length(template, dest)? {
            None => (dest, ""),
            Some(length) => {
                let cut = dest.get(..length).and_then(|prefix| prefix.rfind('/')).unwrap_or(0);
                if dest[..cut].trim_matches('/').is_empty() {
                    return Err(format!(
                        "`dest` is `{dest}` by values of the host; it must begin with a directory that only the \
                         playbook or the inventory chooses"
                    ));
                }
                (&dest[..=cut], &dest[cut + 1..])
            }
        };
        let flat = read_flag(args, "flat", false);
        let mut file = PathBuf::from(rest);
        let mut base = self.absolute(base);
        match (flat, dest.ends_with('/')) {
            (false, _) => {
                if Path::new(host).components().count() != 1 {
                    return Err(format!("the name of the host `{host}` is no name of a directory"));
                }
                file.push(host);
                file.push(src.strip_prefix("/").unwrap_or(&src));
            }
            (true, true) => file.push(src.file_name().unwrap_or_default()),
            (true, false) if rest.is_empty() => {
                let name = base.file_name().ok_or_else(|| format!("`dest` `{dest}` is no file"))?;
                file = PathBuf::from(name);
                base = base.parent().map(Path::to_owned).unwrap_or_default();
            }
            (true, false) => {}
        }
        let is_name = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
        if !file.components().all(is_name) || file.file_name().is_none() {
            return Err(format!("`{}` would be outside of `{}`", file.display(), base.display()));
        }
        Ok((base, file.components().filter(|part| matches!(part, Component::Normal(_))).collect()))
    }

    /// None: the host has no influence on `dest`. Some: it has no influence on the first bytes, up
    /// to this length.
    fn trusted_length(&self, template: &str, dest: &str) -> Result<Option<usize>, String> {
        let own = |text: &str| expr::render_text(self.own, text).ok();
        if own(template).as_deref() == Some(dest) {
            return Ok(None);
        }
        let starts = template.match_indices("{{").chain(template.match_indices("{%")).map(|(at, _)| at);
        let mut starts: Vec<usize> = starts.collect();
        starts.sort_unstable();
        let mut length = 0;
        for start in starts {
            let text = &template[..start];
            match (own(text), expr::render_text(self.scope, text)) {
                (Some(one), Ok(other)) if one == other && dest.starts_with(&one) => length = one.len(),
                _ => break,
            }
        }
        Ok(Some(length))
    }

    fn absolute(&self, path: &str) -> PathBuf {
        match (path.strip_prefix('~').and_then(|rest| rest.strip_prefix('/')), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.directory.join(path),
        }
    }
}

/// The path of the file on the host.
fn parse_source(src: Option<&str>) -> Result<PathBuf, String> {
    let src = Path::new(src.ok_or("`src` is not a path")?);
    let is_named = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    if !src.is_absolute() || !src.components().all(is_named) || src.file_name().is_none() {
        return Err(format!("`src` `{}` is not an absolute path without `..`", src.display()));
    }
    Ok(src.components().collect())
}

impl<'a> Run<'a, '_> {
    /// Sends the file of a `fetch` task to the controller.
    pub(crate) fn fetch(&mut self, task: &'a Task, check: bool, args: &Map<String, Value>) -> ModuleResult {
        if check {
            let msg = "check mode not (yet) supported for this module".to_owned();
            return Ok(TaskOutcome { skipped: true, msg, ..TaskOutcome::default() });
        }
        let Some(link) = self.options.controller.clone() else {
            return Err("a file can be fetched only during `remoor play`, and not by a delegated task".to_owned());
        };
        let text = |name: &str| args.get(name).and_then(Value::as_str);
        let src = parse_source(text("src"))?;
        let missing = |why: &str| match read_flag(args, "fail_on_missing", true) {
            true => Err(why.to_owned()),
            false => {
                let outcome = TaskOutcome::ok(format!("{why}, not transferring, ignored"));
                Ok(TaskOutcome { extra_keys: Map::from_iter([("file".to_owned(), json!(src))]), ..outcome })
            }
        };
        let Some((real, stat)) = self.ground.node.follow(&src) else {
            return missing("the remote file does not exist");
        };
        match atomic_fs::kind(&stat) {
            FileType::RegularFile => {}
            FileType::Directory => return missing("remote file is a directory, fetch cannot work on directories"),
            _ => return missing("the remote file is no regular file"),
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size > FETCHED_MAX {
            return Err(format!("{} is larger than {} MiB", src.display(), FETCHED_MAX >> 20));
        }
        let Ok(sha1) = modules::file_checksum(&self.ground.node, &real, "sha1") else {
            return missing("no read permission on remote file");
        };
        let item = self.item_for_request();
        let request = DelegatedRequest { task: task.id, item, state: self.state_for(task) };
        let request = Request::Fetch(FetchRequest { task: request, size, sha1: sha1.clone() });
        let mut answer = ask(&link, &request)?;
        let mut file = self.ground.node.open(&real)?.take(size);
        let mut part = Vec::new();
        while answer == FetchAnswer::More {
            if self.cancel.is_stopped() {
                return Err("the run was stopped before the whole file was sent".to_owned());
            }
            part.clear();
            let read = (&mut file).take(PART as u64).read_to_end(&mut part);
            read.map_err(|e| format!("{}: {e}", src.display()))?;
            if part.is_empty() && size > 0 {
                return Err(format!("{} became shorter while it was sent", src.display()));
            }
            answer = ask(&link, &Request::Part(base64::engine::general_purpose::STANDARD.encode(&part)))?;
        }
        match answer {
            FetchAnswer::Failed(why) => Err(why),
            FetchAnswer::Stored { changed: false, path, sha1, md5 } => {
                let keys = json!({"file": src, "dest": path, "checksum": sha1, "md5sum": md5});
                Ok(TaskOutcome::ok("").with_result(keys))
            }
            FetchAnswer::Stored { path, sha1: stored, md5, .. } => {
                let keys = json!({
                    "dest": path, "checksum": stored, "remote_checksum": sha1, "md5sum": md5, "remote_md5sum": null,
                });
                Ok(TaskOutcome::change("").with_result(keys))
            }
            FetchAnswer::More => Err("the controller wants more than the whole file".to_owned()),
        }
    }
}

fn ask(link: &ControllerLink, request: &Request) -> Result<FetchAnswer, String> {
    let answer = link.ask(request)?;
    serde_json::from_slice(&answer).map_err(|e| format!("the answer of the controller is not readable: {e}"))
}
