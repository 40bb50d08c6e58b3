//! The `known_hosts` module: the SSH keys of a host in a known_hosts file, plain or hashed.

use super::{ModuleCall, ModuleResult, TaskOutcome, write_file};
use crate::os::acting_user::home_dir;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use globset::GlobBuilder;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha1::Sha1;
use std::path::Path;

/// A line with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostKeyLine {
    /// `@cert-authority` or `@revoked`, or an empty text.
    marker: String,
    hosts: String,
    kind: String,
    key: String,
}

impl HostKeyLine {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().peekable();
        if words.peek()?.starts_with('#') {
            return None;
        }
        let marker = words.next_if(|word| word.starts_with('@')).unwrap_or_default().to_owned();
        let mut word = || words.next().map(str::to_owned);
        Some(Self { marker, hosts: word()?, kind: word()?, key: word()? })
    }

    /// Whether the key is for this host, whose name is in small letters.
    fn is_for(&self, host: &str) -> bool {
        if let Some(hashed) = self.hosts.strip_prefix("|1|") {
            let Some((salt, hash)) = hashed.split_once('|') else { return false };
            let Ok(salt) = STANDARD.decode(salt) else { return false };
            return hash_name(&salt, host).as_deref() == Some(hash);
        }
        let mut found = false;
        for pattern in self.hosts.split(',') {
            let (negated, pattern) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
            if is_match(pattern, host) {
                if negated {
                    return false;
                }
                found = true;
            }
        }
        found
    }
}

fn is_match(pattern: &str, host: &str) -> bool {
    let pattern = pattern.to_lowercase();
    if !pattern.contains(['*', '?']) {
        return pattern == host;
    }
    // In known_hosts, brackets stand for themselves, as in `[host]:port`.
    let plain: String =
        pattern.chars().map(|c| if "[]{}\\".contains(c) { format!("\\{c}") } else { c.to_string() }).collect();
    GlobBuilder::new(&plain).build().is_ok_and(|glob| glob.compile_matcher().is_match(host))
}

/// The hash of a host name in a known_hosts file, in base64.
fn hash_name(salt: &[u8], host: &str) -> Option<String> {
    let mut mac = Hmac::<Sha1>::new_from_slice(salt).ok()?;
    mac.update(host.as_bytes());
    Some(STANDARD.encode(mac.finalize().into_bytes()))
}

/// What the file has for the host.
struct FoundKey {
    /// The line with the same key, or with another key of the same type.
    line: Option<usize>,
    /// Whether the key of the task is not in the file yet.
    differs: bool,
}

pub fn known_hosts(call: &mut ModuleCall) -> ModuleResult {
    let name = call.required_text(&["name", "host"])?;
    let host = name.to_lowercase();
    let given = call.text(&["key"]).filter(|key| !key.trim().is_empty());
    let hashed = call.flag("hash_host", false);
    let present = call.text(&["state"]).as_deref() != Some("absent");
    let path = match call.args.contains_key("path") {
        true => call.path(&["path"])?,
        false => home_dir().join(".ssh/known_hosts"),
    };
    let mut key = match &given {
        None if present => return Err("No key specified when adding a host".into()),
        None => None,
        Some(text) => Some(checked_key(text, &host)?),
    };
    if let Some((line, text)) = key.as_mut().filter(|_| hashed) {
        let salt = random_salt()?;
        let hash = hash_name(&salt, &host).ok_or("the name cannot be hashed")?;
        line.hosts = format!("|1|{}|{hash}", STANDARD.encode(salt));
        let HostKeyLine { marker, hosts, .. } = &*line;
        let rest = text.split_whitespace().skip(usize::from(!marker.is_empty()) + 1);
        let words = [marker.as_str(), hosts].into_iter().filter(|word| !word.is_empty()).chain(rest);
        *text = words.collect::<Vec<_>>().join(" ");
    }
    let (real, _) = call.ground.node.follow_trusted(&path)?;
    let (old, text) = call.read_text(&real)?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let found = search(&lines, &host, key.as_ref().map(|(line, _)| line));
    let mut out = TaskOutcome::default();
    let mut new: Option<String> = None;
    match (&key, &found) {
        // A key that is not in the file need not be removed.
        (Some(_), Some(FoundKey { line: None, .. })) if !present => {}
        (None, Some(_)) => {
            let is = |line: &&&str| {
                HostKeyLine::parse(line).is_some_and(|have| have.is_for(&host) && have.marker != "@cert-authority")
            };
            new = Some(lines.iter().filter(|line| !is(line)).copied().collect());
        }
        (Some((_, key)), found) => {
            let differs = found.as_ref().is_some_and(|found| found.differs);
            if differs || found.is_some() != present {
                let drop = found.as_ref().and_then(|found| found.line);
                let kept = lines.iter().enumerate().filter(|(at, _)| Some(*at) != drop).map(|(_, line)| *line);
                let mut text: String = kept.collect();
                if present {
                    text.push_str(key.trim_end_matches('\n'));
                    text.push('\n');
                }
                new = Some(text);
            }
        }
        (None, None) => {}
    }
    if let Some(new) = new {
        if !call.ground.node.is_directory(real.parent().unwrap_or(Path::new("/"))) {
            return Err(call.ground.node.note_missing(format!("the directory of {} does not exist", path.display())));
        }
        out = write_file::update_file(call, &real, old, new.into_bytes(), "known_hosts")?;
        out.changed = true;
    }
    let state = if present { "present" } else { "absent" };
    let key = call.args.get("key").cloned().unwrap_or(Value::Null);
    out = out.with_result(json!({"name": name, "key": key, "path": path, "hash_host": hashed}));
    call.add_path_info(&real, &mut out);
    out.extra_keys.entry("state").or_insert(json!(state));
    Ok(out)
}

/// The key of the task as a line and as text. Fails if the line is not for the host.
fn checked_key(text: &str, host: &str) -> Result<(HostKeyLine, String), String> {
    if host.contains(',') {
        return Err("`name` takes a single name, not a list".into());
    }
    let mut lines = text.lines().filter_map(HostKeyLine::parse).filter(|line| line.is_for(host));
    let line = lines.next();
    let line = line.ok_or("Host parameter does not match hashed host field in supplied key")?;
    Ok((line, text.trim_end_matches('\n').to_owned()))
}

fn random_salt() -> Result<[u8; 20], String> {
    let mut salt = [0; 20];
    getrandom::fill(&mut salt).map_err(|e| format!("no random numbers: {e}"))?;
    Ok(salt)
}

/// Looks for the keys of the host. None: the file has none.
fn search(lines: &[&str], host: &str, key: Option<&HostKeyLine>) -> Option<FoundKey> {
    let mut any = false;
    for (at, line) in lines.iter().enumerate() {
        let Some(have) = HostKeyLine::parse(line).filter(|have| have.is_for(host)) else { continue };
        any = true;
        let Some(key) = key else { continue };
        let mut key = key.clone();
        if !have.marker.is_empty() && have != key {
            continue;
        }
        if have.marker.is_empty() && key.hosts.starts_with("|1|") && have.hosts.starts_with("|1|") {
            have.hosts.clone_into(&mut key.hosts);
        }
        if have == key {
            return Some(FoundKey { line: Some(at), differs: false });
        }
        if have.kind == key.kind {
            return Some(FoundKey { line: Some(at), differs: true });
        }
    }
    any.then_some(FoundKey { line: None, differs: key.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_names_patterns_and_hashes() {
        let is = |hosts: &str, host: &str| HostKeyLine::parse(&format!("{hosts} ssh-rsa AAAA")).unwrap().is_for(host);
        assert!(is("a.example,B.example", "b.example") && is("*.example", "x.example") && is("[h]:22", "[h]:22"));
        assert!(!is("*.example,!x.example", "x.example") && !is("a.example", "example"));
        // Written by ssh-keygen -H.
        assert!(is("|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg=", "192.168.1.61"));
        let line = HostKeyLine::parse("@cert-authority *.x ssh-rsa BBBB c").unwrap();
        assert_eq!((line.marker.as_str(), line.key.as_str()), ("@cert-authority", "BBBB"));
        assert!(HostKeyLine::parse("# x ssh-rsa A").is_none() && HostKeyLine::parse("x ssh-rsa").is_none());
    }
}
