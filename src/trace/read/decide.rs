//! What holds for the file as a whole: header, format, clock, block size.
//!
//! A flag wins over the header, the header over what the rows show. Each choice the file does not spell out is a notice.

use serde::Deserialize;
use serde_json::Value;

use crate::base::from_json;
use crate::trace::Notice;
use crate::trace::assemble::counted;

use super::clock::{self, Said};
use super::line::Lines;
use super::{Format, ReadOptions, TimeUnit, TraceError, blocks, json};

/// `format` of the header line.
pub(crate) const HEADER_FORMAT: &str = "pdreplay-trace";
/// `version` of the header line.
pub(crate) const HEADER_VERSION: u32 = 1;
/// Tokens per block of a Mooncake trace.
const MOONCAKE_BLOCK: u32 = 512;
/// Tokens per block of a native trace without ids: nothing depends on it but the minted blocks.
const DEFAULT_BLOCK: u32 = 64;
/// Rows that decide the format.
const FIRST_ROWS: usize = 16;

/// What the header line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) block_size: Option<u32>,
    unit: Option<TimeUnit>,
}

/// What holds for all rows.
#[derive(Debug, Clone)]
pub(super) struct Decided {
    pub(super) format: Format,
    pub(super) unit: TimeUnit,
    pub(super) block_size: u32,
    pub(super) block_size_source: &'static str,
    /// No row has a timestamp.
    pub(super) closed_loop: bool,
}

/// Values of any type, so that a wrong one is named by its key.
#[derive(Deserialize)]
struct HeaderLine {
    version: Option<Value>,
    block_size: Option<Value>,
    timestamp_unit: Option<Value>,
}

/// The header, when the first line is one.
pub(super) fn header(file: &str, line: u32, text: &str) -> Result<Option<Header>, TraceError> {
    #[derive(Deserialize)]
    struct Mark<'a> {
        #[serde(borrow)]
        format: Option<std::borrow::Cow<'a, str>>,
    }
    // Rows rarely name a format; the search spares them a second parse.
    if memchr::memmem::find(text.as_bytes(), b"\"format\"").is_none() || !json::is_json(text) {
        return Ok(None);
    }
    let marked = serde_json::from_str::<Mark<'_>>(text).ok().and_then(|mark| mark.format);
    if marked.as_deref() != Some(HEADER_FORMAT) {
        return Ok(None);
    }
    let wrong = |cause: String| TraceError::Header { file: file.to_owned(), line, cause };
    let said: HeaderLine = from_json(text.as_bytes()).map_err(|fault| wrong(fault.words))?;
    let version = said.version.ok_or_else(|| wrong(format!("`version` is missing; write {HEADER_VERSION}")))?;
    if version.as_u64() != Some(HEADER_VERSION.into()) {
        return Err(wrong(format!("`version` {version} is not known; this program reads version {HEADER_VERSION}")));
    }
    let tokens = |size: Value| {
        let whole = size.as_u64().and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
        whole.ok_or_else(|| {
            wrong(format!("`block_size` is {size}; write a whole number of tokens from 1 to {}", u32::MAX))
        })
    };
    let block_size = said.block_size.map(tokens).transpose()?;
    let unit = said.timestamp_unit.map(|unit| match &unit {
        Value::String(unit) => unit.parse::<TimeUnit>(),
        _ => Err(format!("{unit} is not a unit of time; write \"s\", \"ms\", \"us\" or \"ns\"")),
    });
    let unit = unit.transpose().map_err(|cause| wrong(format!("`timestamp_unit`: {cause}")))?;
    Ok(Some(Header { block_size, unit }))
}

/// Decides for the whole file.
///
/// # Errors
/// Refuses files of a kind that only looks alike.
pub(super) fn decide(
    file: &str,
    lines: &Lines<'_>,
    options: &ReadOptions,
    notices: &mut Vec<Notice>,
) -> Result<Decided, TraceError> {
    refuse_lookalikes(file, lines)?;
    let format = options.format.unwrap_or_else(|| {
        let with_session = lines.rows.iter().take(FIRST_ROWS).any(|row| row.session.is_some());
        if with_session || lines.rows.is_empty() || lines.header.is_some() { Format::Native } else { Format::Mooncake }
    });
    if options.format.is_none() && format == Format::Mooncake {
        let text = "rows have no `session_id`: read as mooncake, each row its own session".to_owned();
        notices.push(Notice { code: "format", text });
    }
    let said = Said { flag: options.timestamp_unit, header: lines.header.and_then(|header| header.unit), format };
    let unit = clock::decide(&lines.rows, said, notices);
    let (block_size, block_size_source) = block_size(lines, options, format, notices);
    let timed = lines.rows.iter().any(|row| row.timestamp.is_some()) || lines.bad_timestamps > 0;
    if !timed && !lines.rows.is_empty() {
        let text = "no row has a `timestamp`: closed loop, every session starts at 0 and each turn follows the previous \
                    one at once";
        notices.push(Notice { code: "no-timestamps", text: text.to_owned() });
    }
    Ok(Decided { format, unit, block_size, block_size_source, closed_loop: !timed })
}

fn block_size(
    lines: &Lines<'_>,
    options: &ReadOptions,
    format: Format,
    notices: &mut Vec<Notice>,
) -> (u32, &'static str) {
    let header = lines.header.and_then(|header| header.block_size);
    if let Some(flag) = options.block_size {
        if let Some(header) = header.filter(|&header| header != flag) {
            let text = format!("block size is {flag} as asked for, against the header's {header}");
            notices.push(Notice { code: "header-overridden", text });
        }
        return (flag, "flag");
    }
    if let Some(header) = header {
        return (header, "header");
    }
    match format {
        Format::Mooncake => (MOONCAKE_BLOCK, "format"),
        Format::Native => match blocks::infer(&lines.rows) {
            Some(found) => {
                let (low, high) = found.range;
                let range = match (low == high, high) {
                    (true, _) => String::new(),
                    (false, u32::MAX) => format!(" (any from {low} up would)"),
                    (false, _) => format!(" (any from {low} to {high} would)"),
                };
                let text = format!(
                    "block size {} inferred from the number of `hash_ids`: it fits {} of {}{range}; `--block-size` sets it",
                    found.size,
                    found.fits,
                    counted(found.rows as u64, "row", "rows")
                );
                notices.push(Notice { code: "block-size-inferred", text });
                (found.size, "inferred")
            }
            None => (DEFAULT_BLOCK, "default"),
        },
    }
}

fn refuse_lookalikes(file: &str, lines: &Lines<'_>) -> Result<(), TraceError> {
    if lines.chat_id_only {
        return Err(TraceError::NotJsonl {
            file: file.to_owned(),
            kind: "a Bailian trace (`chat_id` without `session_id`)",
            remedy: "give each row the `chat_id` its conversation began with as `session_id`, and `turn` as `turn_id`",
        });
    }
    // Input length and first id of each session's latest row.
    let mut latest: Vec<Option<(u32, &str)>> = vec![None; lines.sessions.len()];
    for row in &lines.rows {
        let (Some(session), Some((ids, _))) = (row.session, row.hash_ids) else { continue };
        let first = ids.split(',').next().unwrap_or("").trim();
        let previous = latest[session as usize].replace((row.input_length, first));
        let Some((length, begin)) = previous else { continue };
        if row.delayed && row.input_length < length && first != begin {
            return Err(TraceError::Incremental {
                file: file.to_owned(),
                line: row.line,
                session: lines.sessions[session as usize].to_string(),
            });
        }
    }
    Ok(())
}
