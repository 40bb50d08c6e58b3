//! Lets one thread of this process, which is root, act as another user.
//!
//! The kernel keeps ids and groups per thread. A thread that acts as a user has that user's
//! effective ids and groups, so the kernel checks and owns its files as those of the user. Other
//! threads stay root. A program that the thread starts gets only the ids of the user, and cannot
//! become root again. Backups and notes of the run are written in [`as_root`].

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;

thread_local! {
    /// The user as whom this thread acts now.
    static ACTING: RefCell<Option<(Arc<ActingUser>, RootGroups)>> = const { RefCell::new(None) };
}

/// The groups of a thread before it began to act as a user.
#[derive(Debug, Clone)]
struct RootGroups(Gid, Vec<Gid>);

/// Variables of this process that a program of another user gets too, as with sudo.
const KEPT: [&str; 4] = ["PATH", "LANG", "LANGUAGE", "TZ"];

/// A user of this machine as whom a thread can act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActingUser {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// All groups of the user.
    pub groups: Vec<u32>,
    pub home: PathBuf,
    /// The environment of the user's programs: like that of sudo.
    pub env: Vec<(String, String)>,
}

impl ActingUser {
    /// Makes a user of an entry of passwd (name:x:uid:gid:comment:home:shell).
    pub fn from_entry(entry: &[String], groups: Vec<u32>) -> Result<Self, String> {
        let [name, _, uid, gid, _, home, shell, ..] = entry else {
            return Err(format!("the passwd entry is incomplete: {}", entry.join(":")));
        };
        // The kernel reads the largest number as `unchanged`.
        let id = |text: &str| {
            let id = text.parse().ok().filter(|id| *id != u32::MAX);
            id.ok_or_else(|| format!("the passwd entry of `{name}` has no numeric id: {}", entry.join(":")))
        };
        let shell = if shell.is_empty() { "/bin/sh" } else { shell };
        let own = [("HOME", home.as_str()), ("USER", name), ("LOGNAME", name), ("SHELL", shell)];
        let mut env: Vec<(String, String)> = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        env.extend(std::env::vars().filter(|(name, _)| KEPT.contains(&name.as_str()) || name.starts_with("LC_")));
        Ok(Self { name: name.clone(), uid: id(uid)?, gid: id(gid)?, groups, home: PathBuf::from(home), env })
    }

    /// Starts a program that has only the ids and groups of this user. It starts in the home
    /// directory of the user if `stays_home` is set and the user can enter that directory, and
    /// otherwise in `/`. The calling thread must be root.
    pub fn spawn(&self, command: &mut Command, stays_home: bool) -> io::Result<Child> {
        thread::scope(|scope| {
            // The ids of a thread that gave up root cannot be changed back, so this needs a thread
            // of its own.
            let thread = thread::Builder::new().spawn_scoped(scope, || {
                let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
                self.set_groups()?;
                set_thread_res_gid(gid, gid, gid)?;
                set_thread_res_uid(uid, uid, uid)?;
                if stays_home {
                    let can_enter = self.home.is_absolute() && self.home.join(".").is_dir();
                    command.current_dir(if can_enter { &self.home } else { Path::new("/") });
                }
                command.spawn()
            })?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it has panicked")))
        })
    }

    fn set_groups(&self) -> io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        Ok(set_thread_groups(&groups)?)
    }

    /// Gives this thread, which is root, the effective ids and groups of the user. Real and saved
    /// ids stay root's, so `become_root` can change them back.
    fn enter(&self, before: &RootGroups) -> io::Result<()> {
        let enter = || -> io::Result<()> {
            self.set_groups()?;
            set_thread_res_gid(None::<Gid>, Gid::from_raw(self.gid), None::<Gid>)?;
            Ok(set_thread_res_uid(None::<Uid>, Uid::from_raw(self.uid), None::<Uid>)?)
        };
        enter().inspect_err(|_| become_root(before))
    }
}

/// Makes the thread root again. A thread with other ids must do nothing further.
fn become_root(RootGroups(gid, groups): &RootGroups) {
    let restored = set_thread_res_uid(None::<Uid>, Uid::ROOT, None::<Uid>)
        .and_then(|()| set_thread_res_gid(None::<Gid>, *gid, None::<Gid>))
        .and_then(|()| set_thread_groups(groups));
    if let Err(error) = restored {
        panic!("this thread cannot become root again: {error}");
    }
}

/// Ends what [`act_as`] has begun.
#[derive(Debug)]
pub struct ActingGuard(());

impl Drop for ActingGuard {
    fn drop(&mut self) {
        if let Some((_, before)) = ACTING.take() {
            become_root(&before);
        }
    }
}

/// Lets this thread act as `user` until the returned value is dropped. The thread must be root.
pub fn act_as(user: ActingUser) -> io::Result<ActingGuard> {
    if acting_user().is_some() {
        return Err(io::Error::other("this thread acts as a user already"));
    }
    let before = RootGroups(rustix::process::getegid(), rustix::process::getgroups()?);
    user.enter(&before)?;
    ACTING.set(Some((Arc::new(user), before)));
    Ok(ActingGuard(()))
}

/// The user as whom this thread acts. None: the user of this process.
pub fn acting_user() -> Option<Arc<ActingUser>> {
    ACTING.with_borrow(|acting| acting.as_ref().map(|(user, _)| Arc::clone(user)))
}

/// Makes the thread act as the user again, also after a panic.
struct Resumed(Option<(Arc<ActingUser>, RootGroups)>);

impl Drop for Resumed {
    fn drop(&mut self) {
        let Some((user, before)) = self.0.take() else { return };
        if let Err(error) = user.enter(&before) {
            // What the user may not do must not be done as root.
            panic!("this thread cannot act as the user {} again: {error}", user.uid);
        }
        ACTING.set(Some((user, before)));
    }
}

/// Calls `f` as the user of this process, for files of the run itself.
pub fn as_root<T>(f: impl FnOnce() -> T) -> T {
    let acting = ACTING.take();
    if let Some((_, before)) = &acting {
        become_root(before);
    }
    let _resumed = Resumed(acting);
    f()
}

/// A variable of the environment of the user as whom this thread acts, or of this process.
pub fn env_var(name: &str) -> Option<String> {
    match acting_user() {
        None => std::env::var(name).ok(),
        Some(user) => user.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()),
    }
}

/// The home directory of the user as whom this thread acts, or of this process.
pub fn home_dir() -> PathBuf {
    PathBuf::from(env_var("HOME").unwrap_or_else(|| "/root".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    const UID: u32 = 54_321;

    fn stranger(home: &Path) -> ActingUser {
        let line = format!("stranger:x:{UID}:{UID}::{}:", home.display());
        let entry: Vec<String> = line.split(':').map(str::to_owned).collect();
        ActingUser::from_entry(&entry, vec![UID, UID + 1]).unwrap()
    }

    fn is_root() -> bool {
        let root = rustix::process::geteuid().is_root();
        if !root {
            eprintln!("SKIPPED: only root can act as another user");
        }
        root
    }

    #[test]
    fn a_thread_acts_as_a_user_and_is_root_again_afterwards() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let guard = act_as(stranger(Path::new("/nowhere"))).unwrap();
        assert_eq!(std::fs::read(&secret).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(rustix::process::geteuid().as_raw(), UID);
        assert_eq!(std::thread::spawn(|| rustix::process::getuid().as_raw()).join().unwrap(), 0);
        let made = tempfile::NamedTempFile::new().unwrap();
        let owner = made.as_file().metadata().unwrap();
        assert_eq!((owner.uid(), owner.gid()), (UID, UID));
        assert_eq!(as_root(|| std::fs::read(&secret)).unwrap(), b"x");
        assert!(std::fs::read(&secret).is_err(), "the thread acts as the user again");
        assert_eq!(env_var("USER").as_deref(), Some("stranger"));
        drop(guard);
        assert_eq!(std::fs::read(&secret).unwrap(), b"x");
        assert!(acting_user().is_none());
    }

    #[test]
    fn a_panic_leaves_no_thread_behind_that_acts_as_the_user() {
        if !is_root() {
            return;
        }
        let panicked = std::panic::catch_unwind(|| {
            let _guard = act_as(stranger(Path::new("/nowhere"))).unwrap();
            as_root(|| panic!("a defect"));
        });
        assert!(panicked.is_err() && acting_user().is_none());
        assert!(rustix::process::geteuid().is_root());
    }

    #[test]
    fn a_started_program_has_no_id_of_root() {
        if !is_root() {
            return;
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "grep -E '^(Uid|Gid|Groups|CapPrm)' /proc/self/status; pwd"]);
        command.stdout(std::process::Stdio::piped());
        let child = stranger(Path::new("/nowhere")).spawn(&mut command, true).unwrap();
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let ids = format!("{UID}\t{UID}\t{UID}\t{UID}");
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        assert_eq!(lines[..2], [format!("Uid:\t{ids}"), format!("Gid:\t{ids}")]);
        assert_eq!(lines[2], format!("Groups:\t{UID} {}", UID + 1));
        assert_eq!(lines[3..], ["CapPrm:\t0000000000000000", "/"]);
        assert!(rustix::process::geteuid().is_root());
    }
}
