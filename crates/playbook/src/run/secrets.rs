//! Secret paths and texts. The contents of secret paths are never shown, whichever task writes them
//! and whatever mode they have. Secret texts are replaced in everything that is shown.

use crate::plan::PlanSecrets;
use crate::run::event::{RunEnd, RunEvent, TaskReport};
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use globset::GlobSet;
use remoor_host::files;
use remoor_model::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The text that replaces a secret text.
const MASK: &str = "********";

/// Finds and replaces the secret texts of a plan.
#[derive(Clone, Default)]
pub struct SecretTexts(Patterns);

#[derive(Clone, Default)]
enum Patterns {
    #[default]
    None,
    Texts(AhoCorasick),
    /// It is not possible to search for the secret texts, so every text counts as secret.
    Everything,
}

impl std::fmt::Debug for SecretTexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Patterns::None => f.write_str("SecretTexts(0)"),
            Patterns::Texts(all) => write!(f, "SecretTexts({})", all.patterns_len()),
            Patterns::Everything => f.write_str("SecretTexts(everything)"),
        }
    }
}

impl SecretTexts {
    /// If the secrets exceed the limits, every text counts as secret. The compiler refuses such
    /// plans, so this concerns only plans of another version.
    pub fn new(secrets: &PlanSecrets) -> Self {
        if secrets.exceeds_limits() {
            return Self(Patterns::Everything);
        }
        let patterns = secrets.texts();
        if patterns.is_empty() {
            return Self(Patterns::None);
        }
        // The longest text is replaced if one secret text contains another. The other kinds of
        // automaton need several times as much memory for long texts.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).kind(kind).build(patterns);
        Self(built.map_or(Patterns::Everything, Patterns::Texts))
    }

    /// Whether there is no secret text.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Patterns::None)
    }

    /// Whether a content contains a secret text.
    pub fn contains_any(&self, content: &[u8]) -> bool {
        match &self.0 {
            Patterns::None => false,
            Patterns::Texts(all) => all.is_match(content),
            Patterns::Everything => true,
        }
    }

    /// Replaces the secret texts.
    pub fn mask(&self, text: &mut String) {
        match &self.0 {
            Patterns::Texts(all) if all.is_match(text.as_str()) => {
                let masks = vec![MASK; all.patterns_len()];
                *text = all.replace_all(text, &masks);
            }
            Patterns::Everything if !text.is_empty() => MASK.clone_into(text),
            Patterns::None | Patterns::Texts(_) | Patterns::Everything => {}
        }
    }

    /// Replaces the secret texts in all texts of a value.
    pub fn mask_value(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::String(text) => self.mask(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_value(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.mask_value(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Replaces the secret texts in messages and hints.
    pub fn mask_faults(&self, faults: &mut [Fault]) {
        if self.is_empty() {
            return;
        }
        for fault in faults {
            self.mask(&mut fault.message);
            fault.hint.iter_mut().for_each(|hint| self.mask(hint));
        }
    }

    pub(super) fn mask_event(&self, mut event: RunEvent) -> RunEvent {
        if !self.is_empty() {
            match &mut event {
                RunEvent::TaskStart { name, item, .. } => {
                    self.mask(name);
                    item.iter_mut().for_each(|item| self.mask(item));
                }
                RunEvent::Task(report) | RunEvent::Handler(report) => self.mask_report(report),
                RunEvent::Output { line, .. } => self.mask(line),
                RunEvent::PlayEnd { .. } => {}
            }
        }
        event
    }

    fn mask_report(&self, report: &mut TaskReport) {
        let TaskReport { name, item, msg, stdout_tail, diff, path, attributes, .. } = report;
        [name, msg, stdout_tail].into_iter().for_each(|text| self.mask(text));
        [item, diff, path].into_iter().flatten().for_each(|text| self.mask(text));
        for change in attributes {
            self.mask(&mut change.before);
            self.mask(&mut change.after);
        }
    }

    pub(super) fn mask_end(&self, mut end: RunEnd) -> RunEnd {
        if let Some(failure) = &mut end.failure {
            self.mask(&mut failure.task);
            self.mask(&mut failure.message);
            failure.tail.iter_mut().for_each(|line| self.mask(line));
        }
        if let Some(why) = &mut end.rebooting {
            self.mask(why);
        }
        end
    }
}

/// Paths that are declared secret: by globs as in a manifest, and individually.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    globs: GlobSet,
    paths: BTreeSet<PathBuf>,
    /// Whether a glob could not be parsed. The meaning of that glob is not known, so all paths are
    /// then secret.
    all: bool,
    /// The secret texts and files of the plan.
    plan: PlanSecrets,
    texts: SecretTexts,
}

impl Secrets {
    /// A glob with a leading `/` matches whole paths, and other globs match the last components of
    /// paths. Each glob also matches everything below a path that it matches.
    pub fn new(globs: &[String]) -> Self {
        let mut faults = BTreeMap::new();
        let globs = files::secret_matcher(globs, &mut faults);
        let all = !faults.is_empty();
        Self { globs, all, ..Self::default() }
    }

    pub fn add(&mut self, path: impl Into<PathBuf>) {
        self.paths.insert(path.into());
    }

    /// Adds the secrets of a plan: files with a secret text become secret.
    pub fn set_plan(&mut self, secrets: &PlanSecrets) {
        self.plan = secrets.clone();
        self.texts = SecretTexts::new(secrets);
    }

    /// Whether this content is secret. `source` is the path of the file in the fleet directory that
    /// the content was made of.
    pub fn is_secret_content(&self, content: &[u8], source: &str) -> bool {
        self.plan.contains_file(source) || self.texts.contains_any(content) || self.plan.contains_content(content)
    }

    /// Whether the options of a task contain a secret text.
    pub fn has_secret_text(&self, args: &serde_json::Map<String, serde_json::Value>) -> bool {
        !self.texts.is_empty() && self.texts.contains_any(&serde_json::to_vec(args).unwrap_or_default())
    }

    /// Whether neither paths nor texts are secret.
    pub fn is_empty(&self) -> bool {
        !self.all && self.plan.is_empty() && self.paths.is_empty() && self.globs.is_empty()
    }

    /// Whether this path is secret by its name alone.
    pub fn is_secret_name(&self, path: &Path) -> bool {
        self.all || self.paths.contains(path) || self.globs.is_match(path)
    }

    /// Whether this path is secret, or the path to which it leads on this machine through links.
    pub fn is_secret(&self, path: &Path) -> bool {
        let real = || {
            let (dir, name) = (path.parent()?, path.file_name()?);
            // A file that does not exist yet is in a directory that exists, so the directory is
            // resolved.
            std::fs::canonicalize(path).or_else(|_| std::fs::canonicalize(dir).map(|dir| dir.join(name))).ok()
        };
        self.is_secret_name(path) || real().is_some_and(|real| self.is_secret_name(&real))
    }

    /// Removes the secret texts from a run's event (JSON), and the diff if it concerns a secret
    /// path or does not name its path. The node has already removed such diffs. This check protects
    /// stored and forwarded events even if the node did not.
    pub fn strip(&self, event: &mut serde_json::Value) {
        let path = event.get("path").and_then(|path| path.as_str()).map(PathBuf::from);
        self.texts.mask_value(event);
        if path.is_none_or(|path| self.is_secret_name(&path))
            && let Some(diff) = event.get_mut("diff")
        {
            *diff = serde_json::Value::Null;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn globs_directories_and_links_are_secret() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("keys")).unwrap();
        std::os::unix::fs::symlink(at("keys"), at("link")).unwrap();
        let mut secrets = Secrets::new(&[at("keys/").display().to_string(), "*.pem".to_owned(), "/etc/a*".to_owned()]);
        secrets.add("/srv/token");
        for path in [at("keys/deep/id"), at("x.pem"), "/etc/app".into(), "/srv/token".into(), at("link/new")] {
            assert!(secrets.is_secret(&path), "{path:?}");
        }
        for path in [at("keysnot"), "/etc/b/app".into(), "/srv/token2".into()] {
            assert!(!secrets.is_secret(&path), "{path:?}");
        }
        assert!(
            Secrets::new(&["/a[".to_owned()]).is_secret(Path::new("/b")),
            "a glob that can't be read hides everything"
        );
    }

    #[test]
    fn secrets_beyond_the_limits_hide_everything() {
        let mut secrets = PlanSecrets::default();
        secrets.add_text(&"long secret ".repeat(1 << 18));
        let masks = SecretTexts::new(&secrets);
        let mut event = json!({"msg": "harmless", "path": "", "rc": 0});
        masks.mask_value(&mut event);
        assert_eq!(event, json!({"msg": MASK, "path": "", "rc": 0}));
        assert!(masks.contains_any(b"x") && !masks.is_empty());
    }

    #[test]
    fn the_content_of_a_large_file_is_secret() {
        let lines: String = (0..3_000).map(|line| format!("{line}\n")).collect();
        let mut plan = PlanSecrets::default();
        plan.add_content(lines.as_bytes());
        let mut secrets = Secrets::default();
        secrets.set_plan(&plan);
        assert!(secrets.is_secret_content(lines.trim().as_bytes(), "") && !secrets.is_secret_content(b"1\n2\n", ""));
    }

    #[test]
    fn diffs_of_secret_paths_are_taken_out() {
        let secrets = Secrets::new(&["/etc/key".to_owned()]);
        for (mut event, left) in [
            (json!({"path": "/etc/key", "diff": "+x"}), false),
            (json!({"path": "/etc/open", "diff": "+x"}), true),
            (json!({"diff": "+x"}), false),
        ] {
            secrets.strip(&mut event);
            assert_eq!(event["diff"].is_string(), left, "{event}");
        }
    }
}
