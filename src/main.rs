//! The `remoor` binary. It only calls [`remoor::cli::run`].

fn main() -> std::process::ExitCode {
    remoor::cli::run(std::env::args_os())
}
