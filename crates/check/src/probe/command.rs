//! `command`: exit status and output of a shell command.

use super::super::spawn::{MAX_OUTPUT, Stream, run};
use super::{ProbeAnswer, ProbeAnswers, ProbeContext, ProbeError, unknown_error};
use std::process::Command;

const DEFAULT_MS: u64 = 10_000;

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let ran = run(Command::new("/bin/sh").arg("-c").arg(&ask.check.name), ask.timeout(DEFAULT_MS));
    match ran {
        Ok(output) => ProbeAnswers::from([
            ("exit-status", Ok(output.status.into())),
            ("stdout", text(&output.stdout)),
            ("stderr", text(&output.stderr)),
        ]),
        Err(why) => {
            let none = || Err(ProbeError::Unknown(why.clone()));
            ProbeAnswers::from([("exit-status", none()), ("stdout", none()), ("stderr", none())])
        }
    }
}

fn text(stream: &Stream) -> ProbeAnswer {
    if stream.truncated {
        Err(unknown_error(format!("more than {MAX_OUTPUT} bytes")))
    } else {
        Ok(stream.text().into())
    }
}
