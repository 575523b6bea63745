//! `completions`: a completion script for a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::args;
use crate::cli::exit::{Exit, Failure};
use crate::cli::stdout;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  pdreplay completions bash \\\n    > ~/.local/share/bash-completion/completions/pdreplay"
)]
pub struct CompletionsArgs {
    /// Shell the script is for.
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::Args::command(), "pdreplay", &mut script);
    stdout::print_with(|out| out.write_all(&script))?;
    Ok(Exit::Ok)
}
