//! The command line: arguments, files, progress, exit codes. One file per subcommand.
//!
//! The only module that opens files for results, looks at the clock, the environment and signals, and starts threads.
//! Decides nothing about a run: it resolves what was asked, drives, and writes what comes out.

mod args;
mod batches;
mod cluster;
mod completions;
mod diff;
mod doctor;
mod drive;
mod exit;
mod export;
mod folder;
mod found;
mod index;
mod inputs;
mod intact;
mod ledger;
mod live;
mod man;
mod member;
mod messages;
mod outfile;
mod output;
mod page;
mod preflight;
mod progress;
mod provenance;
mod recorder;
mod replay;
mod replicas;
mod report;
mod router;
mod scenario;
mod server;
mod signals;
mod stages;
mod starving;
mod stdout;
mod stored;
mod streams_file;
mod sweep;
mod terminal;
mod threads;
mod trace;
mod use_hints;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

use crate::cli::args::{Args, Command};
use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::Terminal;

pub use folder::RunManifest;

/// The whole program, from its arguments (the program's name first) to its exit code.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(mut stop) => {
            tell_of_lists(&mut stop);
            // Help and version are data; a reader who has left is no error.
            let _ = stop.print();
            return ExitCode::from(if stop.use_stderr() { Exit::Usage } else { Exit::Ok });
        }
    };
    signals::outlive_file_size_limit();
    let terminal = Terminal::open(args.color, args.quiet);
    let exit = dispatch(args.command, &terminal).unwrap_or_else(|failure| {
        terminal.messages.failure(&failure);
        failure.exit
    });
    terminal.messages.settle();
    exit.into()
}

/// An address behind another, as in `--decode A B`: here a list is a flag for each, since what follows may be the trace.
fn tell_of_lists(stop: &mut clap::Error) {
    let Some(ContextValue::String(word)) = stop.get(ContextKind::InvalidArg) else { return };
    if word.contains("://") {
        let tip = format!("repeat the flag for each address, as in `--decode A --decode {word}`");
        stop.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

fn dispatch(command: Command, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        Command::Replay(args) => replay::run(&args, terminal),
        Command::Sweep(args) => sweep::run(&args, terminal),
        Command::Preflight(args) => preflight::run(&args, terminal),
        Command::Doctor(args) => doctor::run(&args, terminal),
        Command::Report(args) => report::run(&args, terminal),
        Command::Diff(args) => diff::run(&args, terminal),
        Command::Trace(command) => trace::run(&command, terminal),
        Command::Scenario(command) => scenario::run(&command),
        Command::Cluster(command) => cluster::run(&command, terminal),
        Command::Worker(args) => worker::run(&args, terminal),
        Command::Router(args) => router::run(&args, terminal),
        Command::Index(command) => index::run(&command, terminal),
        Command::Completions(args) => completions::run(&args),
        Command::Man => man::run(),
    }
}
