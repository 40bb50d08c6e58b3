//! Reads the texts of check files from paths, directories and standard input. The length of a text
//! is limited.

use super::bounded_read::{read_bounded, regular};
use remoor_model::Fault;
use rustix::fs::OFlags;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of a check file in bytes.
const TEXT_MAX: u64 = 4 << 20;
const ENDINGS: [&str; 3] = ["yml", "yaml", "json"];

/// The text of one check file, and its source.
#[derive(Debug)]
pub(super) struct CheckSource {
    /// The name by which messages call the source.
    pub name: String,
    /// The directory to which the `gossfile` entries of the text are relative.
    pub dir: PathBuf,
    /// The path of the file. None: standard input.
    pub path: Option<PathBuf>,
    pub text: String,
}

/// The files that `named` stands for. For a directory, these are its files that end in `.yml`,
/// `.yaml` or `.json`, sorted. Otherwise this is `named` itself, also for `-`.
pub(super) fn files(named: &Path) -> Result<Vec<PathBuf>, Fault> {
    if named == Path::new("-") || !named.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let shown = named.display().to_string();
    let entries = fs::read_dir(named).map_err(|e| Fault::error(&shown, 0, 0, e.to_string()))?;
    let fits = |path: &PathBuf| {
        path.extension().and_then(|end| end.to_str()).is_some_and(|end| ENDINGS.contains(&end)) && !path.is_dir()
    };
    let entries: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let entries = entries.map_err(|e| Fault::error(&shown, 0, 0, e.to_string()))?;
    let mut files: Vec<PathBuf> = entries.into_iter().filter(fits).collect();
    files.sort();
    if files.is_empty() {
        return Err(Fault::error(&shown, 0, 0, "no file in it ends in .yml, .yaml or .json"));
    }
    Ok(files)
}

/// Reads a file, or standard input for `-`.
pub(super) fn read(path: &Path) -> Result<CheckSource, Fault> {
    if path == Path::new("-") {
        let text = utf8(std::io::stdin().lock(), TEXT_MAX).map_err(|why| Fault::error("standard input", 0, 0, why))?;
        return Ok(CheckSource { name: "standard input".to_owned(), dir: PathBuf::from("."), path: None, text });
    }
    let name = path.display().to_string();
    let text = text(path, TEXT_MAX).map_err(|why| Fault::error(&name, 0, 0, why))?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(CheckSource { dir: dir.to_owned(), path: Some(path.to_owned()), name, text })
}

/// The text of a regular file of at most `max` bytes. Never blocks on a pipe.
pub(super) fn text(path: &Path, max: u64) -> Result<String, String> {
    let file = regular(path, OFlags::empty()).map_err(|e| match e.kind() {
        io::ErrorKind::Other => format!("{e}; `-` reads standard input"),
        _ => e.to_string(),
    })?;
    utf8(file, max)
}

fn utf8(from: impl Read, max: u64) -> Result<String, String> {
    let bytes = read_bounded(from, max).map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| format!("it is not UTF-8 text (byte {})", e.utf8_error().valid_up_to()))
}
