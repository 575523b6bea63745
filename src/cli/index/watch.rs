//! `index watch`: the streams of a running index, looked at once a second.
//!
//! On a terminal the table is drawn in place; elsewhere each stream that changed is a line. An index that goes away is
//! waited for.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::index::{AskArgs, failure};
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::live::api::{KvStream, KvStreamsReply};
use crate::live::kv::ask::{Ask, AskError};
use crate::results::render::{Format, Table, visible};

const EXAMPLES: &str = "\
Examples:
  pdreplay index watch                    the index on this machine, drawn again each second
  pdreplay index watch --once             the table, once
  pdreplay index watch | tee watch.log    a line for each stream that changed

`lag` is from the publisher's time stamp of the last batch to its arrival (clocks of two machines may differ), `quiet` since
then. `gaps`, `restarts` and `resyncs` count since the stream is followed. Ends with exit 0 on SIGINT.";

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(20);
/// To the top left, and everything below it gone.
const HOME: &str = "\x1b[H\x1b[J";

/// Arguments of `index watch`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WatchArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Print the table once and end.
    #[arg(long)]
    once: bool,
}

/// Runs it.
pub fn run(args: &WatchArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let ask = args.ask.open(terminal)?;
    if args.once {
        let reply = ask.streams().map_err(failure)?;
        stdout::print(&shown(&reply, terminal))?;
        return Ok(Exit::Ok);
    }
    let signals = Signals::install()?;
    let mut first = ask.streams().map(Some).map_err(failure)?;
    let draws = std::io::stdout().is_terminal();
    let mut lines = Lines::default();
    while signals.caught().is_none() {
        let looked = match first.take() {
            Some(reply) => Ok(reply),
            None => again(&ask)?,
        };
        let text = match (&looked, draws) {
            (Ok(reply), true) => format!("{HOME}{}\n{}", args.ask.url, shown(reply, terminal)),
            (Err(away), true) => format!("{HOME}{}\n{away}; it is waited for\n", args.ask.url),
            (Ok(reply), false) => lines.changed(reply),
            (Err(away), false) => lines.away(away),
        };
        stdout::print(&text)?;
        wait(&signals);
    }
    Ok(Exit::Ok)
}

/// What the index says, or why it is away; errors: it will not answer this caller.
fn again(ask: &Ask) -> Result<Result<KvStreamsReply, String>, Failure> {
    match ask.streams() {
        Ok(reply) => Ok(Ok(reply)),
        Err(away @ (AskError::Unreachable { .. } | AskError::NotReady { .. })) => Ok(Err(away.to_string())),
        Err(error) => Err(failure(error)),
    }
}

#[expect(clippy::disallowed_methods, reason = "a screen for people")]
fn wait(signals: &Signals) {
    let mut left = EVERY;
    while !left.is_zero() && signals.caught().is_none() {
        std::thread::sleep(LOOK);
        left = left.saturating_sub(LOOK);
    }
}

pub(super) fn shown(reply: &KvStreamsReply, terminal: &Terminal) -> String {
    let mut text = String::new();
    let mut say = |line: String| text.push_str(&(visible(&line).into_owned() + "\n"));
    let synced = reply.streams.iter().filter(|stream| stream.synchronized).count();
    say(format!("streams: {}, in step: {synced}", reply.streams.len()));
    reply.unready.iter().for_each(|why| say(format!("not ready: {why}")));
    reply.notice.iter().for_each(|notice| say(format!("registry: {notice}")));
    reply.excluded.iter().for_each(|(instance, why)| say(format!("not followed: {instance}: {why}")));
    if !reply.streams.is_empty() {
        let table = Table::plain(&TITLES, reply.streams.iter().map(row).collect());
        text.push_str(&table.render(Format::Table, terminal.style));
    }
    text
}

const TITLES: [&str; 13] = [
    "instance", "dp", "state", "sequence", "lag", "quiet", "device", "host", "gaps", "restarts", "resyncs", "refused",
    "reason",
];

fn row(stream: &KvStream) -> Vec<String> {
    let reason = stream.error.as_deref().unwrap_or(&stream.reason);
    let count = |n: u64| n.to_string();
    vec![
        visible(&stream.instance_name).into_owned(),
        stream.dp_rank.to_string(),
        stream.state.clone(),
        stream.sequence.map_or("-".into(), count),
        stream.lag_ms.map_or("-".into(), |lag| format!("{lag:.0} ms")),
        stream.quiet_ms.map_or("-".into(), |quiet| format!("{:.1} s", quiet as f64 / 1e3)),
        count(stream.device_blocks),
        count(stream.host_blocks),
        count(stream.gaps),
        count(stream.restarts),
        count(stream.resyncs),
        count(stream.refused),
        visible(reason).into_owned(),
    ]
}

/// What was said of each stream.
#[derive(Default)]
pub(super) struct Lines {
    said: BTreeMap<(String, u32), String>,
    away: Option<String>,
}

impl Lines {
    /// A line for each stream that is new, another, or gone.
    pub fn changed(&mut self, reply: &KvStreamsReply) -> String {
        self.away = None;
        let mut text = String::new();
        let mut now = BTreeMap::new();
        for stream in &reply.streams {
            let key = (stream.instance_name.clone(), stream.dp_rank);
            let line = line(stream);
            if self.said.get(&key) != Some(&line) {
                text.push_str(&line);
                text.push('\n');
            }
            now.insert(key, line);
        }
        for (instance, dp_rank) in self.said.keys().filter(|key| !now.contains_key(*key)) {
            text.push_str(&format!("{}/{dp_rank} is followed no longer\n", visible(instance)));
        }
        self.said = now;
        text
    }

    /// The index does not answer; said once.
    pub fn away(&mut self, why: &str) -> String {
        let is_known = self.away.replace(why.to_owned()).is_some();
        if is_known { String::new() } else { format!("{}; it is waited for\n", visible(why)) }
    }
}

fn line(stream: &KvStream) -> String {
    let sequence = stream.sequence.map_or("-".to_owned(), |sequence| sequence.to_string());
    let KvStream { instance_name, dp_rank, state, device_blocks, host_blocks, gaps, restarts, resyncs, .. } = stream;
    let error = stream.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let line = format!(
        "{instance_name}/{dp_rank} {state} sequence {sequence} device {device_blocks} host {host_blocks} gaps {gaps} \
         restarts {restarts} resyncs {resyncs}{error}"
    );
    visible(&line).into_owned()
}
