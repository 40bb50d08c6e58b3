//! The data directory of a daemon: its lock for one process, and the identity of the node.
//!
//! This file manages only lock and identity. Other modules manage the log, blobs and caches below
//! the directory.

use super::{DiskError, atomic_write};
use remoor_model::{ClusterId, Epoch, NodeId, NodeName, RaftId};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Format of the data directory, the field `version` of its identity. Raise the number if an older
/// program would misread something in the directory. Additions covered by serde defaults need no
/// new number. A directory of a later format is refused before any file except the lock is changed.
/// There is no earlier format yet; a change that raises the number must add the upgrade, which
/// writes the identity last.
pub const DATA_FORMAT: u32 = 1;
/// The file with the highest fence of this node. It is written when an attempt takes the node.
pub const FENCE: &str = "fence.json";
/// The file with the identity of this node. It exists after the node has joined a cluster.
pub const IDENTITY: &str = "identity.json";
/// The file with the last attempts that were closed. The crate `exec` writes and reads this file.
pub const CLOSED: &str = "closed.json";
/// This file exists if the node left its cluster itself. A join removes the file.
pub const LEFT: &str = "left";
/// Files that remoor's daemon or executor writes into a data directory and whose names no other
/// program uses.
const REMOOR_FILES: [&str; 8] =
    [IDENTITY, "unfinished", "node.key", "credentials.json", "node.json", "agent.json", FENCE, "fence.lock"];
/// The directory that mkfs creates in a new file system.
const LOST_AND_FOUND: &str = "lost+found";
/// Sticky bit: every user may write to the directory, but may remove only own files.
const STICKY: u32 = 0o1000;
/// Maximum size of an identity in bytes. A valid identity has a few hundred bytes.
const IDENTITY_BYTES_MAX: usize = 64 * 1024;

/// Identity of this node, as the cluster granted it. An empty directory has none and joins as a new
/// member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The format of the data directory, see [`DATA_FORMAT`].
    pub version: u32,
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub node: NodeId,
    pub name: NodeName,
    /// This node's Raft id. Set only while the node is a member of Raft.
    pub raft: Option<RaftId>,
    /// A random id of this data directory, made when the directory was first used. If two
    /// directories have the same node id and different values of this field, they are on different
    /// disks.
    pub incarnation: String,
    /// Whether the Raft log of this node was begun. If this is set but the directory has no log,
    /// the node has lost votes on which other managers rely. Older files lack this field; the next
    /// start sets it.
    #[serde(default)]
    pub log_begun: bool,
    /// The last Raft id of this epoch that was withdrawn from this node. Neither this id nor an
    /// older id is used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<RaftId>,
}

impl Identity {
    /// The first identity of a new directory, with 32 random hex digits as `incarnation`.
    pub fn new(cluster: ClusterId, epoch: Epoch, node: NodeId, name: NodeName) -> Result<Self, DiskError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|e| {
            DiskError::io("drawing an incarnation from", Path::new("getrandom"))(std::io::Error::other(e.to_string()))
        })?;
        let incarnation = hex::encode(random);
        Ok(Self {
            version: DATA_FORMAT,
            cluster,
            epoch,
            node,
            name,
            raft: None,
            incarnation,
            log_begun: false,
            retired: None,
        })
    }
}

/// An opened and locked data directory. The lock ends when this value is dropped or the process
/// ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Opens `dir` for this process alone; a missing directory is created with mode 0700. A second
    /// opener gets [`DiskError::Held`]. A directory of a later format is refused with
    /// [`DiskError::TooNew`].
    ///
    /// Other users must not enter the directory, because it contains keys. If the mode of an empty
    /// directory or of a directory of remoor permits them, their permissions are removed and a
    /// warning is logged. Any other such directory is refused with [`DiskError::Foreign`] and not
    /// changed.
    pub fn open(dir: &Path) -> Result<Self, DiskError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(DiskError::io("creating directory", dir))?;
        keep_private(dir)?;
        let opened = Self { path: dir.to_owned(), _lock: lock(&dir.join("lock"))? };
        // Only a directory of a later format is refused here. Any other error in reading the
        // identity is left to the callers that need the identity.
        match opened.identity() {
            Err(newer @ DiskError::TooNew { .. }) => Err(newer),
            _ => Ok(opened),
        }
    }

    /// The path of the data directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `identity.json`. None if the node has not joined a cluster yet.
    pub fn identity(&self) -> Result<Option<Identity>, DiskError> {
        Self::read_identity_unlocked(&self.path)
    }

    /// Like `identity`, without the lock: the holder of the lock may replace the file at any time.
    pub fn read_identity_unlocked(dir: &Path) -> Result<Option<Identity>, DiskError> {
        let path = identity_path(dir);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(DiskError::io("reading", &path)(e)),
        };
        let corrupt = |why: String| DiskError::Corrupt { path: path.clone(), why };
        if bytes.len() > IDENTITY_BYTES_MAX {
            return Err(corrupt(format!("{} bytes long", bytes.len())));
        }
        // The version is parsed first and alone, because a later format may lack fields of this
        // one.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(|e| corrupt(e.to_string()))?;
        if version > DATA_FORMAT {
            return Err(DiskError::TooNew { path, found: version, known: DATA_FORMAT });
        }
        if version == 0 {
            return Err(corrupt("there is no format 0".to_owned()));
        }
        let identity: Identity = serde_json::from_slice(&bytes).map_err(|e| corrupt(e.to_string()))?;
        if identity.cluster.as_str().is_empty() || identity.incarnation.is_empty() {
            return Err(corrupt("no cluster or no incarnation".to_owned()));
        }
        Ok(Some(identity))
    }

    /// Replaces `identity.json`. The content is on the disk when this function returns. Call it
    /// before the first vote under a new Raft id.
    pub fn store_identity(&self, identity: &Identity) -> Result<(), DiskError> {
        let path = identity_path(&self.path);
        let mut bytes = serde_json::to_vec_pretty(identity)
            .map_err(|e| DiskError::io("encoding", &path)(std::io::Error::other(e)))?;
        bytes.push(b'\n');
        atomic_write(&path, &bytes, 0o600)
    }
}

fn identity_path(dir: &Path) -> PathBuf {
    dir.join(IDENTITY)
}

fn keep_private(dir: &Path) -> Result<(), DiskError> {
    let mode = std::fs::metadata(dir).map_err(DiskError::io("reading the mode of", dir))?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    if mode & STICKY != 0 || !is_ours(dir)? {
        return Err(DiskError::Foreign(dir.to_owned()));
    }
    let private = mode & 0o700;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(private))
        .map_err(DiskError::io("removing access of others to", dir))?;
    tracing::warn!(dir = %dir.display(), was = format!("{mode:04o}"), is = format!("{private:04o}"), "the data directory was accessible to other users; their access is removed");
    Ok(())
}

/// Whether remoor has used the directory, or it is empty.
fn is_ours(dir: &Path) -> Result<bool, DiskError> {
    if REMOOR_FILES.iter().any(|name| dir.join(name).is_file()) {
        return Ok(true);
    }
    let mut entries = std::fs::read_dir(dir).map_err(DiskError::io("listing", dir))?;
    Ok(entries.all(|entry| entry.is_ok_and(|e| e.file_name() == LOST_AND_FOUND)))
}

fn lock(path: &Path) -> Result<File, DiskError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(DiskError::io("opening", path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(DiskError::Held { path: path.to_owned(), holder: holder(&mut file) }),
        Err(e) => return Err(DiskError::io("locking", path)(e.into())),
    }
    // The pid serves only the error message of a second opener; the lock itself is in the kernel.
    // So an error is only logged, and the directory can be used although the disk is full.
    let note = format!("{}\n", std::process::id());
    let noted = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(note.as_bytes()));
    if let Err(error) = noted {
        tracing::warn!(%error, file = %path.display(), "the pid could not be written");
    }
    Ok(file)
}

/// The holder of a lock as text, such as "pid 812 (remoor)", as far as it is known.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(32).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("pid {pid} ({})", name.trim()),
            Err(_) => format!("pid {pid}"),
        },
        _ => "a process of unknown pid".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        let mut identity = Identity::new("c1".into(), Epoch(1), NodeId(7), "w1".into()).unwrap();
        identity.raft = Some(RaftId(9));
        identity
    }

    #[test]
    fn a_second_opener_is_refused_with_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        let error = DataDir::open(dir.path()).unwrap_err();
        assert!(matches!(&error, DiskError::Held { .. }), "{error}");
        assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn a_remoor_directory_open_to_others_becomes_private() {
        let dir = tempfile::tempdir().unwrap();
        let mode = || std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o7777;
        let set = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        for (was, is) in [(0o755, 0o700), (0o710, 0o700), (0o500, 0o500)] {
            set(was);
            keep_private(dir.path()).unwrap();
            assert_eq!(mode(), is, "{was:o}");
        }
        set(0o755);
        std::fs::create_dir(dir.path().join(LOST_AND_FOUND)).unwrap();
        DataDir::open(dir.path()).unwrap().store_identity(&identity()).unwrap();
        assert_eq!(mode(), 0o700, "opening it is enough");
        set(0o755);
        DataDir::open(dir.path()).unwrap();
        assert_eq!(mode(), 0o700, "there is an identity in it");
    }

    #[test]
    fn a_foreign_directory_is_refused_and_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let mode = || std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o7777;
        let set = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let refused = |was: u32| {
            set(was);
            let error = DataDir::open(dir.path()).unwrap_err();
            assert!(matches!(&error, DiskError::Foreign(at) if at == dir.path()), "{was:o}: {error}");
            assert_eq!((mode(), dir.path().join("lock").exists()), (was, false));
        };
        refused(0o1777); // empty, as /tmp may be
        std::fs::write(dir.path().join("x"), "").unwrap();
        refused(0o755);
        set(0o700);
        DataDir::open(dir.path()).unwrap().store_identity(&identity()).unwrap();
        std::fs::remove_file(dir.path().join("lock")).unwrap();
        refused(0o1777);
        set(0o750);
        DataDir::open(dir.path()).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn an_identity_survives_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = identity();
        {
            let data = DataDir::open(dir.path()).unwrap();
            assert_eq!(data.identity().unwrap(), None);
            data.store_identity(&wanted).unwrap();
        }
        assert_eq!(DataDir::open(dir.path()).unwrap().identity().unwrap(), Some(wanted));
    }

    #[test]
    fn a_damaged_or_newer_identity_is_refused_and_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        data.store_identity(&identity()).unwrap();
        let path = dir.path().join("identity.json");
        let good = std::fs::read_to_string(&path).unwrap();
        let (nowhere, none) = (good.replace("\"c1\"", "\"\""), good.replace("\"version\": 1", "\"version\": 0"));
        for bad in ["", "{", &good[..good.len() / 2], &nowhere, &none] {
            std::fs::write(&path, bad).unwrap();
            let error = data.identity().unwrap_err();
            assert!(matches!(&error, DiskError::Corrupt { .. }), "{bad:?}: {error}");
            assert!(error.to_string().contains("identity.json"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), bad);
        }
        std::fs::write(&path, r#"{"version": 2}"#).unwrap();
        assert!(matches!(data.identity(), Err(DiskError::TooNew { found: 2, .. })));
        drop(data);
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("format 2") && error.contains("up to 1: install the newer program"), "{error}");
    }
}
