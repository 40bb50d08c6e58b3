//! Opens the files of variables that sops has encrypted. The program `sops` does it, because it
//! knows all kinds of keys, and finds them itself: age, GnuPG, and the services of clouds.

use crate::program;
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
    let (entry, code) = match is_json(text) {
        true => ("\"sops\":", "\"mac\": \"ENC["),
        false => ("sops:", "mac: ENC["),
    };
    let line = |start: &str| text.lines().any(|line| line.trim_start().starts_with(start));
    line(code) && text.lines().any(|line| line.trim_start_matches('\t').starts_with(entry))
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// The plaintext of a file, in the format of the file. The error is a predicate of the program.
pub fn decrypt(program: &Path, text: &str) -> Result<Vec<u8>, String> {
    let kind = if is_json(text) { "json" } else { "yaml" };
    let mut command = Command::new(program);
    // Otherwise sops would read a `.sops.yaml` of the working directory.
    command.current_dir("/");
    command.args(["--decrypt", "--input-type", kind, "--output-type", kind, "/dev/stdin"]);
    let plain = program::run(command.stderr(Stdio::piped()), Some(text.as_bytes().to_vec()), OUTPUT_MAX)?;
    if plain.len() as u64 > OUTPUT_MAX { Err("gave more than 64 MiB".to_owned()) } else { Ok(plain) }
}
