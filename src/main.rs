//! Entry point of the `pdreplay` binary: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    pdreplay::cli::run(std::env::args_os())
}
