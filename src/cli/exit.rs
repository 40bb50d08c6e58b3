//! What the process's exit code means. One list, printed in every `--help`.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Done, or as desired.
    Done = 0,
    /// The answer is no: drift, a failing check, not (yet) as asked.
    No = 1,
    /// Wrong usage, or a file that is not valid.
    Usage = 2,
    /// Could not ask: no manager, no quorum, timeout, stale answer.
    CouldNotAsk = 3,
    /// A guard refused; nothing was changed.
    Refused = 4,
    /// Started and failed.
    Failed = 5,
    /// Ctrl-C.
    Interrupted = 130,
}

/// As every `--help` ends.
pub const HELP: &str = "Exit codes:
  0    done, or as desired
  1    the answer is no: drift, failing check, not as asked
  2    wrong usage, or a file that is not valid
  3    could not ask: no manager, no quorum, timeout, stale answer
  4    refused by a guard; nothing was changed
  5    started and failed
  130  interrupted";

impl Exit {
    pub const ALL: [Exit; 7] =
        [Exit::Done, Exit::No, Exit::Usage, Exit::CouldNotAsk, Exit::Refused, Exit::Failed, Exit::Interrupted];

    pub fn code(self) -> u8 {
        self as u8
    }

    /// What an answer of the API with this code means for the caller. Unknown codes come from newer daemons.
    pub fn of_api_code(code: &str) -> Exit {
        match code {
            "bad-request" | "unknown-key" | "invalid" | "too-large" | "method-not-allowed" => Exit::Usage,
            "refused" | "not-found" | "conflict" | "forbidden" | "node-removed" | "retired" | "bad-token"
            | "clock-skew" | "unreachable" | "wrong-node" => Exit::Refused,
            "internal" => Exit::Failed,
            _ => Exit::CouldNotAsk,
        }
    }

    /// The more serious of two, for commands about several nodes: could not ask, refused and failed beat a no.
    pub fn and(self, other: Exit) -> Exit {
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
    use crate::rpc::wire::Code;

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
            // Of a machine that joins, which the leader dials.
            (&[Code::Unreachable, Code::WrongNode], Exit::Refused),
            (&[Code::Invalid, Code::BadRequest, Code::UnknownKey], Exit::Usage),
            (&[Code::NoQuorum, Code::Timeout, Code::Unavailable, Code::Retry, Code::OutcomeUnknown], Exit::CouldNotAsk),
        ] {
            for code in codes {
                assert_eq!(Exit::of_api_code(code.as_str()), exit, "{code}");
            }
        }
        assert_eq!(Exit::of_api_code("of-a-later-version"), Exit::CouldNotAsk);
        assert!(Code::ALL.iter().all(|code| Exit::of_api_code(code.as_str()) != Exit::Done));
    }

    #[test]
    fn a_batch_ends_with_its_worst() {
        assert_eq!(Exit::Done.and(Exit::No), Exit::No);
        assert_eq!(Exit::Refused.and(Exit::No), Exit::Refused);
        assert_eq!(Exit::No.and(Exit::CouldNotAsk), Exit::CouldNotAsk);
    }
}
