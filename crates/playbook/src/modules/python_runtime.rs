//! The Python of the node, and the archives of packed modules that a run has written for it.

use crate::lang::word_split;
use crate::os::acting_user::{ActingUser, acting_user};
use crate::os::process::{self, CommandSpec, Finished};
use crate::os::temp_files::TempFileNotes;
use crate::plan::{Plan, PythonModule};
use crate::run::event::CancelToken;
use crate::template::expr;
use crate::vars::scope::ExprScope;
use std::collections::BTreeMap;
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::{TempDir, TempPath};

/// The variable that names the Python of a node.
pub(crate) const PYTHON_VARIABLE: &str = "ansible_python_interpreter";
/// Programs that are tried if the variable names none, in order. The system's own Python comes
/// first, because the libraries of the package managers are installed for it.
const USUAL: [&str; 12] = [
    "/usr/bin/python3",
    "/usr/libexec/platform-python",
    "python3",
    "python3.14",
    "python3.13",
    "python3.12",
    "python3.11",
    "python3.10",
    "python3.9",
    "python3.8",
    "python3.7",
    "/usr/local/bin/python3",
];
/// Values of the variable that leave the choice to the program.
const AUTOMATIC: [&str; 5] = ["", "auto", "auto_silent", "auto_legacy", "auto_legacy_silent"];
/// Time limit for asking a Python for its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// The state of one run for its Python modules.
#[derive(Debug, Default)]
pub struct PythonRuntime {
    /// The Pythons of this machine, by the value of the variable and the user of the task.
    found: BTreeMap<(String, Option<u32>), Interpreter>,
    /// A directory that only the user of this process can enter, for temporary files of modules.
    private: Option<TempDir>,
    /// Archives by SHA-256 and by the user that reads them.
    archives: BTreeMap<(String, Option<u32>), TempPath>,
}

/// A Python that starts.
#[derive(Debug, Clone)]
struct Interpreter {
    /// The program with its arguments.
    argv: Vec<String>,
    /// Major and minor version. None: it was not printed as expected.
    version: Option<(u32, u32)>,
}

impl PythonRuntime {
    /// The program that runs Python for a task with these variables.
    pub fn interpreter(&mut self, scope: &ExprScope, cancel: &CancelToken) -> Result<Vec<String>, String> {
        self.find(scope, cancel).map(|found| found.argv)
    }

    /// Like `interpreter`. Fails also if the Python is too old for `module`.
    pub fn interpreter_for(
        &mut self,
        module: &PythonModule,
        scope: &ExprScope,
        cancel: &CancelToken,
    ) -> Result<Vec<String>, String> {
        let found = self.find(scope, cancel)?;
        match (found.version, parse_version(&module.min_python)) {
            (Some(version), Some(oldest)) if version < oldest => Err(format!(
                "`{}` is Python {}.{}, but modules of ansible-core {} need at least Python {}; next: set \
                 `{PYTHON_VARIABLE}` to a newer one",
                found.argv.join(" "),
                version.0,
                version.1,
                module.core,
                module.min_python
            )),
            _ => Ok(found.argv),
        }
    }

    fn find(&mut self, scope: &ExprScope, cancel: &CancelToken) -> Result<Interpreter, String> {
        let key = (named_python(scope), acting_user().map(|user| user.uid));
        if let Some(known) = self.found.get(&key) {
            return Ok(known.clone());
        }
        // A Python that is not found is searched again, because a task may install it.
        let found = find_interpreter(&key.0, cancel)?;
        self.found.insert(key, found.clone());
        Ok(found)
    }

    /// The directory for temporary files of this process.
    pub fn private_dir(&mut self, notes: &TempFileNotes) -> Result<&Path, String> {
        if self.private.is_none() {
            let fail = |e: std::io::Error| format!("cannot create a directory for modules: {e}");
            let dir = notes.private_dir().map_err(fail)?;
            std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).map_err(fail)?;
            self.private = Some(dir);
        }
        self.private.as_ref().map(TempDir::path).ok_or_else(String::new)
    }

    /// The path of a module's archive. It is written before the first task that needs it. Only the
    /// user who runs the module can read it.
    pub(super) fn archive(
        &mut self,
        plan: &Plan,
        module: &PythonModule,
        user: Option<&ActingUser>,
        notes: &TempFileNotes,
    ) -> Result<PathBuf, String> {
        let key = (module.sha256.clone(), user.map(|user| user.uid));
        if let Some(path) = self.archives.get(&key) {
            return Ok(path.to_path_buf());
        }
        let content = plan.blobs.get(&module.sha256).ok_or("the plan does not contain the archive of the module")?;
        let fail = |e: std::io::Error| format!("cannot write the module: {e}");
        let make = |path: &Path| {
            notes.note_long(path)?;
            OpenOptions::new().write(true).create_new(true).mode(0o400).open(path)
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".remoor-module-").suffix(".zip");
        // Another user cannot enter the private directory.
        let mut file = match user {
            None => builder.make_in(self.private_dir(notes)?, make),
            Some(_) => builder.make(make),
        }
        .map_err(fail)?;
        file.write_all(&content.0).map_err(fail)?;
        let path = file.into_temp_path();
        let place = path.to_path_buf();
        self.archives.insert(key, path);
        Ok(place)
    }
}

/// The program with its arguments that a value of `ansible_python_interpreter` selects.
pub fn find_python(named: &str, cancel: &CancelToken) -> Result<Vec<String>, String> {
    find_interpreter(named.trim(), cancel).map(|found| found.argv)
}

/// The value of `ansible_python_interpreter`. A value that cannot be rendered refers to the Python
/// of the controller, which a node does not have.
pub fn named_python(scope: &ExprScope) -> String {
    let text = format!("{{{{ {PYTHON_VARIABLE} | default('') }}}}");
    expr::render_text(scope, &text).unwrap_or_default().trim().to_owned()
}

/// Whether this value of `ansible_python_interpreter` names a program.
pub fn chooses_python(named: &str) -> bool {
    !AUTOMATIC.contains(&named.trim())
}

/// Finds the program that `named` selects. It must start, because a path in the inventory may be
/// wrong for one node.
fn find_interpreter(named: &str, cancel: &CancelToken) -> Result<Interpreter, String> {
    let start = |argv: Vec<String>| {
        let program = "import sys, json, zipfile; print('%d.%d' % sys.version_info[:2])";
        let whole = argv.iter().cloned().chain(["-c", program].map(str::to_owned)).collect();
        let job = CommandSpec { argv: whole, timeout: Some(VERSION_TIMEOUT), ..CommandSpec::default() };
        let done = process::run(&job, cancel, &mut |_| {}).ok().filter(Finished::success)?;
        Some(Interpreter { argv, version: parse_version(done.stdout.trim()) })
    };
    if chooses_python(named) {
        let argv: Vec<String> = word_split::split_words(named)?.into_iter().map(|word| word.text).collect();
        return start(argv).ok_or_else(|| {
            format!(
                "`{PYTHON_VARIABLE}` is `{named}`, which does not start on this node; next: correct it, or remove it \
                 so that remoor searches"
            )
        });
    }
    USUAL.iter().find_map(|name| start(vec![(*name).to_owned()])).ok_or_else(|| {
        format!(
            "this node has no Python 3 (searched {}); next: install python3 on the node, or set `{PYTHON_VARIABLE}`",
            USUAL[..3].join(", ")
        )
    })
}

/// Major and minor version in a text such as `3.8`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
