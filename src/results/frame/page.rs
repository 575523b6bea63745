//! Pages of a column: their headers, in the compact Thrift form, and their bytes without compression.
//!
//! polars-parquet has a reader of pages, too, but allocates what a header claims and gives no way to look before. Here a page
//! may not grow more than its compression can make it. Format: `parquet.thrift`, `PageHeader`.

use polars_parquet::parquet::compression::{Compression, DecompressionContext, decompress};

use super::error::FrameError;

/// No more bytes come out of a byte of Snappy: 64 of 3 are its best, and the header is small.
const MOST_GROWTH: usize = 32;
/// Small pages may be mostly one repeat.
const GROWTH_FLOOR: usize = 1024;
/// Structs in structs of a header.
const DEEPEST: u32 = 8;

/// Kinds of pages and encodings that are read.
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const RLE_DICTIONARY: i64 = 8;

/// How the values of a page are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// One after the other.
    Plain,
    /// Numbers of values of the dictionary.
    Dictionary,
    /// Runs of bits, for flags.
    Runs,
}

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageKind {
    /// The dictionary of the column.
    Dictionary,
    /// Values.
    Values(Layout),
}

/// A page.
#[derive(Debug)]
pub(super) struct Page<'a> {
    pub kind: PageKind,
    /// Values in it, nulls included.
    pub values: usize,
    pub bytes: &'a [u8],
}

/// Takes the pages off a column one by one.
pub(super) struct Pages<'a> {
    rest: &'a [u8],
    compression: Compression,
    context: DecompressionContext,
    /// Bytes of the page at hand.
    buffer: Vec<u8>,
}

#[derive(Debug, Default)]
struct Header {
    kind: Option<i64>,
    plain_bytes: Option<i64>,
    bytes: Option<i64>,
    values: Option<i64>,
    encoding: Option<i64>,
}

impl<'a> Pages<'a> {
    /// Of the bytes of a column; `buffer` is used again.
    pub(super) fn new(bytes: &'a [u8], compression: Compression, buffer: Vec<u8>) -> Self {
        Pages { rest: bytes, compression, context: DecompressionContext::Unset, buffer }
    }

    /// The next page. Error: what about it cannot be read.
    pub(super) fn next(&mut self) -> Result<Page<'_>, FrameError> {
        let mut thrift = Thrift { rest: self.rest };
        let header = thrift.header().ok_or_else(|| FrameError::damaged("a page header is cut off"))?;
        let lengths = || Some((usize::try_from(header.bytes?).ok()?, usize::try_from(header.plain_bytes?).ok()?));
        let (bytes, plain_bytes) = lengths().ok_or_else(|| FrameError::damaged("a page has no length"))?;
        let (page, rest) =
            thrift.rest.split_at_checked(bytes).ok_or_else(|| FrameError::damaged("a page is cut off"))?;
        self.rest = rest;
        let page = match self.compression {
            Compression::Uncompressed => page,
            compression => {
                if plain_bytes > bytes.saturating_mul(MOST_GROWTH).max(GROWTH_FLOOR) {
                    return Err(FrameError::damaged(format!("a page of {bytes} bytes claims {plain_bytes}")));
                }
                self.buffer.clear();
                self.buffer.resize(plain_bytes, 0);
                if plain_bytes > 0 {
                    decompress(compression, page, &mut self.buffer, &mut self.context)
                        .map_err(|error| FrameError::damaged(error.to_string()))?;
                }
                self.buffer.as_slice()
            }
        };
        let values = header.values.and_then(|values| usize::try_from(values).ok());
        let values = values.ok_or_else(|| FrameError::damaged("a page has no number of values"))?;
        Ok(Page { kind: header.page_kind()?, values, bytes: page })
    }

    /// Gives the buffer back.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

impl Header {
    fn page_kind(&self) -> Result<PageKind, FrameError> {
        match (self.kind, self.encoding) {
            (Some(DICTIONARY_PAGE), Some(PLAIN | PLAIN_DICTIONARY)) => Ok(PageKind::Dictionary),
            (Some(DATA_PAGE), Some(PLAIN)) => Ok(PageKind::Values(Layout::Plain)),
            (Some(DATA_PAGE), Some(PLAIN_DICTIONARY | RLE_DICTIONARY)) => Ok(PageKind::Values(Layout::Dictionary)),
            (Some(DATA_PAGE), Some(RLE)) => Ok(PageKind::Values(Layout::Runs)),
            (kind, encoding) => {
                let word = |number: Option<i64>| number.map_or("none".into(), |number| number.to_string());
                Err(FrameError::damaged(format!("a page of kind {}, encoding {}", word(kind), word(encoding))))
            }
        }
    }
}

/// A reader of the compact protocol; `None` is an end too early or a depth without sense.
struct Thrift<'a> {
    rest: &'a [u8],
}

impl<'a> Thrift<'a> {
    fn header(&mut self) -> Option<Header> {
        let mut header = Header::default();
        self.each_field(|thrift, id, kind| match id {
            1 => thrift.number(kind).map(|number| header.kind = number),
            2 => thrift.number(kind).map(|number| header.plain_bytes = number),
            3 => thrift.number(kind).map(|number| header.bytes = number),
            // The headers of data and dictionary pages both begin with number of values and encoding.
            5 | 7 if kind == STRUCT => thrift.each_field(|thrift, id, kind| match id {
                1 => thrift.number(kind).map(|number| header.values = number),
                2 => thrift.number(kind).map(|number| header.encoding = number),
                _ => thrift.skip(kind, 0),
            }),
            _ => thrift.skip(kind, 0),
        })?;
        Some(header)
    }

    fn each_field(&mut self, mut each: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        let mut id = 0_i64;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Some(());
            }
            id = match byte >> 4 {
                0 => self.zigzag()?,
                step => id.checked_add(i64::from(step))?,
            };
            each(self, id, byte & 15)?;
        }
    }

    /// A whole number; one of another type is passed over.
    fn number(&mut self, kind: u8) -> Option<Option<i64>> {
        if (I16..=I64).contains(&kind) { self.zigzag().map(Some) } else { self.skip(kind, 0).map(|()| None) }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            TRUE | FALSE => Some(()),
            BYTE => self.byte().map(drop),
            I16..=I64 => self.varint().map(drop),
            DOUBLE => self.take(8).map(drop),
            BINARY => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.take(length).map(drop)
            }
            LIST | SET if depth < DEEPEST => {
                let byte = self.byte()?;
                let count = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
                // A flag in a list takes a byte, unlike in a struct.
                let kind = if matches!(byte & 15, TRUE | FALSE) { BYTE } else { byte & 15 };
                (0..count).try_for_each(|_| self.skip(kind, depth + 1))
            }
            STRUCT if depth < DEEPEST => self.each_field(|thrift, _, kind| thrift.skip(kind, depth + 1)),
            _ => None,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, rest) = varint(self.rest)?;
        self.rest = rest;
        Some(value)
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

// Types of the compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// A whole number in groups of seven bits, the lowest first, and what follows it.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (ix, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 127) << (7 * ix as u32);
        if byte & 128 == 0 {
            return Some((value, &bytes[ix + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_nothing_but_depth_or_length_is_refused() {
        for bytes in [&[][..], &[0x15], &[0x5c; 64], &[0x19, 0xf9, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0xff; 40]] {
            assert!(Pages::new(bytes, Compression::Snappy, vec![]).next().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_page_that_claims_more_than_its_compression_gives_is_refused() {
        // kind 0, 2^30 bytes of 2: the fields 1, 2, 3 as i32.
        let bytes = [0x15, 0, 0x15, 0x80, 0x80, 0x80, 0x80, 0x08, 0x15, 4, 0, 7, 7];
        let error = Pages::new(&bytes, Compression::Snappy, vec![]).next().unwrap_err().to_string();
        assert!(error.contains("a page of 2 bytes claims 1073741824"), "{error}");
    }
}
