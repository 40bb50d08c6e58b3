//! A backup file, which somebody may have made to do harm. The bytes are the part after the
//! checksum, because arbitrary bytes have no valid checksum. A backup is read or refused; nothing
//! is restored.

use remoor::daemon::verify;
use remoor_model::Sha256;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

static DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a directory"));

pub fn target(bytes: &[u8]) -> bool {
    let path: PathBuf = DIR.path().join(format!("{:?}", std::thread::current().id()));
    let whole = [&b"remoor backup 1\n"[..], &Sha256::digest(bytes).0, bytes].concat();
    fs::write(&path, whole).expect("a file");
    // The error says why the bytes are no backup.
    verify(&path, None).is_ok() || bytes.len() > 8
}
