//! The `authorized_key` module: the SSH keys that may log in as a user.

use super::{ModuleCall, ModuleResult, TaskOutcome, write_file};
use serde_json::json;
use std::path::{Path, PathBuf};

/// A key line of an authorized_keys file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AuthorizedKey {
    options: String,
    kind: String,
    blob: String,
    comment: String,
}

impl AuthorizedKey {
    /// Parses a line. None: it is a comment or not a key.
    fn parse_line(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        // Options end at the first space outside quotes.
        let mut quoted = false;
        let words: Vec<&str> = line
            .split(|c: char| {
                quoted ^= c == '"';
                !quoted && c.is_whitespace()
            })
            .filter(|w| !w.is_empty())
            .collect();
        let is_kind =
            |w: &&&str| ["ssh-", "ecdsa-", "sk-", "rsa-"].iter().any(|p| w.starts_with(p)) && !w.contains(['=', ',']);
        let at = words.iter().take(2).position(|w| is_kind(&w))?;
        Some(Self {
            options: words[..at].join(" "),
            kind: words[at].to_owned(),
            blob: (*words.get(at + 1)?).to_owned(),
            comment: words.get(at + 2..).unwrap_or_default().join(" "),
        })
    }

    fn line(&self) -> String {
        [&self.options, &self.kind, &self.blob, &self.comment]
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

pub fn authorized_key(call: &mut ModuleCall) -> ModuleResult {
    let user = call.required_text(&["user"])?;
    let given = call.required_text(&["key"])?;
    if given.trim_start().starts_with("http") || given.trim_start().starts_with("file:") {
        return Err("`key` must contain the keys themselves, not a URL".into());
    }
    let mut wanted = Vec::new();
    for line in given.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let mut key = AuthorizedKey::parse_line(line)
            .ok_or_else(|| format!("`{}` is not a public key", line.chars().take(40).collect::<String>()))?;
        key.options = call.text(&["key_options"]).unwrap_or(key.options);
        key.comment = call.text(&["comment"]).unwrap_or(key.comment);
        wanted.push(key);
    }
    let entry = call.ground.node.user(&user);
    let own = call.optional_path("path")?;
    // As in Ansible, check mode needs no user if the task names the file, because a command that
    // was not run may create the user.
    if entry.is_none() && (own.is_none() || call.ground.node.predicted_state().is_none()) {
        return Err(call.ground.node.note_missing(format!("there is no user `{user}`")));
    }
    let entry = entry.unwrap_or_default();
    let field = |at: usize| entry.get(at).cloned().unwrap_or_default();
    let path = own.unwrap_or_else(|| PathBuf::from(field(5)).join(".ssh/authorized_keys"));
    let present = call.text(&["state"]).as_deref() != Some("absent");
    if !present && call.ground.node.stat(&path)?.is_none() {
        return Ok(TaskOutcome::ok("does not exist"));
    }
    let ids = (field(2), field(3));
    if present && call.flag("manage_dir", true) {
        directory(call, path.parent().unwrap_or(Path::new("/")), &ids)?;
    }
    let path = match call.ground.node.stat(&path)? {
        Some(_) => write_file::resolve_target(call, &path)?.map_or(path, |(path, _)| path),
        None => path,
    };
    let (old, text) = call.read_text(&path)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let is = |key: &AuthorizedKey, line: &str| {
        AuthorizedKey::parse_line(line).is_some_and(|k| k.kind == key.kind && k.blob == key.blob)
    };
    for key in &wanted {
        let at = lines.iter().position(|l| is(key, l));
        match (present, at) {
            (false, _) => lines.retain(|l| !is(key, l)),
            (true, None) => lines.push(key.line()),
            (true, Some(at)) => {
                if let Some(have) = AuthorizedKey::parse_line(&lines[at]) {
                    let comment = if key.comment.is_empty() { have.comment.clone() } else { key.comment.clone() };
                    let want = AuthorizedKey { comment, ..key.clone() };
                    if want != have {
                        lines[at] = want.line();
                    }
                }
            }
        }
    }
    if present && call.flag("exclusive", false) {
        lines.retain(|l| wanted.iter().any(|key| is(key, l)));
    }
    let mut new = lines.join("\n");
    if !new.is_empty() {
        new.push('\n');
    }
    if old.is_none() && !ids.0.is_empty() {
        call.args.extend([("owner".to_owned(), json!(ids.0)), ("group".to_owned(), json!(ids.1))]);
    }
    let same = old.as_ref().is_some_and(|old| old.trim_ascii_end() == new.as_bytes().trim_ascii_end());
    let new = if same { text } else { new };
    let mut out = write_file::update_file_with_mode(call, &path, old, new.into_bytes(), "authorized_key", 0o600)?;
    out.extra_keys.insert("keyfile".into(), json!(path.display().to_string()));
    for (name, value) in [
        ("exclusive", json!(call.flag("exclusive", false))),
        ("key", json!(given)),
        ("key_options", json!(call.text(&["key_options"]))),
        ("state", json!(if present { "present" } else { "absent" })),
        ("user", json!(user)),
    ] {
        out.extra_keys.insert(name.into(), value);
    }
    Ok(out)
}

/// Creates the user's `.ssh` directory with mode 0700 and the user's ids, unless it exists.
pub fn directory(call: &mut ModuleCall, dir: &Path, ids: &(String, String)) -> Result<(), String> {
    if call.ground.node.is_directory(dir) {
        return Ok(());
    }
    let (uid, gid) = (ids.0.parse().ok(), ids.1.parse().ok());
    call.ground.back_up(dir)?;
    call.ground.node.make_directory(dir, crate::os::atomic_fs::Attributes { mode: Some(0o700), uid, gid })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_lines_are_parsed() {
        let key = AuthorizedKey::parse_line("from=\"a b,*.c\",no-pty ssh-ed25519 AAAA me at home").unwrap();
        assert_eq!((key.options.as_str(), key.kind.as_str()), ("from=\"a b,*.c\",no-pty", "ssh-ed25519"));
        assert_eq!((key.blob.as_str(), key.comment.as_str()), ("AAAA", "me at home"));
        assert_eq!(key.line(), "from=\"a b,*.c\",no-pty ssh-ed25519 AAAA me at home");
        assert_eq!(AuthorizedKey::parse_line("ssh-rsa BBBB").unwrap().line(), "ssh-rsa BBBB");
        assert!(
            AuthorizedKey::parse_line("# ssh-rsa BBBB").is_none() && AuthorizedKey::parse_line("hello world").is_none()
        );
    }
}
