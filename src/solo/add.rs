//! Checks of what this machine has now, written into a check file as `goss add` does.

use super::source;
use crate::check::{self, Addition, ObserveError};
use crate::disk::{DiskError, atomic_write};
use crate::model::Fault;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// Mode of a new check file.
const MODE: u32 = 0o644;

/// Why nothing was added. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AdditionError {
    /// No such type or id.
    #[error("{0}")]
    NoSuch(String),
    /// This machine does not say what it has of it.
    #[error("can't tell what {check} is to be: {property}: {why}")]
    NoAnswer { check: String, property: String, why: String },
    /// The file has the check already, or can't take it.
    #[error("nothing was added")]
    Refused(Vec<Fault>),
    #[error("the file can't be written")]
    Write(#[source] DiskError),
}

/// Looks at each of `ids`, before anything is written.
pub fn observe(kind: &str, ids: &[String]) -> Result<Vec<Addition>, AdditionError> {
    let mut out = Vec::new();
    for id in ids {
        let attributes = check::observe(kind, id).map_err(of)?;
        out.push(Addition { kind: kind.to_owned(), id: id.clone(), attributes });
    }
    Ok(out)
}

/// The checks as the text of a new file.
pub fn addition_text(more: &[Addition]) -> Result<String, AdditionError> {
    amended("the new checks", String::new(), more)
}

/// Adds them all to the file, or none; makes the file if it is missing.
pub fn add_to(path: &Path, more: &[Addition]) -> Result<(), AdditionError> {
    let shown = path.display().to_string();
    // Where it is a link the file behind it is replaced.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(&real).ok();
    let old = match &before {
        None => String::new(),
        Some(_) => {
            source::read(&real)
                .map_err(|fault| AdditionError::Refused(vec![Fault { file: shown.clone(), ..fault }]))?
                .text
        }
    };
    let new = amended(&shown, old, more)?;
    let mode = before.as_ref().map_or(MODE, |meta| meta.permissions().mode() & 0o7777);
    atomic_write(&real, new.as_bytes(), mode).map_err(AdditionError::Write)?;
    if let Some(meta) = before {
        // Only root may give a file away; for others it is theirs already, or they could not have been its owner.
        let _ = chown(&real, Some(meta.uid()), Some(meta.gid()));
    }
    Ok(())
}

fn amended(file: &str, text: String, more: &[Addition]) -> Result<String, AdditionError> {
    more.iter().try_fold(text, |text, one| check::add(file, &text, one)).map_err(AdditionError::Refused)
}

fn of(error: ObserveError) -> AdditionError {
    match error {
        ObserveError::Wrong(why) => AdditionError::NoSuch(why),
        ObserveError::NoAnswer { check, property, why } => AdditionError::NoAnswer { check, property, why },
    }
}
