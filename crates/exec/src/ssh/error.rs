//! Errors of a manager's session with a node. Each variant needs another reaction of the manager.

use super::host_key;
use std::error::Error;
use std::io::ErrorKind;

/// Maximum length of text taken over from ssh or the node.
const TEXT_MAX: usize = 1000;

/// An error of a session with a node. After `Lost`, `Ended` and `Timeout`, a run or a process of
/// its task may continue on the node until the current task is done. Only the `Fence` order of a
/// later session can determine this. The other errors leave nothing running.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// A value of the inventory is invalid and was not passed to ssh. A retry is useless.
    #[error("not usable with ssh: {0}")]
    Name(String),
    /// A problem of this machine: no `ssh`, no control directory, no build to upload.
    #[error("this machine: {0}")]
    Local(String),
    /// The host does not answer on its SSH port, or closes the connection before the login. A retry
    /// may succeed.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The host offers another host key than the inventory has, or no host key of the same type.
    /// The host was reinstalled, or another host has its address. Nothing was sent to the host. All
    /// work for this node stops until an operator trusts the new key.
    #[error(
        "the host key changed: {} is expected, {} was offered",
        .expected.join(" or "), .offered.as_deref().unwrap_or("another")
    )]
    HostKeyChanged { expected: Vec<String>, offered: Option<String> },
    /// The host refuses the login, or sudo refuses.
    #[error("login refused: {0}")]
    Auth(String),
    /// There is no build for the node's system.
    #[error("no build for {0}")]
    Unsupported(String),
    /// The build could not be uploaded to the node. Older builds are untouched.
    #[error("the upload failed: {0}")]
    Upload(String),
    /// The other end does not follow the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The session ended early: the connection broke, or nothing was received for too long.
    #[error("the session was lost: {0}")]
    Lost(String),
    /// The executor ended early while the connection still works. Contains its exit status or
    /// signal, and its last output.
    #[error("the executor ended: {0}")]
    Ended(String),
    /// A time limit was exceeded. The text names the action that took too long.
    #[error("timed out: {0}")]
    Timeout(&'static str),
}

/// The error for a failed login of ssh. `expected` has the host keys of the inventory, as lines.
pub(super) fn login_error(error: &openssh::Error, expected: &[String]) -> SshError {
    let openssh::Error::Connect(cause) = error else {
        return SshError::Local(chain(error));
    };
    if cause.kind() == ErrorKind::NotFound {
        return SshError::Local(format!("ssh could not be started, or wrote no log: {cause}"));
    }
    let text = clip(&cause.to_string());
    classify_login_text(text, expected)
}

/// Classifies a failed login by the texts of OpenSSH, because its exit code is 255 for every error.
fn classify_login_text(text: String, expected: &[String]) -> SshError {
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let key = ["REMOTE HOST IDENTIFICATION HAS CHANGED", "Host key verification failed", "host key is known for"];
    if has(&key) {
        let expected = expected.iter().filter_map(|line| host_key::fingerprint(line)).collect();
        return SshError::HostKeyChanged { expected, offered: host_key::fingerprint_in(&text) };
    }
    if has(&["Permission denied", "Too many authentication failures", "No more authentication methods"]) {
        return SshError::Auth(text);
    }
    if has(&["Bad configuration option", "terminating, ", "Bad owner or permissions", "usage: ssh"]) {
        return SshError::Local(text);
    }
    SshError::Unreachable(text)
}

/// The text of an error and of its causes, shortened by [`clip`].
pub(super) fn chain(error: &dyn Error) -> String {
    clip(&remoor_model::error_with_causes(error))
}

/// Makes foreign text safe for a message: removes control characters, and keeps only the end of the
/// text, because the last line usually has the reason.
pub(super) fn clip(text: &str) -> String {
    let clean: Vec<char> = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let from = clean.len().saturating_sub(TEXT_MAX);
    clean[from..].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_of_ssh_are_classified() {
        let offered = "SHA256:AbCdEfGhIjKlMnOpQrStUvWxYz0123456789+/AbCdE";
        let changed = format!(
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nThe fingerprint for the ED25519 key sent by the \
             remote host is\n{offered}.\nHost key verification failed."
        );
        let of = |text: &str| classify_login_text(text.to_owned(), &[]);
        assert_eq!(of(&changed), SshError::HostKeyChanged { expected: vec![], offered: Some(offered.to_owned()) });
        let unknown = "No ED25519 host key is known for n and you have requested strict checking.";
        assert!(matches!(of(unknown), SshError::HostKeyChanged { offered: None, .. }));
        assert!(matches!(of("root@h: Permission denied (publickey)."), SshError::Auth(_)));
        for text in [
            "connect to host 127.0.0.1 port 9: Connection refused",
            "Connection timed out during banner exchange",
            "kex_exchange_identification: Connection closed by remote host",
            "Could not resolve hostname nowhere: Name or service not known",
        ] {
            assert!(matches!(of(text), SshError::Unreachable(_)), "{text}");
        }
        assert!(matches!(of("f: line 1: Bad configuration option: x"), SshError::Local(_)));
    }

    #[test]
    fn foreign_text_is_limited_and_cleaned() {
        assert_eq!(clip("a\x1b[31mb\r\n"), "a [31mb");
        assert_eq!(clip(&format!("{}end", "x".repeat(5000))).len(), TEXT_MAX);
        assert!(clip(&format!("{}end", "é".repeat(5000))).ends_with("end"));
    }
}
