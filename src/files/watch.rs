//! Tells that something in the declared directories may have changed. Says where, not what: the digest finds that out.
//!
//! Settling and the periodic pass are the consumer's; inotify is a hint that may be lost, never the only source.

use super::expand::{base, is_glob};
use crate::model::Manifest;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// At most so many directories are watched; the periodic pass sees the rest.
const MAX_WATCHES: usize = 50_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something happened to this path, or in this directory.
    Changed(PathBuf),
    /// Events were lost: look at everything.
    Rescan,
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("inotify can't be set up")]
    Start(#[source] notify::Error),
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    inner: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
}

/// Starts watching `dirs`, each by itself and not recursively. `send` is called from another thread for each event and must not
/// block. Directories that can't be watched are listed by `Watcher::set`.
pub fn watch(dirs: BTreeSet<PathBuf>, send: impl Fn(Event) + Send + 'static) -> Result<Watcher, WatchError> {
    let handler = move |event: notify::Result<notify::Event>| match event {
        Ok(event) if event.need_rescan() => send(Event::Rescan),
        // Reading does not change anything, and our own reading must not wake us.
        Ok(event) if event.kind.is_access() => {}
        Ok(event) => event.paths.into_iter().for_each(|path| send(Event::Changed(path))),
        Err(_) => send(Event::Rescan),
    };
    let inner = notify::recommended_watcher(handler).map_err(WatchError::Start)?;
    let mut watcher = Watcher { inner, watched: BTreeSet::new() };
    watcher.set(dirs);
    Ok(watcher)
}

impl Watcher {
    /// Watches exactly `dirs` from now on; gives those that can't be watched, and why. Call it again after events, since a
    /// directory that was removed and made again is a new one.
    pub fn set(&mut self, dirs: BTreeSet<PathBuf>) -> BTreeMap<PathBuf, String> {
        let mut failed = BTreeMap::new();
        for gone in self.watched.difference(&dirs) {
            // Fails for a directory that no longer exists, whose watch the kernel has dropped itself.
            let _ = self.inner.unwatch(gone);
        }
        self.watched.retain(|dir| dirs.contains(dir));
        for dir in dirs {
            if !self.watched.contains(&dir) && self.watched.len() >= MAX_WATCHES {
                failed.insert(dir, format!("more than {MAX_WATCHES} directories"));
                continue;
            }
            match self.inner.watch(&dir, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(dir)),
                Err(e) => {
                    self.watched.remove(&dir);
                    failed.insert(dir, e.to_string());
                }
            }
        }
        failed
    }
}

/// The directories whose events concern `manifest`: the nearest existing one of each declared path, and all within managed
/// directories and below globs.
pub fn directories(manifest: &Manifest) -> BTreeSet<PathBuf> {
    let mut out = BTreeSet::new();
    for pattern in manifest.services.iter().flat_map(|service| &service.files) {
        let trimmed = pattern.trim_end_matches('/');
        let start = if is_glob(trimmed) { base(trimmed) } else { PathBuf::from(trimmed) };
        if let Some(parent) = nearest(start.parent().unwrap_or(Path::new("/"))) {
            out.insert(parent);
        }
        if pattern.ends_with('/') || is_glob(trimmed) {
            let deep = pattern.ends_with('/') || trimmed.contains("**");
            let levels =
                if deep { usize::MAX } else { Path::new(trimmed).components().count() - start.components().count() };
            if let Ok(meta) = fs::symlink_metadata(&start) {
                below(&start, &meta, meta.dev(), levels, &mut out);
            }
        }
    }
    out
}

fn nearest(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|dir| dir.is_dir()).map(Path::to_owned)
}

fn below(dir: &Path, meta: &fs::Metadata, device: u64, levels: usize, out: &mut BTreeSet<PathBuf>) {
    if !meta.is_dir() || meta.dev() != device || levels == 0 || out.len() >= MAX_WATCHES {
        return;
    }
    out.insert(dir.to_owned());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if let Ok(meta) = entry.metadata()
            && meta.is_dir()
        {
            below(&entry.path(), &meta, device, levels - 1, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ServiceManifest;
    use std::sync::mpsc;
    use std::time::Duration;

    fn manifest(files: Vec<String>) -> Manifest {
        Manifest { services: vec![ServiceManifest { files, ..Default::default() }], ..Default::default() }
    }

    #[test]
    fn a_write_is_reported_and_a_read_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (tx, rx) = mpsc::channel();
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        let _watcher = watch([dir.path().to_owned()].into(), move |event| drop(tx.send(event))).unwrap();
        fs::read(&file).unwrap();
        let other = dir.path().join("g");
        fs::write(&other, "y").unwrap();
        let first = rx.recv_timeout(Duration::from_secs(120)).unwrap();
        assert_eq!(first, Event::Changed(other), "the read of f came before and is no event");
    }

    #[test]
    fn a_directory_made_again_is_watched_again() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("sub");
        fs::create_dir(&sub).unwrap();
        let (tx, rx) = mpsc::channel();
        let mut watcher = watch([sub.clone()].into(), move |event| drop(tx.send(event))).unwrap();
        fs::remove_dir(&sub).unwrap();
        assert!(watcher.set([sub.clone()].into()).contains_key(&sub));
        fs::create_dir(&sub).unwrap();
        assert!(watcher.set([sub.clone()].into()).is_empty());
        fs::write(sub.join("f"), "x").unwrap();
        let wanted = Event::Changed(sub.join("f"));
        while rx.recv_timeout(Duration::from_secs(120)).unwrap() != wanted {}
    }

    #[test]
    fn the_directories_are_those_that_hold_declared_paths() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("conf.d/deep")).unwrap();
        let path = |tail: &str| root.join(tail).display().to_string();
        let found = directories(&manifest(vec![path("conf.d/"), path("not/yet/there"), path("*.conf")]));
        let wanted = [root.to_owned(), root.join("conf.d"), root.join("conf.d/deep")];
        let inside: BTreeSet<PathBuf> = found.into_iter().filter(|p| p.starts_with(root)).collect();
        assert_eq!(inside, wanted.into());
    }
}
