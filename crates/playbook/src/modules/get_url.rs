//! The `get_url` module: downloads a file, compares its checksum, and then replaces the destination
//! in one step.
//!
//! In check mode it sends HEAD, as Ansible does. So a file that the server does not have is also a
//! failure in check mode.

use super::http_request::{self, RequestCredentials, WebRequest, host_of};
use super::{ModuleCall, ModuleResult, TaskOutcome, checksum, write_file};
use crate::os::atomic_fs::{self, SafeError};
use rustix::fs::{FileType, Stat};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum size of a file, in bytes.
const FILE_MAX: u64 = 16 << 30;
/// Maximum size of a list of checksums, in bytes.
const SUMS_MAX: u64 = 4 << 20;

/// An algorithm and the expected checksum in hex.
type ExpectedChecksum = (String, String);

pub fn get_url(call: &mut ModuleCall) -> ModuleResult {
    let start = Instant::now();
    let url = call.required_text(&["url"])?;
    let dest = call.path(&["dest"])?;
    if call.depends_on_skipped_command(&dest) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            dest.display()
        )));
    }
    let into = call.ground.node.is_directory(&dest);
    let sum = expected_checksum(call, &url)?;
    let force = call.flag("force", false);
    let mut wish = WebRequest::get(&url);
    let mut there = None;
    if !into {
        // For `get_url`, `force` forces the download. `resolve_target` would read `force: false` as
        // an order not to replace an existing file.
        let asked = call.args.remove("force");
        there = write_file::resolve_target(call, &dest)?.and_then(|(real, now)| Some((real, now?)));
        call.args.extend(asked.map(|value| ("force".to_owned(), value)));
    }
    let mut other = false;
    if let Some((real, now)) = &there {
        if let Some((algorithm, sum)) = sum.as_ref().filter(|_| !force) {
            other = checksum::file_checksum(&call.ground.node, real, algorithm)? != *sum;
            if !other {
                let out = only_attributes(call, real)?;
                return Ok(add_result_keys(out, &url, real, "file already exists", None, start));
            }
        }
        wish.newer_than = Some(now.st_mtime).filter(|_| !other && !force);
    }
    if call.ground.node.is_check_mode() {
        return predict_outcome(call, wish, &dest, there, other, into, start);
    }
    let got = match http_request::send_request(call, &wish) {
        Ok(got) => got,
        Err(why) => return Ok(fail_without_response(why, &url, &dest, start)),
    };
    let (status, said) = (got.status, got.status_text());
    if let (304, Some((real, _))) = (status, &there) {
        let out = only_attributes(call, real)?;
        return Ok(add_result_keys(out, &url, real, &said, Some(status), start));
    }
    if status != 200 {
        return Ok(add_result_keys(got.failed_outcome(), &url, &dest, "", Some(status), start));
    }
    let dest = if into { dest.join(http_request::file_name(&got)) } else { there.map_or(dest, |(real, _)| real) };
    let within = match call.args.contains_key("tmp_dest") {
        true => call.path(&["tmp_dest"])?,
        false => dest.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    if !call.ground.node.is_directory(&within) {
        return Err(format!("{} is not a directory", within.display()));
    }
    let within = call.ground.node.follow_trusted(&within)?.0;
    let fail = |e: std::io::Error| format!("cannot create a file in {}: {e}", within.display());
    let notes = call.ground.node.notes();
    // The file must not be created through a link. Its path is noted before the file is created. If
    // this process is killed, the next run removes the file.
    let make = |path: &Path| atomic_fs::create(notes, path).map_err(SafeError::cause);
    let mut temp = tempfile::Builder::new().prefix(".remoor-url-").make_in(&within, make).map_err(fail)?;
    let size = got.write_body(call, temp.as_file_mut(), FILE_MAX)?;
    let source = temp.path().to_owned();
    let out = place_file(call, (&source, size), &dest, sum.as_ref(), host_of(&url))?;
    Ok(add_result_keys(out, &url, &dest, &said, Some(status), start))
}

/// Writes the content of `source`, a file and its size, to `dest`, after comparing its checksum.
fn place_file(
    call: &mut ModuleCall,
    (source, size): (&Path, u64),
    dest: &Path,
    sum: Option<&ExpectedChecksum>,
    origin: &str,
) -> ModuleResult {
    if let Some((algorithm, sum)) = sum {
        let have = checksum::file_checksum(&call.ground.node, source, algorithm)?;
        if have != *sum {
            return Err(format!("{algorithm} checksum is {have}, expected {sum}; nothing was written"));
        }
    }
    call.args.remove("force");
    let mut out = match size > atomic_fs::READ_MAX {
        true => write_file::copy_large(call, source, dest, 0o644)?,
        false => {
            let (dest, now) = write_file::resolve_target(call, dest)?.unwrap_or((dest.to_owned(), None));
            let old = write_file::read_old(call, &dest, now.as_ref())?;
            let content = atomic_fs::read(source)?;
            write_file::update_file(call, &dest, old, content, origin)?
        }
    };
    if let Some(sum) = out.extra_keys.get("checksum").cloned() {
        out.extra_keys.insert("checksum_src".into(), sum);
    }
    Ok(out)
}

/// The failed outcome of a download without a response. Ansible's status code is -1 then.
fn fail_without_response(why: String, url: &str, dest: &Path, start: Instant) -> TaskOutcome {
    let mut out =
        add_result_keys(TaskOutcome { failed: true, msg: why, ..TaskOutcome::default() }, url, dest, "", None, start);
    out.extra_keys.insert("status_code".into(), json!(-1));
    out
}

/// The predicted outcome, based on the response to HEAD.
fn predict_outcome(
    call: &mut ModuleCall,
    wish: WebRequest,
    dest: &Path,
    there: Option<(PathBuf, Stat)>,
    other: bool,
    into: bool,
    start: Instant,
) -> ModuleResult {
    let url = wish.url;
    let got = match http_request::send_request(call, &WebRequest { method: "HEAD", ..wish }) {
        Ok(got) => got,
        Err(why) => return Ok(fail_without_response(why, url, dest, start)),
    };
    if let (304, Some((real, _))) = (got.status, &there) {
        let out = only_attributes(call, real)?;
        return Ok(add_result_keys(out, url, real, &got.status_text(), Some(304), start));
    }
    if got.status != 200 {
        return Ok(add_result_keys(got.failed_outcome(), url, dest, "", Some(got.status), start));
    }
    let dest = if into { dest.join(http_request::file_name(&got)) } else { dest.to_owned() };
    let now = match (&there, into) {
        (Some((_, now)), _) => Some(*now),
        (None, true) => call.ground.node.stat(&dest)?.filter(|s| atomic_fs::kind(s) == FileType::RegularFile),
        (None, false) => None,
    };
    let length = got.header("content-length").and_then(|n| n.parse::<i64>().ok());
    let certain = other || now.is_none_or(|now| length.is_some_and(|length| length != now.st_size));
    if let Some(would) = call.ground.node.predicted_state_mut() {
        would.add_skipped_path(&dest);
    }
    if certain {
        return Ok(add_result_keys(TaskOutcome::change("would be downloaded"), url, &dest, "OK", None, start));
    }
    Ok(TaskOutcome::indeterminate("only a download can show whether the file differs"))
}

/// Sets only the attributes, because the content is already the wanted one.
fn only_attributes(call: &mut ModuleCall, path: &Path) -> ModuleResult {
    let stat = call.ground.node.stat(path)?;
    let want = call.attributes(stat.as_ref(), 0o644, false)?;
    let attributes = stat.as_ref().map(|stat| call.attribute_changes(stat, want)).unwrap_or_default();
    let mut out = TaskOutcome { changed: !attributes.is_empty(), attributes, ..TaskOutcome::default() };
    if out.changed {
        call.ground.back_up(path)?;
        call.ground.node.set_attributes(path, want)?;
    }
    let sum = checksum::file_checksum(&call.ground.node, path, "sha1")?;
    out.extra_keys.insert("checksum".into(), json!(sum));
    call.add_path_info(path, &mut out);
    Ok(out)
}

/// Adds the result keys that Ansible's get_url returns.
fn add_result_keys(
    mut out: TaskOutcome,
    url: &str,
    dest: &Path,
    msg: &str,
    status: Option<u16>,
    start: Instant,
) -> TaskOutcome {
    let url = http_request::mask_password(url);
    for (key, value) in
        [("url", url.as_str()), ("dest", &dest.display().to_string()), ("path", &dest.display().to_string())]
    {
        out.extra_keys.insert(key.into(), json!(value));
    }
    if let Some(sum) = out.extra_keys.get("checksum").cloned() {
        out.extra_keys.insert("checksum_dest".into(), sum);
    }
    if let Some(status) = status {
        out.extra_keys.insert("status_code".into(), json!(status));
    }
    out.extra_keys.insert("elapsed".into(), json!(start.elapsed().as_secs()));
    if !out.failed {
        out.extra_keys.entry("msg").or_insert(json!(msg));
    }
    out
}

/// The expected checksum from the option `checksum`: `algorithm:sum`, or `algorithm:URL` with the
/// URL of a list that has a line for this file. None: the option is not set.
fn expected_checksum(call: &ModuleCall, url: &str) -> Result<Option<ExpectedChecksum>, String> {
    let Some(text) = call.text(&["checksum"]).filter(|c| !c.is_empty()) else { return Ok(None) };
    let (algorithm, said) = text.split_once(':').ok_or("`checksum` must be written as algorithm:sum")?;
    checksum::bytes_checksum(b"", algorithm)?;
    let sum = if said.contains("://") {
        // The credentials are for the server of the file. Another server, which only has the list,
        // must not receive them.
        let asker = if remoor_host::web::same_server(url, said) {
            RequestCredentials::Task
        } else {
            RequestCredentials::Anonymous
        };
        let got = http_request::send_request(call, &WebRequest { credentials: asker, ..WebRequest::get(said) })?;
        if got.status != 200 {
            return Err(format!("the list of checksums: {}", got.status_text()));
        }
        let list = got.read_body(call, SUMS_MAX)?;
        let name = http_request::file_name_in_url(url);
        let sum = find_in_list(&String::from_utf8_lossy(&list), &name);
        sum.ok_or_else(|| format!("no checksum of `{name}` in the list at {}", host_of(said)))?
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
fn find_in_list(text: &str, name: &str) -> Option<String> {
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
    fn checksums_are_found_in_lists() {
        for (text, want) in [
            ("abc\n", Some("abc")),
            ("abc  f.tgz\ndef  g.tgz\n", Some("abc")),
            ("def *g.tgz\nabc *f.tgz\n", Some("abc")),
            ("abc ./f.tgz\ndef g\n", Some("abc")),
            ("SHA256 (g) = def\nSHA256 (f.tgz) = abc\n", Some("abc")),
            ("def  a/f.tgz\nx y\n", None),
            ("", None),
        ] {
            assert_eq!(find_in_list(text, "f.tgz").as_deref(), want, "{text}");
        }
    }
}
