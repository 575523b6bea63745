//! Writes a trace as native JSONL: a header line, then the rows in time order.
//!
//! What is written reads back as the same trace, with three things to know. Times count from the earliest row (the
//! file's own origin is not kept). `hash_ids` name full blocks only, so their count is floor(input / block): the id of a
//! part-filled last block never matches anything and is not kept. A session id that was a number is written as a string
//! of the same digits. An answer length that was raised to 1 is written as the 0 the file had.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use crate::base::Dur;
use crate::trace::read::{HEADER_FORMAT, HEADER_VERSION, hex};
use crate::trace::{Trace, TurnTrace};

/// Writes the whole trace. The caller buffers.
///
/// # Errors
/// Those of the writer.
pub fn write_native(trace: &Trace, to: &mut impl Write) -> io::Result<()> {
    let block_size = trace.tree.block_size();
    writeln!(
        to,
        r#"{{"format":"{HEADER_FORMAT}","version":{HEADER_VERSION},"block_size":{block_size},"timestamp_unit":"s"}}"#
    )?;
    let mut line = Vec::new();
    for index in trace.by_time() {
        line.clear();
        write_row(trace, &trace.turns[index as usize], &mut line)?;
        to.write_all(&line)?;
    }
    Ok(())
}

/// Hex SHA-256 of the native text, the digest of a trace that has no file.
pub fn native_digest(trace: &Trace) -> String {
    let mut digest = Sink(Sha256::new());
    write_native(trace, &mut digest).expect("a digest takes every byte");
    hex(&digest.0.finalize())
}

struct Sink(Sha256);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_row(trace: &Trace, turn: &TurnTrace, line: &mut Vec<u8>) -> io::Result<()> {
    line.extend_from_slice(br#"{"session_id":"#);
    serde_json::to_writer(&mut *line, &trace.sessions[turn.session.ix()].id)?;
    write!(line, r#","turn_id":{},"timestamp":"#, turn.turn_id)?;
    seconds(turn.timestamp, line)?;
    let output = if turn.output_raised { 0 } else { turn.output_length };
    write!(
        line,
        r#","input_length":{},"output_length":{output},"cached_tokens":{}"#,
        turn.input_length, turn.cached_tokens
    )?;
    if let Some(id) = &turn.request_id {
        line.extend_from_slice(br#","request_id":"#);
        serde_json::to_writer(&mut *line, id)?;
    }
    line.extend_from_slice(br#","hash_ids":"#);
    serde_json::to_writer(&mut *line, &trace.tree.ids(turn.prompt))?;
    line.extend_from_slice(b"}\n");
    Ok(())
}

/// Exact seconds, always with a point, so that nobody takes them for milliseconds.
fn seconds(time: Dur, line: &mut Vec<u8>) -> io::Result<()> {
    let (whole, fraction) = (time.ns() / 1_000_000_000, time.ns() % 1_000_000_000);
    let digits = format!("{fraction:09}");
    let digits = digits.trim_end_matches('0');
    write!(line, "{whole}.{}", if digits.is_empty() { "0" } else { digits })
}
