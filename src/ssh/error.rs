//! Why there is no session, or no answer.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// Nothing was sent: refused, no route, no banner. Try again later.
    #[error("can't be reached: {0}")]
    Unreachable(String),
    /// Nothing was sent: the host offers a key that was not recorded. An operator must look.
    #[error("its SSH host key is not the recorded one{}", .offered.as_ref().map(|k| format!(", it offers {k}")).unwrap_or_default())]
    HostKeyChanged { offered: Option<String> },
    /// Nothing was run: this manager may not log in.
    #[error("this manager may not log in: {0}")]
    Auth(String),
    /// Nothing was run: no executor for the node's architecture is here.
    #[error("no executor for {0} here")]
    Unsupported(String),
    /// The executor could not be put on the node.
    #[error("the executor could not be put on the node: {0}")]
    Upload(String),
    /// The other end speaks something else.
    #[error("the executor answers what was not asked: {0}")]
    Protocol(String),
    /// The session ended; what was ordered last may have been done.
    #[error("the session was lost: {0}")]
    Lost(String),
    /// No answer in time; what was ordered may still be going on.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// On this side: the target is not one that may be dialled, or a file can't be written.
    #[error("{0}")]
    Local(String),
}

/// What openssh says, by its text where it has no kind for it (PLAYBOOKS.md, The openssh crate).
pub(super) fn of_openssh(error: &openssh::Error) -> SshError {
    let text = chain(error);
    let lower = text.to_lowercase();
    if lower.contains("host key verification failed") || lower.contains("remote host identification has changed") {
        let offered = text.split_whitespace().find(|word| word.starts_with("SHA256:"));
        return SshError::HostKeyChanged { offered: offered.map(|w| w.trim_end_matches('.').to_owned()) };
    }
    if lower.contains("permission denied") {
        return SshError::Auth(last_line(&text));
    }
    match error {
        openssh::Error::Disconnected | openssh::Error::RemoteProcessTerminated => SshError::Lost(last_line(&text)),
        _ => SshError::Unreachable(last_line(&text)),
    }
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

fn last_line(text: &str) -> String {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or(text).to_owned()
}
