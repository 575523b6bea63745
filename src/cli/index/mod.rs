//! `index`: the KV directory as a service, and the two ways to ask one.
//!
//! Owns arguments and tables. What is followed and answered is `live`'s.

mod query;
mod reasons;
mod screen;
mod serve;
#[cfg(test)]
mod tests;
mod token;
mod watch;

use clap::{Args, Subcommand};
use jiff::Timestamp;

pub use serve::{feed_failure, feed_options};

use crate::cli::exit::{Exit, Failure};
use crate::cli::index::token::TokenArgs;
use crate::cli::terminal::Terminal;
use crate::live::kv::ask::{Ask, AskError};

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum IndexCommand {
    /// Follow KV events of engines, keep an index of their prefix caches, and answer queries over HTTP.
    Serve(serve::ServeArgs),
    /// Ask a running index what each stream holds of a prompt.
    Query(query::QueryArgs),
    /// Show the streams of a running index, once a second.
    Watch(watch::WatchArgs),
}

/// Which index is asked, and with what token.
#[derive(Debug, Args)]
struct AskArgs {
    /// Address of the index.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8888")]
    url: String,
    #[command(flatten)]
    token: TokenArgs,
}

/// Runs it.
pub fn run(command: &IndexCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        IndexCommand::Serve(args) => serve::run(args, terminal),
        IndexCommand::Query(args) => query::run(args, terminal),
        IndexCommand::Watch(args) => watch::run(args, terminal),
    }
}

impl AskArgs {
    fn open(&self, terminal: &Terminal) -> Result<Ask, Failure> {
        let token = self.token.read(terminal)?;
        Ask::new(&self.url, token).map_err(failure)
    }
}

/// The time in UTC, for a line of a log: whole milliseconds.
fn now() -> String {
    stamp(Timestamp::now())
}

fn stamp(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// For a query that is too large.
const SHORTER: &str = "ask for the prompt's first tokens only: hits count from the first block on";

/// What went wrong, and what to do.
fn failure(error: AskError) -> Failure {
    let hint = match &error {
        AskError::Url(_) => return Failure::input(&error),
        AskError::Unauthorized { had_token: false, .. } => "give it with `--token-env NAME` or `--token-file FILE`",
        AskError::Unauthorized { had_token: true, .. } => {
            "compare it with the one that the server was started with (its `--token-env` or `--token-file`)"
        }
        AskError::Unreachable { .. } => {
            "start it with `pdreplay index serve --config FILE`, or give its address with `--url`"
        }
        AskError::NotReady { .. } => "its registry must be read once before it answers; see its own lines on stderr",
        AskError::TooLarge { .. } => return Failure::input(&error).hint(SHORTER),
        AskError::Refused { status: 413, .. } => SHORTER,
        AskError::Refused { .. } | AskError::Unknown(_) => "give the address of a `pdreplay index serve` with `--url`",
        AskError::Client(_) | AskError::Start(_) => return Failure::broke(&error),
    };
    Failure::broke(&error).hint(hint)
}
