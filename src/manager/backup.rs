//! A backup in one file. It contains the applied state at one log index, the blobs that the state
//! refers to, and those files of the manager's directory that can't be recreated, including keys.
//!
//! Format: `remoor backup 1\n`, then 32 bytes of SHA-256 over the rest, then the length of the head
//! in 4 bytes, then the head (MessagePack). The parts that the head lists follow in this order: the
//! state, the blobs, the files. On request, all of this is encrypted with age.

mod encryption;
mod keeper;

pub use encryption::{Recipients, parse_recipient};
pub use keeper::{BACKUP, BackupSchedule, Backups, Keeper};

use remoor_host::disk::{DiskError, sync_dir};
use remoor_model::{ClusterId, Epoch, Inventory, NodeId, NodeName, Sha256, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FORMAT: u32 = 1;
const SUM: usize = 32;
const LENGTH: usize = 4;
/// Maximum size of a backup in bytes. A backup of a thousand nodes has a few megabytes.
const BYTES_MAX: u64 = 1 << 30;
/// Maximum size of an encrypted file in bytes. The encryption adds a head and 16 bytes for each
/// 64 KiB.
const ENCRYPTED_MAX: u64 = BYTES_MAX + (1 << 20);

/// Files of a manager's directory that a backup contains if they exist. `FOLDERS` lists the folders
/// whose files a backup contains.
pub const FILES: [&str; 6] = ["node.key", "credentials.json", "ssh.key", "operator.json", "node.json", keeper::FILE];
pub const FOLDERS: [&str; 1] = ["ca"];

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{action} {}", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{} exists, and a backup never replaces a file", .0.display())]
    Exists(PathBuf),
    /// The file was changed or truncated, or it is not a backup.
    #[error("{} is not a valid backup: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("{} has format {found}, this program knows {FORMAT}: install the newer program", path.display())]
    TooNew { path: PathBuf, found: u32 },
    #[error("{} is encrypted for a public key", .0.display())]
    Encrypted(PathBuf),
    /// The private keys in the file do not decrypt the backup.
    #[error("the private keys in {} do not decrypt the backup: {why}", path.display())]
    Identity { path: PathBuf, why: String },
    #[error("the backup would be larger than {BYTES_MAX} bytes")]
    TooLarge,
    #[error("blob {0} of the state is not on this manager")]
    NoBlob(Sha256),
    #[error("the state can't be encoded: {0}")]
    Encode(String),
}

/// Description of a backup. It can be shown before the rest of the backup is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub made: Wall,
    /// The manager that made the backup. The backup contains the keys of this manager.
    pub node: NodeId,
    pub name: NodeName,
    /// Version of the program that made the backup.
    pub program: String,
    pub cluster: ClusterId,
    pub epoch: Epoch,
    /// Log index of the last entry that the state in the backup contains.
    pub index: u64,
    pub term: u64,
    pub generation: u64,
    pub nodes: u64,
    /// Size of the state in the backup, in bytes.
    state: u64,
    blobs: Vec<(Sha256, u64)>,
    files: Vec<(String, u64)>,
}

/// The complete content of a backup.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterBackup {
    pub head: Head,
    pub state: Inventory,
    pub blobs: BTreeMap<Sha256, Vec<u8>>,
    /// The content of each file, by path relative to the data directory.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// The debug output omits the files, because they contain keys.
impl std::fmt::Debug for ClusterBackup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backup").field("head", &self.head).finish_non_exhaustive()
    }
}

/// The manager that makes a backup, and its Raft term.
pub struct Maker {
    pub node: NodeId,
    pub name: NodeName,
    pub made: Wall,
    pub term: u64,
}

impl ClusterBackup {
    pub fn new(
        maker: Maker,
        state: Inventory,
        blobs: BTreeMap<Sha256, Vec<u8>>,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Self {
        let Maker { node, name, made, term } = maker;
        let head = Head {
            made,
            node,
            name,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: state.cluster.clone(),
            epoch: state.epoch,
            index: state.applied,
            term,
            generation: state.current.0,
            nodes: state.nodes.len() as u64,
            state: 0,
            blobs: blobs.iter().map(|(sha, bytes)| (*sha, bytes.len() as u64)).collect(),
            files: files.iter().map(|(path, bytes)| (path.clone(), bytes.len() as u64)).collect(),
        };
        Self { head, state, blobs, files }
    }

    fn encode(&mut self) -> Result<Vec<u8>, BackupError> {
        let failed = |e: rmp_serde::encode::Error| BackupError::Encode(e.to_string());
        let state = rmp_serde::to_vec_named(&self.state).map_err(failed)?;
        self.head.state = state.len() as u64;
        let head = rmp_serde::to_vec_named(&self.head).map_err(failed)?;
        let length = u32::try_from(head.len()).map_err(|_| BackupError::TooLarge)?;
        let mut bytes = magic(FORMAT).into_bytes();
        let begun = bytes.len() + SUM;
        bytes.extend([0; SUM]);
        bytes.extend(length.to_le_bytes());
        for part in [&head, &state].into_iter().chain(self.blobs.values()).chain(self.files.values()) {
            bytes.extend(part);
            if bytes.len() as u64 > BYTES_MAX {
                return Err(BackupError::TooLarge);
            }
        }
        let sum = Sha256::digest(&bytes[begun..]);
        bytes[begun - SUM..begun].copy_from_slice(&sum.0);
        Ok(bytes)
    }

    /// Writes the backup to a new file of mode 0600, encrypted for `recipients`, and reads the file
    /// back. So the file is complete and on disk. Returns its head, SHA-256 and size in bytes.
    /// After an error the file does not exist. Blocks.
    pub fn write(mut self, path: &Path, recipients: &Recipients) -> Result<(Head, Sha256, u64), BackupError> {
        let plain = self.encode()?;
        let differs = || {
            let why = "the content read back differs from the content written".to_owned();
            BackupError::Damaged { path: path.to_owned(), why }
        };
        // The manager can't decrypt the file. So the content is verified here, and the file is
        // compared with the encrypted bytes below.
        if parse(&plain).map_err(|fault| fault.into_error(path))? != self {
            return Err(differs());
        }
        let bytes = recipients.encrypt(plain)?;
        let failed = |action| move |source| BackupError::File { action, path: path.to_owned(), source };
        if path.exists() {
            return Err(BackupError::Exists(path.to_owned()));
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let written = (|| {
            // A file that remains from an earlier attempt or from another program is never reused.
            let _ = std::fs::remove_file(&unfinished);
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&unfinished)
                .map_err(failed("creating"))?;
            file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed("writing"))?;
            if read_bytes(&unfinished)? != bytes {
                return Err(differs());
            }
            // Another process may have created a file with this name in the meantime. A hard link
            // does not replace that file; a rename would.
            std::fs::hard_link(&unfinished, path).map_err(failed("naming"))?;
            Ok(sync_dir(dir)?)
        })();
        // If this removal fails, only the earlier error is reported. The next attempt removes the
        // remaining file.
        let _ = std::fs::remove_file(&unfinished);
        written?;
        Ok((self.head, Sha256::digest(&bytes), bytes.len() as u64))
    }

    /// Reads a backup and checks all of it. `identity` is a file with private keys of age, which an
    /// encrypted backup needs. The error contains the fault. Blocks.
    pub fn read(path: &Path, identity: Option<&Path>) -> Result<Self, BackupError> {
        let bytes = read_bytes(path)?;
        let bytes = match identity {
            _ if !encryption::is_encrypted(&bytes) => bytes,
            Some(identity) => encryption::decrypt(&bytes, identity, BYTES_MAX)?,
            None => return Err(BackupError::Encrypted(path.to_owned())),
        };
        parse(&bytes).map_err(|fault| fault.into_error(path))
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, BackupError> {
    let failed = |source| BackupError::File { action: "reading", path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(ENCRYPTED_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > ENCRYPTED_MAX { Err(BackupError::TooLarge) } else { Ok(bytes) }
}

fn magic(format: u32) -> String {
    format!("remoor backup {format}\n")
}

enum Fault {
    Newer(u32),
    Bad(String),
}

impl Fault {
    fn into_error(self, path: &Path) -> BackupError {
        match self {
            Self::Newer(found) => BackupError::TooNew { path: path.to_owned(), found },
            Self::Bad(why) => BackupError::Damaged { path: path.to_owned(), why },
        }
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Self {
        Self::Bad(why.to_owned())
    }
}

fn parse(bytes: &[u8]) -> Result<ClusterBackup, Fault> {
    let line = bytes.iter().take(40).position(|b| *b == b'\n').ok_or("its first line is not that of a backup")?;
    let (first, rest) = bytes.split_at(line + 1);
    let format = std::str::from_utf8(first).ok().and_then(|l| l.trim_end().strip_prefix("remoor backup "));
    match format.and_then(|f| f.parse::<u32>().ok()).ok_or("its first line is not that of a backup")? {
        FORMAT => {}
        other => return Err(Fault::Newer(other)),
    }
    let (sum, rest) = rest.split_at_checked(SUM).ok_or("it is truncated")?;
    if Sha256::digest(rest).0 != sum {
        return Err("its checksum differs: it was changed or truncated".into());
    }
    let (length, rest) = rest.split_first_chunk::<LENGTH>().ok_or("it is truncated")?;
    let (head, mut rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("it is truncated")?;
    let bad = |e: rmp_serde::decode::Error| Fault::Bad(format!("it can't be read: {e}"));
    let head: Head = rmp_serde::from_slice(head).map_err(bad)?;
    let mut next = |length: u64| -> Result<&[u8], Fault> {
        let length = usize::try_from(length).map_err(|_| "it has less data than its head names")?;
        let (part, left) = rest.split_at_checked(length).ok_or("it has less data than its head names")?;
        rest = left;
        Ok(part)
    };
    let state = rmp_serde::from_slice(next(head.state)?).map_err(bad)?;
    let mut blobs = BTreeMap::new();
    for (sha, length) in &head.blobs {
        let blob = next(*length)?;
        if Sha256::digest(blob) != *sha {
            return Err(Fault::Bad(format!("the content of blob {} does not match its hash", sha.short_hex())));
        }
        blobs.insert(*sha, blob.to_vec());
    }
    let mut files = BTreeMap::new();
    for (path, length) in &head.files {
        if !is_backup_file(path) {
            return Err(Fault::Bad(format!("it contains a file that no backup contains: {path:?}")));
        }
        files.insert(path.clone(), next(*length)?.to_vec());
    }
    if !rest.is_empty() {
        return Err("it has more data than its head names".into());
    }
    Ok(ClusterBackup { head, state, blobs, files })
}

/// Whether a backup may contain this file of the data directory. So the restore of a hostile backup
/// can't write another file, such as an executor in `bin/`.
fn is_backup_file(path: &str) -> bool {
    let in_folder = |(folder, file): (&str, &str)| {
        FOLDERS.contains(&folder) && !file.contains('/') && !["", ".", ".."].contains(&file)
    };
    FILES.contains(&path) || path.split_once('/').is_some_and(in_folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::sample;
    use std::os::unix::fs::PermissionsExt;

    fn backup() -> ClusterBackup {
        let blob = b"a generation".to_vec();
        let maker = Maker { node: NodeId(1), name: "w1".into(), made: Wall(7), term: 3 };
        let files = [("node.key", "secret"), ("ca/ca.key", "more"), ("ssh.key", "")];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        ClusterBackup::new(maker, sample::fleet(1, 2), [(Sha256::digest(&blob), blob)].into(), files.into())
    }

    #[test]
    fn a_written_backup_is_read_back_and_every_changed_byte_is_detected() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("b");
        let (head, sha, length) = backup().write(&path, &Recipients::default()).expect("written");
        let bytes = std::fs::read(&path).expect("read");
        assert_eq!((Sha256::digest(&bytes), bytes.len() as u64), (sha, length));
        assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "no other file is left");
        let read = ClusterBackup::read(&path, None).expect("read");
        assert_eq!((&read.head, &read.state, &read.files), (&head, &backup().state, &backup().files));
        assert!(!format!("{read:?}").contains(&format!("{:?}", b"secret")), "{read:?}");
        assert!(matches!(backup().write(&path, &Recipients::default()), Err(BackupError::Exists(_))));

        let bad = dir.path().join("bad");
        let read = |bytes: &[u8]| {
            std::fs::write(&bad, bytes).expect("written");
            ClusterBackup::read(&bad, None)
        };
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "byte {at}");
        }
        for length in [0, 5, 16, 40, bytes.len() - 1] {
            let error = read(&bytes[..length]).expect_err("cut short").to_string();
            assert!(error.contains("not a valid backup"), "{error}");
        }
        let newer = [magic(2).as_bytes(), &bytes[magic(1).len()..]].concat();
        let error = read(&newer).expect_err("newer").to_string();
        assert!(error.contains("format 2") && error.contains("install the newer program"), "{error}");
    }

    #[test]
    fn an_existing_unfinished_file_or_link_is_not_written_into() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, victim) = (dir.path().join("b"), dir.path().join("victim"));
        std::fs::write(&victim, "theirs").expect("written");
        std::os::unix::fs::symlink(&victim, dir.path().join("b.unfinished")).expect("a link");
        backup().write(&path, &Recipients::default()).expect("written");
        assert_eq!(std::fs::read(&victim).expect("read"), b"theirs");
        assert!(path.symlink_metadata().expect("a file").is_file() && ClusterBackup::read(&path, None).is_ok());
    }

    #[test]
    fn a_file_that_no_backup_contains_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["../node.key", "/etc/passwd", "ca/../../x", "ca/..", "ca/", "bin/executor", "identity.json"] {
            let mut evil = backup();
            evil.files = [(name.to_owned(), b"x".to_vec())].into();
            evil.head.files = vec![(name.to_owned(), 1)];
            let error = evil.write(&dir.path().join("evil"), &Recipients::default()).expect_err("refused").to_string();
            assert!(error.contains("no backup contains"), "{error}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
