//! `mount`: what is mounted where, from `/proc/self/mountinfo`, and how full it is.

use super::{Answer, Answers, Ask, Trouble, failed, unknown};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

const DEFAULT_MS: u64 = 1000;

/// One line of the kernel's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    point: String,
    opts: Vec<String>,
    vfs_opts: Vec<String>,
    source: String,
    filesystem: String,
}

pub(super) fn ask(ask: &Ask) -> Answers {
    let mounts = match ask.world.mounts() {
        Ok(mounts) => mounts,
        Err(why) => return Answers::from([("exists", Err(unknown(why)))]),
    };
    let Some(mount) = at(mounts, &ask.check.name) else { return Answers::from([("exists", Ok(false.into()))]) };
    let mut answers = Answers::from([
        ("exists", Ok(true.into())),
        ("opts", Ok(mount.opts.clone().into())),
        ("vfs-opts", Ok(mount.vfs_opts.clone().into())),
        ("source", Ok(mount.source.as_str().into())),
        ("filesystem", Ok(mount.filesystem.as_str().into())),
    ]);
    if ask.wants("usage") {
        answers.insert("usage", usage(&mount.point, ask.timeout(DEFAULT_MS)));
    }
    answers
}

/// Of several at one place the last hides the others.
fn at<'m>(mounts: &'m [Mount], point: &str) -> Option<&'m Mount> {
    let point = if point.len() > 1 { point.trim_end_matches('/') } else { point };
    mounts.iter().rev().find(|mount| mount.point == point)
}

/// Filesystems whose server may be away, so that a question waits without end.
const OF_SERVERS: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "9p", "glusterfs", "lustre"];

impl Mount {
    fn is_of_server(&self) -> bool {
        OF_SERVERS.contains(&self.filesystem.as_str()) || self.filesystem.starts_with("fuse")
    }

    fn holds(&self, path: &str) -> bool {
        path.strip_prefix(&self.point).is_some_and(|rest| self.point == "/" || rest.is_empty() || rest.starts_with('/'))
    }
}

/// Err: `path` lies on a filesystem of a server, which does not answer now. Links on the way are not followed.
pub(super) fn answers(ask: &Ask, path: &Path) -> Result<(), Trouble> {
    // What can't be known of mounts leaves the path as it is.
    let mounts = ask.world.mounts().unwrap_or_default();
    match on_server(mounts, &path.to_string_lossy()) {
        Some(mount) => ask.world.once_answered(&mount.point, || {
            bounded(&mount.point, Duration::from_millis(DEFAULT_MS), |point| drop(rustix::fs::statvfs(point)))
        }),
        None => Ok(()),
    }
}

/// The mount that `path` lies on, if it is of a server.
fn on_server<'m>(mounts: &'m [Mount], path: &str) -> Option<&'m Mount> {
    let holding = mounts.iter().filter(|mount| mount.holds(path));
    // The longest, and of several at one place the last.
    holding.max_by_key(|mount| mount.point.len()).filter(|mount| mount.is_of_server())
}

pub(super) fn table() -> Result<Vec<Mount>, String> {
    let path = "/proc/self/mountinfo";
    let bytes = fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// Lines like `36 35 98:0 /root /mnt/a\040b rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue`.
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

/// By commas, but for those in quotes; each once, as goss.
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

/// The kernel writes blanks and the like as `\040`.
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

/// Places whose filesystem was asked and has not answered: a server that is away lets the question wait without end, and no
/// deadline ends a thread.
static WAITING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static ANSWERED: Condvar = Condvar::new();

/// In percent, as goss rounds it: what is reserved for root counts as used.
fn usage(point: &str, timeout: Duration) -> Answer {
    let asked = bounded(point, timeout, |point| rustix::fs::statvfs(point))?;
    let stat = asked.map_err(unknown)?;
    percent(stat.f_blocks, stat.f_bfree).map(Into::into).ok_or_else(|| failed("this filesystem has no size"))
}

/// Lets a thread of its own ask about `point`; one at a time for each, so that they do not pile up from run to run.
fn bounded<T: Send + 'static>(
    point: &str,
    timeout: Duration,
    question: impl FnOnce(&str) -> T + Send + 'static,
) -> Result<T, Trouble> {
    let nobody = || unknown(format!("the filesystem does not answer within {} ms", timeout.as_millis()));
    let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let asked_before = |waiting: &mut BTreeSet<String>| waiting.contains(point);
    let (mut waiting, _) =
        ANSWERED.wait_timeout_while(waiting, timeout, asked_before).unwrap_or_else(PoisonError::into_inner);
    if !waiting.insert(point.to_owned()) {
        return Err(nobody());
    }
    drop(waiting);
    let (tx, rx) = mpsc::channel();
    let asked = Asked(point.to_owned());
    thread::Builder::new()
        .name("statvfs".to_owned())
        .spawn(move || {
            let answer = question(&asked.0);
            drop(asked);
            let _ = tx.send(answer);
        })
        .map_err(unknown)?;
    rx.recv_timeout(timeout).map_err(|_| nobody())
}

/// A place that is waited for; no more once this is gone.
struct Asked(String);

impl Drop for Asked {
    fn drop(&mut self) {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        ANSWERED.notify_all();
    }
}

fn percent(blocks: u64, free: u64) -> Option<u64> {
    let used = u128::from(blocks.saturating_sub(free)) * 200 + u128::from(blocks);
    let whole = u128::from(blocks) * 2;
    (whole > 0).then(|| u64::try_from(used / whole).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_kernel() {
        let text = "36 35 98:0 / /mnt/a\\040b\\134c rw,noatime,rw master:1 - ext4 /dev/x\\040y rw,errors=continue\n\
            37 35 0:5 / /m ro shared:2 master:1 - nfs4 srv:/x rw,context=\"a,b\"\n\
            38 37 0:6 / /m rw - tmpfs none rw\n\
            garbage - x\n\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 3);
        let mount = at(&mounts, "/mnt/a b\\c").unwrap();
        assert_eq!((mount.opts.join(" "), &*mount.source), ("rw noatime".to_owned(), "/dev/x y"));
        assert_eq!(mounts[1].vfs_opts, ["rw", "context=\"a,b\""]);
        assert_eq!(at(&mounts, "/m/").map(|mount| &*mount.filesystem), Some("tmpfs"), "the last hides the others");
        assert_eq!(at(&mounts, "/nowhere"), None);
    }

    #[test]
    fn a_path_lies_on_the_innermost_mount() {
        let line = |point: &str, filesystem: &str| format!("1 1 0:1 / {point} rw - {filesystem} src rw\n");
        let all = [("/", "ext4"), ("/srv", "nfs4"), ("/srv/local", "xfs"), ("/m", "tmpfs"), ("/m", "fuse.sshfs")];
        let mounts = parse(&all.map(|(point, filesystem)| line(point, filesystem)).concat());
        let on = |path| on_server(&mounts, path).map(|mount| mount.point.clone());
        assert_eq!((on("/srv"), on("/srv/x/y")), (Some("/srv".to_owned()), Some("/srv".to_owned())));
        assert_eq!(["/", "/srvx", "/srv/local", "/srv/local/x", "/etc/passwd"].map(on), [const { None::<String> }; 5]);
        assert_eq!(on("/m/x").as_deref(), Some("/m"));
    }

    #[test]
    fn per_cent_are_rounded_as_goss_does() {
        let table = [(100, 100, 0), (100, 0, 100), (1000, 996, 0), (1000, 995, 1), (8, 7, 13), (3, 1, 67), (5, 9, 0)];
        for (blocks, free, wanted) in table {
            assert_eq!(percent(blocks, free), Some(wanted), "{blocks} {free}");
        }
        assert_eq!((percent(0, 0), percent(u64::MAX, 0)), (None, Some(100)));
    }

    #[test]
    fn a_filesystem_that_does_not_answer_is_asked_once_and_holds_up_nobody() {
        let (release, held) = mpsc::channel::<()>();
        let short = Duration::from_millis(20);
        let silent = Err(unknown("the filesystem does not answer within 20 ms"));
        assert_eq!(bounded("/dead", short, move |_| held.recv().unwrap_or_default()), silent);
        assert_eq!(bounded("/dead", short, |_| panic!("a second thread waits for it")), silent);
        assert_eq!(bounded("/alive", Duration::from_secs(60), |_| 7), Ok(7));
        release.send(()).unwrap();
        assert_eq!(bounded("/dead", Duration::from_secs(60), |_| 8), Ok(8), "it is back");
    }
}
