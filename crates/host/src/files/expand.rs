//! Expands the declared paths, globs and managed directories of a service to the list of paths to
//! read.

use super::display_path::display_path;
use super::mounts::Servers;
use super::path_metadata::PathMetadata;
use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use remoor_model::ServiceManifest;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Files that package managers and editors leave behind. They are skipped, unless declared by their
/// own path.
const LEFTOVERS: [&str; 11] = [
    "*~",
    ".*.sw?",
    "*.dpkg-old",
    "*.dpkg-dist",
    "*.dpkg-new",
    "*.dpkg-tmp",
    "*.ucf-*",
    "*.rpmsave",
    "*.rpmnew",
    "#*#",
    ".#*",
];
static IS_LEFTOVER: LazyLock<GlobSet> = LazyLock::new(|| matcher(&LEFTOVERS.map(str::to_owned), &mut BTreeMap::new()));
/// Maximum number of paths. A service with more is misdeclared (`/` or `/proc/**`); the rest is
/// reported as unreadable.
const MAX_PATHS: usize = 200_000;
const MAX_DEPTH: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Expansion {
    /// The paths, sorted and without duplicates.
    pub paths: Vec<(PathBuf, FoundPath)>,
    pub unreadable: BTreeMap<String, String>,
}

/// The declaration and the metadata of a found path.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundPath {
    /// Whether the path itself is declared. Then it has an entry in the digest even if it does not
    /// exist.
    pub declared: bool,
    /// The metadata that was read when the path was found. None: the path does not exist or could
    /// not be read.
    pub seen: Option<PathMetadata>,
}

/// Expands everything that a service declares.
pub(super) fn expand(service: &ServiceManifest, servers: &Servers) -> Expansion {
    let mut out = Expansion::default();
    let exclude = matcher(&service.exclude, &mut out.unreadable);
    let mut walk = Walk { exclude: &exclude, servers, looked_at: 0, out };
    for pattern in &service.files {
        walk.add_pattern(pattern);
    }
    walk.end()
}

/// Expands `paths` literally (no globs), each with everything below it.
pub(super) fn expand_paths(paths: &[PathBuf], exclude: &GlobSet, servers: &Servers) -> Expansion {
    let mut walk = Walk { exclude, servers, looked_at: 0, out: Expansion::default() };
    for path in paths {
        walk.add_path(path, true);
    }
    walk.end()
}

/// One matcher for `globs`. A glob with a leading `/` matches the whole path, any other glob
/// matches the last components of the path. A glob that ends in `/` names a directory and also
/// matches everything below it. An invalid glob is put into `faults`.
pub(super) fn matcher(globs: &[String], faults: &mut BTreeMap<String, String>) -> GlobSet {
    compile_globs(globs, |text| text.ends_with('/'), faults)
}

fn compile_globs(globs: &[String], reaches_below: fn(&str) -> bool, faults: &mut BTreeMap<String, String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for text in globs {
        let trimmed = text.trim_end_matches('/');
        let whole = if trimmed.starts_with('/') { trimmed.to_owned() } else { format!("**/{trimmed}") };
        let below = reaches_below(text).then(|| glob(&format!("{whole}/**")));
        for glob in below.into_iter().chain([glob(&whole)]) {
            match glob {
                Ok(glob) => drop(set.add(glob)),
                Err(why) => drop(faults.insert(text.clone(), why)),
            }
        }
    }
    set.build().unwrap_or_else(|e| {
        faults.insert(globs.join(" "), e.to_string());
        GlobSet::empty()
    })
}

/// One matcher for secret paths. Each glob also matches everything below it, independent of a final
/// `/`.
pub fn secret_matcher(globs: &[String], faults: &mut BTreeMap<String, String>) -> GlobSet {
    compile_globs(globs, |_| true, faults)
}

fn glob(text: &str) -> Result<Glob, String> {
    GlobBuilder::new(text).literal_separator(true).build().map_err(|e| e.to_string())
}

/// Whether a glob can match paths with more components than the glob itself. Every glob with braces
/// counts as such a glob, because an alternative in braces may contain `/`.
pub(super) fn has_unbounded_depth(glob: &str) -> bool {
    glob.contains("**") || glob.contains('{')
}

pub(super) fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

/// Whether `path` is a mount point, including bind mounts on the same device. A kernel before 5.8
/// does not report mount points; on such a kernel, only another device identifies a mount.
fn is_mount(path: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(CWD, path, flags, StatxFlags::empty()).is_ok_and(|found| {
        found.stx_attributes_mask.intersection(found.stx_attributes).contains(StatxAttributes::MOUNT_ROOT)
    })
}

/// The directory at which a glob starts: its leading parts without wildcards.
pub(super) fn glob_base(pattern: &str) -> PathBuf {
    Path::new(pattern).components().take_while(|part| !is_glob(&part.as_os_str().to_string_lossy())).collect()
}

struct Walk<'a> {
    exclude: &'a GlobSet,
    servers: &'a Servers,
    looked_at: usize,
    out: Expansion,
}

impl Walk<'_> {
    /// Sorts the paths and removes duplicates. A path counts as declared if any of its duplicates
    /// is declared. The walk is mostly in order, so there is little to sort.
    fn end(mut self) -> Expansion {
        let paths = &mut self.out.paths;
        paths.sort_by(|(a, x), (b, y)| a.cmp(b).then(y.declared.cmp(&x.declared)));
        paths.dedup_by(|(later, _), (first, _)| later == first);
        self.out
    }

    fn add_pattern(&mut self, pattern: &str) {
        if !pattern.starts_with('/') {
            self.add_unreadable(Path::new(pattern), "the path is not absolute");
            return;
        }
        let managed = pattern.ends_with('/');
        let trimmed = if managed { pattern.trim_end_matches('/') } else { pattern };
        let path = Path::new(if trimmed.is_empty() { "/" } else { trimmed });
        if is_glob(trimmed) {
            match glob(trimmed) {
                Ok(glob) => {
                    let start = glob_base(trimmed);
                    let unbounded = has_unbounded_depth(trimmed);
                    let parts = path.components().count() - start.components().count();
                    let depth = if unbounded { MAX_DEPTH } else { parts };
                    if let Err(why) = self.servers.resolve(&start) {
                        self.add_unreadable(path, &why);
                    } else if let Ok(meta) = fs::metadata(&start) {
                        self.add_matching(&start, meta.dev(), depth, &glob.compile_matcher(), managed);
                    }
                }
                Err(why) => self.add_unreadable(path, &why),
            }
        } else {
            self.add_path(path, managed);
        }
    }

    /// Adds one path, and everything below it if it is `managed` and a directory.
    fn add_path(&mut self, path: &Path, managed: bool) {
        if self.exclude.is_match(path) {
            return;
        }
        if let Err(why) = self.servers.answer(path) {
            return self.add_unreadable(path, &why);
        }
        let meta = fs::symlink_metadata(path).ok();
        self.out.paths.push((
            path.to_owned(),
            FoundPath { declared: true, seen: meta.as_ref().map(PathMetadata::from_metadata) },
        ));
        if let Some(meta) = meta.filter(|meta| managed && meta.is_dir()) {
            self.add_below(path, meta.dev(), MAX_DEPTH);
        }
    }

    /// Adds a path that the walk found.
    fn add_found(&mut self, path: &Path, meta: &fs::Metadata) {
        self.out
            .paths
            .push((path.to_owned(), FoundPath { declared: false, seen: Some(PathMetadata::from_metadata(meta)) }));
    }

    /// Adds everything below the managed directory `dir`.
    fn add_below(&mut self, dir: &Path, device: u64, depth: usize) {
        for (path, meta) in self.list(dir) {
            self.add_found(&path, &meta);
            self.descend(&path, &meta, device, depth, |walk, depth| walk.add_below(&path, device, depth));
        }
    }

    /// Adds everything below `dir` that matches `glob`. With `managed`, only directories match, and
    /// each is a managed directory. Otherwise, only paths other than directories match.
    fn add_matching(&mut self, dir: &Path, device: u64, depth: usize, glob: &globset::GlobMatcher, managed: bool) {
        for (path, meta) in self.list(dir) {
            if glob.is_match(&path) && meta.is_dir() == managed {
                self.add_found(&path, &meta);
                if managed {
                    self.descend(&path, &meta, device, MAX_DEPTH, |walk, depth| walk.add_below(&path, device, depth));
                    continue;
                }
            }
            if depth > 1 {
                self.descend(&path, &meta, device, depth, |walk, depth| {
                    walk.add_matching(&path, device, depth, glob, managed)
                });
            }
        }
    }

    /// Continues into a directory if it is on the same mount.
    fn descend(
        &mut self,
        path: &Path,
        meta: &fs::Metadata,
        device: u64,
        depth: usize,
        go: impl FnOnce(&mut Self, usize),
    ) {
        if !meta.is_dir() || meta.dev() != device || is_mount(path) {
            return;
        }
        match depth {
            0 => self.add_unreadable(path, "too deep"),
            _ => go(self, depth - 1),
        }
    }

    /// Entries of `dir` that are not excluded, sorted. An entry that vanishes meanwhile is skipped.
    fn list(&mut self, dir: &Path) -> Vec<(PathBuf, fs::Metadata)> {
        let real = match self.servers.resolve(dir) {
            Ok(real) => real,
            Err(why) => {
                self.add_unreadable(dir, &why);
                return Vec::new();
            }
        };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Vec::new(),
            Err(e) => {
                self.add_unreadable(dir, &e.to_string());
                return Vec::new();
            }
        };
        let mut out = Vec::new();
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    self.add_unreadable(dir, &e.to_string());
                    break;
                }
            };
            self.looked_at += 1;
            if self.looked_at > MAX_PATHS {
                self.add_unreadable(dir, &format!("more than {MAX_PATHS} paths"));
                break;
            }
            let path = entry.path();
            let candidate = Candidate::new(&path);
            if self.exclude.is_match_candidate(&candidate) || IS_LEFTOVER.is_match_candidate(&candidate) {
                continue;
            }
            if path.to_str().is_none() {
                self.add_unreadable(&path, "the name is not UTF-8");
                continue;
            }
            if let Some(Err(why)) = real.as_ref().map(|real| self.servers.answer_in(real, &entry.file_name())) {
                self.add_unreadable(&path, &why);
                continue;
            }
            match entry.metadata() {
                Ok(meta) => out.push((path, meta)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => self.add_unreadable(&path, &e.to_string()),
            }
        }
        // The paths are sorted as bytes. They have the same directory, so only the names differ.
        out.sort_by(|(a, _), (b, _)| a.as_os_str().cmp(b.as_os_str()));
        out
    }

    fn add_unreadable(&mut self, path: &Path, why: &str) {
        self.out.unreadable.insert(display_path(path), why.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_the_whole_path_or_its_last_parts() {
        let mut faults = BTreeMap::new();
        let set = matcher(&["/etc/ssl/*.key".into(), "*.pem".into(), "private/*".into(), "[".into()], &mut faults);
        for path in ["/etc/ssl/a.key", "/x/y/z.pem", "/a/private/b"] {
            assert!(set.is_match(path), "{path}");
        }
        for path in ["/etc/ssl/deep/a.key", "/x/z.pem/y", "/a/private/b/c"] {
            assert!(!set.is_match(path), "{path}");
        }
        assert!(faults.contains_key("["));
        let set = matcher(&["/etc/keys/".into(), "private/".into()], &mut faults);
        for path in ["/etc/keys", "/etc/keys/a/b", "/x/private/y"] {
            assert!(set.is_match(path), "{path}");
        }
        assert!(!set.is_match("/etc/keys2/a") && !set.is_match("/x/etc/keys/a"));
    }

    #[test]
    fn secret_globs_cover_everything_below_them() {
        let mut faults = BTreeMap::new();
        let set = secret_matcher(&["/etc/keys".into(), "/srv/*/".into(), "*.pem".into()], &mut faults);
        for path in ["/etc/keys", "/etc/keys/a/b", "/srv/x/y", "/x/a.pem", "/x/a.pem/b"] {
            assert!(set.is_match(path), "{path}");
        }
        assert!(!set.is_match("/etc/keys2/a") && !set.is_match("/srv") && faults.is_empty());
        secret_matcher(&["[".into()], &mut faults);
        assert_eq!(faults.len(), 1);
    }

    #[test]
    fn files_on_a_silent_server_are_unreadable_and_the_rest_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = |tail: &str| root.join(tail).display().to_string();
        for file in ["a/dead/x", "a/f", "b/g.conf", "dead/h.conf"] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        let servers = Servers::dead(&[&root.join("a/dead"), &root.join("dead")]);
        let files = vec![path("a/"), path("*/*.conf"), path("dead/h.conf"), path("dead/*"), path("b/g.conf")];
        let found = expand(&ServiceManifest { files, ..Default::default() }, &servers);
        let seen: Vec<(String, bool)> =
            found.paths.iter().map(|(p, f)| (p.display().to_string(), f.declared)).collect();
        assert_eq!(seen, [(path("a"), true), (path("a/f"), false), (path("b/g.conf"), true)]);
        let unreadable: Vec<&str> = found.unreadable.keys().map(String::as_str).collect();
        assert_eq!(unreadable, [path("a/dead"), path("dead"), path("dead/*"), path("dead/h.conf")]);
    }

    #[test]
    fn a_mount_is_recognised_on_every_device() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc", dir.path().join("proc")).unwrap();
        let found = [Path::new("/proc"), Path::new("/proc/self"), dir.path(), &dir.path().join("proc")].map(is_mount);
        assert_eq!(found, [true, false, false, false]);
    }

    #[test]
    fn a_glob_starts_at_its_fixed_part() {
        assert_eq!(glob_base("/etc/nginx/*.conf"), Path::new("/etc/nginx"));
        assert_eq!(glob_base("/etc/{a,b}/c"), Path::new("/etc"));
        assert_eq!(glob_base("/*"), Path::new("/"));
    }
}
