//! The binary: arguments in, exit code out.

fn main() -> std::process::ExitCode {
    remoor::cli::run(std::env::args_os())
}
