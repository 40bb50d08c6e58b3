//! The `remoor` binary. All it does is call [`remoor::cli::run`].

fn main() -> std::process::ExitCode {
    remoor::cli::run(std::env::args_os())
}
