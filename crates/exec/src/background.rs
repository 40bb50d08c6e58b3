//! Processes for tasks of a playbook that run in the background. A process reads its job from
//! standard input, leaves the session of its executor, and stores the result in a file.

use remoor_playbook::{BackgroundJob, BackgroundStarter, run_job};
use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, setsid, umask};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// The argument with which this program runs a job: the name of a hidden command.
const JOB_ARGUMENT: &str = "run-task";
/// Maximum size of a job in bytes. Most of it are the files and the Python modules of the task.
const JOB_MAX: u64 = 256 << 20;

/// Starts jobs in processes of this program.
pub(super) fn starter() -> BackgroundStarter {
    BackgroundStarter::new(|job| {
        start(job).map_err(|e| format!("the task could not be started in the background: {e}"))
    })
}

fn start(job: &BackgroundJob) -> io::Result<()> {
    let text = rmp_serde::to_vec_named(job).map_err(io::Error::other)?;
    if text.len() as u64 > JOB_MAX {
        return Err(io::Error::other(format!("it has more than {} MiB", JOB_MAX >> 20)));
    }
    // The file of this program may have been replaced by a newer version.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("remoor").arg(JOB_ARGUMENT);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn()?;
    let begun = (|| {
        process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&text)?;
        // From this answer on, the end of this session does not end the process.
        process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut [0])
    })();
    if begun.is_err() {
        let _ended = process.kill();
    }
    std::thread::spawn(move || process.wait());
    begun
}

/// `remoor run-task`: runs the job on standard input, for an executor. Writes one byte when the job
/// begins.
pub fn serve_job() -> ExitCode {
    // The process is not the first of its group, so this cannot fail.
    let _leads_already = setsid();
    umask(Mode::from_raw_mode(0o077));
    let _not_essential = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let mut text = Vec::new();
    let read = io::stdin().take(JOB_MAX).read_to_end(&mut text);
    let Some(job) = read.ok().and_then(|_| rmp_serde::from_slice::<BackgroundJob>(&text).ok()) else {
        return ExitCode::FAILURE;
    };
    drop(text);
    let begun = io::stdout().write_all(b"1").and_then(|()| io::stdout().flush());
    if begun.is_err() || run_job(job).is_err() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
