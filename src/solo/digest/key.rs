//! The key for secret files: a file with 64 hex digits that only its owner may read.

use super::DigestError;
use crate::solo::bounded_read::{read_bounded, regular};
use remoor_model::Sha256;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Maximum length of the file in bytes: two hex digits for each byte of the key, and the newline.
const TEXT_MAX: u64 = 65;

/// Reads the key in `path`. If the file does not exist, creates it with a new key and mode 0600.
pub(super) fn read_or_make(path: &Path) -> Result<[u8; 32], DigestError> {
    let unusable = |why: String| DigestError::Key { path: path.to_owned(), why };
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let mut key = [0; 32];
            getrandom::fill(&mut key).map_err(|e| unusable(e.to_string()))?;
            let written = file.write_all(format!("{}\n", hex::encode(key)).as_bytes()).and_then(|()| file.sync_all());
            written.map(|()| key).map_err(|e| unusable(e.to_string()))
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let file = regular(path, OFlags::empty()).map_err(|e| unusable(e.to_string()))?;
            let mode = file.metadata().map_err(|e| unusable(e.to_string()))?.mode() & 0o7777;
            if mode & 0o077 != 0 {
                return Err(unusable(format!("other users than its owner can access it (mode {mode:04o})")));
            }
            let text = read_bounded(file, TEXT_MAX).map_err(|e| unusable(e.to_string()))?;
            let mut key = [0; 32];
            hex::decode_to_slice(text.trim_ascii_end(), &mut key)
                .map(|()| key)
                .map_err(|_| unusable("it is not 64 hex digits".to_owned()))
        }
        Err(e) => Err(unusable(e.to_string())),
    }
}

/// A fingerprint of the key, which shows whether two digests used the same key. It reveals nothing
/// about the key.
pub(super) fn name(key: &[u8; 32]) -> String {
    Sha256::digest(&[b"remoor digest key".as_slice(), key].concat()).short_hex()
}
