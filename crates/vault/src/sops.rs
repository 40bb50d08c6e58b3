//! Opens the files of variables that sops has encrypted. The program `sops` does it, because it
//! knows all kinds of keys, and finds them itself: age, GnuPG, and the services of clouds.

use crate::program;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program, as it is on PATH.
pub const SOPS_PROGRAM: &str = "sops";
/// Maximum size of an opened file in bytes.
const OUTPUT_MAX: u64 = 64 << 20;

/// Whether a YAML or JSON file is encrypted by sops: it has a top-level entry `sops`, and a message
/// authentication code that sops has encrypted.
pub fn is_sops(content: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(content) else { return false };
    if !text.contains("ENC[") {
        return false;
    }
    if is_json(text) {
        let parsed: Result<Value, _> = serde_json::from_str(text);
        return parsed.is_ok_and(|file| file["sops"]["mac"].as_str().is_some_and(|code| code.starts_with("ENC[")));
    }
    let code = |line: &str| {
        let value =
            line.trim_start().strip_prefix("mac:").map(|value| value.trim_start().trim_start_matches(['"', '\'']));
        value.is_some_and(|value| value.starts_with("ENC["))
    };
    text.lines().any(|line| line.starts_with("sops:")) && text.lines().any(code)
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// The plaintext of a file, in the format of the file. The error is a phrase that follows the name
/// of the program.
pub fn decrypt(program: &Path, text: &str) -> Result<Vec<u8>, String> {
    let kind = if is_json(text) { "json" } else { "yaml" };
    let mut command = Command::new(program);
    // Otherwise sops would read a `.sops.yaml` of the working directory.
    command.current_dir("/");
    command.args(["--decrypt", "--input-type", kind, "--output-type", kind, "/dev/stdin"]);
    program::run(command.stderr(Stdio::piped()), Some(text.as_bytes().to_vec()), OUTPUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_sops_are_known_by_their_metadata() {
        let mac = "ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]";
        for text in [
            format!("a: {mac}\nsops:\n    age: []\n    mac: {mac}\n"),
            format!("sops:\n  mac: \"{mac}\"\na: x\n"),
            format!("{{\n\t\"sops\": {{\n\t\t\"mac\": \"{mac}\"\n\t}}\n}}"),
            format!("{{\n  \"a\": 1,\n  \"sops\": {{ \"mac\": \"{mac}\" }}\n}}"),
            format!("{{\"a\":1,\"sops\":{{\"mac\":\"{mac}\"}}}}"),
        ] {
            assert!(is_sops(text.as_bytes()), "{text}");
        }
        for text in [
            format!("a: {mac}\n"),
            format!("a:\n  sops:\n    mac: {mac}\n"),
            "sops: {mac: none}\n".to_owned(),
            format!("{{\"a\": {{\"sops\": {{\"mac\": \"{mac}\"}}}}}}"),
        ] {
            assert!(!is_sops(text.as_bytes()), "{text}");
        }
    }
}
