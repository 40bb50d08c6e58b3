//! The `git` module: a clone of a repository at one version, made by the node's own git. A user
//! name and password in the URL are passed to git in its environment, not as arguments, and are not
//! stored in the clone. In check mode, only `git ls-remote` contacts the repository.

use super::{ModuleCall, ModuleResult, TaskOutcome, UMASK, failure_message, require_success, spawn_failure};
use crate::filters::shell_quote;
use crate::os::atomic_fs::Attributes;
use crate::os::process::{self, CommandSpec, Finished};
use crate::run::event::AttributeChange;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Maximum length of a reported diff, in bytes.
const DIFF_MAX: usize = 256 << 10;

/// The commits of the remote branches and tags that the option `version` may mean.
#[derive(Debug, Default, PartialEq, Eq)]
struct RemoteRefs {
    head: Option<String>,
    branch: Option<String>,
    tag: Option<String>,
}

impl RemoteRefs {
    /// Parses the output of `git ls-remote`.
    fn parse(listing: &str, version: &str) -> Self {
        let mut out = Self::default();
        for (commit, name) in listing.lines().filter_map(|line| line.split_once('\t')) {
            let commit = Some(commit.to_owned());
            match name {
                "HEAD" => out.head = commit,
                _ if name.strip_prefix("refs/heads/") == Some(version) => out.branch = commit,
                // The line with `^{}` (the commit of an annotated tag) comes after the tag and
                // replaces it.
                _ if name.strip_prefix("refs/tags/").is_some_and(|t| t.trim_end_matches("^{}") == version) => {
                    out.tag = commit;
                }
                _ => {}
            }
        }
        out
    }
}

/// A repository and its clone, as described by the task's options.
struct GitClone<'c, 'a, 'g> {
    call: &'c mut ModuleCall<'a, 'g>,
    program: String,
    /// The URL of the repository without user name and password.
    repo: String,
    version: String,
    remote: String,
    dest: PathBuf,
    bare: bool,
    depth: Option<u32>,
    env: Vec<(String, String)>,
    umask: u32,
}

pub fn git(call: &mut ModuleCall) -> ModuleResult {
    let (update, clones) = (call.flag("update", true), call.flag("clone", true));
    let dest = match (call.text(&["dest"]).filter(|d| !d.is_empty()), clones) {
        (None, true) => return Err("`dest` is missing; it is optional only with `clone: false`".into()),
        (None, false) => None,
        (Some(_), _) => Some(call.path(&["dest"])?),
    };
    if let Some(dest) = dest.as_ref().filter(|dest| call.depends_on_skipped_command(dest)) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            dest.display()
        )));
    }
    let place = dest.as_ref().map(|dest| resolve_trusted(call, dest)).transpose()?;
    let mut clone = prepare_clone(call, place.unwrap_or_default())?;
    let inside = if clone.bare { clone.dest.join("config") } else { clone.dest.join(".git") };
    let there = dest.is_some() && clone.call.ground.node.find_trusted(&inside)?.is_some();
    if update || !there {
        clone.call.ground.node.begin_change()?;
    }
    let mut out = if !there {
        clone.create_clone(clones)?
    } else if update {
        clone.update_clone()?
    } else {
        let now = clone.commit()?;
        clone.outcome(now.clone(), now)
    };
    if out.changed
        && let Some(would) = clone.call.ground.node.predicted_state_mut()
    {
        would.add_skipped_path(dest.as_ref().unwrap_or(&clone.dest));
    }
    if let Some(dest) = dest {
        out.extra_keys.insert("path".into(), json!(dest.display().to_string()));
    }
    Ok(out)
}

/// Resolves a path that git will use; its last components need not exist yet. Fails on a link that
/// a user other than root may have created.
fn resolve_trusted(call: &ModuleCall, path: &Path) -> Result<PathBuf, String> {
    for at in path.ancestors() {
        if let Some((real, _)) = call.ground.node.find_trusted(at)? {
            let missing = path.strip_prefix(at).unwrap_or(Path::new(""));
            return Ok(real.join(missing).components().collect());
        }
    }
    Ok(path.to_owned())
}

/// Reads the options and prepares the environment of git. Nothing is run yet.
fn prepare_clone<'c, 'a, 'g>(call: &'c mut ModuleCall<'a, 'g>, dest: PathBuf) -> Result<GitClone<'c, 'a, 'g>, String> {
    let given = call.required_text(&["repo", "name"])?;
    let version = call.text(&["version"]).filter(|v| !v.is_empty()).unwrap_or_else(|| "HEAD".into());
    let remote = call.text(&["remote"]).filter(|r| !r.is_empty()).unwrap_or_else(|| "origin".into());
    for (option, text) in [("repo", &given), ("version", &version), ("remote", &remote)] {
        if text.starts_with('-') || text.contains(['\n', '\0']) {
            return Err(format!("`{option}` can't be `{text}`"));
        }
    }
    let depth = match call.text(&["depth"]) {
        None => None,
        Some(text) => Some(text.parse::<u32>().map_err(|_| format!("`depth` is not a number: {text}"))?),
    };
    let umask = match call.text(&["umask"]) {
        None => UMASK,
        Some(text) => u32::from_str_radix(&text, 8)
            .ok()
            .filter(|m| *m <= 0o777)
            .ok_or("`umask` is not an octal number up to 777")?,
    };
    if let Some(local) = Some(given.strip_prefix("file://").unwrap_or(&given)).filter(|path| path.starts_with('/')) {
        resolve_trusted(call, Path::new(local))?;
    }
    let given = if given.starts_with('/') { format!("file://{given}") } else { given };
    let (repo, login) = split_login(&given);
    let mut env = call.env.clone();
    let mut set = |name: &str, value: String| env.push((name.to_owned(), value));
    for name in ["LC_ALL", "LANG", "LANGUAGE"] {
        set(name, "C".into());
    }
    set("GIT_TERMINAL_PROMPT", "0".into());
    // Without this variable, `git status` writes to the index of the clone.
    set("GIT_OPTIONAL_LOCKS", "0".into());
    if let Some((base, with)) = login {
        set("GIT_CONFIG_COUNT", "1".into());
        set("GIT_CONFIG_KEY_0", format!("url.{with}.insteadOf"));
        set("GIT_CONFIG_VALUE_0", base);
    }
    if let Some(ssh) = ssh_command(call)? {
        set("GIT_SSH_COMMAND", ssh);
    }
    let program = call.text(&["executable"]).filter(|p| !p.is_empty()).unwrap_or_else(|| "git".into());
    let (bare, depth) = (call.flag("bare", false), depth.filter(|d| *d > 0));
    Ok(GitClone { call, program, repo, version, remote, dest, bare, depth, env, umask })
}

/// Returns the URL without user name and password. Also returns a pair for git's `insteadOf`: the
/// base URL without them, and the base URL with them. Changes only URLs with a password, because a
/// user name alone is not secret, and ssh needs it.
fn split_login(url: &str) -> (String, Option<(String, String)>) {
    let plain = || (url.to_owned(), None);
    let Some((scheme, rest)) = url.split_once("://") else { return plain() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((login, host)) if login.contains(':') && scheme.starts_with("http") => {
            let (base, with) = (format!("{scheme}://{host}/"), format!("{scheme}://{login}@{host}/"));
            (format!("{scheme}://{host}{}", &rest[end..]), Some((base, with)))
        }
        _ => plain(),
    }
}

/// The command for GIT_SSH_COMMAND. None: the task's environment already sets one.
fn ssh_command(call: &ModuleCall) -> Result<Option<String>, String> {
    let own = call.text(&["ssh_opts"]).filter(|o| !o.is_empty());
    let accepts = call.flag("accept_hostkey", false) || call.flag("accept_newhostkey", false);
    let key = match call.text(&["key_file"]).filter(|k| !k.is_empty()) {
        Some(_) => Some(call.path(&["key_file"])?),
        None => None,
    };
    if own.is_none() && !accepts && key.is_none() {
        let set = call.env.iter().any(|(name, _)| name == "GIT_SSH_COMMAND" || name == "GIT_SSH");
        return Ok((!set).then(|| "ssh -o BatchMode=yes".to_owned()));
    }
    let mut line = "ssh -o BatchMode=yes".to_owned();
    if let Some(key) = key {
        line.push_str(&format!(" -i {} -o IdentitiesOnly=yes", shell_quote(&key.display().to_string())));
    }
    if let Some(own) = &own {
        for word in crate::lang::word_split::split_words(own)? {
            line.push(' ');
            line.push_str(&shell_quote(&word.text));
        }
    }
    // The key of an unknown host is accepted, but a changed host key is still refused.
    if accepts && !own.is_some_and(|own| own.contains("StrictHostKeyChecking")) {
        line.push_str(" -o StrictHostKeyChecking=accept-new");
    }
    Ok(Some(line))
}

impl GitClone<'_, '_, '_> {
    fn run(&self, argv: &[&str]) -> Result<Finished, String> {
        let job = CommandSpec {
            argv: std::iter::once(self.program.as_str()).chain(argv.iter().copied()).map(str::to_owned).collect(),
            env: self.env.clone(),
            timeout: self.call.time_left(),
            umask: Some(self.umask),
            ..CommandSpec::default()
        };
        let install = |why| format!("{why}; this node needs git: install it by a task before this one");
        process::run(&job, self.call.cancel, &mut |_| {}).map_err(|e| install(spawn_failure(&e)))
    }

    /// Runs git in the clone and returns its output. Fails if git fails.
    fn run_in_clone(&self, argv: &[&str]) -> Result<String, String> {
        let done = self.try_in_clone(argv)?;
        match done.success() {
            true => Ok(done.stdout),
            false => Err(failure_message(&format!("git {}", argv.first().unwrap_or(&"")), &done)),
        }
    }

    /// Runs git in the clone. A failure of git is not an error.
    fn try_in_clone(&self, argv: &[&str]) -> Result<Finished, String> {
        let dest = self.dest.display().to_string();
        self.run(&[&["-C", &dest], argv].concat())
    }

    fn commit(&self) -> Result<String, String> {
        Ok(self.run_in_clone(&["rev-parse", "HEAD"])?.trim().to_owned())
    }

    /// Queries the remote for the commits that `version` may mean.
    fn query_refs(&self) -> Result<RemoteRefs, String> {
        let (branch, tag) = (format!("refs/heads/{}", self.version), format!("refs/tags/{}", self.version));
        let peeled = format!("{tag}^{{}}");
        let done = self.run(&["ls-remote", "--", &self.repo, "HEAD", &branch, &tag, &peeled])?;
        if !done.success() {
            return Err(self.call.ground.node.note_missing(failure_message("git ls-remote", &done)));
        }
        Ok(RemoteRefs::parse(&done.stdout, &self.version))
    }

    fn outcome(&self, before: String, after: String) -> TaskOutcome {
        let mut out = TaskOutcome { changed: before != after, ..TaskOutcome::default() };
        if out.changed {
            out.attributes.push(AttributeChange::new("commit", before.clone(), after.clone()));
        }
        out.extra_keys.insert("before".into(), if before.is_empty() { json!(null) } else { json!(before) });
        out.extra_keys.insert("after".into(), json!(after));
        out
    }

    /// Creates the clone, or predicts the commit in check mode and with `clone: false`.
    fn create_clone(&mut self, clones: bool) -> ModuleResult {
        let known = self.query_refs()?;
        if !clones || self.call.ground.node.is_check_mode() {
            let after = match self.version.as_str() {
                "HEAD" => known.head,
                _ => known.branch.or(known.tag).or_else(|| is_commit(&self.version).then(|| self.version.clone())),
            };
            let after = after.ok_or_else(|| format!("Could not determine remote revision for {}", self.version))?;
            return Ok(self.outcome(String::new(), after));
        }
        self.make_parents()?;
        let (depth, dest) = (self.depth.map(|d| d.to_string()), self.dest.display().to_string());
        let fetchable = known.branch.is_some() || known.tag.is_some();
        let single = self.call.flag("single_branch", false);
        let mut argv = vec!["clone"];
        argv.extend(if self.bare { vec!["--bare"] } else { vec!["--origin", &self.remote] });
        // git cannot make a shallow clone of a commit that no branch or tag names.
        let depth = depth.as_deref().filter(|_| self.version == "HEAD" || fetchable);
        argv.extend(depth.into_iter().flat_map(|depth| ["--depth", depth]));
        argv.extend(single.then_some("--single-branch"));
        if fetchable && (depth.is_some() || single) {
            argv.extend(["--branch", &self.version]);
        }
        let reference = self.call.text(&["reference"]).filter(|r| !r.is_empty());
        if let Some(path) = reference.as_deref().map(Path::new).filter(|path| path.is_absolute()) {
            resolve_trusted(self.call, path)?;
        }
        argv.extend(reference.iter().flat_map(|path| ["--reference", path.as_str()]));
        argv.extend(["--", &self.repo, &dest]);
        let done = self.run(&argv)?;
        require_success("git clone", &done)?;
        if self.bare && self.remote != "origin" {
            self.run_in_clone(&["remote", "add", &self.remote, &self.repo])?;
        }
        if !self.bare {
            self.switch(&known)?;
            self.submodules()?;
        }
        let mut out = self.outcome(String::new(), self.commit()?);
        out.diff = Some(format!(">> Newly checked out {}\n", self.commit()?));
        Ok(out)
    }

    fn make_parents(&mut self) -> Result<(), String> {
        let ground = &mut *self.call.ground;
        let above = self.dest.ancestors().skip(1);
        let missing: Vec<PathBuf> =
            above.take_while(|at| ground.node.follow(at).is_none()).map(Path::to_owned).collect();
        for dir in missing.iter().rev() {
            ground.back_up(dir)?;
            ground.node.make_directory(dir, Attributes { mode: Some(0o777 & !self.umask), ..Attributes::default() })?;
        }
        Ok(())
    }

    /// Updates an existing clone.
    fn update_clone(&mut self) -> ModuleResult {
        let force = self.call.flag("force", false);
        let before = self.commit()?;
        let status = if self.bare { String::new() } else { self.run_in_clone(&["status", "--porcelain"])? };
        let modified = status.lines().any(|line| !line.starts_with("??"));
        if modified && !force {
            let dest = self.dest.display();
            return Err(format!("Local modifications exist in the destination: {dest} (force=no)."));
        }
        let address = format!("remote.{}.url", self.remote);
        let now = self.try_in_clone(&["config", "--get", &address])?.stdout.trim().to_owned();
        let moved = split_login(&now).0 != self.repo;
        let known = self.query_refs()?;
        if self.call.ground.node.is_check_mode() {
            let after = match self.version.as_str() {
                "HEAD" if self.bare => known.head,
                "HEAD" => self.remote_head()?,
                _ => known.branch.or(known.tag).or_else(|| is_commit(&self.version).then(|| self.version.clone())),
            };
            let after = after.ok_or_else(|| format!("Could not determine remote revision for {}", self.version))?;
            let mut out = self.outcome(before, after);
            out.changed |= moved || modified;
            out.extra_keys.insert("remote_url_changed".into(), json!(moved));
            return Ok(out);
        }
        if modified {
            self.run_in_clone(&["reset", "--hard", "HEAD"])?;
        }
        if moved {
            let verb = if now.is_empty() { "add" } else { "set-url" };
            self.run_in_clone(&["remote", verb, &self.remote, &self.repo])?;
        }
        self.fetch(&known, force)?;
        let mut renewed = false;
        if !self.bare {
            self.switch(&known)?;
            renewed = self.submodules()?;
        }
        let after = self.commit()?;
        let mut out = self.outcome(before.clone(), after.clone());
        if out.changed {
            let whole = self.try_in_clone(&["diff", &before, &after])?.stdout;
            out.diff = Some(match whole.len() > DIFF_MAX {
                true => {
                    self.try_in_clone(&["diff", "--stat", &before, &after])?.stdout.chars().take(DIFF_MAX).collect()
                }
                false => whole,
            });
        }
        out.changed |= moved || modified || renewed;
        out.extra_keys.insert("remote_url_changed".into(), json!(moved));
        if renewed {
            out.extra_keys.insert("submodules_changed".into(), json!(true));
        }
        Ok(out)
    }

    /// The current branch of the clone. If HEAD is detached, this is the branch that was the
    /// default of the remote when the clone was made.
    fn branch(&self) -> Result<String, String> {
        let here = self.try_in_clone(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
        if here.success() {
            return Ok(here.stdout.trim().to_owned());
        }
        let there = format!("refs/remotes/{}/HEAD", self.remote);
        let there = self.run_in_clone(&["symbolic-ref", "--short", &there])?;
        let branch = there.trim().strip_prefix(&format!("{}/", self.remote)).map(str::to_owned);
        branch.ok_or_else(|| format!("`{}` is not a branch of {}; set `version`", there.trim(), self.remote))
    }

    /// The commit that the remote repository has for the current branch of the clone. None: the
    /// remote has no such branch.
    fn remote_head(&self) -> Result<Option<String>, String> {
        let name = format!("refs/heads/{}", self.branch()?);
        let done = self.run(&["ls-remote", "--", &self.repo, &name])?;
        require_success("git ls-remote", &done)?;
        Ok(done.stdout.split_once('\t').map(|(commit, _)| commit.to_owned()))
    }

    fn fetch(&self, known: &RemoteRefs, force: bool) -> Result<(), String> {
        let (version, remote) = (&self.version, &self.remote);
        let mut refs = Vec::new();
        if self.depth.is_some() {
            if version == "HEAD" {
                refs.push(self.branch()?);
            } else if known.branch.is_some() {
                refs.push(format!("+refs/heads/{version}:refs/remotes/{remote}/{version}"));
            } else if known.tag.is_some() {
                refs.push(format!("+refs/tags/{version}:refs/tags/{version}"));
            }
        }
        let depth = self.depth.filter(|_| !refs.is_empty()).map(|d| d.to_string());
        if depth.is_none() && self.bare {
            refs.extend(["heads", "tags"].map(|kind| format!("+refs/{kind}/*:refs/{kind}/*")));
        }
        let mut argv = vec!["fetch"];
        argv.extend(depth.iter().flat_map(|depth| ["--depth", depth.as_str()]));
        argv.extend((depth.is_none() && !self.bare).then_some("--tags"));
        argv.extend(force.then_some("--force"));
        argv.push(remote);
        argv.extend(refs.iter().map(String::as_str));
        self.run_in_clone(&argv).map(drop)
    }

    /// Checks out the version that the task wants.
    fn switch(&self, known: &RemoteRefs) -> Result<(), String> {
        let (version, remote) = (&self.version, &self.remote);
        let branch = match version.as_str() {
            "HEAD" => Some(self.branch()?),
            _ => known.branch.as_ref().map(|_| version.clone()),
        };
        let Some(branch) = branch else {
            return self.run_in_clone(&["checkout", "--force", version]).map(drop);
        };
        let (here, there) = (format!("refs/heads/{branch}"), format!("refs/remotes/{remote}/{branch}"));
        let has =
            |name: &str| Ok::<bool, String>(self.try_in_clone(&["show-ref", "--verify", "--quiet", name])?.success());
        if !has(&there)?
            && let Some(depth) = self.depth.map(|d| d.to_string())
        {
            // A shallow clone tracks only the branch from which it was created.
            self.run_in_clone(&["fetch", "--depth", &depth, remote, &format!("+{here}:{there}")])?;
        }
        if !has(&here)? {
            let from = format!("{remote}/{branch}");
            if self.try_in_clone(&["checkout", "--force", "--track", "-b", &branch, &from])?.success() {
                return Ok(());
            }
            // A single-branch clone cannot track other branches.
            return self.run_in_clone(&["checkout", "--force", "--no-track", "-b", &branch, &from]).map(drop);
        }
        self.run_in_clone(&["checkout", "--force", &branch])?;
        self.run_in_clone(&["reset", "--hard", &there, "--"]).map(drop)
    }

    /// Updates the submodules to the commits that the checkout records. Returns whether any was
    /// changed.
    fn submodules(&self) -> Result<bool, String> {
        if !self.call.flag("recursive", true) || !self.dest.join(".gitmodules").is_file() {
            return Ok(false);
        }
        let status = self.run_in_clone(&["submodule", "status"])?;
        if status.lines().all(|line| line.starts_with(' ')) {
            return Ok(false);
        }
        self.run_in_clone(&["submodule", "sync"])?;
        let mut argv = vec!["submodule", "update", "--init", "--recursive"];
        argv.extend(self.call.flag("force", false).then_some("--force"));
        self.run_in_clone(&argv)?;
        Ok(true)
    }
}

fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_refs_are_parsed() {
        let listing = "aa\tHEAD\nbb\trefs/heads/v1\ncc\trefs/heads/x/v1\ndd\trefs/tags/v1\nee\trefs/tags/v1^{}\n";
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            RemoteRefs::parse(listing, "v1"),
            RemoteRefs { head: some("aa"), branch: some("bb"), tag: some("ee") }
        );
        assert_eq!(RemoteRefs::parse("aa\tHEAD\n", "v1"), RemoteRefs { head: some("aa"), ..RemoteRefs::default() });
    }

    #[test]
    fn a_password_is_removed_from_a_url() {
        for (url, plain, with) in [
            ("https://me:pass@h/x.git", "https://h/x.git", Some("https://me:pass@h/")),
            ("https://me@h/x.git", "https://me@h/x.git", None),
            ("ssh://git@h:22/x@y", "ssh://git@h:22/x@y", None),
            ("git@h:x/y.git", "git@h:x/y.git", None),
            ("https://h/a:b@c", "https://h/a:b@c", None),
        ] {
            let (repo, login) = split_login(url);
            assert_eq!((repo.as_str(), login.as_ref().map(|(_, with)| with.as_str())), (plain, with));
        }
        assert!(is_commit("0123abc") && !is_commit("v1.2") && !is_commit("abc"));
    }
}
