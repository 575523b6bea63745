//! The block size of a file's ids, and rows whose id count does not fit it.
//!
//! A prompt of n tokens has floor(n / size) ids (full blocks only) or ceil(n / size) (the part-filled one too). Each row
//! so allows a range of sizes; the size most rows allow wins, a usual one before an odd one.

use crate::trace::assemble::{accepted_ids, accepted_text, counted};

use super::error::RowError;
use super::line::RawRow;

/// Sizes in use, the most likely first.
const USUAL: [u32; 10] = [64, 512, 16, 128, 32, 256, 1024, 24, 8, 2048];
/// Rows looked at; more do not make the answer surer.
const SAMPLE: usize = 4096;

/// Result of an inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inferred {
    /// Tokens per block.
    pub(super) size: u32,
    /// Sampled rows it fits.
    pub(super) fits: usize,
    /// Sampled rows with ids.
    pub(super) rows: usize,
    /// Smallest and largest size that fit as many rows, around the chosen one.
    pub(super) range: (u32, u32),
}

/// The size that fits most rows; `None` when no row has an id.
pub(super) fn infer(rows: &[RawRow<'_>]) -> Option<Inferred> {
    if rows.iter().all(|row| row.hash_ids.is_none_or(|(_, ids)| ids == 0)) {
        return None;
    }
    let ranges: Vec<(u64, u64)> = rows.iter().filter_map(sizes).take(SAMPLE).collect();
    let mut edges: Vec<(u64, i32)> = ranges.iter().flat_map(|&(low, high)| [(low, 1), (high + 1, -1)]).collect();
    edges.sort_unstable();
    let (mut fits, mut best) = (0i32, 0i32);
    // Stretches of sizes that fit as many rows as any.
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    for same in edges.chunk_by(|a, b| a.0 == b.0).collect::<Vec<_>>().windows(2) {
        fits += same[0].iter().map(|edge| edge.1).sum::<i32>();
        if fits > best {
            best = fits;
            stretches.clear();
        }
        if fits == best && best > 0 {
            stretches.push((same[0][0].0, same[1][0].0 - 1));
        }
    }
    let holds = |size: u32| stretches.iter().find(|(low, high)| (*low..=*high).contains(&u64::from(size)));
    let usual = USUAL.into_iter().find(|&size| holds(size).is_some());
    let size = usual.or_else(|| stretches.first().map(|&(low, _)| low.min(u64::from(u32::MAX)) as u32))?;
    let &(low, high) = holds(size)?;
    let clamp = |size: u64| size.min(u64::from(u32::MAX)) as u32;
    Some(Inferred { size, fits: best as usize, rows: ranges.len(), range: (clamp(low), clamp(high)) })
}

/// Block sizes a row allows.
fn sizes(row: &RawRow<'_>) -> Option<(u64, u64)> {
    let (_, ids) = row.hash_ids?;
    let (input, ids) = (u64::from(row.input_length), u64::from(ids));
    // floor(input / size) = ids gives the lower end, ceil(input / size) = ids the upper one.
    let low = input / (ids + 1) + 1;
    let high = if ids > 1 { input.div_ceil(ids - 1) - 1 } else { u64::from(u32::MAX) };
    (low <= high).then_some((low, high))
}

/// What is wrong with a row's id count, if anything.
pub(super) fn check(row: &RawRow<'_>, block_size: u32) -> Option<RowError> {
    let (_, ids) = row.hash_ids?;
    let (floor, ceil) = accepted_ids(row.input_length, block_size);
    if ids == floor || ids == ceil {
        return None;
    }
    let cause = format!(
        "{} for {} tokens in blocks of {block_size}; {} would fit",
        counted(ids.into(), "id", "ids"),
        row.input_length,
        accepted_text(row.input_length, block_size)
    );
    Some(RowError::field(row.line, "hash_ids", cause))
}
