//! Reads paths into entries without following links and without blocking on a pipe or a device.
//! Many files are read by several threads.

use super::Names;
use super::cache::{Cache, HashMethod};
use super::content::{ContentReader, FreshContent, ReadAttempt, read_target};
use super::display_path::display_path;
use super::expand::{Expansion, FoundPath};
use super::path_metadata::PathMetadata;
use globset::GlobSet;
use remoor_model::{FileEntry, FileKind, Normalizer};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Maximum number of repetitions if a file changes during the read.
const RETRIES: u32 = 3;
/// Maximum number of reading threads. It is limited because the node has other work. It does not
/// depend on the number of processors, because most threads wait for the disk. With two threads
/// instead of four, only half as many small uncached files were read per second.
const THREADS_MAX: usize = 4;
/// Minimum paths or bytes for each thread. A smaller amount is read sooner than another thread
/// could start.
const PATHS_EACH: usize = 256;
const BYTES_EACH: u64 = 1 << 20;
/// Number of paths that a thread takes at once.
const BATCH: usize = 8;

/// The rule that decides which files have secret content.
pub(super) enum SecretRule {
    /// Paths that match the secret globs of a manifest.
    Globs(GlobSet),
    /// Files that only their owner may read.
    OwnerOnly,
}

/// Options for reading paths.
pub(super) struct ReadOptions {
    pub secret: SecretRule,
    /// Key for the content of secret files. None: their content is not read.
    pub key: Option<[u8; 32]>,
    pub normalize: Option<Normalizer>,
}

impl ReadOptions {
    fn is_secret(&self, path: &Path, seen: Option<&PathMetadata>) -> bool {
        match &self.secret {
            SecretRule::Globs(globs) => !globs.is_empty() && globs.is_match(path),
            SecretRule::OwnerOnly => seen.is_some_and(|s| s.kind == FileKind::File && s.mode & 0o044 == 0),
        }
    }

    pub(super) fn hash_method(&self, secret: bool) -> HashMethod {
        HashMethod { secret, normalize: self.normalize.as_ref().map_or(0, Normalizer::id) }
    }
}

/// The entry of a path, with its content if the content was read. Err: the reason why the path
/// could not be read.
type ReadResult = Result<(FileEntry, Option<FreshContent>), String>;

/// The entries of all paths of `expansion` in any order, and the paths that could not be read.
/// Files that `cache` knows to be unchanged are not opened.
pub(super) fn entries(
    expansion: Expansion,
    how: &ReadOptions,
    names: &Names,
    cache: &mut Cache,
) -> (Vec<FileEntry>, BTreeMap<String, String>) {
    let Expansion { paths, mut unreadable } = expansion;
    let mut entries = Vec::with_capacity(paths.len());
    let mut unknown = Vec::new();
    for (path, found) in paths {
        match cached_entry(&path, &found, how, names, cache) {
            Some(entry) => entries.push(entry),
            None => unknown.push((path, found)),
        }
    }
    for ((path, found), one) in unknown.iter().zip(read_all(&unknown, how, names)) {
        match one {
            // The walk found the path, but the path does not exist any longer. It is omitted, as if
            // the walk had come later.
            Ok((entry, _)) if entry.kind == FileKind::Absent && !found.declared => {}
            Ok((entry, fresh)) => {
                entries.push(entry);
                if let Some(FreshContent { stamp, way, sha256, read_at }) = fresh {
                    cache.put(stamp, way, sha256, read_at);
                }
            }
            Err(why) => drop(unreadable.insert(display_path(path), why)),
        }
    }
    (entries, unreadable)
}

/// The entry of a regular file whose hash is cached.
fn cached_entry(
    path: &Path,
    found: &FoundPath,
    how: &ReadOptions,
    names: &Names,
    cache: &mut Cache,
) -> Option<FileEntry> {
    let seen = found.seen.filter(|seen| seen.kind == FileKind::File)?;
    let secret = how.is_secret(path, Some(&seen));
    let sha256 = cache.get(&seen.stamp, how.hash_method(secret))?;
    Some(FileEntry { sha256: Some(sha256), ..seen.entry(path.to_str()?, secret, names) })
}

/// Reads all paths. One result for each path, in order.
fn read_all(paths: &[(PathBuf, FoundPath)], how: &ReadOptions, names: &Names) -> Vec<ReadResult> {
    let bytes: u64 = paths.iter().filter_map(|(_, found)| found.seen).map(|seen| seen.stamp.size).sum();
    let worth = (paths.len() / PATHS_EACH).max(usize::try_from(bytes / BYTES_EACH).unwrap_or(usize::MAX));
    let threads = worth.min(paths.len().div_ceil(BATCH)).min(THREADS_MAX);
    if threads < 2 {
        let mut reader = ContentReader::default();
        return paths.iter().map(|(path, found)| read_path(path, found.seen, how, names, &mut reader)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut reader, mut out) = (ContentReader::default(), Vec::new());
        loop {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(rest) = paths.get(from..).filter(|rest| !rest.is_empty()) else { return out };
            let batch = rest.iter().take(BATCH).enumerate();
            out.extend(
                batch.map(|(n, (path, found))| (from + n, read_path(path, found.seen, how, names, &mut reader))),
            );
        }
    };
    let mut all: Vec<(usize, ReadResult)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_unstable_by_key(|(n, _)| *n);
    all.into_iter().map(|(_, one)| one).collect()
}

/// The entry of `path`. `seen` is recent metadata of the path. The entry has the kind `Absent` if
/// the path does not exist. Err: the reason why the path could not be read, for people.
fn read_path(
    path: &Path,
    seen: Option<PathMetadata>,
    how: &ReadOptions,
    names: &Names,
    reader: &mut ContentReader,
) -> ReadResult {
    read_path_with(path, seen, how, names, reader, &mut || ())
}

/// Like `read_path`. Each time the file is read, `meanwhile` runs before the check that the file is
/// unchanged.
fn read_path_with(
    path: &Path,
    mut seen: Option<PathMetadata>,
    how: &ReadOptions,
    names: &Names,
    reader: &mut ContentReader,
    meanwhile: &mut dyn FnMut(),
) -> ReadResult {
    let Some(text) = path.to_str() else { return Err("the name is not UTF-8".to_owned()) };
    for _ in 0..=RETRIES {
        let now = match seen
            .take()
            .map_or_else(|| fs::symlink_metadata(path).map(|meta| PathMetadata::from_metadata(&meta)), Ok)
        {
            Ok(now) => now,
            Err(e) if is_absent(&e) => return Ok((absent_entry(text, how.is_secret(path, None)), None)),
            Err(e) => return Err(e.to_string()),
        };
        let secret = how.is_secret(path, Some(&now));
        let mut entry = now.entry(text, secret, names);
        match now.kind {
            FileKind::File if secret && how.key.is_none() => {}
            FileKind::File => match reader.read_content(path, &now, how, secret, &mut *meanwhile)? {
                ReadAttempt::Done(fresh) => {
                    entry.sha256 = Some(fresh.sha256);
                    return Ok((entry, Some(fresh)));
                }
                ReadAttempt::Changed => continue,
            },
            FileKind::Symlink => match read_target(path)? {
                ReadAttempt::Done(target) => entry.target = Some(target),
                ReadAttempt::Changed => continue,
            },
            _ => {}
        }
        return Ok((entry, None));
    }
    Err("changes while it is read".to_owned())
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn absent_entry(path: &str, secret: bool) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        kind: FileKind::Absent,
        mode: 0,
        owner: String::new(),
        group: String::new(),
        sha256: None,
        target: None,
        secret,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::Sha256;
    use std::io::Write;

    fn default_options() -> ReadOptions {
        ReadOptions { secret: SecretRule::Globs(GlobSet::empty()), key: None, normalize: None }
    }

    fn metadata_of(path: &Path) -> PathMetadata {
        PathMetadata::from_metadata(&fs::symlink_metadata(path).unwrap())
    }

    #[test]
    fn a_file_that_became_a_pipe_or_a_link_does_not_hang_the_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let seen = metadata_of(&path);
        // `seen` says that the path is a regular file. The entry must have the kind that the path
        // has now.
        let moved = || {
            read_path(&path, Some(seen), &default_options(), &Names::default(), &mut ContentReader::default())
                .unwrap()
                .0
                .kind
        };
        fs::remove_file(&path).unwrap();
        assert_eq!(moved(), FileKind::Absent);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(moved(), FileKind::Fifo);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert_eq!(moved(), FileKind::Symlink);
    }

    #[test]
    fn a_file_that_keeps_changing_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "0").unwrap();
        let mut file = fs::File::options().append(true).open(&path).unwrap();
        let (mut reader, mut times, mut grows) = (ContentReader::default(), 0, u32::MAX);
        let mut read = |until| {
            (times, grows) = (0, until);
            let grow = &mut || {
                times += 1;
                if times <= grows {
                    file.write_all(b"x").unwrap();
                }
            };
            let outcome = read_path_with(&path, None, &default_options(), &Names::default(), &mut reader, grow);
            (outcome.map(|(entry, _)| entry.sha256), times)
        };
        assert_eq!(read(u32::MAX), (Err("changes while it is read".to_owned()), RETRIES + 1));
        let now = || Some(Sha256::digest(&fs::read(&path).unwrap()));
        let (outcome, times) = read(RETRIES);
        assert_eq!((outcome, times), (Ok(now()), RETRIES + 1), "in the end it did not change");
    }

    #[test]
    fn many_threads_read_what_one_reads() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<(PathBuf, FoundPath)> = (0..2 * PATHS_EACH + 3)
            .map(|n| {
                let path = dir.path().join(n.to_string());
                fs::write(&path, n.to_string()).unwrap();
                let seen = (n % 2 == 0).then(|| metadata_of(&path));
                (path, FoundPath { declared: true, seen })
            })
            .collect();
        fs::remove_file(&paths[7].0).unwrap();
        let all = read_all(&paths, &default_options(), &Names::default());
        assert_eq!(all.len(), paths.len());
        for (n, ((path, _), one)) in paths.iter().zip(&all).enumerate() {
            let entry = &one.as_ref().unwrap().0;
            assert_eq!(entry.path, path.to_str().unwrap());
            assert_eq!(entry.sha256, (n != 7).then(|| Sha256::digest(n.to_string().as_bytes())));
        }
    }
}
