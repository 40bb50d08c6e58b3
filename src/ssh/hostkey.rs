//! SSH host keys as lines: their fingerprints, and what a host offers.

use crate::model::Sha256;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use std::time::Duration;
use tokio::process::Command;

const SCAN_MAX: Duration = Duration::from_secs(10);

/// `SHA256:...` of a line `type base64`, as `ssh-keygen -l` prints it; the line itself if it is none.
pub fn fingerprint(key: &str) -> String {
    let blob = key.split_whitespace().nth(1).and_then(|text| STANDARD.decode(text).ok());
    match blob {
        Some(blob) => format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::of(&blob).0)),
        None => key.to_owned(),
    }
}

/// The keys that a host offers now, by ssh-keyscan. Never trusted without an operator's word.
pub async fn scan_host_keys(host: &str, port: u16) -> Result<Vec<String>, String> {
    let mut command = Command::new("ssh-keyscan");
    command.args(["-T", "5", "-p", &port.to_string(), "--", host]).kill_on_drop(true);
    let output = tokio::time::timeout(SCAN_MAX, command.output()).await.map_err(|_| "no answer in time".to_owned())?;
    let output = output.map_err(|e| format!("ssh-keyscan: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |l: &str| Some(l.split_once(' ')?.1.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
    let mut keys: Vec<String> = text.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect();
    keys.sort();
    if keys.is_empty() { Err("it offers no key".to_owned()) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_ssh_keygens() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        let made =
            std::process::Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status();
        assert!(made.expect("ssh-keygen").success());
        let line = std::fs::read_to_string(path.with_extension("pub")).expect("a key");
        let told = std::process::Command::new("ssh-keygen").arg("-lf").arg(&path).output().expect("told").stdout;
        assert!(String::from_utf8_lossy(&told).contains(&fingerprint(&line)), "{line}");
        assert_eq!(fingerprint("no key"), "no key");
    }
}
