//! `command`: exit status and output of a shell command.

use super::super::spawn::{MAX_OUTPUT, Stream, run};
use super::{Answer, Answers, Ask, Trouble, unknown};
use std::process::Command;

const DEFAULT_MS: u64 = 10_000;

pub(super) fn ask(ask: &Ask) -> Answers {
    let ran = run(Command::new("/bin/sh").arg("-c").arg(&ask.check.name), ask.timeout(DEFAULT_MS));
    match ran {
        Ok(output) => Answers::from([
            ("exit-status", Ok(output.status.into())),
            ("stdout", text(&output.stdout)),
            ("stderr", text(&output.stderr)),
        ]),
        Err(why) => {
            let none = || Err(Trouble::Unknown(why.clone()));
            Answers::from([("exit-status", none()), ("stdout", none()), ("stderr", none())])
        }
    }
}

fn text(stream: &Stream) -> Answer {
    if stream.truncated { Err(unknown(format!("more than {MAX_OUTPUT} bytes"))) } else { Ok(stream.text().into()) }
}
