//! Writes checks of this machine's current state into a check file, like `goss add`.
//!
//! The file is replaced as a whole, by one command at a time. Its owner, its mode and a symlink to
//! it stay the same. If they can't stay the same, nothing is written.

use super::source;
use remoor_check::{self as check, Addition, ObserveError};
use remoor_host::disk::{DiskError, sync_dir};
use remoor_model::Fault;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Mode of a new check file.
const MODE: u32 = 0o644;
/// Maximum wait for another `--add` in the same directory.
const LOCK_MAX: Duration = Duration::from_secs(10);
const LOCK_POLL: Duration = Duration::from_millis(20);
const PRINTED: &str = "run the command without --file to print the check, and insert it by hand";

/// The reason why nothing was added. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AdditionError {
    /// The type or id that `--add` names does not exist.
    #[error("{0}")]
    NoSuch(String),
    /// This machine does not provide the value of a property.
    #[error("can't determine the value of {check}: {property}: {why}")]
    NoAnswer { check: String, property: String, why: String },
    /// The file already contains the check, or can't be extended.
    #[error("nothing was added")]
    Refused(Vec<Fault>),
    #[error("the file can't be written")]
    Write(#[source] DiskError),
}

/// Makes a check for the present state of each resource in `ids`. Nothing is written.
pub fn observe(kind: &str, ids: &[String]) -> Result<Vec<Addition>, AdditionError> {
    let mut out = Vec::new();
    for id in ids {
        let attributes = check::observe(kind, id).map_err(addition_error)?;
        out.push(Addition { kind: kind.to_owned(), id: id.clone(), attributes });
    }
    Ok(out)
}

/// Makes checks for the present state of the unit, processes, ports, files, package and user of a
/// service. Nothing is written.
pub fn observe_service(name: &str) -> Result<Vec<Addition>, AdditionError> {
    let mut out = Vec::new();
    for (kind, id) in check::discover(name).map_err(addition_error)? {
        let attributes = check::observe(kind, &id).map_err(addition_error)?;
        out.push(Addition { kind: kind.to_owned(), id, attributes });
    }
    Ok(out)
}

/// The checks as the text of a new file.
pub fn addition_text(more: &[Addition]) -> Result<String, AdditionError> {
    with_additions("the new checks", String::new(), more)
}

/// Adds all checks to the file, or none of them. Creates the file if it does not exist. If another
/// `--add` works in the same directory, this function waits.
pub fn add_to(path: &Path, more: &[Addition]) -> Result<(), AdditionError> {
    let shown = path.display().to_string();
    let refused = |why: String| AdditionError::Refused(vec![Fault::error(&shown, 0, 0, why).hint(PRINTED)]);
    // The target of a symlink is replaced, not the link.
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(_) if path.is_symlink() => return Err(refused("it is a symlink to a file that does not exist".to_owned())),
        Err(_) => path.to_owned(),
    };
    let dir = match real.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let _lock = lock(dir)?.ok_or_else(|| refused(format!("another --add is running in {}", dir.display())))?;
    let before = fs::metadata(&real).ok();
    let old = match &before {
        None => String::new(),
        Some(meta) if meta.is_file() && meta.nlink() > 1 => {
            let why = format!("it has {} hard links, which would be broken", meta.nlink());
            return Err(refused(why));
        }
        Some(_) => {
            source::read(&real)
                .map_err(|fault| AdditionError::Refused(vec![Fault { file: shown.clone(), ..fault }]))?
                .text
        }
    };
    let new = with_additions(&shown, old, more)?;
    match replace(&real, dir, &new, before.as_ref()) {
        Ok(true) => sync_dir(dir).map_err(AdditionError::Write),
        Ok(false) => Err(refused("it belongs to another owner or group, which only root can preserve".to_owned())),
        Err(error) => Err(AdditionError::Write(DiskError::io("replacing", &real)(error))),
    }
}

/// Locks the directory against another `--add`. A file that is replaced can't be locked itself.
/// None: the lock was not free in time.
fn lock(dir: &Path) -> Result<Option<File>, AdditionError> {
    let failed = |action: &'static str| move |e: io::Error| AdditionError::Write(DiskError::io(action, dir)(e));
    let file = File::open(dir).map_err(failed("opening directory"))?;
    let begun = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_MAX => std::thread::sleep(LOCK_POLL),
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(failed("locking directory")(errno.into())),
        }
    }
}

/// Replaces `path` by a file with `text` and with the owner, group and mode of `before`. Returns
/// false if owner and group can't be set.
fn replace(path: &Path, dir: &Path, text: &str, before: Option<&Metadata>) -> io::Result<bool> {
    let name: PathBuf = path.file_name().unwrap_or_default().into();
    let mut file = tempfile::Builder::new().prefix(&format!(".{}.", name.display())).suffix(".tmp").tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    if let Some(meta) = before {
        match fchown(file.as_file(), Some(meta.uid()), Some(meta.gid())) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
            other => other?,
        }
    }
    // The mode is set after the owner, because a change of the owner may clear mode bits.
    let mode = before.map_or(MODE, |meta| meta.permissions().mode() & 0o7777);
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map(|_| true).map_err(|e| e.error)
}

fn with_additions(file: &str, text: String, more: &[Addition]) -> Result<String, AdditionError> {
    more.iter().try_fold(text, |text, one| check::add(file, &text, one)).map_err(AdditionError::Refused)
}

fn addition_error(error: ObserveError) -> AdditionError {
    match error {
        ObserveError::Wrong(why) => AdditionError::NoSuch(why),
        ObserveError::NoAnswer { check, property, why } => AdditionError::NoAnswer { check, property, why },
    }
}
