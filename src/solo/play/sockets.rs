//! The directory of a run's control sockets. A killed run can't remove it. So each run holds a file
//! lock in its directory. The next run of the same user removes every directory with a free lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "remoor-";
/// The name of the lock file. The file receives this name only after it is locked. A directory
/// without the file is just being created, or does not belong to a run.
const LOCK: &str = "in-use";

/// The directory of one run, with mode 0700. It is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct ControlSocketDir {
    dir: TempDir,
    /// The lock file. It is closed on exec, so that an `ssh` process that outlives the run does not
    /// keep the lock.
    _lock: File,
}

impl ControlSocketDir {
    /// Creates a directory in `place`, and removes the directories of killed runs. A directory that
    /// can't be removed stays and does no harm.
    pub fn new_in(place: &Path) -> io::Result<Self> {
        for left in left_behind(place) {
            let _next_time = fs::remove_dir_all(left);
        }
        let own = fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix(PREFIX).permissions(own).tempdir_in(place)?;
        let unnamed = dir.path().join(".in-use");
        let lock = File::create_new(&unnamed)?;
        lock.try_lock()?;
        fs::rename(&unnamed, dir.path().join(LOCK))?;
        Ok(Self { dir, _lock: lock })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// The directories in `place` that ended runs of this user did not remove. Symlinks are not
/// followed. A directory that another user could write to is ignored.
fn left_behind(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place) else { return Vec::new() };
    let named = entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    named.map(|entry| entry.path()).filter(|dir| is_own(dir) && is_over(dir)).collect()
}

fn is_own(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == own && meta.mode() & 0o7777 == 0o700)
}

/// Whether the lock file of the directory exists and is not locked.
fn is_over(dir: &Path) -> bool {
    let flags = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits();
    let lock = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(dir.join(LOCK));
    lock.is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_killed_run_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let make = |name: &str, mode: u32, lock: bool| {
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            if lock {
                fs::write(at(name).join(LOCK), "").unwrap();
            }
        };
        let running = ControlSocketDir::new_in(place.path()).unwrap();
        let ControlSocketDir { dir, _lock: lock } = ControlSocketDir::new_in(place.path()).unwrap();
        let killed = dir.keep();
        drop(lock);
        fs::create_dir(killed.join(".ssh-connection1")).unwrap();
        make("remoor-open", 0o755, true);
        make("remoor-another", 0o700, false);
        make("elsewhere", 0o700, true);
        make("remoor-linked", 0o700, false);
        symlink(at("elsewhere").join(LOCK), at("remoor-linked").join(LOCK)).unwrap();
        symlink(at("elsewhere"), at("remoor-link")).unwrap();

        let next = ControlSocketDir::new_in(place.path()).unwrap();
        assert!(!killed.exists(), "nobody holds its lock");
        for dir in [running.path(), next.path()] {
            assert!(dir.join(LOCK).exists(), "{}", dir.display());
        }
        for name in ["remoor-open", "remoor-another", "remoor-linked", "remoor-link", "elsewhere/in-use"] {
            assert!(fs::symlink_metadata(at(name)).is_ok(), "{name}");
        }
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
