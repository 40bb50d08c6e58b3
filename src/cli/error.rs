//! Errors of commands, printed as `error:`, `caused by:`, `next:`. The texts of all refusals of the
//! command line are in this file, so that they can be read and tested together.

use super::drivers::AdditionError;
use super::exit::Exit;
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::tls::may_be_the_clock;
use remoor_cluster::rpc::view::{FaultsView, LeftView};
use remoor_cluster::rpc::wire::{NO_QUORUM_NEXT, OUTCOME_UNKNOWN_NEXT};
use remoor_model::sanitize;
use remoor_model::{Fault, count_noun};
use std::error::Error;
use std::path::Path;

/// An error with its exit code and the next command to try. If the text does not say otherwise,
/// nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    pub exit: Exit,
    pub message: String,
    pub causes: Vec<String>,
    pub next: Option<String>,
}

impl CommandError {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), causes: Vec::new(), next: None }
    }

    pub fn usage_error(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub fn refusal(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message)
    }

    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Adds `error` and its own causes to the causes of this error.
    pub fn cause(mut self, error: &dyn Error) -> Self {
        let mut one = Some(error);
        while let Some(error) = one {
            self.add_cause(error.to_string());
            one = error.source();
        }
        self
    }

    fn add_cause(&mut self, text: String) {
        if !self.message.contains(&text) && !self.causes.contains(&text) {
            self.causes.push(text);
        }
    }

    /// Converts any error of a command. A [`CommandError`] in the chain is returned as it is.
    /// Otherwise an API error in the chain gives the exit code. Any other error is a failure.
    pub fn from_error(error: &anyhow::Error) -> Self {
        let stop = error.chain().find_map(|e| e.downcast_ref::<CommandError>());
        let api = error.chain().find_map(|e| e.downcast_ref::<ApiError>());
        let mut result = match (stop, api) {
            (Some(stop), _) => stop.clone(),
            (None, Some(api)) => from_api_error(api),
            (None, None) => Self::new(Exit::Failed, ""),
        };
        let mut chain = error.chain().map(ToString::to_string);
        let first = chain.next().unwrap_or_default();
        let inner = std::mem::replace(&mut result.message, first);
        let own_causes = std::mem::take(&mut result.causes);
        for cause in chain.chain([inner]).chain(own_causes).filter(|c| !c.is_empty()) {
            result.add_cause(cause);
        }
        result
    }

    /// This error as text for standard error.
    pub fn render(&self) -> String {
        let mut out = format!("error: {}\n", sanitize::block(&self.message));
        for cause in &self.causes {
            out.push_str(&format!("caused by: {}\n", sanitize::block(cause)));
        }
        if let Some(next) = &self.next {
            out.push_str(&format!("next: {}\n", sanitize::line(next)));
        }
        out
    }
}

fn from_api_error(error: &ApiError) -> CommandError {
    match error {
        ApiError::Status { code, message, next, details, .. } => {
            let stop = CommandError::new(Exit::from_api_code(code), message.clone());
            let faults: Vec<Fault> =
                serde_json::from_value::<FaultsView>((**details).clone()).map(|f| f.faults).unwrap_or_default();
            let causes = faults.iter().map(ToString::to_string).collect();
            let next = next.clone().or_else(|| default_next(code).map(str::to_owned));
            CommandError { causes, next, ..stop }
        }
        ApiError::Unreachable { addr, .. } => {
            let stop = CommandError::new(Exit::CouldNotAsk, error.to_string());
            if addr.starts_with('/') {
                no_daemon(stop, Path::new(addr))
            } else {
                stop.next("ask another manager (--manager HOST:PORT), or run remoor status on a manager")
            }
        }
        ApiError::Identity { .. } => CommandError::new(Exit::CouldNotAsk, error.to_string())
            .next("compare --credentials with the cluster that this manager belongs to"),
        ApiError::Timeout { .. } | ApiError::Protocol { .. } => CommandError::new(Exit::CouldNotAsk, error.to_string())
            .next("remoor history shows whether an order was accepted; if it was not, retry the command"),
    }
}

fn no_daemon(stop: CommandError, socket: &Path) -> CommandError {
    let denied = std::os::unix::net::UnixStream::connect(socket)
        .is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
    if denied {
        stop.next("sudo remoor ..., or --manager HOST:PORT --credentials FILE")
    } else {
        stop.next("systemctl start remoor on this machine, or --manager HOST:PORT --credentials FILE")
    }
}

/// The next step for an API error, if the daemon suggests none.
fn default_next(code: &str) -> Option<&'static str> {
    match code {
        "no-quorum" => Some(NO_QUORUM_NEXT),
        "outcome-unknown" => Some(OUTCOME_UNKNOWN_NEXT),
        "retry" | "not-leader" | "rate-limited" => Some("retry the command in a moment"),
        "unavailable" => Some("the same command on a manager, or --manager HOST:PORT --credentials FILE"),
        "timeout" => Some("remoor why NODE"),
        "unknown-key" => Some("upgrade remoor on the managers first, if this one is newer"),
        "forbidden" => Some("the same command as root on a manager, or with --credentials of an operator"),
        _ => None,
    }
}

/// Adds a next step to the error of a failed join. The usual next steps are for operators and would
/// not help on a machine that is not a node yet.
pub fn join_error(error: anyhow::Error) -> anyhow::Error {
    let api = error.chain().find_map(|e| e.downcast_ref::<ApiError>());
    let next = match api {
        Some(ApiError::Identity { reason, .. }) if may_be_the_clock(reason) => {
            "compare this machine's clock with the manager's (timedatectl), correct the wrong one, then retry the command"
        }
        Some(ApiError::Identity { .. }) => {
            "use the token of the cluster that this manager belongs to, or the address of a manager of the token's cluster"
        }
        Some(ApiError::Unreachable { .. }) => {
            "check that remoor runs on that manager, and that its API port (7947) is reachable from here"
        }
        Some(ApiError::Timeout { .. } | ApiError::Protocol { .. }) => "retry the command: joining twice is safe",
        Some(ApiError::Status { .. }) | None => return error,
    };
    let mut stop = CommandError::from_error(&error);
    stop.next = Some(next.to_owned());
    stop.into()
}

pub fn unknown_nodes(names: &[String]) -> CommandError {
    let text = match names {
        [one] => format!("node {one} does not exist"),
        many => format!("these nodes do not exist: {}; nothing was ordered", many.join(", ")),
    };
    CommandError::refusal(text).next("remoor nodes")
}

/// Like [`unknown_nodes`], but some of the names may be those of nodes that left.
pub fn no_such_nodes(names: &[String], left: &[LeftView]) -> CommandError {
    match left.iter().find(|l| names.contains(&l.name)) {
        Some(LeftView { name, left, until, .. }) => CommandError::refusal(format!(
            "{name} left the cluster at {left} (remoor leave on the node); nothing was ordered"
        ))
        .next(format!(
            "remoor join on {name} restores it as the same node until {until}; remoor remove {name} frees its name"
        )),
        None => unknown_nodes(names),
    }
}

pub fn empty_group(group: &str, known: &[String]) -> CommandError {
    let known =
        if known.is_empty() { "no fleet is applied".to_owned() } else { format!("groups: {}", known.join(", ")) };
    CommandError::refusal(format!("group {group} has no nodes ({known})")).next("remoor nodes")
}

pub fn no_such_job(job: u64) -> CommandError {
    CommandError::refusal(format!("job {job} does not exist")).next("remoor job list")
}

pub fn not_confirmed(what: &str, name: &str) -> CommandError {
    CommandError::refusal(format!("{what} was not confirmed")).next(format!("the same command with --confirm {name}"))
}

pub fn not_agreed(what: &str) -> CommandError {
    CommandError::refusal(format!("{what} was not confirmed; nothing was changed")).next("the same command with --yes")
}

/// The error for an SSH host key that was not confirmed.
pub fn host_key_not_confirmed(host: &str, offered: &[(String, String)]) -> CommandError {
    let mut stop =
        CommandError::refusal(format!("the SSH host key of {host} was not confirmed; nothing was sent to it"));
    stop.causes = offered.iter().map(|(print, _)| format!("it offers {print}")).collect();
    stop.next(
        "compare with ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub on its console, then use --fingerprint SHA256:..",
    )
}

pub fn other_host_key(host: &str, wanted: &str, offered: &[(String, String)]) -> CommandError {
    let mut stop =
        CommandError::refusal(format!("{host} does not have the SSH host key {wanted}; nothing was sent to it"));
    stop.causes = offered.iter().map(|(print, _)| format!("it offers {print}")).collect();
    stop.next("verify that this is the machine you mean, and that no other machine intercepts the connection")
}

/// The error for a fleet directory with faults. Each fault has its file and line.
pub fn invalid_fleet(faults: &[Fault]) -> CommandError {
    let grave = faults.iter().filter(|f| !f.warning).count();
    let text = format!("the fleet has {}; nothing was applied", count_noun(grave, "fault"));
    CommandError { causes: faults.iter().map(ToString::to_string).collect(), ..CommandError::usage_error(text) }
}

/// The error for `--changed-only` if no directory for the stored results is known.
pub fn no_state_home() -> CommandError {
    CommandError::usage_error(
        "--changed-only has no directory for the results of a run: neither XDG_STATE_HOME nor HOME is set",
    )
    .next("XDG_STATE_HOME=/var/lib/remoor-checks in front of the same command")
}

pub fn no_last_run_of_standard_input() -> CommandError {
    CommandError::usage_error(
        "--changed-only finds the last run by the names of the check files, and standard input has none",
    )
    .next("the same command with --file FILE")
}

pub fn no_last_check_of_nodes() -> CommandError {
    CommandError::usage_error(
        "--changed-only requires --file: managers store only how many checks of a node passed, not which ones",
    )
    .next("remoor history NODE shows what changed at each examination")
}

/// The error for a check that could not be added. The file is unchanged.
pub fn addition_error(error: &AdditionError) -> CommandError {
    let message = error.to_string();
    match error {
        AdditionError::Refused(faults) => {
            CommandError { causes: faults.iter().map(ToString::to_string).collect(), ..CommandError::refusal(message) }
        }
        AdditionError::Write(_) => CommandError::new(Exit::Failed, message).cause(error),
        AdditionError::NoSuch(_) => CommandError::usage_error(message),
        AdditionError::NoAnswer { .. } => CommandError::new(Exit::CouldNotAsk, message),
    }
}

/// The error for invalid check files on this machine. No check was run.
pub fn invalid_checks(faults: &[Fault]) -> CommandError {
    let text = format!("the check files have {}; nothing was run", count_noun(faults.len(), "fault"));
    CommandError { causes: faults.iter().map(ToString::to_string).collect(), ..CommandError::usage_error(text) }
}

/// The error for an invalid playbook, inventory or variable. No host was changed.
pub fn invalid_play(faults: &[Fault]) -> CommandError {
    let errors = faults.iter().filter(|fault| !fault.warning).count();
    let text = format!("{}; no host was changed", count_noun(errors, "fault"));
    CommandError { causes: faults.iter().map(ToString::to_string).collect(), ..CommandError::usage_error(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(code: &str, details: serde_json::Value) -> anyhow::Error {
        anyhow::Error::new(ApiError::Status {
            code: code.to_owned(),
            message: "w1 is away since 12:00:00".to_owned(),
            next: None,
            details: Box::new(details),
            http: 409,
        })
    }

    #[test]
    fn each_cause_is_shown_once() {
        let io = std::io::Error::other("disk on fire");
        let error = anyhow::Error::new(io).context("reading fleet/remoor.yml").context("can't pack the fleet");
        let stop = CommandError::from_error(&error);
        assert_eq!(stop.exit, Exit::Failed);
        assert_eq!(
            stop.render(),
            "error: can't pack the fleet\ncaused by: reading fleet/remoor.yml\ncaused by: disk on fire\n"
        );
    }

    #[test]
    fn api_errors_keep_their_exit_code_with_context() {
        let stop = CommandError::from_error(&status("refused", json!(null)).context("resetup of w1"));
        assert_eq!(stop.exit, Exit::Refused);
        assert_eq!(stop.render(), "error: resetup of w1\ncaused by: w1 is away since 12:00:00\n");
        let stop = CommandError::from_error(&status("no-quorum", json!(null)));
        assert_eq!(stop.exit, Exit::CouldNotAsk);
        assert!(stop.render().contains("next: retry the command in a moment"), "{}", stop.render());
    }

    #[test]
    fn a_failed_join_has_a_useful_next_step() {
        let identity = |reason: &str| ApiError::Identity { addr: "m1:7947".to_owned(), reason: reason.to_owned() };
        let unreachable = ApiError::Unreachable { addr: "m1:7947".to_owned(), reason: "refused".to_owned() };
        for (error, wanted) in [
            (identity("its certificate is not valid yet: is one of the clocks wrong?"), "clock"),
            (identity("its certificate has expired"), "clock"),
            (identity("its name has expired.test in it"), "token of the cluster"),
            (identity("its CA is not the one that the token names"), "token of the cluster"),
            (unreachable, "7947"),
        ] {
            let stop = CommandError::from_error(&join_error(anyhow::Error::from(error).context("joining failed")));
            assert_eq!(stop.exit, Exit::CouldNotAsk);
            assert!(stop.next.as_deref().is_some_and(|next| next.contains(wanted)), "{}", stop.render());
            assert!(stop.render().starts_with("error: joining failed\ncaused by: "), "{}", stop.render());
        }
    }

    #[test]
    fn a_forbidden_caller_gets_a_useful_next_step() {
        let stop = CommandError::from_error(&status("forbidden", json!(null)));
        assert_eq!(stop.exit, Exit::Refused);
        assert!(
            stop.next.as_deref().is_some_and(|next| next.contains("manager") && !next.contains("sudo")),
            "{stop:?}"
        );
    }

    #[test]
    fn faults_are_listed() {
        let fault = Fault::error("remoor.yml", 3, 5, "unknown key").hint("did you mean groups?");
        let stop = CommandError::from_error(&status("invalid", json!({"faults": [fault]})));
        assert_eq!(stop.exit, Exit::Usage);
        assert!(stop.render().contains("caused by: remoor.yml:3:5: unknown key\n  hint: did"), "{}", stop.render());
    }

    #[test]
    fn remote_text_in_errors_can_not_control_the_terminal() {
        let stop = CommandError::refusal("\u{1b}[2J").next("rm\u{7}");
        assert_eq!(stop.render(), "error: ␛[2J\nnext: rm␇\n");
    }
}
