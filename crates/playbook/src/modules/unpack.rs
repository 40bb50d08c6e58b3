//! Calls the node's own tar and unzip for `unarchive` and interprets their output.

use super::ModuleCall;
use crate::compile::options;
use crate::os::atomic_fs;
use crate::os::process::Finished;
use std::path::Path;

/// The warning of tar when it changes an absolute name to a relative one.
const STRIPPED: &str = "Removing leading";

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveFormat {
    Zip,
    /// A tar archive, with tar's option for its compression.
    Tar(Option<&'static str>),
}

impl ArchiveFormat {
    pub fn detect(begin: &[u8]) -> Self {
        let packed: [(&[u8], &'static str); 4] =
            [(b"\x1f\x8b", "--gzip"), (b"BZh", "--bzip2"), (b"\xfd7zXZ\0", "--xz"), (b"\x28\xb5\x2f\xfd", "--zstd")];
        if begin.starts_with(b"PK\x03\x04") || begin.starts_with(b"PK\x05\x06") {
            return Self::Zip;
        }
        Self::Tar(packed.iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, option)| *option))
    }

    /// The name of Ansible's handler class for the format.
    pub fn handler(self) -> &'static str {
        match self {
            Self::Zip => "ZipArchive",
            Self::Tar(None) => "TarArchive",
            Self::Tar(Some("--bzip2")) => "TarBzipArchive",
            Self::Tar(Some("--xz")) => "TarXzArchive",
            Self::Tar(Some("--zstd")) => "TarZstdArchive",
            Self::Tar(Some(_)) => "TgzArchive",
        }
    }
}

/// Unpacks a tar archive into `root` and returns its entry names. `yard` is a directory for
/// temporary files.
pub fn untar(
    call: &ModuleCall,
    archive: &Path,
    packed: Option<&str>,
    yard: &Path,
    root: &Path,
) -> Result<Vec<String>, String> {
    require_gnu_tar(call)?;
    let index = yard.join("names");
    let texts = [root, archive, index.as_path()].map(|path| path.display().to_string());
    let index_file = format!("--index-file={}", texts[2]);
    let mut argv = vec![
        "tar",
        "--extract",
        "--verbose",
        "--quoting-style=escape",
        "--show-transformed-names",
        "--force-local",
        &index_file,
    ];
    argv.extend(packed);
    let extra = call.text_list("extra_opts").unwrap_or_default();
    check_extra_opts(&extra)?;
    argv.extend(extra.iter().map(String::as_str));
    let excludes: Vec<String> =
        call.list(&["exclude"]).iter().map(|e| format!("--exclude={}", e.trim_end_matches('/'))).collect();
    argv.extend(excludes.iter().map(String::as_str));
    argv.extend(["-C", &texts[0], "-f", &texts[1]]);
    let includes = call.list(&["include"]);
    if !includes.is_empty() {
        argv.push("--");
        argv.extend(includes.iter().map(String::as_str));
    }
    let mut tool = call.tool();
    tool.env.push(("LC_ALL".into(), "C".into()));
    let done = tool.run(&argv)?;
    if !done.success() {
        return Err(unpack_failure("tar", &done));
    }
    // tar has changed absolute names, so the entries would not go where the archive demands.
    if let Some(line) = done.stderr.lines().find(|line| line.contains(STRIPPED)) {
        return Err(format!("the archive has entries outside the destination ({line}); nothing was changed"));
    }
    let listing = atomic_fs::read(&index)?;
    Ok(String::from_utf8_lossy(&listing).lines().map(unescape_name).collect())
}

/// The uncompressed size of an archive in bytes. Writes nothing.
pub fn uncompressed_size(call: &ModuleCall, kind: ArchiveFormat, archive: &Path) -> Result<u64, String> {
    let archive = archive.display().to_string();
    let number = |text: &str| text.split_whitespace().find_map(|word| word.parse().ok());
    let ArchiveFormat::Tar(packed) = kind else {
        let done = call.run_quietly(&["unzip", "-Zt", &archive]).map_err(|e| missing_program("unzip", &e))?;
        // zipinfo prints `2 files, 8 bytes uncompressed, 8 bytes compressed:  0.0%`.
        let told = done.stdout.lines().find_map(|line| number(line.split_once(',')?.1));
        return told.ok_or_else(|| unpack_failure("unzip", &done));
    };
    require_gnu_tar(call)?;
    let mut argv = vec!["tar", "--list", "--totals", "--force-local", "--index-file=/dev/null"];
    argv.extend(packed);
    argv.extend(["-f", &archive]);
    let mut tool = call.tool();
    tool.env.push(("LC_ALL".into(), "C".into()));
    let done = tool.run(&argv)?;
    // tar prints `Total bytes read: 10240 (10KiB, 36MiB/s)`.
    let told = done.stderr.lines().find_map(|line| number(line.strip_prefix("Total bytes read:")?));
    told.filter(|_| done.success()).ok_or_else(|| unpack_failure("tar", &done))
}

/// Fails if the node's tar is not GNU tar.
fn require_gnu_tar(call: &ModuleCall) -> Result<(), String> {
    let version = call.run_quietly(&["tar", "--version"]).map_err(|e| missing_program("tar", &e))?;
    match version.stdout.contains("GNU tar") {
        true => Ok(()),
        false => Err("`unarchive` needs GNU tar, and the tar of this node is another; install GNU tar first".into()),
    }
}

/// Decodes an entry name that tar has escaped.
fn unescape_name(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        let (byte, used) = match (*first, octal, tail.first()) {
            (b'\\', Some(byte), _) => (byte, 3),
            (b'\\', None, Some(b'n')) => (b'\n', 1),
            (b'\\', None, Some(b't')) => (b'\t', 1),
            (b'\\', None, Some(byte)) => (*byte, 1),
            (byte, ..) => (byte, 0),
        };
        out.push(byte);
        rest = &tail[used..];
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Unpacks a zip archive into `root` and returns its entry names.
pub fn unzip(call: &ModuleCall, archive: &Path, root: &Path) -> Result<Vec<String>, String> {
    let texts = [archive, root].map(|path| path.display().to_string());
    let (excludes, includes) = (call.list(&["exclude"]), call.list(&["include"]));
    if let Some(odd) = excludes.iter().chain(&includes).find(|name| name.starts_with('-')) {
        return Err(format!("`{odd}`: unzip does not support names that begin with `-`"));
    }
    let extra = call.text_list("extra_opts").unwrap_or_default();
    check_extra_opts(&extra)?;
    let with = |begin: &[&str], end: &[&str]| {
        let mut argv: Vec<String> = begin.iter().map(|a| (*a).to_owned()).collect();
        argv.push(texts[0].clone());
        argv.extend(includes.iter().cloned());
        if !excludes.is_empty() {
            argv.push("-x".into());
            argv.extend(excludes.iter().cloned());
        }
        argv.extend(end.iter().map(|a| (*a).to_owned()));
        argv
    };
    let run = |argv: &[String]| call.run_quietly(&argv.iter().map(String::as_str).collect::<Vec<_>>());
    let list = run(&with(&["unzip", "-Z1"], &[])).map_err(|e| missing_program("unzip", &e))?;
    // Exit code 11: no entry matches the patterns.
    let empty = |done: &Finished| done.rc == Some(11);
    if !list.success() && !empty(&list) {
        return Err(unpack_failure("unzip", &list));
    }
    if list.stdout.ends_with("[output cut]") {
        return Err("the archive has more names than can be listed".into());
    }
    let mut begin = vec!["unzip", "-o", "-q"];
    begin.extend(extra.iter().map(String::as_str));
    let done = run(&with(&begin, &["-d", &texts[1]]))?;
    if !done.success() && !empty(&done) {
        return Err(unpack_failure("unzip", &done));
    }
    Ok(list.stdout.lines().map(str::to_owned).collect())
}

/// Makes the message for a failed unpacking from the first error line, which gives the cause. The
/// later lines only report that there was an error.
fn unpack_failure(program: &str, done: &Finished) -> String {
    let how = if done.timed_out { "timed out" } else { "cannot unpack the archive" };
    let first = done
        .stderr
        .lines()
        .chain(done.stdout.lines())
        .find(|l| !l.trim().is_empty() && !l.contains(STRIPPED))
        .unwrap_or_default();
    format!("{program} {how}: {first}; nothing was changed")
}

fn missing_program(program: &str, why: &str) -> String {
    format!("{why}; this node needs `{program}` for `unarchive`: install it by a task before this one")
}

/// Rejects `extra_opts` that could change where files are written.
fn check_extra_opts(extra: &[String]) -> Result<(), String> {
    match options::odd_extra(extra.iter().map(String::as_str)) {
        Some(odd) => Err(format!("`extra_opts`: {odd} is not supported")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_formats_are_detected() {
        for (begin, handler) in [
            (&b"PK\x03\x04...."[..], "ZipArchive"),
            (b"\x1f\x8b\x08", "TgzArchive"),
            (b"BZh9", "TarBzipArchive"),
            (b"\xfd7zXZ\0", "TarXzArchive"),
            (b"\x28\xb5\x2f\xfd", "TarZstdArchive"),
            (b"some/name", "TarArchive"),
        ] {
            assert_eq!(ArchiveFormat::detect(begin).handler(), handler);
        }
    }

    #[test]
    fn escaped_names_are_decoded() {
        for (text, name) in
            [("a/b", "a/b"), ("a\\nb", "a\nb"), ("\\303\\251", "é"), ("a\\\\b", "a\\b"), ("a\\tb\\ c", "a\tb c")]
        {
            assert_eq!(unescape_name(text), name);
        }
    }
}
