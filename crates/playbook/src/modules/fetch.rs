//! The `get_url` module: downloads a file, compares its checksum and then replaces the destination
//! in one step. In check mode it sends HEAD, as Ansible does, so a file that the server does not
//! have is a failure there too.

use super::web::{self, Asker, Wish, shown};
use super::{Answer, Call, Outcome, checksum, place};
use crate::safe::{self, SafeError};
use rustix::fs::{FileType, Stat};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum size of a file, in bytes.
const FILE_MAX: u64 = 16 << 30;
/// Maximum size of a list of checksums, in bytes.
const SUMS_MAX: u64 = 4 << 20;

/// An algorithm and the expected checksum in hex.
type Sum = (String, String);

pub fn get_url(call: &mut Call) -> Answer {
    let start = Instant::now();
    let url = call.need(&["url"])?;
    let dest = call.path(&["dest"])?;
    if call.is_by_command(&dest) {
        return Ok(Outcome::unknown(format!("{} depends on a command that check mode did not run", dest.display())));
    }
    let into = call.ground.node.is_directory(&dest);
    let sum = sum(call, &url)?;
    let force = call.flag("force", false);
    let mut wish = Wish::get(&url);
    let mut there = None;
    if !into {
        // `force` of get_url forces the download. For `resolve_target`, `force: false` would mean
        // that an existing file is not replaced.
        let asked = call.args.remove("force");
        there = place::regular(call, &dest)?.and_then(|(real, now)| Some((real, now?)));
        call.args.extend(asked.map(|value| ("force".to_owned(), value)));
    }
    let mut other = false;
    if let Some((real, now)) = &there {
        if let Some((algorithm, sum)) = sum.as_ref().filter(|_| !force) {
            other = checksum::of(&call.ground.node, real, algorithm)? != *sum;
            if !other {
                let out = only_attributes(call, real)?;
                return Ok(described(out, &url, real, "file already exists", None, start));
            }
        }
        wish.newer_than = Some(now.st_mtime).filter(|_| !other && !force);
    }
    if call.ground.node.checks() {
        return predicted(call, wish, &dest, there, other, into, start);
    }
    let got = web::ask(call, &wish)?;
    let (status, said) = (got.status, got.said());
    if let (304, Some((real, _))) = (status, &there) {
        let out = only_attributes(call, real)?;
        return Ok(described(out, &url, real, &said, Some(status), start));
    }
    if status != 200 {
        return Ok(described(got.failure(), &url, &dest, "", Some(status), start));
    }
    let dest = if into { dest.join(web::file_name(&got)) } else { there.map_or(dest, |(real, _)| real) };
    let within = match call.args.contains_key("tmp_dest") {
        true => call.path(&["tmp_dest"])?,
        false => dest.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    if !call.ground.node.is_directory(&within) {
        return Err(format!("{} is not a directory", within.display()));
    }
    let within = call.ground.node.lead(&within)?.0;
    let fail = |e: std::io::Error| format!("cannot create a file in {}: {e}", within.display());
    let notes = call.ground.node.notes();
    // The file must not be created through a link. It is recorded first, so that the next run
    // removes it if this process is killed.
    let make = |path: &Path| safe::create(notes, path).map_err(SafeError::cause);
    let mut temp = tempfile::Builder::new().prefix(".remoor-url-").make_in(&within, make).map_err(fail)?;
    let size = got.save(call, temp.as_file_mut(), FILE_MAX)?;
    if let Some((algorithm, sum)) = &sum {
        let have = checksum::of(&call.ground.node, temp.path(), algorithm)?;
        if have != *sum {
            return Err(format!("{algorithm} checksum is {have}, expected {sum}; nothing was written"));
        }
    }
    call.args.remove("force");
    let source = temp.path().to_owned();
    let mut out = match size > safe::READ_MAX {
        true => place::large(call, &source, &dest, 0o644)?,
        false => {
            let (dest, now) = place::regular(call, &dest)?.unwrap_or((dest.clone(), None));
            let old = place::old(call, &dest, now.as_ref())?;
            place::finish(call, &dest, old, safe::read(&source)?, shown(&url))?
        }
    };
    if let Some(sum) = out.more.get("checksum").cloned() {
        out.more.insert("checksum_src".into(), sum);
    }
    Ok(described(out, &url, &dest, &said, Some(status), start))
}

/// The predicted outcome, based on the response to HEAD.
fn predicted(
    call: &mut Call,
    wish: Wish,
    dest: &Path,
    there: Option<(PathBuf, Stat)>,
    other: bool,
    into: bool,
    start: Instant,
) -> Answer {
    let url = wish.url;
    let got = web::ask(call, &Wish { method: "HEAD", ..wish })?;
    if let (304, Some((real, _))) = (got.status, &there) {
        let out = only_attributes(call, real)?;
        return Ok(described(out, url, real, &got.said(), Some(304), start));
    }
    if got.status != 200 {
        return Ok(described(got.failure(), url, dest, "", Some(got.status), start));
    }
    let dest = if into { dest.join(web::file_name(&got)) } else { dest.to_owned() };
    let now = match (&there, into) {
        (Some((_, now)), _) => Some(*now),
        (None, true) => call.ground.node.look(&dest)?.filter(|s| safe::kind(s) == FileType::RegularFile),
        (None, false) => None,
    };
    let length = got.header("content-length").and_then(|n| n.parse::<i64>().ok());
    let certain = other || now.is_none_or(|now| length.is_some_and(|length| length != now.st_size));
    if let Some(would) = call.ground.node.would_mut() {
        would.by_command(&dest);
    }
    if certain {
        return Ok(described(Outcome::changed("would be downloaded"), url, &dest, "OK", None, start));
    }
    Ok(Outcome::unknown("only a download can show whether the file differs"))
}

/// Sets only the attributes, because the content is already as wanted.
fn only_attributes(call: &mut Call, path: &Path) -> Answer {
    let stat = call.ground.node.look(path)?;
    let want = call.attributes(stat.as_ref(), 0o644, false)?;
    let attributes = stat.as_ref().map(|stat| call.attribute_changes(stat, want)).unwrap_or_default();
    let mut out = Outcome { changed: !attributes.is_empty(), attributes, ..Outcome::default() };
    if out.changed {
        call.ground.keep(path)?;
        call.ground.node.set_attributes(path, want)?;
    }
    let sum = checksum::of(&call.ground.node, path, "sha1")?;
    out.more.insert("checksum".into(), json!(sum));
    call.path_info(path, &mut out);
    Ok(out)
}

/// Adds the result keys that Ansible's get_url returns.
fn described(mut out: Outcome, url: &str, dest: &Path, msg: &str, status: Option<u16>, start: Instant) -> Outcome {
    let url = web::masked(url);
    for (key, value) in
        [("url", url.as_str()), ("dest", &dest.display().to_string()), ("path", &dest.display().to_string())]
    {
        out.more.insert(key.into(), json!(value));
    }
    if let Some(sum) = out.more.get("checksum").cloned() {
        out.more.insert("checksum_dest".into(), sum);
    }
    if let Some(status) = status {
        out.more.insert("status_code".into(), json!(status));
    }
    out.more.insert("elapsed".into(), json!(start.elapsed().as_secs()));
    if !out.failed {
        out.more.entry("msg").or_insert(json!(msg));
    }
    out
}

/// The expected checksum from the `checksum` option, which is `algorithm:sum` or `algorithm:URL` of
/// a list with a line for this file. None: the option is not set.
fn sum(call: &Call, url: &str) -> Result<Option<Sum>, String> {
    let Some(text) = call.text(&["checksum"]).filter(|c| !c.is_empty()) else { return Ok(None) };
    let (algorithm, said) = text.split_once(':').ok_or("`checksum` must be written as algorithm:sum")?;
    checksum::sum(b"", algorithm)?;
    let sum = if said.contains("://") {
        // Credentials for the file's server must not be sent to another server that only has the
        // list.
        let asker = if remoor_host::web::same_server(url, said) { Asker::Task } else { Asker::Nobody };
        let got = web::ask(call, &Wish { asker, ..Wish::get(said) })?;
        if got.status != 200 {
            return Err(format!("the list of checksums: {}", got.said()));
        }
        let list = got.bytes(call, SUMS_MAX)?;
        let name = web::name_of(url);
        let sum = listed(&String::from_utf8_lossy(&list), &name);
        sum.ok_or_else(|| format!("no checksum of `{name}` in the list at {}", shown(said)))?
    } else {
        said.to_owned()
    };
    let sum: String = sum.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    match sum.is_empty() || !sum.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Err("the value in `checksum` is not hexadecimal".into()),
        false => Ok(Some((algorithm.to_owned(), sum))),
    }
}

/// The checksum of a file in a list: a single checksum, lines `SUM  NAME` as from sha256sum, or
/// lines `SHA256 (NAME) = SUM`.
fn listed(text: &str, name: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [sum] = words[..] {
        return Some(sum.to_owned());
    }
    text.lines().find_map(|line| {
        let line = line.trim_end();
        let bsd = line
            .split_once('(')
            .and_then(|(_, rest)| rest.rsplit_once(')'))
            .and_then(|(of, rest)| Some((of, rest.trim_start().strip_prefix('=')?.trim())));
        let (of, sum) = bsd.or_else(|| {
            let (sum, of) = line.split_once(char::is_whitespace)?;
            Some((of.trim_start().trim_start_matches('*'), sum))
        })?;
        (of.trim_start_matches("./") == name).then(|| sum.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_in_lists() {
        for (text, want) in [
            ("abc\n", Some("abc")),
            ("abc  f.tgz\ndef  g.tgz\n", Some("abc")),
            ("def *g.tgz\nabc *f.tgz\n", Some("abc")),
            ("abc ./f.tgz\ndef g\n", Some("abc")),
            ("SHA256 (g) = def\nSHA256 (f.tgz) = abc\n", Some("abc")),
            ("def  a/f.tgz\nx y\n", None),
            ("", None),
        ] {
            assert_eq!(listed(text, "f.tgz").as_deref(), want, "{text}");
        }
    }
}
