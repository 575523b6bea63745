//! Raw rows to the assembler: what only the whole file can tell is checked here, then ids become numbers.
//!
//! Invariant: with one bad row the file is refused, so a partly assembled trace is never handed out.

use std::borrow::Cow;

use crate::trace::assemble::counted;
use crate::trace::{AssembleError, Assembler, Row, Trace, TraceMeta};

use super::blocks;
use super::decide::Decided;
use super::error::{RowError, TraceError};
use super::ids::IdText;
use super::line::{Lines, RawRow};
use super::{Format, TimeUnit};

/// Assembles the rows under the decisions of the file.
///
/// # Errors
/// Lists bad rows; refuses a file without rows.
pub(super) fn assemble(
    file: &str,
    mut lines: Lines<'_>,
    decided: &Decided,
    meta: TraceMeta,
) -> Result<Trace, TraceError> {
    let advice = check_rows(&mut lines, decided);
    let turn_ids = turn_ids(&mut lines, decided.unit);
    let Lines { rows, sessions, mut errors, .. } = lines;
    let failed = |cause: AssembleError| TraceError::Assemble { file: file.to_owned(), cause };
    let mut assembler = Assembler::new(decided.block_size);
    let mut per_session: Vec<IdText<'_>> = std::iter::repeat_with(IdText::default).take(sessions.len()).collect();
    let mut sessionless = IdText::default();
    for (row, turn_id) in rows.iter().zip(turn_ids) {
        let known = match row.session {
            Some(session) => &mut per_session[session as usize],
            None => &mut sessionless,
        };
        let taken = row.hash_ids.map(|(text, _)| known.take(text)).transpose();
        let hash_ids = match taken {
            Ok(ids) => ids,
            Err(piece) => {
                let cause = format!("`{piece}` is not a whole number from 0 to 18446744073709551615");
                errors.push(RowError::field(row.line, "hash_ids", cause));
                continue;
            }
        };
        let session_id = match row.session {
            Some(session) => Cow::Borrowed(sessions[session as usize].as_ref()),
            None => Cow::Owned(format!("row-{}", row.line)),
        };
        let row = Row {
            session_id: &session_id,
            turn_id,
            line: row.line,
            timestamp_ns: nanoseconds(row, decided.unit).unwrap_or(0),
            input_length: row.input_length,
            output_length: row.output_length,
            output_raised: row.output_raised,
            cached_tokens: row.cached_tokens,
            hash_ids,
            request_id: row.request_id.as_deref(),
        };
        // A row that was found bad may not fit; its error is listed already.
        if errors.is_empty() {
            assembler.push(row).map_err(failed)?;
        }
    }
    errors.finish(advice)?;
    assembler.finish(meta).map_err(|cause| match cause {
        AssembleError::Empty => TraceError::Empty { file: file.to_owned() },
        AssembleError::ZeroLength { .. }
        | AssembleError::TooLong { .. }
        | AssembleError::IdCount { .. }
        | AssembleError::TooManyRows
        | AssembleError::TooManyBlocks
        | AssembleError::NoFreeIds => failed(cause),
    })
}

fn nanoseconds(row: &RawRow<'_>, unit: TimeUnit) -> Option<u64> {
    row.timestamp.and_then(|time| time.scaled(unit.power()))
}

/// Lists rows that do not fit the rest of the file; gives the remedy for a block size that is wrong as a whole.
fn check_rows(lines: &mut Lines<'_>, decided: &Decided) -> Option<String> {
    let (mut with_ids, mut misfits) = (0u64, 0u64);
    for row in &lines.rows {
        if row.session.is_none() && decided.format == Format::Native {
            let cause = "is missing, but other rows have it; every row of a native trace names its session";
            lines.errors.push(RowError::field(row.line, "session_id", cause));
        }
        if row.timestamp.is_none() && (row.delayed || !decided.closed_loop) {
            let cause = match row.delayed {
                true => "is missing; a `delay` after the previous answer is not a time, compute the `timestamp`",
                false => "is missing or null, but other rows have one; give all rows a time, or none",
            };
            lines.errors.push(RowError::field(row.line, "timestamp", cause));
        } else if row.timestamp.is_some() && nanoseconds(row, decided.unit).is_none() {
            let cause = format!("is out of range: more than 584 years in {}", decided.unit.as_str());
            lines.errors.push(RowError::field(row.line, "timestamp", cause));
        }
        with_ids += u64::from(row.hash_ids.is_some());
        if let Some(error) = blocks::check(row, decided.block_size) {
            misfits += 1;
            lines.errors.push(error);
        }
    }
    if misfits == 0 || misfits * 2 < with_ids {
        return None;
    }
    let of = format!("{misfits} of {}", counted(with_ids, "row with ids does", "rows with ids do"));
    let better = blocks::infer(&lines.rows).filter(|found| found.size != decided.block_size);
    Some(match better {
        Some(found) => format!(
            "{of} not fit blocks of {}: the block size looks wrong; pass `--block-size {}`, \
             which fits {} of {}",
            decided.block_size, found.size, found.fits, found.rows
        ),
        None => {
            format!("{of} not fit blocks of {}: the block size looks wrong; pass `--block-size`", decided.block_size)
        }
    })
}

/// The turn number of each row: the file's, or the place in its session by time where the session has none.
fn turn_ids(lines: &mut Lines<'_>, unit: TimeUnit) -> Vec<u32> {
    let mut numbers: Vec<u32> = lines.rows.iter().map(|row| row.turn_id.unwrap_or(1)).collect();
    if lines.rows.iter().all(|row| row.turn_id.is_some() || row.session.is_none()) {
        return numbers;
    }
    let mut piles: Vec<Vec<u32>> = vec![Vec::new(); lines.sessions.len()];
    for (at, row) in lines.rows.iter().enumerate() {
        if let Some(session) = row.session {
            piles[session as usize].push(at as u32);
        }
    }
    for pile in &mut piles {
        let row = |at: u32| &lines.rows[at as usize];
        let Some(named) = pile.iter().map(|&at| row(at)).find(|row| row.turn_id.is_some()).map(|row| row.line) else {
            // Stable: equal times keep file order.
            pile.sort_by_key(|&at| nanoseconds(row(at), unit));
            for (number, &at) in (1u32..).zip(pile.iter()) {
                numbers[at as usize] = number;
            }
            continue;
        };
        for &at in pile.iter().filter(|&&at| row(at).turn_id.is_none()) {
            let cause = format!("is missing, but line {named} of the same session has one; number all turns, or none");
            lines.errors.push(RowError::field(row(at).line, "turn_id", cause));
        }
    }
    numbers
}
