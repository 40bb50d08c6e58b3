//! Secret paths. Their contents are never shown, whichever task writes them and whatever mode they
//! have.

use globset::GlobSet;
use remoor_host::files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Paths that are declared secret: by globs as in a manifest, and individually.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    globs: GlobSet,
    paths: BTreeSet<PathBuf>,
    /// Whether a glob could not be parsed. The meaning of that glob is not known, so all paths are
    /// then secret.
    all: bool,
}

impl Secrets {
    /// A glob with a leading `/` matches whole paths, and other globs match the last components of
    /// paths. Each glob also matches everything below a path that it matches.
    pub fn new(globs: &[String]) -> Self {
        let mut faults = BTreeMap::new();
        let globs = files::secret_matcher(globs, &mut faults);
        let all = !faults.is_empty();
        Self { globs, paths: BTreeSet::new(), all }
    }

    pub fn add(&mut self, path: impl Into<PathBuf>) {
        self.paths.insert(path.into());
    }

    /// Whether no path is secret.
    pub fn is_empty(&self) -> bool {
        !self.all && self.paths.is_empty() && self.globs.is_empty()
    }

    /// Whether this path is secret by its name alone.
    pub fn names(&self, path: &Path) -> bool {
        self.all || self.paths.contains(path) || self.globs.is_match(path)
    }

    /// Whether this path is secret, or the path to which it leads on this machine through links.
    pub fn hide(&self, path: &Path) -> bool {
        let real = || {
            let (dir, name) = (path.parent()?, path.file_name()?);
            // A file that does not exist yet is in a directory that exists, so the directory is
            // resolved.
            std::fs::canonicalize(path).or_else(|_| std::fs::canonicalize(dir).map(|dir| dir.join(name))).ok()
        };
        self.names(path) || real().is_some_and(|real| self.names(&real))
    }

    /// Removes the diff from a run's event (JSON) if it concerns a secret path or does not name its
    /// path. The node has already removed such diffs. This check protects stored and forwarded
    /// events even if the node did not.
    pub fn strip(&self, event: &mut serde_json::Value) {
        let path = event.get("path").and_then(|path| path.as_str()).map(Path::new);
        if path.is_none_or(|path| self.names(path))
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
            assert!(secrets.hide(&path), "{path:?}");
        }
        for path in [at("keysnot"), "/etc/b/app".into(), "/srv/token2".into()] {
            assert!(!secrets.hide(&path), "{path:?}");
        }
        assert!(Secrets::new(&["/a[".to_owned()]).hide(Path::new("/b")), "a glob that can't be read hides everything");
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
