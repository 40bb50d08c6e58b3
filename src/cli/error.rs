//! Why a command ended without an answer, and how that is told: `error:`, `caused by:`, `next:`. The texts of the command
//! line's own refusals stand here together, so that they can be read and tested together.

use super::drivers::AdditionError;
use super::exit::Exit;
use super::sanitize;
use crate::model::{Fault, counted};
use crate::rpc::client::ApiError;
use crate::rpc::tls::may_be_the_clock;
use crate::rpc::view::{FaultsView, LeftView};
use crate::rpc::wire::NO_QUORUM_NEXT;
use std::error::Error;
use std::path::Path;

/// An end with its exit code and the command to try next. Nothing was changed unless the text says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Stop {
    pub exit: Exit,
    pub message: String,
    pub causes: Vec<String>,
    pub next: Option<String>,
}

impl Stop {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), causes: Vec::new(), next: None }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message)
    }

    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Adds an error and what caused it.
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

    /// What any error of a command means: its own word, else that of the API's answer in its chain, else a failure.
    pub fn of(error: &anyhow::Error) -> Self {
        let stop = error.chain().find_map(|e| e.downcast_ref::<Stop>());
        let api = error.chain().find_map(|e| e.downcast_ref::<ApiError>());
        let mut told = match (stop, api) {
            (Some(stop), _) => stop.clone(),
            (None, Some(api)) => of_api(api),
            (None, None) => Self::new(Exit::Failed, ""),
        };
        let mut chain = error.chain().map(ToString::to_string);
        let first = chain.next().unwrap_or_default();
        let inner = std::mem::replace(&mut told.message, first);
        let own = std::mem::take(&mut told.causes);
        for cause in chain.chain([inner]).chain(own).filter(|c| !c.is_empty()) {
            told.add_cause(cause);
        }
        told
    }

    /// As it is printed on standard error.
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

fn of_api(error: &ApiError) -> Stop {
    match error {
        ApiError::Status { code, message, next, details, .. } => {
            let stop = Stop::new(Exit::of_api_code(code), message.clone());
            let faults: Vec<Fault> =
                serde_json::from_value::<FaultsView>((**details).clone()).map(|f| f.faults).unwrap_or_default();
            let causes = faults.iter().map(ToString::to_string).collect();
            let next = next.clone().or_else(|| default_next(code).map(str::to_owned));
            Stop { causes, next, ..stop }
        }
        ApiError::Unreachable { addr, .. } => {
            let stop = Stop::new(Exit::CouldNotAsk, error.to_string());
            if addr.starts_with('/') {
                no_daemon(stop, Path::new(addr))
            } else {
                stop.next("ask another manager (--manager HOST:PORT), or run remoor status on one")
            }
        }
        ApiError::Identity { .. } => Stop::new(Exit::CouldNotAsk, error.to_string())
            .next("compare --credentials with the cluster that this manager belongs to"),
        ApiError::Timeout { .. } | ApiError::Protocol { .. } => Stop::new(Exit::CouldNotAsk, error.to_string())
            .next("the same command again; of an order, remoor history first shows whether it was done"),
    }
}

fn no_daemon(stop: Stop, socket: &Path) -> Stop {
    let denied = std::os::unix::net::UnixStream::connect(socket)
        .is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
    if denied {
        stop.next("sudo remoor ..., or --manager HOST:PORT --credentials FILE")
    } else {
        stop.next("systemctl start remoor on this machine, or --manager HOST:PORT --credentials FILE")
    }
}

/// Where the daemon names no next step.
fn default_next(code: &str) -> Option<&'static str> {
    match code {
        "no-quorum" => Some(NO_QUORUM_NEXT),
        "outcome-unknown" => Some("remoor history shows whether it was done"),
        "retry" | "not-leader" | "rate-limited" => Some("the same command again in a moment"),
        "unavailable" => Some("the same command on a manager, or --manager HOST:PORT --credentials FILE"),
        "timeout" => Some("remoor why NODE"),
        "unknown-key" => Some("the newer remoor on the managers first, if this one is newer than theirs"),
        "forbidden" => Some("the same command as root on a manager, or with --credentials of an operator"),
        _ => None,
    }
}

/// Why a machine could not join, with the step that mends it: other ones than where an operator asks.
pub fn of_join(error: anyhow::Error) -> anyhow::Error {
    let api = error.chain().find_map(|e| e.downcast_ref::<ApiError>());
    let next = match api {
        Some(ApiError::Identity { reason, .. }) if may_be_the_clock(reason) => {
            "compare this machine's clock with the manager's (timedatectl), set the wrong one, then the same command"
        }
        Some(ApiError::Identity { .. }) => {
            "the token of the cluster that this manager belongs to, or one of the token's managers"
        }
        Some(ApiError::Unreachable { .. }) => {
            "look whether remoor runs on that manager and its API port (7947) can be reached from here"
        }
        Some(ApiError::Timeout { .. } | ApiError::Protocol { .. }) => "the same command again: joining twice is safe",
        Some(ApiError::Status { .. }) | None => return error,
    };
    let mut stop = Stop::of(&error);
    stop.next = Some(next.to_owned());
    stop.into()
}

pub fn unknown_nodes(names: &[String]) -> Stop {
    let text = match names {
        [one] => format!("no node is called {one}"),
        many => format!("no nodes are called {}; nothing was ordered", many.join(", ")),
    };
    Stop::refused(text).next("remoor nodes")
}

/// The same, where some of them are among those that left.
pub fn no_such_nodes(names: &[String], left: &[LeftView]) -> Stop {
    match left.iter().find(|l| names.contains(&l.name)) {
        Some(LeftView { name, left, until, .. }) => Stop::refused(format!(
            "{name} left the cluster at {left}, by its own word; nothing was ordered"
        ))
        .next(format!(
            "remoor join on {name} brings it back as the same node until {until}; remoor remove {name} frees its name"
        )),
        None => unknown_nodes(names),
    }
}

pub fn empty_group(group: &str, known: &[String]) -> Stop {
    let known =
        if known.is_empty() { "no fleet was applied".to_owned() } else { format!("groups: {}", known.join(", ")) };
    Stop::refused(format!("no node is in group {group} ({known})")).next("remoor nodes")
}

pub fn no_such_job(job: u64) -> Stop {
    Stop::refused(format!("no job has the number {job}")).next("remoor job list")
}

pub fn not_confirmed(what: &str, name: &str) -> Stop {
    Stop::refused(format!("{what} was not confirmed")).next(format!("the same command with --confirm {name}"))
}

pub fn not_agreed(what: &str) -> Stop {
    Stop::refused(format!("{what} was not confirmed; nothing was changed")).next("the same command with --yes")
}

/// Nobody vouched for a machine's SSH host key.
pub fn host_key_not_confirmed(host: &str, offered: &[(String, String)]) -> Stop {
    let mut stop = Stop::refused(format!("nobody vouched for the SSH host key of {host}; nothing was sent to it"));
    stop.causes = offered.iter().map(|(print, _)| format!("it offers {print}")).collect();
    stop.next(
        "compare with ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub on its console, then --fingerprint SHA256:..",
    )
}

pub fn other_host_key(host: &str, wanted: &str, offered: &[(String, String)]) -> Stop {
    let mut stop = Stop::refused(format!("{host} does not have the SSH host key {wanted}; nothing was sent to it"));
    stop.causes = offered.iter().map(|(print, _)| format!("it offers {print}")).collect();
    stop.next("find out whether this is the machine that you mean, or one in between")
}

/// Faults of a fleet, each with its place.
pub fn invalid_fleet(faults: &[Fault]) -> Stop {
    let grave = faults.iter().filter(|f| !f.warning).count();
    let text = format!("the fleet has {}; nothing was applied", counted(grave, "fault"));
    Stop { causes: faults.iter().map(ToString::to_string).collect(), ..Stop::usage(text) }
}

/// `--changed-only` where nothing can be kept, or nothing was.
pub fn no_state_home() -> Stop {
    Stop::usage(
        "--changed-only has no directory in which to keep what a run found: neither XDG_STATE_HOME nor HOME is set",
    )
    .next("XDG_STATE_HOME=/var/lib/remoor-checks before the same command")
}

pub fn no_last_run_of_standard_input() -> Stop {
    Stop::usage("--changed-only finds the last run by the names of the files, and standard input has none")
        .next("the same command with --file FILE")
}

pub fn no_last_check_of_nodes() -> Stop {
    Stop::usage("--changed-only is for --file: of an examination the managers keep how many checks passed, not which")
        .next("remoor history NODE, which tells what changed at each examination")
}

/// A check that was not added; the file is as it was.
pub fn of_addition(error: &AdditionError) -> Stop {
    let message = error.to_string();
    match error {
        AdditionError::Refused(faults) => {
            Stop { causes: faults.iter().map(ToString::to_string).collect(), ..Stop::refused(message) }
        }
        AdditionError::Write(_) => Stop::new(Exit::Failed, message).cause(error),
        AdditionError::NoSuch(_) => Stop::usage(message),
        AdditionError::NoAnswer { .. } => Stop::new(Exit::CouldNotAsk, message),
    }
}

/// Check files of this machine that can't be run; nothing was.
pub fn invalid_checks(faults: &[Fault]) -> Stop {
    let text = format!("the check files have {}; nothing was run", counted(faults.len(), "fault"));
    Stop { causes: faults.iter().map(ToString::to_string).collect(), ..Stop::usage(text) }
}

/// A playbook, an inventory or variables that can't be used; nothing was touched.
pub fn invalid_play(faults: &[Fault]) -> Stop {
    let errors = faults.iter().filter(|fault| !fault.warning).count();
    let text = format!("{}; no host was touched", counted(errors, "fault"));
    Stop { causes: faults.iter().map(ToString::to_string).collect(), ..Stop::usage(text) }
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
    fn a_chain_is_told_once() {
        let io = std::io::Error::other("disk on fire");
        let error = anyhow::Error::new(io).context("reading fleet/remoor.yml").context("can't pack the fleet");
        let stop = Stop::of(&error);
        assert_eq!(stop.exit, Exit::Failed);
        assert_eq!(
            stop.render(),
            "error: can't pack the fleet\ncaused by: reading fleet/remoor.yml\ncaused by: disk on fire\n"
        );
    }

    #[test]
    fn answers_of_the_api_keep_their_meaning_through_context() {
        let stop = Stop::of(&status("refused", json!(null)).context("resetup of w1"));
        assert_eq!(stop.exit, Exit::Refused);
        assert_eq!(stop.render(), "error: resetup of w1\ncaused by: w1 is away since 12:00:00\n");
        let stop = Stop::of(&status("no-quorum", json!(null)));
        assert_eq!(stop.exit, Exit::CouldNotAsk);
        assert!(stop.render().contains("next: bring a majority"), "{}", stop.render());
    }

    #[test]
    fn a_join_that_fails_says_what_mends_it() {
        let identity = |reason: &str| ApiError::Identity { addr: "m1:7947".to_owned(), reason: reason.to_owned() };
        let unreachable = ApiError::Unreachable { addr: "m1:7947".to_owned(), reason: "refused".to_owned() };
        for (error, wanted) in [
            (identity("its certificate is not valid yet: is one of the clocks wrong?"), "clock"),
            (identity("its certificate has expired"), "clock"),
            (identity("its name has expired.test in it"), "token of the cluster"),
            (identity("its CA is not the one that the token names"), "token of the cluster"),
            (unreachable, "7947"),
        ] {
            let stop = Stop::of(&of_join(anyhow::Error::from(error).context("joining failed")));
            assert_eq!(stop.exit, Exit::CouldNotAsk);
            assert!(stop.next.as_deref().is_some_and(|next| next.contains(wanted)), "{}", stop.render());
            assert!(stop.render().starts_with("error: joining failed\ncaused by: "), "{}", stop.render());
        }
    }

    #[test]
    fn who_may_not_is_sent_where_it_helps() {
        let stop = Stop::of(&status("forbidden", json!(null)));
        assert_eq!(stop.exit, Exit::Refused);
        assert!(
            stop.next.as_deref().is_some_and(|next| next.contains("manager") && !next.contains("sudo")),
            "{stop:?}"
        );
    }

    #[test]
    fn faults_are_listed() {
        let fault = Fault::error("remoor.yml", 3, 5, "unknown key").hint("did you mean groups?");
        let stop = Stop::of(&status("invalid", json!({"faults": [fault]})));
        assert_eq!(stop.exit, Exit::Usage);
        assert!(stop.render().contains("caused by: remoor.yml:3:5: unknown key\n  hint: did"), "{}", stop.render());
    }

    #[test]
    fn remote_words_do_not_steer_the_terminal() {
        let stop = Stop::refused("\u{1b}[2J").next("rm\u{7}");
        assert_eq!(stop.render(), "error: ␛[2J\nnext: rm␇\n");
    }
}
