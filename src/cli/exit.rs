//! The exit codes of the program. Every `--help` prints the list.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Success, or everything is as desired.
    Done = 0,
    /// The answer is no: drift, a failing check, or the requested state was not reached.
    No = 1,
    /// Wrong usage, or an invalid file.
    Usage = 2,
    /// No reliable answer: no manager, no quorum, timeout, stale answer.
    CouldNotAsk = 3,
    /// A safety rule refused the command; nothing was changed.
    Refused = 4,
    /// The command started, but failed.
    Failed = 5,
    /// Ctrl-C ended the command.
    Interrupted = 130,
}

/// The text at the end of every `--help`.
pub const HELP: &str = "Exit codes:
  0    success, or everything is as desired
  1    the answer is no: drift, a failing check, or the requested state was not reached
  2    wrong usage, or an invalid file
  3    no reliable answer: no manager, no quorum, timeout, or stale data
  4    refused by a safety rule; nothing was changed
  5    started, but failed
  130  interrupted (Ctrl-C)";

impl Exit {
    pub const ALL: [Exit; 7] =
        [Exit::Done, Exit::No, Exit::Usage, Exit::CouldNotAsk, Exit::Refused, Exit::Failed, Exit::Interrupted];

    pub fn code(self) -> u8 {
        self as u8
    }

    /// The exit code for an error code of the API. A code that this version does not know comes
    /// from a newer daemon.
    pub fn from_api_code(code: &str) -> Exit {
        match code {
            "bad-request" | "unknown-key" | "invalid" | "too-large" | "method-not-allowed" => Exit::Usage,
            "refused" | "not-found" | "conflict" | "forbidden" | "node-removed" | "retired" | "bad-token"
            | "clock-skew" | "unreachable" | "wrong-node" => Exit::Refused,
            "internal" => Exit::Failed,
            _ => Exit::CouldNotAsk,
        }
    }

    /// The more serious of two exit codes, for commands about several nodes. A missing answer, a
    /// refusal and a failure are more serious than the answer no.
    pub fn more_serious(self, other: Exit) -> Exit {
        let weight = |exit: Exit| match exit {
            Exit::Done => 0,
            Exit::No => 1,
            Exit::CouldNotAsk => 2,
            Exit::Refused => 3,
            Exit::Failed => 4,
            Exit::Usage => 5,
            Exit::Interrupted => 6,
        };
        if weight(other) > weight(self) { other } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_cluster::rpc::wire::Code;

    #[test]
    fn help_lists_every_code() {
        for exit in Exit::ALL {
            let line = format!("\n  {:<5}", exit.code());
            assert!(HELP.contains(&line), "{exit:?} is missing in the help");
        }
        assert_eq!(HELP.lines().count(), Exit::ALL.len() + 1);
    }

    #[test]
    fn api_codes_become_exit_codes() {
        for (codes, exit) in [
            (&[Code::Refused, Code::NotFound, Code::Forbidden, Code::BadToken][..], Exit::Refused),
            // The leader dials a machine that joins. If nobody or another node answers, it returns
            // one of these codes.
            (&[Code::Unreachable, Code::WrongNode], Exit::Refused),
            (&[Code::Invalid, Code::BadRequest, Code::UnknownKey], Exit::Usage),
            (&[Code::NoQuorum, Code::Timeout, Code::Unavailable, Code::Retry, Code::OutcomeUnknown], Exit::CouldNotAsk),
        ] {
            for code in codes {
                assert_eq!(Exit::from_api_code(code.as_str()), exit, "{code}");
            }
        }
        assert_eq!(Exit::from_api_code("of-a-later-version"), Exit::CouldNotAsk);
        assert!(Code::ALL.iter().all(|code| Exit::from_api_code(code.as_str()) != Exit::Done));
    }

    #[test]
    fn a_batch_returns_its_most_serious_exit_code() {
        assert_eq!(Exit::Done.more_serious(Exit::No), Exit::No);
        assert_eq!(Exit::Refused.more_serious(Exit::No), Exit::Refused);
        assert_eq!(Exit::No.more_serious(Exit::CouldNotAsk), Exit::CouldNotAsk);
    }
}
