//! The manifest of a backup. Each path that the backup keeps has one line in it. The line is on
//! disk before the run changes the path.

use crate::os::atomic_fs::{self, SafeError};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const NAME: &str = "manifest.jsonl";
/// Older executors stored all entries in this file as one JSON list.
const OLD_NAME: &str = "manifest.json";
/// Maximum size of a manifest in bytes, which is enough for some millions of paths.
const BYTES_MAX: u64 = 1 << 30;

/// The state that a path had before the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "was")]
pub enum Was {
    Absent,
    File {
        copy: String,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// A file of which the backup has only mode and owner, because the run did not change its
    /// content.
    Attributes {
        mode: u32,
        uid: u32,
        gid: u32,
    },
    Link {
        #[serde(with = "any_name")]
        target: PathBuf,
    },
    Directory {
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// A path that the run moved to `park_dir` instead of removing it, because the path is
    /// protected.
    Parked {
        #[serde(with = "any_name")]
        to: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupEntry {
    #[serde(with = "any_name")]
    pub path: PathBuf,
    #[serde(flatten)]
    pub was: Was,
}

/// Serializes a path of the manifest. A path that is UTF-8 becomes text. Any other path becomes its
/// bytes in hex, because JSON text is UTF-8.
mod any_name {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Name {
        Text(String),
        Bytes { hex: String },
    }

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        let name = match path.to_str() {
            Some(text) => Name::Text(text.to_owned()),
            None => Name::Bytes { hex: hex::encode(path.as_os_str().as_bytes()) },
        };
        name.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Name::deserialize(from)? {
            Name::Text(text) => text.into(),
            Name::Bytes { hex } => OsString::from_vec(hex::decode(hex).map_err(D::Error::custom)?).into(),
        })
    }
}

/// The open manifest of a backup, to which entries are appended.
#[derive(Debug)]
pub struct BackupManifest {
    path: PathBuf,
    file: File,
    /// Length in bytes of all complete lines of the manifest. An incomplete line after them is
    /// ignored and overwritten.
    length: u64,
    bytes_max: u64,
}

impl BackupManifest {
    /// Opens or creates the manifest in `dir` and returns the entries it holds. An incomplete last
    /// line, left by a crash, is cut, because its path was not changed yet.
    pub fn open(dir: &Path) -> Result<(Self, Vec<BackupEntry>), SafeError> {
        let path = dir.join(NAME);
        let fail = |source| SafeError::Io { path: path.clone(), what: "open it", source };
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let file = options.open(&path).map_err(fail)?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail)?;
        let (entries, length) = read(dir)?;
        Ok((Self { path, file, length, bytes_max: BYTES_MAX }, entries))
    }

    /// Appends entries. They are on disk when this returns; after an error none of them counts as
    /// recorded.
    pub fn append(&mut self, entries: &[BackupEntry]) -> Result<(), SafeError> {
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry).map_err(|e| {
                SafeError::new_refused(&self.path, format!("cannot be written, so nothing is removed: {e}"))
            })?;
            lines.push(b'\n');
        }
        let length = self.length + lines.len() as u64;
        if length > self.bytes_max {
            let what = format!("is full ({} MiB of changed paths)", self.bytes_max >> 20);
            return Err(SafeError::new_refused(&self.path, format!("{what}, so nothing is removed")));
        }
        let write = || {
            self.file.set_len(self.length)?;
            self.file.write_all_at(&lines, self.length)?;
            self.file.sync_data()
        };
        write().map_err(|source| SafeError::Io { path: self.path.clone(), what: "record the old state", source })?;
        self.length = length;
        Ok(())
    }
}

/// Reads the entries of a backup in the order in which they were kept, and the length of the
/// complete lines in bytes.
pub fn read(dir: &Path) -> Result<(Vec<BackupEntry>, u64), SafeError> {
    let wrong = |path: &Path, e| SafeError::new_refused(path, format!("is not a valid manifest: {e}"));
    let (old, path) = (dir.join(OLD_NAME), dir.join(NAME));
    let mut entries: Vec<BackupEntry> = match atomic_fs::stat_path(&old)? {
        Some(_) => serde_json::from_slice(&atomic_fs::read(&old)?).map_err(|e| wrong(&old, e))?,
        None => Vec::new(),
    };
    let (mut length, mut line) = (0, Vec::new());
    if atomic_fs::stat_path(&path)?.is_some() {
        let mut lines = BufReader::new(atomic_fs::open(&path)?.0.take(BYTES_MAX));
        let mut next = |line: &mut Vec<u8>| {
            line.clear();
            let read = lines.read_until(b'\n', line);
            read.map_err(|source| SafeError::Io { path: path.clone(), what: "read it", source })
        };
        while next(&mut line)? > 0 && line.ends_with(b"\n") {
            entries.push(serde_json::from_slice(&line).map_err(|e| wrong(&path, e))?);
            length += line.len() as u64;
        }
    }
    Ok((entries, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn entry(path: &str) -> BackupEntry {
        BackupEntry { path: path.into(), was: Was::Absent }
    }

    #[test]
    fn half_a_line_is_cut_and_gone_on_from() {
        let dir = tempfile::tempdir().unwrap();
        let old = r#"[{"path": "/old", "was": "absent"}]"#;
        std::fs::write(dir.path().join(OLD_NAME), old).unwrap();
        let (mut manifest, before) = BackupManifest::open(dir.path()).unwrap();
        assert_eq!(before, [entry("/old")], "the manifest of an older executor is continued");
        manifest.append(&[entry("/a"), entry("/b")]).unwrap();
        let mut torn = OpenOptions::new().append(true).open(dir.path().join(NAME)).unwrap();
        torn.write_all(br#"{"path":"/half of a long name"#).unwrap();
        let (mut manifest, before) = BackupManifest::open(dir.path()).unwrap();
        assert_eq!(before, [entry("/old"), entry("/a"), entry("/b")]);
        manifest.append(&[entry("/c")]).unwrap();
        assert_eq!(read(dir.path()).unwrap().0, [entry("/old"), entry("/a"), entry("/b"), entry("/c")]);
        let text = std::fs::read_to_string(dir.path().join(NAME)).unwrap();
        assert!(text.ends_with("\"/c\",\"was\":\"absent\"}\n") && !text.contains("half"), "{text}");
    }

    impl BackupManifest {
        pub fn fill_up(&mut self) {
            self.bytes_max = 0;
        }
    }

    #[test]
    fn one_that_is_full_says_so_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = BackupManifest { bytes_max: 40, ..BackupManifest::open(dir.path()).unwrap().0 };
        manifest.append(&[entry("/a")]).unwrap();
        let refused = manifest.append(&[entry("/b")]).unwrap_err().line();
        assert!(refused.contains("is full"), "{refused}");
        assert_eq!(read(dir.path()).unwrap().0, [entry("/a")]);
    }
}
