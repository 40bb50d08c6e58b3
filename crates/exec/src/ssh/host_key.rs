//! Host keys as lines (`ssh-ed25519 AAAA...`), their fingerprints, and functions that read a host's
//! keys before they are trusted.

use super::error::{SshError, clip};
use super::target::{self, LoginTarget};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::process::Command;

/// Fingerprint as `ssh-keygen -l` prints it, `SHA256:` and 43 characters. None if this is no key
/// line. A comment in the line is ignored.
pub fn fingerprint(key_line: &str) -> Option<String> {
    let blob = STANDARD.decode(blob_of(key_line)?).ok()?;
    Some(format!("SHA256:{}", STANDARD_NO_PAD.encode(remoor_model::Sha256::digest(&blob).0)))
}

/// The host keys that a host offers now, as lines without host name. They are not trusted, because
/// any host at this address could have sent them. Show them to a person who compares fingerprints.
pub async fn scan_host_keys(host: &str, port: u16, at_most: Duration) -> Result<Vec<String>, SshError> {
    target::check_host(host)?;
    let seconds = at_most.as_secs().clamp(1, 60);
    let mut command = Command::new("ssh-keyscan");
    command
        .args(["-T", &seconds.to_string(), "-p", &port.to_string(), "-t", "ed25519,ecdsa,rsa", host])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let out = tokio::time::timeout(at_most, command.output())
        .await
        .map_err(|_| SshError::Timeout("asking for host keys"))?
        .map_err(|e| SshError::Local(format!("ssh-keyscan: {e}")))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let keys: Vec<String> = text.lines().filter_map(without_host).take(16).collect();
    if keys.is_empty() {
        return Err(SshError::Unreachable(format!(
            "no host key received: {}",
            clip(&String::from_utf8_lossy(&out.stderr))
        )));
    }
    Ok(keys)
}

/// The keys that a known_hosts file has for a host, as lines without the name of the host. Includes
/// hashed names; omits lines with a marker (`@cert-authority`, `@revoked`).
pub fn known_keys(file: &Path, host: &str, port: u16) -> Result<Vec<String>, SshError> {
    target::check_host(host)?;
    let local = |e: &dyn std::fmt::Display| SshError::Local(format!("{}: {e}", file.display()));
    std::fs::File::open(file).map_err(|e| local(&e))?;
    let name = if port == 22 { host.to_owned() } else { format!("[{host}]:{port}") };
    let mut command = std::process::Command::new("ssh-keygen");
    command.args(["-F", &name, "-f"]).arg(file).stdin(Stdio::null());
    let out = command.output().map_err(|e| SshError::Local(format!("ssh-keygen: {e}")))?;
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().filter(|line| !line.starts_with('@')).filter_map(without_host).take(16).collect())
}

/// Key types to request. Each needs its own login, because ssh accepts one key per login.
const KINDS: [&str; 3] =
    ["ssh-ed25519", "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521", "rsa-sha2-512,rsa-sha2-256"];

/// Like [`scan_host_keys`], for a host that is reached by a jump host or a proxy command. ssh
/// connects by the same route and writes the key to a file in `dir`. `ssh-keyscan` would query
/// another host that has this address in the local network. No login succeeds, because ssh offers
/// no credentials.
pub(super) async fn scan_by_login(
    target: &LoginTarget,
    dir: &Path,
    at_most: Duration,
) -> Result<Vec<String>, SshError> {
    target.check_names()?;
    let local = |e: std::io::Error| SshError::Local(format!("{}: {e}", dir.display()));
    let file = NamedTempFile::new_in(dir).map_err(local)?;
    std::fs::write(file.path(), target.config()?).map_err(local)?;
    let config = file.path();
    let scans = KINDS.map(|kinds| async move {
        let known_hosts = NamedTempFile::new_in(dir).map_err(local)?;
        let path = known_hosts.path().display();
        let mut command = Command::new("ssh");
        command.arg("-F").arg(config).args(["-N", "-T", "-p", &target.port.to_string(), "-l", &target.user]);
        for option in [
            format!("HostKeyAlgorithms={kinds}"),
            format!("UserKnownHostsFile={path}"),
            // This option gives no lasting trust, because the file is deleted when this function
            // returns.
            "StrictHostKeyChecking=no".to_owned(),
            "HashKnownHosts=no".to_owned(),
            "BatchMode=yes".to_owned(),
            "PreferredAuthentications=none".to_owned(),
            "PubkeyAuthentication=no".to_owned(),
            "ControlMaster=no".to_owned(),
            "ControlPath=none".to_owned(),
            format!("ConnectTimeout={}", at_most.as_secs().clamp(1, 60)),
        ] {
            command.arg("-o").arg(option);
        }
        // stderr goes to a file, because a process that a proxy command leaves running may hold a
        // pipe open for long.
        let stderr = NamedTempFile::new_in(dir).map_err(local)?;
        command.arg("--").arg(&target.host).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.reopen().map_err(local)?);
        let output = match tokio::time::timeout(at_most, command.status()).await {
            Ok(Ok(_)) => clip(&String::from_utf8_lossy(&std::fs::read(stderr.path()).map_err(local)?)),
            Ok(Err(e)) => return Err(SshError::Local(format!("ssh: {e}"))),
            // A host that requires no authentication keeps the connection open. ssh has then
            // already written the host's key.
            Err(_) => "timed out".to_owned(),
        };
        let text = std::fs::read_to_string(known_hosts.path()).map_err(local)?;
        Ok((text.lines().filter_map(without_host).take(16).collect::<Vec<_>>(), output))
    });
    let [one, two, three] = scans;
    let (one, two, three) = tokio::join!(one, two, three);
    let answers = [one?, two?, three?];
    let keys: Vec<String> = answers.iter().flat_map(|(keys, _)| keys.clone()).collect();
    match answers {
        [(_, output), ..] if keys.is_empty() => Err(SshError::Unreachable(format!("no host key received: {output}"))),
        _ => Ok(keys),
    }
}

/// The key as `type base64` without comment. None for any other text. Only this form is written
/// into a known_hosts file, so a line cannot add a marker, an option or a second line.
pub(super) fn normalize_key(key_line: &str) -> Option<String> {
    let kind = key_line.split_ascii_whitespace().next()?;
    let blob = blob_of(key_line)?;
    fingerprint(key_line)?;
    Some(format!("{kind} {blob}"))
}

/// The first fingerprint in a text that ssh printed.
pub(super) fn fingerprint_in(text: &str) -> Option<String> {
    let from = text.find("SHA256:")?;
    let end = text[from + 7..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '+' || c == '/'));
    let found = &text[from..end.map_or(text.len(), |n| from + 7 + n)];
    (found.len() == 7 + 43).then(|| found.to_owned())
}

fn blob_of(key_line: &str) -> Option<&str> {
    let mut parts = key_line.split_ascii_whitespace();
    let kind = parts.next()?;
    let known = kind.starts_with("ssh-") || kind.starts_with("ecdsa-") || kind.starts_with("sk-");
    let plain = kind.bytes().all(|b| b.is_ascii_alphanumeric() || b"-@.".contains(&b));
    if known && plain { parts.next() } else { None }
}

fn without_host(line: &str) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    normalize_key(line.split_once(' ')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl github.com";

    #[test]
    fn fingerprints_are_those_of_ssh_keygen() {
        let published = "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU";
        assert_eq!(fingerprint(LINE).as_deref(), Some(published));
        assert_eq!(fingerprint_in(&format!("is\n{published}.\nx")).as_deref(), Some(published));
        assert_eq!(fingerprint_in(published).as_deref(), Some(published));
        assert_eq!(fingerprint_in("SHA256:short"), None);
    }

    #[test]
    fn only_key_lines_are_accepted() {
        assert_eq!(normalize_key(LINE).unwrap().split(' ').count(), 2);
        for bad in ["", "ssh-ed25519", "ssh-ed25519 !!!", "@revoked * ssh-ed25519 AAAA", "# x", "command=x AAAA"] {
            assert_eq!(normalize_key(bad), None, "{bad}");
        }
        let two = "ssh-ed25519 AAAA\n* ssh-ed25519 BBBB";
        assert_eq!(normalize_key(two).as_deref(), Some("ssh-ed25519 AAAA"));
        assert_eq!(without_host(&format!("h {LINE}")), normalize_key(LINE));
        assert_eq!(without_host("# h:22 SSH-2.0-x"), None);
    }
}
