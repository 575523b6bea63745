//! `index watch`: the streams of a running index, looked at once a second.
//!
//! On a terminal the table is drawn in place, cut to its size; elsewhere each stream that changed is a line. An index that goes away is
//! waited for.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::index::reasons::{is_wide, with_reasons};
use crate::cli::index::screen::{Size, frame};
use crate::cli::index::{AskArgs, failure, now};
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::live::api::{KvStream, KvStreamsReply};
use crate::live::kv::ask::{Ask, AskError};
use crate::results::render::{Format, Style, Table, visible};

const EXAMPLES: &str = "\
Examples:
  # the index on this machine, drawn again each second
  pdreplay index watch
  # the table, once
  pdreplay index watch --once
  # a line for each stream that changed, with its time in UTC
  pdreplay index watch | tee watch.log

`lag` is from the publisher's time stamp of the last batch to its arrival (clocks of two machines may differ; `-` \
where the stamp is no Unix time in seconds within a day of now), \
`quiet` since then; `device` and `host` are blocks. `gaps`, `restarts`, `resyncs` and `refused` count since the stream is followed; where the \
table would be too wide, those that are 0 for all are left out. A stream that is not in step says why on a line \
of its own. Ends with exit 0 on SIGINT, or when its reader has gone.";

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(20);

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
        stdout::print(&shown(&reply, terminal.table_style()))?;
        return Ok(Exit::Ok);
    }
    let signals = Signals::install()?;
    // An address where nobody listens is told at once: it may be the wrong one.
    let mut first = match ask.streams() {
        Err(error) if !error.passes() => return Err(failure(error)),
        Err(away) => Some(Err(away.to_string())),
        Ok(reply) => Some(Ok(reply)),
    };
    let draws = std::io::stdout().is_terminal();
    let mut lines = Lines::default();
    while is_wanted(&signals) {
        let looked = match first.take() {
            Some(looked) => looked,
            None => again(&ask)?,
        };
        if draws {
            let size = Size::now();
            let style = Style { width: size.columns, ..terminal.style };
            let text = match &looked {
                Ok(reply) => shown(reply, style),
                Err(away) => format!("{away}\nit is waited for\n"),
            };
            let drawn = frame(&format!("{}\n{text}", args.ask.url), size);
            stdout::print_with(|out| out.write_all(drawn.as_bytes()))?;
        } else {
            let told = match &looked {
                Ok(reply) => lines.changed(reply),
                Err(away) => lines.away(away),
            };
            stdout::print(&dated(&told, &now()))?;
        }
        wait(&signals);
    }
    if draws {
        // The shell goes on below.
        stdout::print("\n")?;
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

/// Neither was it told to stop, nor has its reader gone.
fn is_wanted(signals: &Signals) -> bool {
    signals.caught().is_none() && !stdout::reader_has_gone()
}

#[expect(clippy::disallowed_methods, reason = "a screen for people")]
fn wait(signals: &Signals) {
    let mut left = EVERY;
    while !left.is_zero() && is_wanted(signals) {
        std::thread::sleep(LOOK);
        left = left.saturating_sub(LOOK);
    }
}

pub(super) fn shown(reply: &KvStreamsReply, style: Style) -> String {
    let mut text = String::new();
    let mut say = |line: String| text.push_str(&(visible(&line).into_owned() + "\n"));
    let synced = reply.streams.iter().filter(|stream| stream.synchronized).count();
    say(format!("streams: {}, in step: {synced}; device and host in blocks", reply.streams.len()));
    around(reply).for_each(&mut say);
    let odd = reply.streams.iter().filter(|stream| stream.odd_timestamps > 0 && stream.lag_ms.is_none());
    odd.for_each(|stream| {
        let KvStream { instance_name, dp_rank, odd_timestamps, .. } = stream;
        say(format!("no lag of {instance_name}/{dp_rank}: time stamps that are no time near now: {odd_timestamps}"));
    });
    reply.streams.iter().for_each(|stream| {
        let name = format!("{}/{}", stream.instance_name, stream.dp_rank);
        stream.notice.iter().for_each(|notice| say(format!("{name}: {notice}")));
    });
    text + &table(&reply.streams, style)
}

/// What there is to say beside the streams, a line each.
fn around(reply: &KvStreamsReply) -> impl Iterator<Item = String> {
    let unready = reply.unready.iter().map(|why| format!("not ready: {why}"));
    let notice = reply.notice.iter().map(|notice| format!("registry: {notice}"));
    let excluded = reply.excluded.iter().map(|(instance, why)| format!("not followed: {instance}: {why}"));
    unready.chain(notice).chain(excluded).map(|line| visible(&line).into_owned())
}

/// A line for each stream, and below it why it is not in step. Where it would be too wide, without counters that are 0
/// for all.
fn table(streams: &[KvStream], style: Style) -> String {
    if streams.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = streams.iter().map(row).collect();
    let of = |columns: &[usize]| {
        let titles: Vec<&str> = columns.iter().map(|column| TITLES[*column]).collect();
        let cells = |row: &Vec<String>| columns.iter().map(|column| row[*column].clone()).collect();
        Table::plain(&titles, rows.iter().map(cells).collect())
    };
    let all: Vec<usize> = (0..TITLES.len()).collect();
    let is_wide = is_wide(&of(&all), style);
    let counts = |column: &usize| COUNTERS.contains(column) && rows.iter().all(|row| row[*column] == "0");
    let shown = all.into_iter().filter(|column| !is_wide || !counts(column)).collect::<Vec<_>>();
    with_reasons(&of(&shown).render(Format::Table, style), streams.iter().map(why))
}

/// Each line behind the time.
pub(super) fn dated(lines: &str, at: &str) -> String {
    lines.lines().map(|line| format!("{at} {line}\n")).collect()
}

const TITLES: [&str; 12] =
    ["instance", "dp", "state", "sequence", "lag", "quiet", "device", "host", "gaps", "restarts", "resyncs", "refused"];

/// Columns of what went wrong, and how often.
const COUNTERS: std::ops::Range<usize> = 8..12;

/// Why a stream is not in step.
fn why(stream: &KvStream) -> Option<String> {
    let reason = stream.error.as_deref().unwrap_or(&stream.reason);
    (!stream.synchronized).then(|| visible(reason).into_owned())
}

fn row(stream: &KvStream) -> Vec<String> {
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
    ]
}

/// What was said of each stream.
#[derive(Default)]
pub(super) struct Lines {
    said: BTreeMap<(String, u32), String>,
    /// What was said of the index and of instances that are not followed.
    around: Vec<String>,
    away: Option<String>,
}

impl Lines {
    /// A line for each stream that is new, another, or gone; before them one where the index was away.
    pub fn changed(&mut self, reply: &KvStreamsReply) -> String {
        let was_away = self.away.take().is_some();
        let mut text = String::from(if was_away { "the index answers again\n" } else { "" });
        let around: Vec<String> = around(reply).collect();
        around.iter().filter(|line| !self.around.contains(line)).for_each(|line| text.push_str(&format!("{line}\n")));
        self.around = around;
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
    let mut error = stream.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    stream.notice.iter().for_each(|notice| error.push_str(&format!("; {notice}")));
    let line = format!(
        "{instance_name}/{dp_rank} {state} sequence {sequence} device blocks {device_blocks} host blocks {host_blocks} gaps \
         {gaps} restarts {restarts} resyncs {resyncs}{error}"
    );
    visible(&line).into_owned()
}
