//! `index query`: what each stream holds of a prompt, as a table.

use std::fmt::Display;
use std::fs::File;
use std::io;

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::index::reasons::{is_wide, with_reasons};
use crate::cli::index::{AskArgs, failure};
use crate::cli::output::FormatName;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::live::api::{KvMatch, KvQueryReply, MOST_TOKEN_ID};
use crate::live::kv::registry::read_limited;
use crate::live::server::parse_kv_query;
use crate::results::render::{Format, Style, Table, visible};

const EXAMPLES: &str = "\
Examples:
  # hits of a prompt of four tokens
  pdreplay index query --tokens 1,2,3,4
  # {\"token_ids\": [1, 2]}, a JSON array, or numbers with blanks or commas
  pdreplay index query --tokens-file prompt.json
  # from standard input
  tokenize prompt.txt | pdreplay index query --tokens-file -
  # only the state of the streams
  pdreplay index query

Whole blocks count, from the first one on without a hole. `device tokens` are on the accelerator, `host-only \
tokens` in memory of the host alone, `reusable tokens` both. A stream that is not in step has 0 and says why: in \
a last column, or on a line of its own where the terminal is too narrow for that.";

/// Arguments of `index query`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct QueryArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Token ids of the prompt, after the chat template, with commas.
    #[arg(long, value_name = "IDS", conflicts_with = "tokens_file")]
    tokens: Option<String>,
    /// File with them; `-`: standard input.
    #[arg(long, value_name = "FILE")]
    tokens_file: Option<String>,
    /// Format of what is printed.
    #[arg(long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    format: FormatName,
    /// The same as `--format json`: the server's answer.
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    json: bool,
}

/// Runs it.
pub fn run(args: &QueryArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let tokens = match (&args.tokens, &args.tokens_file) {
        (Some(text), _) => parse("--tokens", text)?,
        (None, Some(path)) => parse(named(path), &read(path)?)?,
        (None, None) => Vec::new(),
    };
    let reply = args.ask.open(terminal)?.query(&tokens).map_err(failure)?;
    if args.json || args.format.format() == Format::Json {
        stdout::print_json(&reply)?;
    } else {
        stdout::print(&shown(&reply, args.format.format(), terminal.table_style()))?;
        if reply.matches.is_empty() && args.format.format() == Format::Table {
            terminal.messages.note("the index follows no stream");
        }
    }
    Ok(Exit::Ok)
}

/// A file as messages name it.
fn named(path: &str) -> &str {
    if path == "-" { "standard input" } else { path }
}

pub(super) fn read(path: &str) -> Result<String, Failure> {
    let cannot = |why: &dyn Display| format!("cannot be read: {why}");
    let bytes = if path == "-" {
        read_limited(io::stdin())
    } else {
        File::open(path).map_err(|error| cannot(&error)).and_then(read_limited)
    };
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(|error| cannot(&error)));
    text.map_err(|why| Failure::input(format!("{} {why}", named(path))).hint("give a text file of token ids"))
}

/// The body of a query, or numbers with commas or blanks between them, in brackets or not.
pub(super) fn parse(place: &str, text: &str) -> Result<Vec<u32>, Failure> {
    let text = text.trim();
    if text.is_empty() {
        let hint = "write numbers with commas; for the state of the streams alone leave the tokens out, or give []";
        return Err(Failure::input(format!("{place}: there is no token id")).hint(hint));
    }
    if text.starts_with('{') {
        return parse_kv_query(text.as_bytes()).map_err(|why| {
            Failure::input(format!("{place}: {why}")).hint("write {\"token_ids\": [1, 2, 3]}, or the numbers alone")
        });
    }
    let inner = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(text);
    let words = inner.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    words
        .zip(1..)
        .map(|(word, number)| {
            word.parse().ok().filter(|id| *id <= MOST_TOKEN_ID).ok_or_else(|| {
                let cause = format!("{place}: number {number}, `{word}`, is no token id");
                Failure::input(cause).hint(format!("write whole numbers from 0 to {MOST_TOKEN_ID}, with commas"))
            })
        })
        .collect()
}

/// On a terminal that is too narrow for it, the reason why a stream is not in step is below its row.
pub(super) fn shown(reply: &KvQueryReply, format: Format, style: Style) -> String {
    let (whole, uncut) = (table(reply, true), Style { width: usize::MAX, ..style });
    let has_reasons = reply.matches.iter().any(|found| found.error.is_some());
    if format != Format::Table || !has_reasons || !is_wide(&whole, style) {
        return whole.render(format, uncut);
    }
    let reason = |found: &KvMatch| found.error.as_deref().map(|error| visible(error).into_owned());
    with_reasons(&table(reply, false).render(format, uncut), reply.matches.iter().map(reason))
}

fn table(reply: &KvQueryReply, with_errors: bool) -> Table {
    let titles = [
        "instance",
        "dp",
        "sync",
        "sequence",
        "device tokens",
        "host-only tokens",
        "reusable tokens",
        "device blocks",
        "host blocks",
        "error",
    ];
    let columns = if with_errors { titles.len() } else { titles.len() - 1 };
    let row = |found: &KvMatch| {
        let count = |n: u64| n.to_string();
        let cells = [
            visible(&found.instance_name).into_owned(),
            found.dp_rank.to_string(),
            if found.synchronized { "yes" } else { "no" }.to_owned(),
            found.sequence.map_or("-".to_owned(), count),
            count(found.device_hit_tokens),
            count(found.host_only_hit_tokens),
            count(found.reusable_prefix_tokens),
            count(found.device_blocks),
            count(found.host_blocks),
            visible(found.error.as_deref().unwrap_or_default()).into_owned(),
        ];
        cells.into_iter().take(columns).collect()
    };
    Table::plain(&titles[..columns], reply.matches.iter().map(row).collect())
}
