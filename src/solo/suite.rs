//! Loads the check files for this machine, with all files that they include. This module reads
//! files and runs nothing.
//!
//! A file with a `remoor:` block is rendered by the rules of the block; `node` has only the values
//! that are known without a cluster. The block's `roles` are ignored, because the user has selected
//! the file explicitly. A file without a block is a Go template, and is loaded as goss loads it. An
//! included file is rendered like the file that includes it, unless it begins with its own block.

use super::source::{self, CheckSource};
use super::{glob, machine};
use remoor_check::{self as check, Applies, Check, GossfileEntry, Header, Outside, Strictness, Template};
use remoor_model::{CheckFile, Fault, ServiceName, Sha256};
use serde::Serialize;
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
    /// Plain goss files are loaded as strictly as files with a `remoor:` block.
    pub strict: bool,
}

/// The checks of all loaded files, ready to run. There is at least one check.
#[derive(Debug)]
pub struct Suite {
    pub checks: Vec<Check>,
    /// Check files that do not apply to this machine.
    pub skipped_files: Vec<String>,
    /// What goss accepts in plain files although it is probably a mistake.
    pub warnings: Vec<Fault>,
    /// An identity of the suite across runs: a hash of the named paths, the tags and the variables.
    pub name: Sha256,
}

/// The text of one check file after rendering.
#[derive(Debug, Clone, Serialize)]
pub struct RenderedCheckFile {
    pub file: String,
    pub text: String,
}

/// Loads all check files, or returns all faults.
pub fn load(options: &SuiteOptions) -> Result<Suite, Vec<Fault>> {
    let mut loader = Loader::new(options)?;
    let faults = loader.load_all(&options.files);
    if !faults.is_empty() {
        return Err(faults);
    }
    let Loader { checks, passed_over, warnings, .. } = loader;
    let names: Vec<String> = options.files.iter().map(|file| file.display().to_string()).collect();
    let checks = select(checks, &options.only, &names.join(", "), passed_over.is_empty())?;
    Ok(Suite { checks, skipped_files: passed_over, warnings, name: name(options, &loader.go_vars) })
}

/// The rendered text of each file that [`load`] loads, with all faults.
pub fn render(options: &SuiteOptions) -> Result<(Vec<RenderedCheckFile>, Vec<Fault>), Vec<Fault>> {
    let mut loader = Loader::new(options)?;
    let faults = loader.load_all(&options.files);
    Ok((loader.rendered, faults))
}

/// The checks of a host of a fleet directory. `files` are the check files of the fleet, rendered
/// for the host.
pub fn suite_of_host(dir: &Path, host: &str, files: Vec<CheckFile>, only: &[String]) -> Result<Suite, Vec<Fault>> {
    let (mut checks, mut skipped_files, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    let mut warnings = Vec::new();
    for file in files {
        if !file.applies {
            skipped_files.push(file.file);
            continue;
        }
        match check::load(&file.file, &file.service, &file.text, Strictness::Strict) {
            Ok(loaded) => {
                checks.extend(loaded.checks);
                warnings.extend(loaded.warnings);
            }
            Err(more) => faults.extend(more),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let checks = select(checks, only, host, skipped_files.is_empty())?;
    let place = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let name = Sha256::digest(json!([format!("{place:?}"), host, only]).to_string().as_bytes());
    Ok(Suite { checks, skipped_files, warnings, name })
}

/// The checks with one of the tags, or all. Err if there is none. `all_applied` decides the
/// message.
fn select(mut checks: Vec<Check>, only: &[String], named: &str, all_applied: bool) -> Result<Vec<Check>, Vec<Fault>> {
    if !only.is_empty() {
        let tags: BTreeSet<String> = checks.iter().flat_map(Check::tags).map(str::to_owned).collect();
        if let Some(unknown) = only.iter().find(|tag| !tags.contains(*tag)) {
            let fault = Fault::error("--only", 0, 0, format!("no check has the tag `{unknown}` in `meta.tags`"));
            let known: Vec<&str> = tags.iter().map(String::as_str).collect();
            let hint =
                if known.is_empty() { "no check has any".to_owned() } else { format!("known: {}", known.join(", ")) };
            return Err(vec![fault.hint(hint)]);
        }
        retain_tagged(&mut checks, only);
    }
    if checks.is_empty() {
        let why = if all_applied { "there is no check in it" } else { "no check of it applies to this machine" };
        return Err(vec![Fault::error(named, 0, 0, why)]);
    }
    Ok(checks)
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
fn variables(texts: &[(String, String)], read: impl Fn(&str, &str) -> Read) -> Read {
    let mut vars = Map::new();
    for (name, text) in texts {
        vars.extend(read(name, text)?);
    }
    Ok(vars)
}

struct Loader {
    /// How files without a `remoor:` block are loaded.
    plain: Strictness,
    /// Faults of the variables, for files with a `remoor:` block.
    vars_faults: Vec<Fault>,
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
    warnings: Vec<Fault>,
    rendered: Vec<RenderedCheckFile>,
}

/// The way in which a file is rendered. An included file inherits it.
#[derive(Clone)]
struct FileRendering {
    service: ServiceName,
    /// The header of the `remoor:` block. None: the file is a Go template.
    header: Option<Header>,
}

impl Loader {
    fn new(options: &SuiteOptions) -> Result<Self, Vec<Fault>> {
        let texts = variable_texts(options)?;
        let plain = if options.strict { Strictness::Strict } else { Strictness::AsGoss };
        let go_vars = variables(&texts, |file, text| check::go_vars(file, text, plain))?;
        // The variables of plain goss files are read as goss reads them, so these faults concern
        // only files with a `remoor:` block.
        let (vars, vars_faults) = match variables(&texts, check::vars) {
            Ok(vars) => (vars, Vec::new()),
            Err(faults) => (Map::new(), faults),
        };
        Ok(Loader {
            plain,
            vars_faults,
            env: machine::environment(),
            context: json!({"node": machine::node(), "vars": vars}).as_object().cloned().unwrap_or_default(),
            go_vars,
            files: 0,
            too_many: false,
            ids: BTreeMap::new(),
            checks: Vec::new(),
            passed_over: Vec::new(),
            warnings: Vec::new(),
            rendered: Vec::new(),
        })
    }

    /// Loads the named files and directories. Returns all faults.
    fn load_all(&mut self, named: &[PathBuf]) -> Vec<Fault> {
        if named.iter().filter(|file| *file == Path::new("-")).count() > 1 {
            return vec![Fault::error("standard input", 0, 0, "`-` is named twice, and can be read once")];
        }
        let mut faults = Vec::new();
        for named in named {
            let files = source::files(named).unwrap_or_else(|fault| {
                faults.push(fault);
                Vec::new()
            });
            for path in files {
                self.ids.clear();
                let source = source::read(&path).map_err(|fault| vec![fault]);
                let loaded = source.and_then(|source| self.file(source, None, &mut Vec::new()));
                faults.extend(loaded.err().into_iter().flatten());
            }
        }
        faults
    }

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
            if !self.vars_faults.is_empty() {
                return Err(self.vars_faults.clone());
            }
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
        self.rendered.push(RenderedCheckFile { file: file.to_owned(), text: rendered.clone() });
        let strictness = if way.header.is_some() { Strictness::Strict } else { self.plain };
        let loaded = check::load(file, &way.service, &rendered, strictness)?;
        self.warnings.extend(loaded.warnings);
        let mut faults = Vec::new();
        // A block that contains checks stays in the text, so that its checks are loaded.
        if let Some((line, column)) = loaded.header.filter(|_| !own_checks) {
            let fault = Fault::error(file, line, column, "`remoor` is not the first block of the file");
            faults.push(fault.hint("write it as YAML, `remoor:` at the beginning of the first line"));
        }
        for check in loaded.checks {
            faults.extend(self.add(file, check, strictness));
        }
        stack.push(identity(&source));
        for include in &loaded.includes {
            faults.extend(self.include(&source, include, &way, stack).err().into_iter().flatten());
        }
        stack.pop();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Adds a check. A check with the same id is a fault, except in a plain goss file: there the
    /// check that is loaded last counts, as in goss.
    fn add(&mut self, file: &str, check: Check, strictness: Strictness) -> Option<Fault> {
        let key_of = |check: &Check| match strictness {
            Strictness::Strict => check.label(),
            Strictness::AsGoss => check.unique_key(),
        };
        let key = key_of(&check);
        let Some((other, line)) = self.ids.insert(key.clone(), (check.file.clone(), check.line)) else {
            self.checks.push(check);
            return None;
        };
        let message = format!("`{}` is there already, at {other}:{line}", check.label());
        let fault = Fault::error(file, check.line, 1, message);
        if strictness == Strictness::Strict {
            return Some(fault.hint("give one of the two another id"));
        }
        self.warnings.push(Fault { warning: true, ..fault.hint("only this one is run, as in goss") });
        let same = |old: &Check| key_of(old) == key && old.file == other && old.line == line;
        if let Some(at) = self.checks.iter().rposition(same) {
            self.checks[at] = check;
        }
        None
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
