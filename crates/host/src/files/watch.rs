//! Sends an event when something in the declared directories may have changed. The event names the
//! path; only a new digest determines the change.
//!
//! inotify events can be lost, so they are only a hint. The receiver of the events (the agent)
//! takes a digest a few seconds after an event. It also takes one at regular intervals. Only events
//! about changes are requested, because services and the digest itself read these files all the
//! time.

use super::expand::{glob_base, has_unbounded_depth, is_glob};
use super::mounts::Servers;
use remoor_model::NodeManifest;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of watched directories. Changes in all other directories are noticed only by the
/// digest that the agent takes at regular intervals.
const MAX_WATCHES: usize = 50_000;
/// Events that change a digest or the set of directories. Opens and reads are not included.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);
/// Bytes of events per read. One event takes at most 16 bytes plus its name.
const BUFFER: usize = 4096;
const STACK: usize = 256 << 10;

/// An event that the watcher sends: a hint that something may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEvent {
    /// Something changed at this path, or in this directory.
    Changed(PathBuf),
    /// Events were lost, so any watched directory may have changed.
    Rescan,
}

/// The reason why the watcher could not start.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("inotify could not be set up")]
    Start(#[source] io::Error),
}

/// Watches the declared directories until this value is dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<WatchShared>,
    /// Closed when the watcher is dropped; this ends the thread.
    _end: PipeWriter,
}

#[derive(Debug)]
struct WatchShared {
    queue: OwnedFd,
    /// Locked while a watch is added, so that no event is read before its path is known.
    watched: Mutex<WatchTable>,
}

/// The watches by path, and the paths by watch. One watch may stand for several paths, because the
/// kernel identifies directories by inode and not by name.
#[derive(Debug, Default)]
struct WatchTable {
    watches: BTreeMap<PathBuf, i32>,
    paths: BTreeMap<i32, BTreeSet<PathBuf>>,
}

/// Starts to watch `dirs`, each without its subdirectories. `send` is called from another thread
/// for each event and must not block. For directories that cannot be watched, see `Watcher::set`.
pub fn watch(dirs: BTreeSet<PathBuf>, send: impl Fn(FileEvent) + Send + 'static) -> Result<Watcher, WatchError> {
    let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
    let queue = queue.map_err(|e| WatchError::Start(e.into()))?;
    let (ended, end) = io::pipe().map_err(WatchError::Start)?;
    let shared = Arc::new(WatchShared { queue, watched: Mutex::default() });
    let reader = shared.clone();
    let thread = std::thread::Builder::new().name("inotify".to_owned()).stack_size(STACK);
    let spawned = thread.spawn(move || {
        if reader.read_events(&ended, &send).is_err() {
            send(FileEvent::Rescan); // the thread ends here; the periodic pass continues
        }
    });
    spawned.map_err(WatchError::Start)?;
    let mut watcher = Watcher { shared, _end: end };
    watcher.set(dirs);
    Ok(watcher)
}

impl Watcher {
    /// Watches exactly `dirs` from now on. Returns the directories that cannot be watched, with the
    /// reasons. Call this function again after events, before the files are read: a directory that
    /// was removed and made again needs a new watch.
    pub fn set(&mut self, dirs: BTreeSet<PathBuf>) -> BTreeMap<PathBuf, String> {
        let mut failed = BTreeMap::new();
        let mut watched = self.shared.lock_table();
        let gone: Vec<PathBuf> = watched.watches.keys().filter(|dir| !dirs.contains(*dir)).cloned().collect();
        for dir in gone {
            if let Some(watch) = watched.forget(&dir) {
                // The call fails for a directory that no longer exists; the kernel has already
                // removed its watch.
                let _ = inotify::remove_watch(&self.shared.queue, watch);
            }
        }
        for dir in dirs {
            if !watched.watches.contains_key(&dir) && watched.watches.len() >= MAX_WATCHES {
                failed.insert(dir, format!("more than {MAX_WATCHES} directories"));
                continue;
            }
            match inotify::add_watch(&self.shared.queue, &dir, CHANGES) {
                Ok(watch) => {
                    if let Some(old) = watched.remember(dir, watch) {
                        let _ = inotify::remove_watch(&self.shared.queue, old); // the directory was moved away
                    }
                }
                Err(e) => {
                    if let Some(old) = watched.forget(&dir) {
                        let _ = inotify::remove_watch(&self.shared.queue, old);
                    }
                    failed.insert(dir, e.to_string());
                }
            }
        }
        failed
    }
}

impl WatchTable {
    /// Records the watch of `dir`. Returns a watch that no path needs any more.
    fn remember(&mut self, dir: PathBuf, watch: i32) -> Option<i32> {
        let unused = if self.watches.get(&dir) == Some(&watch) { None } else { self.forget(&dir) };
        self.paths.entry(watch).or_default().insert(dir.clone());
        self.watches.insert(dir, watch);
        unused
    }

    /// Removes a path. Returns its watch if no other path needs it.
    fn forget(&mut self, dir: &Path) -> Option<i32> {
        let watch = self.watches.remove(dir)?;
        let paths = self.paths.get_mut(&watch)?;
        paths.remove(dir);
        if !paths.is_empty() {
            return None;
        }
        self.paths.remove(&watch);
        Some(watch)
    }

    /// Removes a watch that the kernel has dropped.
    fn remove_dropped(&mut self, watch: i32) {
        for dir in self.paths.remove(&watch).unwrap_or_default() {
            self.watches.remove(&dir);
        }
    }
}

impl WatchShared {
    fn lock_table(&self) -> MutexGuard<'_, WatchTable> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `send` for each event until `ended` is closed.
    fn read_events(&self, ended: &PipeReader, send: &impl Fn(FileEvent)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        loop {
            let mut wanted = [PollFd::new(&self.queue, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            match poll(&mut wanted, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            if !wanted[1].revents().is_empty() {
                return Ok(());
            }
            let mut events = inotify::Reader::new(&self.queue, &mut buffer);
            loop {
                match events.next() {
                    Ok(event) => self.report(&event, send),
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    fn report(&self, event: &inotify::Event<'_>, send: &impl Fn(FileEvent)) {
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return send(FileEvent::Rescan);
        }
        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
        let changed: Vec<PathBuf> = {
            let mut watched = self.lock_table();
            if event.events().contains(ReadFlags::IGNORED) {
                return watched.remove_dropped(event.wd());
            }
            let dirs = watched.paths.get(&event.wd()).into_iter().flatten();
            dirs.map(|dir| name.map_or_else(|| dir.clone(), |name| dir.join(name))).collect()
        };
        changed.into_iter().for_each(|path| send(FileEvent::Changed(path)));
    }
}

/// The directories to watch for `manifest`: the nearest existing directory above each declared
/// path, and all directories within managed directories and below globs. Directories on a silent
/// server are omitted.
pub fn directories(manifest: &NodeManifest, servers: &Servers) -> BTreeSet<PathBuf> {
    let mut out = BTreeSet::new();
    for pattern in manifest.services.iter().flat_map(|service| &service.files) {
        let trimmed = pattern.trim_end_matches('/');
        let start = if is_glob(trimmed) { glob_base(trimmed) } else { PathBuf::from(trimmed) };
        if servers.answer(&start).is_err() {
            continue;
        }
        if let Some(parent) = nearest(start.parent().unwrap_or(Path::new("/"))) {
            out.insert(parent);
        }
        if pattern.ends_with('/') || is_glob(trimmed) {
            let deep = pattern.ends_with('/') || has_unbounded_depth(trimmed);
            let levels =
                if deep { usize::MAX } else { Path::new(trimmed).components().count() - start.components().count() };
            if let Ok(meta) = fs::symlink_metadata(&start) {
                add_dirs_below(&start, &meta, meta.dev(), levels, servers, &mut out);
            }
        }
    }
    out
}

fn nearest(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|dir| dir.is_dir()).map(Path::to_owned)
}

fn add_dirs_below(
    dir: &Path,
    meta: &fs::Metadata,
    device: u64,
    levels: usize,
    servers: &Servers,
    out: &mut BTreeSet<PathBuf>,
) {
    if !meta.is_dir() || meta.dev() != device || levels == 0 || out.len() >= MAX_WATCHES {
        return;
    }
    let Ok(real) = servers.resolve(dir) else { return };
    out.insert(dir.to_owned());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let answers = real.as_ref().is_none_or(|real| servers.answer_in(real, &entry.file_name()).is_ok());
        // The directory entry contains the file type, so files need no further system call.
        if answers
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(meta) = entry.metadata()
        {
            add_dirs_below(&entry.path(), &meta, device, levels - 1, servers, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::ServiceManifest;
    use std::sync::mpsc;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(120);

    fn manifest(files: Vec<String>) -> NodeManifest {
        NodeManifest { services: vec![ServiceManifest { files, ..Default::default() }], ..Default::default() }
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
        let first = rx.recv_timeout(LONG).unwrap();
        assert_eq!(first, FileEvent::Changed(other), "the read of f came before and is no event");
    }

    #[test]
    fn a_recreated_directory_is_watched_again() {
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
        let wanted = FileEvent::Changed(sub.join("f"));
        while rx.recv_timeout(LONG).unwrap() != wanted {}
    }

    #[test]
    fn opens_and_reads_are_not_watched() {
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let watcher = watch([dir.path().to_owned()].into(), drop).unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", watcher.shared.queue.as_raw_fd())).unwrap();
        let mask = info.split_once(" mask:").and_then(|(_, rest)| rest.split(' ').next()).unwrap();
        let mask = WatchFlags::from_bits_retain(u32::from_str_radix(mask, 16).unwrap());
        assert!(mask.contains(CHANGES), "{info}");
        let reading = WatchFlags::OPEN | WatchFlags::ACCESS | WatchFlags::CLOSE;
        assert!(!mask.intersects(reading), "{info}");
    }

    #[test]
    fn a_directory_with_two_names_is_reported_by_both() {
        let dir = tempfile::tempdir().unwrap();
        let (sub, other) = (dir.path().join("sub"), dir.path().join("other"));
        fs::create_dir(&sub).unwrap();
        std::os::unix::fs::symlink(&sub, &other).unwrap();
        let (tx, rx) = mpsc::channel();
        let mut watcher = watch([sub.clone(), other.clone()].into(), move |event| drop(tx.send(event))).unwrap();
        fs::write(sub.join("f"), "").unwrap();
        let two = [rx.recv_timeout(LONG).unwrap(), rx.recv_timeout(LONG).unwrap()];
        assert_eq!(two, [FileEvent::Changed(other.join("f")), FileEvent::Changed(sub.join("f"))]);
        assert!(watcher.set([other.clone()].into()).is_empty());
        fs::write(sub.join("g"), "").unwrap();
        assert_eq!(rx.recv_timeout(LONG).unwrap(), FileEvent::Changed(other.join("g")), "by the one that is left");
    }

    #[test]
    fn the_thread_ends_with_the_watcher() {
        let dir = tempfile::tempdir().unwrap();
        let (tx, rx) = mpsc::channel();
        let watcher = watch([dir.path().to_owned()].into(), move |event| drop(tx.send(event))).unwrap();
        drop(watcher);
        assert_eq!(rx.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    }

    #[test]
    fn lost_events_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (tx, rx) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        // The watching thread blocks at the first event until the kernel's queue of events is full.
        let hold = move |event| {
            let _ = gone.recv();
            let _ = tx.send(event);
        };
        let _watcher = watch([dir.path().to_owned()].into(), hold).unwrap();
        let max_queued: usize =
            fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
        for at in 0..max_queued + BUFFER {
            fs::write(dir.path().join((at % 2).to_string()), "x").unwrap();
        }
        drop(go);
        while rx.recv_timeout(LONG).unwrap() != FileEvent::Rescan {}
    }

    #[test]
    fn the_directories_are_those_that_hold_declared_paths() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("conf.d/deep")).unwrap();
        fs::create_dir_all(root.join("etc/b/c")).unwrap();
        let path = |tail: &str| root.join(tail).display().to_string();
        let declared = manifest(vec![path("conf.d/"), path("not/yet/there"), path("*.conf"), path("etc/{a,b/c}/*")]);
        let found = directories(&declared, &Servers::now());
        let below = ["conf.d", "conf.d/deep", "etc", "etc/b", "etc/b/c"].map(|tail| root.join(tail));
        let wanted = below.into_iter().chain([root.to_owned()]).collect::<BTreeSet<_>>();
        let inside: BTreeSet<PathBuf> = found.into_iter().filter(|p| p.starts_with(root)).collect();
        assert_eq!(inside, wanted);
    }
}
