//! `command`: exit status and output of a shell command.

use super::super::spawn::{MAX_OUTPUT, Stream, run};
use super::{ProbeAnswer, ProbeAnswers, ProbeContext, measure, unknown_error};
use std::process::Command;

const DEFAULT_MS: u64 = 10_000;

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let ran = run(Command::new("/bin/sh").arg("-c").arg(&ask.check.name), ask.timeout(DEFAULT_MS));
    match ran {
        Ok(output) => {
            let stdout = text(&output.stdout);
            let mut answers = ProbeAnswers::default();
            measure::add(ask, &stdout, &mut answers);
            answers.insert("exit-status", Ok(output.status.into()));
            answers.insert("stdout", stdout);
            answers.insert("stderr", text(&output.stderr));
            answers
        }
        Err(why) => ask.check.assertions.iter().map(|one| (one.property, Err(unknown_error(&why)))).collect(),
    }
}

fn text(stream: &Stream) -> ProbeAnswer {
    if stream.truncated {
        Err(unknown_error(format!("more than {MAX_OUTPUT} bytes")))
    } else {
        Ok(stream.text().into())
    }
}
