//! Reads stored files: only regular files, of limited length and of a known version.

use rustix::fs::OFlags;
use serde::Deserialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The version field of a stored file.
#[derive(Deserialize)]
pub(super) struct Versioned {
    pub version: u32,
}

impl Versioned {
    /// The reason why the file can't be used. None: the file has the version `known`.
    pub fn version_mismatch(&self, known: u32) -> Option<String> {
        let Self { version } = self;
        (*version != known).then(|| format!("it has version {version}, this program knows {known}"))
    }
}

/// Opens a regular file. Every other kind of file is an error, so that opening never blocks.
pub(super) fn regular(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | more).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads all bytes. Fails if there are more than `max`.
pub(super) fn read_bounded(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true if max < 1 << 20 => Err(io::Error::other(format!("it is longer than {max} bytes"))),
        true => Err(io::Error::other(format!("it is longer than {} MiB", max >> 20))),
        false => Ok(bytes),
    }
}
