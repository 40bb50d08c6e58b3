//! A panic in any thread or task ends the process. Without that rule, a daemon whose gossip task
//! died would receive nothing and appear healthy. If the process exits, systemd restarts it and its
//! peers notice an agent fault.

use remoor_model::sanitize;
use std::backtrace::Backtrace;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a process that panicked: EX_SOFTWARE of sysexits.
pub const PANIC_EXIT: i32 = 70;

/// Sets a panic hook. From then on, a panic in any thread is logged and the process exits with
/// [`PANIC_EXIT`], even if the panic would be caught. Only a daemon may call this function. A
/// command that catches panics must not.
///
/// `but_for` names the threads without this rule: they catch their own panics and report them
/// better, for example when they open a damaged log. The source position and the message are
/// written to `last_words` for the next start.
pub fn exit_on_panic(but_for: &'static [&'static str], last_words: PathBuf) {
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name().is_some_and(|name| but_for.contains(&name)) {
            return;
        }
        static PANICKED: AtomicBool = AtomicBool::new(false);
        // A second panic, in another thread or in the logging below, must not run this hook again.
        if PANICKED.swap(true, Ordering::SeqCst) {
            std::process::exit(PANIC_EXIT);
        }
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let message = info.payload_as_str().unwrap_or("no message");
        let backtrace = Backtrace::capture();
        if tracing::dispatcher::has_been_set() {
            tracing::error!(%thread, %place, %message, %backtrace, "panic, exiting");
        } else {
            // `eprintln` is not used, because it panics when stderr is closed.
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                sanitize::block(&format!("panic in thread {thread} at {place}: {message}\n{backtrace}\n")).as_bytes(),
            );
        }
        let _ = std::fs::write(&last_words, format!("at {place}: {message}\n"));
        std::process::exit(PANIC_EXIT);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const ASK: &str = "REMOOR_TEST_PANIC";

    /// This is not a test by itself. It acts only in the process that the next test starts.
    #[test]
    fn child() {
        let Some(last_words) = std::env::var_os(ASK) else { return };
        exit_on_panic(&[], last_words.into());
        let caught =
            std::thread::Builder::new().name("worker".to_owned()).spawn(|| panic!("the reason")).map(|t| t.join());
        std::process::exit(if caught.is_ok() { 0 } else { 1 });
    }

    #[test]
    fn a_panic_in_another_thread_ends_the_process_with_a_reason() {
        let this = std::env::current_exe().expect("this test binary");
        let dir = tempfile::tempdir().expect("a folder");
        let last_words = dir.path().join("panic");
        let run = |asked: bool| {
            let mut command = Command::new(&this);
            command.args(["--exact", "telemetry::panic::tests::child", "--nocapture"]).env_remove(ASK);
            if asked {
                command.env(ASK, &last_words);
            }
            command.output().expect("run the test binary")
        };
        let output = run(true);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(PANIC_EXIT), "{said}");
        assert!(said.contains("the reason") && said.contains("worker") && said.contains("panic.rs"), "{said}");
        let words = std::fs::read_to_string(&last_words).expect("last words");
        assert!(words.starts_with("at ") && words.contains("panic.rs") && words.contains(": the reason"), "{words}");
        assert_eq!(run(false).status.code(), Some(0), "without the hook's part nothing happens");
    }
}
