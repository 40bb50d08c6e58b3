//! Authorizes the managers to log in: adds one line to a user's `authorized_keys`, once. The script
//! runs as that user, so that a symbolic link in a home directory cannot misdirect root.

use super::error::{SshError, clip};
use super::shell::Shell;
use std::process::Command;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(30);

/// Arguments: `$1` the line, `$2` the key in it, `$3` the directory. If `$3` is empty, the script
/// uses the directory that sshd reads, independent of HOME. New files are readable by the user
/// only. The script removes write permission of others from existing files, because sshd would
/// refuse them. Prints `added` or `there`.
const SCRIPT: &str = r#"set -eu
umask 077
dir=$3
[ -n "$dir" ] || dir=$(getent passwd "$(id -u)" | cut -d: -f6)/.ssh
file=$dir/authorized_keys
mkdir -- "$dir" 2>/dev/null || [ -d "$dir" ] || mkdir -- "$dir"
exec 9<"$dir"
flock -w 10 9
chmod go-w -- "$dir"
[ ! -e "$file" ] || chmod go-w -- "$file"
if [ -e "$file" ] && grep -v '^[[:space:]]*#' -- "$file" | grep -qF -- "$2"; then echo there; exit 0; fi
[ ! -s "$file" ] || [ -z "$(tail -c 1 -- "$file")" ] || echo >>"$file"
printf '%s\n' "$1" >>"$file"
echo added"#;

/// Adds `line` to `authorized_keys` of the login user. True: the line was added. False: the key of
/// the line was already allowed.
pub async fn authorize(shell: &Shell, line: &str) -> Result<bool, SshError> {
    authorize_in(shell, line, "").await
}

pub(super) async fn authorize_in(shell: &Shell, line: &str, dir: &str) -> Result<bool, SshError> {
    let output = shell.run_as_user(SCRIPT, &[line, key_of(line)?, dir], WITHIN).await?;
    parse_outcome(output.ok, &output.stdout, &output.stderr)
}

/// Like [`authorize`], for `user` of this machine. A user other than the caller needs root.
pub fn authorize_here(user: &str, line: &str) -> Result<bool, SshError> {
    if !super::target::is_plain_name(user) {
        return Err(SshError::Name(format!("user {user:?}")));
    }
    let mut command = Command::new("runuser");
    command.args(["-u", user, "--", "sh", "-c", SCRIPT, "sh", line, key_of(line)?, ""]);
    let output = command.output().map_err(|e| SshError::Local(format!("runuser: {e}")))?;
    let text = |bytes: &[u8]| clip(&String::from_utf8_lossy(bytes));
    parse_outcome(output.status.success(), &text(&output.stdout), &text(&output.stderr))
}

fn parse_outcome(ok: bool, stdout: &str, stderr: &str) -> Result<bool, SshError> {
    match (ok, stdout) {
        (true, "added") => Ok(true),
        (true, "there") => Ok(false),
        _ => Err(SshError::Local(format!("authorized_keys: {}", if stderr.is_empty() { stdout } else { stderr }))),
    }
}

/// The type and the key of a line, without its options and its comment.
fn key_of(line: &str) -> Result<&str, SshError> {
    let odd = || SshError::Name(format!("invalid line for authorized_keys: {}", clip(line)));
    if line.chars().any(char::is_control) {
        return Err(odd());
    }
    let key = &line[line.find("ssh-ed25519 ").ok_or_else(odd)?..];
    let end = key.match_indices(' ').nth(1).map_or(key.len(), |(at, _)| at);
    if key[..end].ends_with(' ') { Err(odd()) } else { Ok(&key[..end]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    const LINE: &str = "restrict ssh-ed25519 AAAAkey remoor-c1";

    fn run(dir: &Path, line: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh", line, key_of(line).unwrap()]).arg(dir);
        let said = command.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_line_is_added_once_and_only_its_user_may_write() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join(".ssh");
        let file = dir.join("authorized_keys");
        assert_eq!(run(&dir, LINE), "added");
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        assert_eq!(run(&dir, LINE), "there");
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{LINE}\n"));

        // The existing file has no newline at its end, has the key only in a comment, and is
        // writable by a group.
        fs::write(&file, "# restrict ssh-ed25519 AAAAkey old\nssh-rsa AAAAother me").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(run(&dir, LINE), "added");
        let expected = format!("# restrict ssh-ed25519 AAAAkey old\nssh-rsa AAAAother me\n{LINE}\n");
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
        assert_eq!((mode(&dir), mode(&file)), (0o755, 0o644));

        // A line of the operator with the same key and other options stays.
        fs::write(&file, "from=\"10.0.0.0/8\",restrict ssh-ed25519 AAAAkey mine\n").unwrap();
        assert_eq!(run(&dir, LINE), "there");
    }

    #[test]
    fn invalid_lines_are_rejected() {
        assert_eq!(key_of(LINE).unwrap(), "ssh-ed25519 AAAAkey");
        assert_eq!(key_of("ssh-ed25519 AAAAkey").unwrap(), "ssh-ed25519 AAAAkey");
        for odd in ["", "restrict ssh-rsa AAAA x", "ssh-ed25519 ", "ssh-ed25519  x", "ssh-ed25519 AAAA x\nssh-rsa AAAA"]
        {
            assert!(key_of(odd).is_err(), "{odd:?}");
        }
        for user in ["", "-x", "root; id", "a b"] {
            assert!(matches!(authorize_here(user, LINE), Err(SshError::Name(_))), "{user:?}");
        }
    }
}
