//! Values of a column from its pages: levels, plain values, numbers of a dictionary.
//!
//! polars-parquet decodes, too, but into a view of a string for each row; here the numbers of its dictionary come out, which is
//! what is wanted of names. No length is believed: a vector grows with the bytes that were read, or to the rows of the group.
//! Format: the Parquet encodings `PLAIN`, `RLE` and `RLE_DICTIONARY`.

use super::batch::{Data, NO_WORD, Numbers, Words};
use super::columns::{Column, Kind};
use super::error::FrameError;
use super::page::{Layout, Page, PageKind, Pages, varint};

/// The values of a column of `rows` rows; `has_levels` when nulls may stand in it.
pub(super) fn column(column: &Column, pages: &mut Pages, rows: usize, has_levels: bool) -> Result<Data, FrameError> {
    let mut values = Values::empty(column);
    let mut row = 0;
    let mut levels = Vec::new();
    while row < rows {
        let Page { kind, values: count, bytes } = pages.next()?;
        let layout = match kind {
            PageKind::Values(layout) if (1..=rows - row).contains(&count) => layout,
            PageKind::Dictionary if row == 0 => {
                values.dictionary(bytes, count)?;
                continue;
            }
            _ => return Err(FrameError::damaged(format!("column `{}`: its pages do not fit its rows", column.name))),
        };
        levels.clear();
        let bytes = if has_levels { take_levels(bytes, count, &mut levels)? } else { bytes };
        let present = if has_levels { levels.iter().filter(|valid| **valid).count() } else { count };
        if present == count {
            levels.clear();
        }
        values
            .page(bytes, layout, count, present, &levels)
            .ok_or_else(|| FrameError::damaged(format!("column `{}`: its values are cut off", column.name)))?;
        row += count;
    }
    Ok(values.data)
}

/// The validity of `count` rows, and the bytes behind: their length, then runs of one bit.
fn take_levels<'a>(bytes: &'a [u8], count: usize, levels: &mut Vec<bool>) -> Result<&'a [u8], FrameError> {
    let taken = || {
        let (length, bytes) = bytes.split_first_chunk()?;
        let (runs, rest) = bytes.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        each_in_runs(runs, 1, count, |level| levels.push(level == 1))?;
        Some(rest)
    };
    let mut taken = taken;
    taken().ok_or_else(|| FrameError::damaged("the marks of its nulls are cut off"))
}

/// Values so far, and the dictionary they may be numbers of.
struct Values {
    data: Data,
    /// Numbers of the dictionary, for a column of numbers.
    dictionary: Option<Data>,
    dictionary_len: usize,
}

/// A number as it lies in a file.
trait Plain: Copy + Default {
    const BYTES: usize;
    fn read(bytes: &[u8]) -> Option<Self>;
}

macro_rules! plain {
    ($($kind:ty),+) => {
        $(impl Plain for $kind {
            const BYTES: usize = size_of::<$kind>();

            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|bytes| <$kind>::from_le_bytes(*bytes))
            }
        })+
    };
}

plain!(u32, u64, f64);

impl Values {
    fn empty(column: &Column) -> Values {
        let dictionary = match column.kind {
            Kind::U32 | Kind::U64 | Kind::F64 => Some(Data::empty(column.kind)),
            Kind::Bool | Kind::Label | Kind::Text => None,
        };
        Values { data: Data::empty(column.kind), dictionary, dictionary_len: 0 }
    }

    fn dictionary(&mut self, bytes: &[u8], count: usize) -> Result<(), FrameError> {
        self.dictionary_len = count;
        let read = match (&mut self.data, &mut self.dictionary) {
            (Data::Words(words), _) => push_words(words, bytes, count),
            (_, Some(Data::U32(numbers))) => push_plain(&mut numbers.values, bytes, count),
            (_, Some(Data::U64(numbers))) => push_plain(&mut numbers.values, bytes, count),
            (_, Some(Data::F64(numbers))) => push_plain(&mut numbers.values, bytes, count),
            (_, _) => None,
        };
        read.ok_or_else(|| FrameError::damaged("a dictionary is cut off"))
    }

    /// Takes in a page of `count` rows, `present` of them not null by `levels` (empty when all are).
    fn page(&mut self, bytes: &[u8], layout: Layout, count: usize, present: usize, levels: &[bool]) -> Option<()> {
        match (&mut self.data, &self.dictionary) {
            (Data::U32(numbers), Some(Data::U32(dictionary))) => {
                numbers_page(numbers, &dictionary.values, bytes, layout, present)?;
                spread(numbers, count, present, levels);
            }
            (Data::U64(numbers), Some(Data::U64(dictionary))) => {
                numbers_page(numbers, &dictionary.values, bytes, layout, present)?;
                spread(numbers, count, present, levels);
            }
            (Data::F64(numbers), Some(Data::F64(dictionary))) => {
                numbers_page(numbers, &dictionary.values, bytes, layout, present)?;
                spread(numbers, count, present, levels);
            }
            (Data::Bool(numbers), _) => {
                flags_page(numbers, bytes, layout, present)?;
                spread(numbers, count, present, levels);
            }
            (Data::Words(words), _) => {
                words_page(words, self.dictionary_len, bytes, layout, present)?;
                spread_codes(&mut words.codes, present, levels);
            }
            (_, _) => return None,
        }
        Some(())
    }
}

fn push_plain<T: Plain>(values: &mut Vec<T>, bytes: &[u8], count: usize) -> Option<()> {
    let bytes = bytes.get(..count.checked_mul(T::BYTES)?)?;
    values.extend(bytes.chunks_exact(T::BYTES).filter_map(T::read));
    Some(())
}

fn push_words(words: &mut Words, mut bytes: &[u8], count: usize) -> Option<()> {
    for _ in 0..count {
        let (length, rest) = bytes.split_first_chunk()?;
        let (word, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        words.list.push(std::str::from_utf8(word).ok()?);
        bytes = rest;
    }
    Some(())
}

fn numbers_page<T: Plain>(
    numbers: &mut Numbers<T>,
    dictionary: &[T],
    bytes: &[u8],
    layout: Layout,
    present: usize,
) -> Option<()> {
    match layout {
        _ if present == 0 => Some(()),
        Layout::Plain => push_plain(&mut numbers.values, bytes, present),
        Layout::Dictionary => {
            let (width, bytes) = bytes.split_first()?;
            let mut is_known = true;
            each_in_runs(bytes, *width, present, |code| {
                let value = dictionary.get(code as usize);
                is_known &= value.is_some();
                numbers.values.push(value.copied().unwrap_or_default());
            })?;
            is_known.then_some(())
        }
        Layout::Runs => None,
    }
}

fn flags_page(flags: &mut Numbers<bool>, bytes: &[u8], layout: Layout, present: usize) -> Option<()> {
    match layout {
        _ if present == 0 => Some(()),
        Layout::Plain => {
            let bytes = bytes.get(..present.div_ceil(8))?;
            flags.values.extend((0..present).map(|at| bytes[at / 8] >> (at % 8) & 1 == 1));
            Some(())
        }
        Layout::Runs => {
            let (length, bytes) = bytes.split_first_chunk()?;
            let runs = bytes.get(..u32::from_le_bytes(*length) as usize)?;
            each_in_runs(runs, 1, present, |flag| flags.values.push(flag == 1))
        }
        Layout::Dictionary => None,
    }
}

fn words_page(words: &mut Words, dictionary: usize, bytes: &[u8], layout: Layout, present: usize) -> Option<()> {
    match layout {
        _ if present == 0 => Some(()),
        Layout::Plain => {
            let first = words.list.len() as u32;
            push_words(words, bytes, present)?;
            words.codes.extend(first..first + present as u32);
            Some(())
        }
        Layout::Dictionary => {
            let (width, bytes) = bytes.split_first()?;
            let mut highest = 0;
            each_in_runs(bytes, *width, present, |code| {
                highest = highest.max(code);
                words.codes.push(code);
            })?;
            ((highest as usize) < dictionary).then_some(())
        }
        Layout::Runs => None,
    }
}

/// Moves the last `present` values to the rows that have one.
fn spread<T: Copy + Default>(numbers: &mut Numbers<T>, count: usize, present: usize, levels: &[bool]) {
    let before = numbers.values.len() - present;
    if levels.is_empty() {
        if !numbers.valid.is_empty() {
            numbers.valid.resize(before + count, true);
        }
        return;
    }
    if numbers.valid.is_empty() {
        numbers.valid.resize(before, true);
    }
    numbers.valid.extend_from_slice(levels);
    spread_values(&mut numbers.values, before, levels, T::default());
}

fn spread_codes(codes: &mut Vec<u32>, present: usize, levels: &[bool]) {
    let before = codes.len() - present;
    if !levels.is_empty() {
        spread_values(codes, before, levels, NO_WORD);
    }
}

/// From the back, so that no value is overwritten before it was moved.
fn spread_values<T: Copy>(values: &mut Vec<T>, before: usize, levels: &[bool], null: T) {
    let mut from = values.len();
    values.resize(before + levels.len(), null);
    for (at, valid) in levels.iter().enumerate().rev() {
        let mut value = null;
        if *valid {
            from -= 1;
            value = values[from];
        }
        values[before + at] = value;
    }
}

/// Gives `count` whole numbers of `width` bits: runs of one number, or groups of eight packed ones. `None` when the bytes end
/// before.
fn each_in_runs(mut bytes: &[u8], width: u8, count: usize, mut each: impl FnMut(u32)) -> Option<()> {
    let mut left = count;
    if width > 32 {
        return None;
    }
    while left > 0 {
        let (head, rest) = varint(bytes)?;
        let length = usize::try_from(head >> 1).ok()?;
        if head & 1 == 0 {
            let (number, rest) = rest.split_at_checked(usize::from(width).div_ceil(8))?;
            let number = number.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            let run = length.min(left);
            if run == 0 {
                return None;
            }
            (0..run).for_each(|_| each(number));
            (left, bytes) = (left - run, rest);
        } else {
            let packed_bytes = length.checked_mul(usize::from(width))?;
            let packed = &rest[..packed_bytes.min(rest.len())];
            let run = length.checked_mul(8)?.min(left);
            if run == 0 || packed.len() < (run * usize::from(width)).div_ceil(8) {
                return None;
            }
            unpack(packed, u32::from(width), run, &mut each);
            (left, bytes) = (left - run, &rest[packed.len()..]);
        }
    }
    Some(())
}

fn unpack(packed: &[u8], width: u32, count: usize, each: &mut impl FnMut(u32)) {
    let mask = (1_u64 << width) - 1;
    for at in 0..count {
        let bit = at * width as usize;
        let word = match packed.get(bit / 8..).and_then(|bytes| bytes.first_chunk()) {
            Some(bytes) => u64::from_le_bytes(*bytes),
            // The last bytes: at most five are needed.
            None => {
                packed[(bit / 8).min(packed.len())..].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            }
        };
        each((word >> (bit % 8) & mask) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(bytes: &[u8], width: u8, count: usize) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        each_in_runs(bytes, width, count, |number| found.push(number))?;
        Some(found)
    }

    #[test]
    fn runs_and_packed_numbers_follow_each_other() {
        // The example of the format: 0 to 7 in 3 bits are 88 C6 FA.
        assert_eq!(runs(&[3, 0x88, 0xC6, 0xFA, 4, 5], 3, 10), Some(vec![0, 1, 2, 3, 4, 5, 6, 7, 5, 5]));
        assert_eq!(runs(&[6], 0, 3), Some(vec![0; 3]));
        assert_eq!(runs(&[8, 1, 2, 3, 4], 32, 4), Some(vec![0x0403_0201; 4]));
    }

    #[test]
    fn what_ends_too_early_is_nothing() {
        for bytes in [&[][..], &[3, 0x88], &[0, 1], &[4], &[1], &[0xff; 12]] {
            assert_eq!(runs(bytes, 3, 9), None, "{bytes:?}");
        }
        assert_eq!(runs(&[3; 40], 33, 8), None);
    }

    #[test]
    fn values_go_to_the_rows_that_have_one() {
        let mut numbers = Numbers { values: vec![9, 1, 2], valid: vec![] };
        spread(&mut numbers, 4, 2, &[false, true, false, true]);
        assert_eq!(numbers.values, [9, 0, 1, 0, 2]);
        assert_eq!(numbers.valid, [true, false, true, false, true]);
    }
}
