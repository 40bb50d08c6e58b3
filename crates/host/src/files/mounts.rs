//! The mount table, and whether the server of a network filesystem answers. A query to a silent
//! server blocks forever together with its thread. Therefore each mount that a path leads through
//! is queried once, with a deadline, before the path is read.
//!
//! A server that becomes silent after its answer blocks the current digest; the next digest skips
//! it. A filesystem that is mounted on first use (autofs, `.automount`) is not in the table before
//! that, so it is not queried either.

use super::deadline::run_with_deadline;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Filesystems whose server may be unreachable.
const NETWORK_FILESYSTEMS: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "9p", "glusterfs", "lustre"];
/// Maximum time to wait for the answer of a server.
const ANSWER: Duration = Duration::from_secs(1);
/// Maximum number of symbolic links to follow in one path; the kernel has the same limit.
const LINKS_MAX: usize = 40;

/// One line of the kernel's mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub point: String,
    pub opts: Vec<String>,
    pub vfs_opts: Vec<String>,
    pub source: String,
    pub filesystem: String,
}

impl Mount {
    fn is_of_server(&self) -> bool {
        let of = self.filesystem.as_str();
        // The comparison must not match `fusectl`, which belongs to the kernel and is mounted
        // everywhere.
        NETWORK_FILESYSTEMS.contains(&of) || of == "fuse" || of.starts_with("fuse.")
    }
}

/// All mounts that this process sees, in the order of the table; later mounts cover earlier ones.
/// Err: the reason why the table could not be read.
pub fn mounts() -> Result<Vec<Mount>, String> {
    let path = "/proc/self/mountinfo";
    let bytes = fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// Parses lines like `36 35 98:0 /root /mnt/a\040b rw,noatime master:1 - ext4 /dev/sda1 rw`.
fn parse(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let (front, back): (Vec<&str>, Vec<&str>) = (front.split(' ').collect(), back.split(' ').collect());
        let ([_, _, _, _, point, opts, ..], [filesystem, source, vfs_opts, ..]) = (&front[..], &back[..]) else {
            return None;
        };
        Some(Mount {
            point: unescape(point),
            opts: options(opts),
            vfs_opts: options(vfs_opts),
            source: unescape(source),
            filesystem: unescape(filesystem),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Splits at commas, except within quotes. The result has each option once, as in goss.
fn options(text: &str) -> Vec<String> {
    let mut quoted = false;
    let mut out: Vec<String> = Vec::new();
    let parts = text.split(|c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    });
    for part in parts.filter(|part| !part.is_empty()).map(unescape) {
        if !out.contains(&part) {
            out.push(part);
        }
    }
    out
}

/// Decodes octal escapes: the kernel writes a blank as `\040`.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The mounts of network filesystems, and the answers of their servers. One value is used for one
/// digest or one run of checks.
#[derive(Debug, Default)]
pub struct Servers {
    /// The mounts of network filesystems, and all mounts below them. If the list is empty, no path
    /// depends on a server.
    mounts: Vec<Mount>,
    /// The answer of the server of each mount, by mount point.
    answered: Mutex<BTreeMap<String, Arc<ServerAnswer>>>,
}

/// The answer of one server. The cell is empty until the server was queried.
type ServerAnswer = OnceLock<Result<(), String>>;

impl Servers {
    /// Reads the current mounts; queries no server yet. If the mount table cannot be read, all
    /// paths count as local.
    pub fn now() -> Self {
        Self::from_mounts(mounts().unwrap_or_default())
    }

    /// Like [`now`](Self::now), with a mount table that the caller has just read.
    pub fn from_mounts(mounts: Vec<Mount>) -> Self {
        let points: Vec<String> = mounts.iter().filter(|m| m.is_of_server()).map(|m| m.point.clone()).collect();
        let within = |mount: &Mount| points.iter().any(|point| Path::new(&mount.point).starts_with(point));
        Self { mounts: mounts.into_iter().filter(within).collect(), answered: Mutex::default() }
    }

    /// Ok: `path` itself can be read without waiting for a silent server. Err: a server on the way
    /// to `path` is silent. Blocks for at most one second for each server that the path leads
    /// through. Does not block if the answers are known. Waits for a query of another thread only
    /// if that query concerns the same server.
    pub fn answer(&self, path: &Path) -> Result<(), String> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        match self.resolve(parent)? {
            Some(parent) => self.answer_in(&parent, name),
            None => Ok(()),
        }
    }

    /// Like `answer`, for the target of `path`. Ok: the target with all links followed, as far as
    /// it exists. Ok(None): no mount of this machine depends on a server.
    pub fn resolve(&self, path: &Path) -> Result<Option<PathBuf>, String> {
        if self.mounts.is_empty() {
            return Ok(None);
        }
        let (mut real, mut links) = (PathBuf::from("/"), 0);
        let mut rest: VecDeque<OsString> = parts(path).collect();
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                real.pop();
                continue;
            }
            self.answer_in(&real, &part)?;
            let step = real.join(&part);
            match fs::read_link(&step) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    if target.is_absolute() {
                        real = PathBuf::from("/");
                    }
                    parts(&target).rev().for_each(|part| rest.push_front(part));
                }
                _ => real = step,
            }
        }
        Ok(Some(real))
    }

    /// Like `answer`, for one name in a directory that `resolve` returned.
    pub fn answer_in(&self, real: &Path, name: &OsStr) -> Result<(), String> {
        let Some(mount) = self.on_server(&real.join(name)) else { return Ok(()) };
        self.ask(&mount.point, ANSWER, |point| drop(rustix::fs::statvfs(point)))
    }

    /// Returns the known answer of the server, or queries it. Concurrent callers for the same
    /// server wait for one query. Callers for other servers are not blocked.
    fn ask(&self, point: &str, timeout: Duration, question: impl FnOnce(&str) + Send + 'static) -> Result<(), String> {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answered.entry(point.to_owned()).or_default().clone();
        drop(answered);
        answer.get_or_init(|| run_with_deadline(timeout, point, question)).clone()
    }

    /// The mount that contains `path`, a path without links. None if this mount depends on no
    /// server.
    fn on_server(&self, path: &Path) -> Option<&Mount> {
        let holding = self.mounts.iter().filter(|mount| path.starts_with(&mount.point));
        // The longest mount point contains the path most closely. Of several mounts at one point
        // the last is used.
        holding.max_by_key(|mount| mount.point.len()).filter(|mount| mount.is_of_server())
    }
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned())
}

#[cfg(test)]
impl Servers {
    /// Servers as if `dirs` were mounts of servers that do not answer.
    pub(super) fn dead(dirs: &[&Path]) -> Self {
        let line = |dir: &&Path| format!("1 1 0:1 / {} rw - nfs4 srv:/ rw\n", dir.display());
        let servers = Self::from_mounts(parse(&dirs.iter().map(line).collect::<String>()));
        let silent = |dir: &&Path| (dir.display().to_string(), Arc::new(Err("no answer".to_owned()).into()));
        let silent = dirs.iter().map(silent);
        Self { answered: Mutex::new(silent.collect()), ..servers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;

    #[test]
    fn the_mount_table_is_parsed() {
        let text = "36 35 98:0 / /mnt/a\\040b\\134c rw,noatime,rw master:1 - ext4 /dev/x\\040y rw,errors=continue\n\
            37 35 0:5 / /m ro shared:2 master:1 - nfs4 srv:/x rw,context=\"a,b\"\n\
            garbage - x\n\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].point.as_str(), mounts[0].opts.join(" ")), ("/mnt/a b\\c", "rw noatime".to_owned()));
        assert_eq!(mounts[0].source, "/dev/x y");
        assert_eq!(mounts[1].vfs_opts, ["rw", "context=\"a,b\""]);
    }

    #[test]
    fn a_path_lies_on_the_innermost_mount() {
        let line = |point: &str, filesystem: &str| format!("1 1 0:1 / {point} rw - {filesystem} src rw\n");
        let all = [("/", "ext4"), ("/srv", "nfs4"), ("/srv/local", "xfs"), ("/m", "tmpfs"), ("/m", "fuse.sshfs")];
        let servers = Servers::from_mounts(parse(&all.map(|(point, filesystem)| line(point, filesystem)).concat()));
        let on = |path: &str| servers.on_server(Path::new(path)).map(|mount| mount.point.clone());
        assert_eq!((on("/srv"), on("/srv/x/y")), (Some("/srv".to_owned()), Some("/srv".to_owned())));
        assert_eq!(["/", "/srvx", "/srv/local", "/srv/local/x", "/etc/passwd"].map(on), [const { None::<String> }; 5]);
        assert_eq!(on("/m/x").as_deref(), Some("/m"));
        // Mounts that exist on every machine need no query.
        let local = [("/", "ext4"), ("/sys/fs/fuse/connections", "fusectl"), ("/proc/sys/fs/binfmt_misc", "autofs")];
        assert!(Servers::from_mounts(parse(&local.map(|(point, of)| line(point, of)).concat())).mounts.is_empty());
        let servers =
            Servers::from_mounts(parse(&[local[0], local[1], ("/f", "fuse")].map(|(p, of)| line(p, of)).concat()));
        assert_eq!(servers.mounts.iter().map(|mount| mount.point.as_str()).collect::<Vec<_>>(), ["/f"]);
    }

    #[test]
    fn paths_that_lead_to_a_silent_server_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = |tail: &str| root.join(tail);
        for folder in ["dead/x", "alive/deep"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        symlink("../dead/x", path("alive/link")).unwrap();
        symlink(path("alive"), path("back")).unwrap();
        symlink("loop", path("loop")).unwrap();
        let servers = Servers::dead(&[&path("dead")]);
        for away in ["dead", "dead/x", "dead/none", "alive/link/f", "back/link/f", "alive/deep/../../dead/f"] {
            assert_eq!(servers.answer(&path(away)), Err("no answer".to_owned()), "{away}");
        }
        for here in ["", "alive/link", "back/deep", "back/none/f", "deadly", "loop/f"] {
            assert_eq!(servers.answer(&path(here)), Ok(()), "{here}");
        }
        assert!(servers.resolve(&path("alive/link")).is_err(), "its target");
        assert_eq!(servers.resolve(&path("back/deep")), Ok(Some(path("alive/deep"))));
        assert_eq!(Servers::default().resolve(&path("back")), Ok(None));
    }

    #[test]
    fn a_query_to_one_server_does_not_block_queries_to_others() {
        const LONG: Duration = Duration::from_secs(120);
        let servers = Servers::default();
        let ((began, begins), (release, held)) = (mpsc::channel(), mpsc::channel::<()>());
        let slow = move |_: &str| {
            began.send(()).unwrap();
            held.recv().unwrap();
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| servers.ask("/slow", LONG, slow));
            begins.recv().unwrap();
            assert_eq!(servers.ask("/quick", LONG, |_| ()), Ok(()));
            release.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Ok(()), "it was released before the timeout");
        });
        assert_eq!(servers.ask("/slow", LONG, |_| panic!("asked twice")), Ok(()));
    }
}
