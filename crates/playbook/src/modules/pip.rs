//! The `pip` module: Python packages, by the node's own pip or by that of a virtual environment.

use super::{ModuleCall, ModuleResult, TaskOutcome, UMASK, failure_message, require_success};
use crate::lang::{version, word_split};
use crate::os::acting_user::env_var;
use crate::os::process::{CommandSpec, Finished};
use serde_json::json;
use std::path::{Path, PathBuf};

const OPERATORS: [&str; 7] = [">=", "<=", "==", "!=", "~=", ">", "<"];
/// Systems of version control whose URLs pip installs from.
const VCS: [&str; 4] = ["svn+", "git+", "hg+", "bzr+"];

/// A requirement: a package with its version specifiers, or anything else that pip takes.
#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    text: String,
    /// The canonical name. None: a URL or path, which no list of packages shows.
    name: Option<String>,
    /// Operators and versions.
    specifiers: Vec<(String, String)>,
}

/// The directory, umask and environment of the programs.
struct PipContext {
    dir: PathBuf,
    umask: u32,
    venv: Option<PathBuf>,
}

impl PipContext {
    fn new(call: &mut ModuleCall) -> Result<Self, String> {
        let chdir = call.optional_path("chdir")?;
        let venv = match call.text(&["virtualenv"]).filter(|text| !text.is_empty()) {
            None => None,
            // A relative path is relative to `chdir`.
            Some(text) if !text.starts_with(['/', '~']) => {
                let dir = chdir.clone().ok_or_else(|| format!("`virtualenv` is not an absolute path: {text}"))?;
                call.args.insert("virtualenv".into(), json!(dir.join(text)));
                Some(call.path(&["virtualenv"])?)
            }
            Some(_) => Some(call.path(&["virtualenv"])?),
        };
        let umask = match call.text(&["umask"]) {
            Some(text) => u32::from_str_radix(text.trim_start_matches("0o"), 8)
                .map_err(|_| "umask must be an octal integer".to_owned())?,
            None => UMASK,
        };
        if call.flag("break_system_packages", false) {
            call.env.push(("PIP_BREAK_SYSTEM_PACKAGES".into(), "1".into()));
        }
        if let Some(venv) = &venv {
            let own = call.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
            let path = own.or_else(|| env_var("PATH")).unwrap_or_default();
            call.env.push(("PATH".into(), format!("{}:{path}", venv.join("bin").display())));
        }
        Ok(Self { dir: chdir.unwrap_or_else(std::env::temp_dir), umask, venv })
    }

    fn command(&self, argv: &[String]) -> CommandSpec {
        let (argv, dir) = (argv.to_vec(), Some(self.dir.clone()));
        CommandSpec { argv, dir, umask: Some(self.umask), ..CommandSpec::default() }
    }
}

pub fn pip(call: &mut ModuleCall) -> ModuleResult {
    let state = call.text(&["state"]).unwrap_or_else(|| "present".into());
    let names = call.list(&["name"]);
    let (pinned, file) = (call.text(&["version"]), call.text(&["requirements"]));
    if state == "latest" && pinned.is_some() {
        return Err("version is incompatible with state=latest".into());
    }
    if names.is_empty() && file.is_none() {
        return Err("pip needs `name` or `requirements`".into());
    }
    let requirements = requirements(&names, pinned.as_deref())?;
    let context = PipContext::new(call)?;
    let mut made = None;
    if let Some(venv) = &context.venv
        && call.ground.node.follow(&venv.join("bin/activate")).is_none()
    {
        if let Some(would) = call.ground.node.predicted_state_mut() {
            would.add_skipped_path(venv);
            would.mark_unknown();
            return Ok(TaskOutcome { changed: true, ..TaskOutcome::default() }.with_result(json!({})));
        }
        made = Some(create_venv(call, &context, venv)?);
    }
    let program = pip_program(call, &context)?;
    let extra = extra_arguments(call)?;
    let mut argv = program.clone();
    let verb: &[&str] = match state.as_str() {
        "absent" => &["uninstall", "-y"],
        "latest" => &["install", "-U"],
        "forcereinstall" => &["install", "-U", "--force-reinstall"],
        _ => &["install"],
    };
    argv.extend(verb.iter().map(|word| (*word).to_owned()));
    argv.extend(extra.iter().cloned());
    match &file {
        Some(file) if names.is_empty() => argv.extend(["-r".to_owned(), file.clone()]),
        _ => argv.extend(requirements.iter().map(|requirement| requirement.text.clone())),
    }
    if call.ground.node.is_check_mode() {
        let unclear = !extra.is_empty() || file.is_some() || state == "latest";
        return predict(call, &context, &program, &requirements, &state, unclear);
    }
    let from_vcs = requirements.iter().any(|requirement| VCS.iter().any(|kind| requirement.text.starts_with(kind)));
    let compares = file.is_some() || from_vcs;
    let before = if compares { Some(list_installed(call, &context, &program)?.1.stdout) } else { None };
    let done = call.run_spec(context.command(&argv))?;
    let absent =
        state == "absent" && done.rc == Some(1) && format!("{}{}", done.stdout, done.stderr).contains("not installed");
    if !done.success() && !absent {
        let mut out = TaskOutcome { failed: true, msg: failure_message("pip", &done), ..TaskOutcome::default() };
        out.extra_keys.insert("cmd".into(), json!(argv));
        return Ok(TaskOutcome { output: Some(done), ..out });
    }
    let mut changed = match before {
        Some(before) if state != "absent" => before != list_installed(call, &context, &program)?.1.stdout,
        _ if state == "absent" => done.stdout.contains("Successfully uninstalled"),
        _ => done.stdout.contains("Successfully installed"),
    };
    let mut output = done;
    if let Some(venv) = made {
        changed = true;
        output.stdout.insert_str(0, &venv.stdout);
        output.stderr.insert_str(0, &venv.stderr);
    }
    let name = (!names.is_empty()).then_some(names);
    let keys = json!({"cmd": argv, "name": name, "version": pinned, "state": state, "requirements": file,
        "virtualenv": context.venv});
    let out = TaskOutcome { changed, output: Some(output), keep_trailing_newlines: true, ..TaskOutcome::default() };
    Ok(out.with_result(keys))
}

/// The arguments of the options `extra_args` and `editable`.
fn extra_arguments(call: &ModuleCall) -> Result<Vec<String>, String> {
    let text = call.text(&["extra_args"]).unwrap_or_default();
    let words = word_split::split_words(&text).map_err(|why| format!("extra_args: {why}"))?;
    let mut words: Vec<String> = words.into_iter().map(|word| word.text).collect();
    if call.flag("editable", false) && !words.iter().any(|word| word == "-e") {
        words.push("-e".into());
    }
    Ok(words)
}

/// The command that runs pip: of the virtual environment, of `executable`, or of the node's Python.
fn pip_program(call: &mut ModuleCall, context: &PipContext) -> Result<Vec<String>, String> {
    if let Some(venv) = &context.venv {
        let found = ["pip3", "pip"].iter().map(|name| venv.join("bin").join(name)).find(|path| path.exists());
        let found = found.ok_or_else(|| format!("the virtual environment {} has no pip", venv.display()))?;
        return Ok(vec![found.display().to_string()]);
    }
    if let Some(program) = call.text(&["executable"]) {
        return Ok(vec![if program.starts_with('/') { program } else { call.find_program(&program)? }]);
    }
    if let Ok(mut argv) = call.ground.python.interpreter(call.scope, call.cancel) {
        argv.extend(["-m".to_owned(), "pip".to_owned()]);
        let version: Vec<&str> = argv.iter().map(String::as_str).chain(["--version"]).collect();
        if call.run_quietly(&version).is_ok_and(|done| done.success()) {
            return Ok(argv);
        }
    }
    Ok(vec![call.find_program("pip3").map_err(|why| format!("{why}; install pip first"))?])
}

fn create_venv(call: &mut ModuleCall, context: &PipContext, venv: &Path) -> Result<Finished, String> {
    let command = call.text(&["virtualenv_command"]).unwrap_or_else(|| "virtualenv".into());
    let words = word_split::split_words(&command).map_err(|why| format!("virtualenv_command: {why}"))?;
    let mut argv: Vec<String> = words.into_iter().map(|word| word.text).collect();
    let first = argv.first().cloned().ok_or("`virtualenv_command` is empty")?;
    if !first.contains('/') {
        argv[0] = call.find_program(&first)?;
    }
    if call.flag("virtualenv_site_packages", false) {
        argv.push("--system-site-packages".into());
    }
    let is_venv = first == "pyvenv" || argv.windows(2).any(|pair| pair == ["-m", "venv"]);
    match (call.text(&["virtualenv_python"]), is_venv) {
        (Some(_), true) => {
            return Err(
                "virtualenv_python should not be used when using the venv module or pyvenv as virtualenv_command"
                    .into(),
            );
        }
        (Some(python), false) => argv.push(format!("-p{python}")),
        (None, true) => {}
        (None, false) => {
            let python = call.ground.python.interpreter(call.scope, call.cancel)?;
            argv.extend(python.first().map(|python| format!("-p{python}")));
        }
    }
    argv.push(venv.display().to_string());
    let done = call.run_spec(context.command(&argv))?;
    if done.success() { Ok(done) } else { Err(failure_message(&argv.join(" "), &done)) }
}

/// The command that lists the installed packages, and its output.
fn list_installed(
    call: &mut ModuleCall,
    context: &PipContext,
    program: &[String],
) -> Result<(String, Finished), String> {
    let argv: Vec<String> = program.iter().cloned().chain(["list".into(), "--format=freeze".into()]).collect();
    call.env.push(("LC_ALL".into(), "C".into()));
    let done = call.run_spec_quietly(context.command(&argv))?;
    call.env.pop();
    require_success("pip list", &done)?;
    Ok((argv.join(" "), done))
}

fn predict(
    call: &mut ModuleCall,
    context: &PipContext,
    program: &[String],
    requirements: &[Requirement],
    state: &str,
    unclear: bool,
) -> ModuleResult {
    let mut out = TaskOutcome { changed: true, ..TaskOutcome::default() }.with_result(json!({}));
    if !unclear {
        let (command, done) = list_installed(call, context, program)?;
        let have: Vec<(String, &str)> =
            done.stdout.lines().filter_map(|l| l.split_once("==")).map(|(name, v)| (canonical(name), v)).collect();
        let is_present = |wanted: &Requirement| {
            let name = wanted.name.as_ref();
            have.iter().any(|(own, version)| Some(own) == name && wanted.is_satisfied_by(version))
        };
        out.changed = requirements.iter().any(|wanted| match state {
            "present" => !is_present(wanted),
            "absent" => is_present(wanted),
            _ => false,
        });
        out.extra_keys.insert("cmd".into(), json!(command));
        (out.output, out.keep_trailing_newlines) = (Some(done), true);
    }
    if let Some(would) = call.ground.node.predicted_state_mut().filter(|_| out.changed) {
        would.mark_unknown();
    }
    Ok(out)
}

/// The requirements of the options `name` and `version`. A text that begins with an operator
/// belongs to the requirement before it, as in `a>1,<2`.
fn requirements(names: &[String], pinned: Option<&str>) -> Result<Vec<Requirement>, String> {
    let mut texts: Vec<String> = Vec::new();
    let mut in_brackets = false;
    for part in names.iter().flat_map(|name| name.split(',')).map(str::trim) {
        let continues = in_brackets || OPERATORS.iter().any(|operator| part.starts_with(operator));
        match texts.last_mut().filter(|_| continues) {
            Some(last) => last.extend([",", part]),
            None => texts.push(part.to_owned()),
        }
        in_brackets = (in_brackets || part.contains('[')) && !part.contains(']');
    }
    let mut out: Vec<Requirement> = texts.iter().map(|text| Requirement::parse(text)).collect();
    if let Some(version) = pinned.map(str::trim).filter(|version| !version.is_empty()) {
        if out.len() > 1 {
            return Err("`version` is ambiguous with several packages; write the version at each name".into());
        }
        if let Some(first) = out.first_mut() {
            if !first.specifiers.is_empty() {
                return Err("`version` conflicts with the version specifier in `name`".into());
            }
            let exact = version.starts_with(|c: char| c.is_ascii_digit());
            *first = Requirement::parse(&format!("{}{}{version}", first.text, if exact { "==" } else { "" }));
        }
    }
    Ok(out)
}

impl Requirement {
    fn parse(text: &str) -> Self {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let rest = rest.trim();
        let rest = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(rest, |(_, rest)| rest.trim());
        let rest = rest.split(';').next().unwrap_or_default().trim();
        let mut specifiers = Vec::new();
        for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match OPERATORS.iter().find_map(|operator| Some((*operator, part.strip_prefix(operator)?.trim()))) {
                Some((operator, version)) => specifiers.push((operator.to_owned(), version.to_owned())),
                None => return Self { text: text.to_owned(), name: None, specifiers: Vec::new() },
            }
        }
        // pip gets the text as Python's `packaging` writes it: without blanks, and with sorted
        // specifiers.
        let begin = text.find(|c| "<>=!~;".contains(c)).map_or(text, |at| &text[..at]);
        let mut written: Vec<String> =
            specifiers.iter().map(|(operator, version)| format!("{operator}{version}")).collect();
        written.sort();
        let marker = text.split_once(';').map(|(_, marker)| format!("; {}", marker.trim())).unwrap_or_default();
        let text = format!("{}{}{marker}", begin.split_whitespace().collect::<String>(), written.join(","));
        Self { text, name: (!name.is_empty()).then(|| canonical(name)), specifiers }
    }

    fn is_satisfied_by(&self, have: &str) -> bool {
        self.specifiers.iter().all(|(operator, wanted)| specifier_holds(have, operator, wanted))
    }
}

/// Whether a version meets a specifier. `==1.*` compares the beginning, and `~=1.4` means `>=1.4`
/// and `==1.*`.
fn specifier_holds(have: &str, operator: &str, wanted: &str) -> bool {
    let begins = |prefix: &str| have == prefix || have.starts_with(&format!("{prefix}."));
    match (operator, wanted.strip_suffix(".*")) {
        ("==", Some(prefix)) => begins(prefix),
        ("!=", Some(prefix)) => !begins(prefix),
        ("~=", _) => {
            let prefix = wanted.rsplit_once('.').map_or(wanted, |(prefix, _)| prefix);
            compare(have, ">=", wanted) && begins(prefix)
        }
        _ => compare(have, operator, wanted),
    }
}

/// Compares versions; missing numbers at the end count as 0.
fn compare(have: &str, operator: &str, wanted: &str) -> bool {
    let count = |text: &str| text.split('.').count();
    let most = count(have).max(count(wanted));
    let filled = |text: &str| text.to_owned() + &".0".repeat(most - count(text));
    version::holds(&filled(have), operator, &filled(wanted), "loose").unwrap_or(false)
}

/// The name of a package in the form of PEP 503.
fn canonical(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if out.ends_with('-') => {}
            '-' | '_' | '.' => out.push('-'),
            c => out.extend(c.to_lowercase()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str], version: Option<&str>) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        requirements(&names, version).unwrap().into_iter().map(|requirement| requirement.text).collect()
    }

    #[test]
    fn requirements_are_those_of_pip() {
        assert_eq!(
            texts(&["django>1.11.1", "<1.11.3", "a[x,y]>2", "b"], None),
            ["django<1.11.3,>1.11.1", "a[x,y]>2", "b"]
        );
        assert_eq!(texts(&["a"], Some("1.0")), ["a==1.0"]);
        assert_eq!(texts(&["a"], Some(">= 1.0")), ["a>=1.0"]);
        let have = |text: &str, version: &str| Requirement::parse(text).is_satisfied_by(version);
        assert!(have("a", "9") && have("a==1.0", "1") && have("a~=1.4", "1.9") && have("a==1.*", "1.10.2"));
        assert!(!have("a~=1.4", "2.0") && !have("a>1,<2", "2") && !have("a!=1.0", "1.0"));
        assert_eq!(Requirement::parse("Foo_Bar.baz>=1").name.as_deref(), Some("foo-bar-baz"));
        assert_eq!(Requirement::parse("git+https://x/y").name, None);
    }
}
