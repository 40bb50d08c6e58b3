//! Contents of a file for a check: bounded, and never waiting for the other end of a pipe.

use super::{Ask, Trouble, failed, mount, unknown};
use crate::files::MAX_FILE;
use rustix::fs::OFlags;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// A file that moves under the reader is read again so many times.
const RETRIES: u32 = 3;

/// What `path` leads to, links followed, as one reader saw it: at most `MAX_FILE` bytes.
pub(super) fn content(ask: &Ask, path: &Path) -> Result<Vec<u8>, Trouble> {
    mount::answers(ask, path)?;
    stable(path, || ())
}

/// `before_check` runs between the last byte and the look whether the file is still the same.
fn stable(path: &Path, mut before_check: impl FnMut()) -> Result<Vec<u8>, Trouble> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    // A device may do something when it is opened, so it is looked at first.
    let target =
        fs::metadata(path).map_err(|e| if e.kind() == io::ErrorKind::NotFound { failed(e) } else { unknown(e) })?;
    if !target.is_file() {
        return Err(failed(format!("a {} has no contents to compare", filetype(target.file_type()))));
    }
    let too_large = || unknown(format!("larger than {} MiB", MAX_FILE >> 20));
    if target.len() > MAX_FILE {
        return Err(too_large());
    }
    for _ in 0..=RETRIES {
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unknown)?;
        let Some(before) = state(&file)? else { continue };
        let mut bytes = Vec::new();
        file.by_ref().take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unknown)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(too_large());
        }
        before_check();
        if state(&file)? == Some(before) {
            return Ok(bytes);
        }
    }
    Err(unknown("changes while it is read"))
}

/// What a writer changes; None: it is no file any more. The number of bytes read is no part of it, since files of the kernel
/// have another size than content.
fn state(file: &File) -> Result<Option<(u64, std::time::SystemTime)>, Trouble> {
    let meta = file.metadata().map_err(unknown)?;
    if !meta.is_file() {
        return Ok(None);
    }
    Ok(Some((meta.len(), meta.modified().map_err(unknown)?)))
}

/// goss's words.
pub(super) fn filetype(kind: FileType) -> &'static str {
    if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_symlink() {
        "symlink"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_char_device() {
        "character-device"
    } else {
        "block-device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_that_grows_under_the_reader_has_no_contents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "one\n").unwrap();
        let grow = || writeln!(OpenOptions::new().append(true).open(&path).unwrap(), "more").unwrap();
        assert_eq!(stable(&path, grow), Err(unknown("changes while it is read")));
        let mut once = Some(grow);
        let seen = stable(&path, || once.take().map_or((), |grow| grow())).unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), fs::read_to_string(&path).unwrap(), "the second reading saw all");
    }

    #[test]
    fn files_of_the_kernel_have_contents_though_they_have_no_size() {
        let version = stable(Path::new("/proc/version"), || ()).unwrap();
        assert_eq!(version, fs::read("/proc/version").unwrap());
        assert!(!version.is_empty());
    }
}
