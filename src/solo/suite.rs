//! Loads the check files for this machine, with all files that they include. This module reads
//! files and runs nothing.
//!
//! A file with a `remoor:` block is rendered by the rules of the block; `node` has only the values
//! that are known without a cluster. The block's `roles` are ignored, because the user has selected
//! the file explicitly. A file without a block is a Go template. An included file is rendered like
//! the file that includes it, unless it begins with its own block.

use super::source::{self, CheckSource};
use super::{glob, machine};
use remoor_check::{self as check, Applies, Check, GossfileEntry, Header, Outside, Template};
use remoor_model::{Fault, ServiceName, Sha256};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum depth of includes, as in goss.
const DEPTH_MAX: usize = 50;
/// Maximum number of files that are loaded.
const FILES_MAX: usize = 1_000;
/// Maximum size in bytes of a file that a template reads.
const READ_MAX: u64 = 1 << 20;

/// The options that select checks.
#[derive(Debug, Clone, Default)]
pub struct SuiteOptions {
    /// Files and directories. `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Files of variables. If several files define a variable, the value of the last file is used.
    pub vars: Vec<PathBuf>,
    /// Variables as YAML or JSON text, with a higher precedence than all files.
    pub vars_inline: Option<String>,
    /// Only checks with one of these tags in `meta.tags` are loaded. Empty: all checks.
    pub only: Vec<String>,
}

/// The checks of all loaded files, ready to run. There is at least one check.
#[derive(Debug)]
pub struct Suite {
    pub checks: Vec<Check>,
    /// Check files that do not apply to this machine.
    pub skipped_files: Vec<String>,
    /// An identity of the suite across runs: a hash of the named paths, the tags and the variables.
    pub name: Sha256,
}

/// Loads all check files, or returns all faults.
pub fn load(options: &SuiteOptions) -> Result<Suite, Vec<Fault>> {
    let texts = variable_texts(options)?;
    let (vars, go_vars) = (variables(&texts, check::vars)?, variables(&texts, check::go_vars)?);
    let name = name(options, &vars);
    let mut loader = Loader {
        env: machine::environment(),
        context: json!({"node": machine::node(), "vars": vars}).as_object().cloned().unwrap_or_default(),
        go_vars,
        files: 0,
        too_many: false,
        ids: BTreeMap::new(),
        checks: Vec::new(),
        passed_over: Vec::new(),
    };
    let mut faults = Vec::new();
    if options.files.iter().filter(|file| *file == Path::new("-")).count() > 1 {
        return Err(vec![Fault::error("standard input", 0, 0, "`-` is named twice, and can be read once")]);
    }
    for named in &options.files {
        let files = source::files(named).map_err(|fault| vec![fault])?;
        for path in files {
            loader.ids.clear();
            let loaded = source::read(&path).map_err(|f| vec![f]).and_then(|s| loader.file(s, None, &mut Vec::new()));
            faults.extend(loaded.err().into_iter().flatten());
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let Loader { mut checks, passed_over, .. } = loader;
    if !options.only.is_empty() {
        let tags: BTreeSet<String> = checks.iter().flat_map(Check::tags).map(str::to_owned).collect();
        if let Some(unknown) = options.only.iter().find(|tag| !tags.contains(*tag)) {
            let fault = Fault::error("--only", 0, 0, format!("no check has the tag `{unknown}` in `meta.tags`"));
            let known: Vec<&str> = tags.iter().map(String::as_str).collect();
            let hint =
                if known.is_empty() { "no check has any".to_owned() } else { format!("known: {}", known.join(", ")) };
            return Err(vec![fault.hint(hint)]);
        }
        retain_tagged(&mut checks, &options.only);
    }
    if checks.is_empty() {
        let names: Vec<String> = options.files.iter().map(|file| file.display().to_string()).collect();
        let why =
            if passed_over.is_empty() { "there is no check in it" } else { "no check of it applies to this machine" };
        return Err(vec![Fault::error(&names.join(", "), 0, 0, why)]);
    }
    Ok(Suite { checks, skipped_files: passed_over, name })
}

fn name(options: &SuiteOptions, vars: &Map<String, Value>) -> Sha256 {
    let whole = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let paths: Vec<String> = options.files.iter().map(|path| format!("{:?}", whole(path))).collect();
    Sha256::digest(json!([paths, options.only, vars]).to_string().as_bytes())
}

/// Keeps the checks with one of the tags. A group (`all-of`, `any-of`) is judged by its members,
/// and a member alone never fails a run. So if a group or any of its members has one of the tags,
/// the group and all its members are kept.
fn retain_tagged(checks: &mut Vec<Check>, only: &[String]) {
    let key = |check: &Check, label: &str| (check.service.clone(), check.file.clone(), label.to_owned());
    let tagged = checks.iter().filter(|check| check.tags().iter().any(|tag| only.iter().any(|only| only == tag)));
    let mut kept: BTreeSet<_> = tagged.map(|check| key(check, &check.label())).collect();
    loop {
        let before = kept.len();
        for group in checks.iter().filter(|check| !check.members().is_empty()) {
            let all: Vec<_> =
                group.members().iter().map(|label| key(group, label)).chain([key(group, &group.label())]).collect();
            if all.iter().any(|one| kept.contains(one)) {
                kept.extend(all);
            }
        }
        if kept.len() == before {
            break;
        }
    }
    checks.retain(|check| kept.contains(&key(check, &check.label())));
}

/// Name and text of each source of variables. They are read once, because a pipe can't be read
/// twice.
fn variable_texts(options: &SuiteOptions) -> Result<Vec<(String, String)>, Vec<Fault>> {
    let mut texts = Vec::new();
    for path in &options.vars {
        let source = source::read(path).map_err(|fault| vec![fault])?;
        texts.push((source.name, source.text));
    }
    texts.extend(options.vars_inline.iter().map(|text| ("--vars-inline".to_owned(), text.clone())));
    Ok(texts)
}

type Read = Result<Map<String, Value>, Vec<Fault>>;

/// All variables, parsed either for remoor's templates or for the templates of goss.
fn variables(texts: &[(String, String)], read: fn(&str, &str) -> Read) -> Read {
    let mut vars = Map::new();
    for (name, text) in texts {
        vars.extend(read(name, text)?);
    }
    Ok(vars)
}

struct Loader {
    env: BTreeMap<String, String>,
    /// The variables `node` and `vars` for files with a `remoor:` block.
    context: Map<String, Value>,
    /// The variable `vars` for files without a `remoor:` block.
    go_vars: Map<String, Value>,
    files: usize,
    too_many: bool,
    /// File and line of each check in the named file and the files that it includes, by label.
    ids: BTreeMap<String, (String, u32)>,
    checks: Vec<Check>,
    passed_over: Vec<String>,
}

/// The way in which a file is rendered. An included file inherits it.
#[derive(Clone)]
struct FileRendering {
    service: ServiceName,
    /// The header of the `remoor:` block. None: the file is a Go template.
    header: Option<Header>,
}

impl Loader {
    /// Loads one file and its includes. `above` is the rendering of the including file. `stack`
    /// contains the files that include this file, directly or indirectly.
    fn file(
        &mut self,
        source: CheckSource,
        above: Option<&FileRendering>,
        stack: &mut Vec<PathBuf>,
    ) -> Result<(), Vec<Fault>> {
        let file = source.name.as_str();
        self.files += 1;
        let (header, text) = check::header(file, &source.text)?;
        let own_checks = header.has_checks;
        let way = match above {
            Some(above) if !check::has_header(&source.text) => above.clone(),
            _ => FileRendering {
                service: header.service.clone(),
                header: check::has_header(&source.text).then_some(header),
            },
        };
        if let Some(header) = &way.header {
            let anywhere = Header { roles: Vec::new(), ..header.clone() };
            if check::applies(file, &anywhere, "", "", &self.context)? != Applies::Yes {
                self.passed_over.push(file.to_owned());
                return Ok(());
            }
        }
        let rendered = match &way.header {
            Some(header) if header.template != Template::Go => {
                check::render(file, header, &text, &self.context).map_err(hint_standalone)?
            }
            plain => {
                let vars = match plain {
                    Some(header) => check::merged_vars(header, &self.context),
                    None => self.go_vars.clone(),
                };
                let read = |path: &str| source::text(Path::new(path), READ_MAX);
                check::render_go(file, &text, &vars, &Outside { env: &self.env, read: &read }).map_err(|f| vec![f])?
            }
        };
        let loaded = check::load(file, &way.service, &rendered)?;
        let mut faults = Vec::new();
        // A block that contains checks stays in the text, so that its checks are loaded.
        if let Some((line, column)) = loaded.header.filter(|_| !own_checks) {
            let fault = Fault::error(file, line, column, "`remoor` is not the first block of the file");
            faults.push(fault.hint("write it as YAML, `remoor:` at the beginning of the first line"));
        }
        for check in loaded.checks {
            let at = (check.file.clone(), check.line);
            match self.ids.insert(check.label(), at) {
                Some((other, line)) => {
                    let message = format!("`{}` is there already, at {other}:{line}", check.label());
                    faults.push(Fault::error(file, check.line, 1, message).hint("give one of the two another id"));
                }
                None => self.checks.push(check),
            }
        }
        stack.push(identity(&source));
        for include in &loaded.includes {
            faults.extend(self.include(&source, include, &way, stack).err().into_iter().flatten());
        }
        stack.pop();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn include(
        &mut self,
        by: &CheckSource,
        include: &GossfileEntry,
        way: &FileRendering,
        stack: &mut Vec<PathBuf>,
    ) -> Result<(), Vec<Fault>> {
        let fault = |message: String| vec![Fault::error(&by.name, include.line, include.column, message)];
        if stack.len() > DEPTH_MAX {
            return Err(fault(format!("included more than {DEPTH_MAX} files deep")));
        }
        if self.files >= FILES_MAX {
            // The fault about too many files is reported once. Then no more includes are followed,
            // because files that include each other would never end.
            let first = !std::mem::replace(&mut self.too_many, true);
            return if first { Err(fault(format!("more than {FILES_MAX} files are included in all"))) } else { Ok(()) };
        }
        let paths = glob::expand(&by.dir, &include.pattern).map_err(fault)?;
        if paths.is_empty() {
            return Err(fault(format!("no file is `{}` beside {}", include.pattern, by.name)));
        }
        let mut faults = Vec::new();
        for path in paths {
            let source = match source::read(&path) {
                Ok(source) => source,
                Err(error) => {
                    faults.extend(fault(format!("can't include {}: {}", path.display(), error.message)));
                    continue;
                }
            };
            if stack.contains(&identity(&source)) {
                faults.extend(fault(format!("{} includes itself indirectly", path.display())));
                continue;
            }
            faults.extend(self.file(source, Some(way), stack).err().into_iter().flatten());
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// A value that is the same for all paths of one file.
fn identity(source: &CheckSource) -> PathBuf {
    source.path.as_ref().map_or_else(PathBuf::new, |path| path.canonicalize().unwrap_or_else(|_| path.clone()))
}

/// Adds a hint to faults about undefined variables, because a variable may be defined only in a
/// fleet.
fn hint_standalone(faults: Vec<Fault>) -> Vec<Fault> {
    let told = |fault: Fault| match fault.message.contains("is not defined") {
        true => fault.hint("without a cluster `node` has name and hostname only; `vars` come from --vars"),
        false => fault,
    };
    faults.into_iter().map(told).collect()
}
