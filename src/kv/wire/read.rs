//! Pull reader of MessagePack over a payload in memory.
//!
//! Owns types, counts and depths: nothing is believed that the rest of the payload cannot hold. Knows no event. It also
//! carries the place (event, field) it stands at, so that whoever fails names it. Borrowed text and bytes are not copied.

use rmp::Marker;

use super::error::{DecodeError, DecodeProblem};
use super::tokens::{common_token, common_tokens};
use crate::kv::EngineHash;

/// Deepest nesting of a value that is skipped. Events nest four levels; fields that later releases add, a few more.
const MAX_DEPTH: u32 = 32;

/// A position in a payload.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
    /// Event that is being read, for errors.
    pub event: Option<u32>,
    /// Field that is being read, for errors.
    pub field: &'static str,
}

/// Head of a container: how many elements (of a map: pairs) follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Array(usize),
    Map(usize),
}

type Read<T> = Result<T, DecodeProblem>;

impl<'a> Reader<'a> {
    pub fn new(payload: &'a [u8]) -> Reader<'a> {
        Reader { rest: payload, length: payload.len(), event: None, field: "batch" }
    }

    /// `problem` where the reader stands.
    pub fn error(&self, problem: DecodeProblem) -> DecodeError {
        DecodeError { event: self.event, field: self.field, offset: self.length - self.rest.len(), problem }
    }

    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Refuses bytes behind the value.
    pub fn end(&self) -> Read<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeProblem::Trailing { bytes: self.rest.len() }) }
    }

    /// Head of an array or a map, whichever it is.
    pub fn head(&mut self) -> Read<Head> {
        let start = self.rest;
        match self.marker()? {
            Marker::FixArray(count) => self.count(count.into(), 1).map(Head::Array),
            Marker::Array16 => self.length16().and_then(|count| self.count(count, 1)).map(Head::Array),
            Marker::Array32 => self.length32().and_then(|count| self.count(count, 1)).map(Head::Array),
            Marker::FixMap(count) => self.count(count.into(), 2).map(Head::Map),
            Marker::Map16 => self.length16().and_then(|count| self.count(count, 2)).map(Head::Map),
            Marker::Map32 => self.length32().and_then(|count| self.count(count, 2)).map(Head::Map),
            found => Err(self.unexpected(start, "an array or a map", found)),
        }
    }

    /// Number of elements of an array.
    pub fn array(&mut self) -> Read<usize> {
        let start = self.rest;
        match self.head() {
            Ok(Head::Array(count)) => Ok(count),
            Ok(Head::Map(_)) => {
                self.rest = start;
                Err(DecodeProblem::Unexpected { expected: "an array", found: "a map" })
            }
            Err(DecodeProblem::Unexpected { found, .. }) => {
                Err(DecodeProblem::Unexpected { expected: "an array", found })
            }
            Err(problem) => Err(problem),
        }
    }

    /// Takes a nil, if one comes next.
    pub fn nil(&mut self) -> bool {
        match self.rest {
            [0xc0, rest @ ..] => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Whether an array comes next.
    pub fn is_array(&self) -> bool {
        matches!(self.rest, [0x90..=0x9f | 0xdc | 0xdd, ..])
    }

    /// Whether a map comes next.
    pub fn is_map(&self) -> bool {
        matches!(self.rest, [0x80..=0x8f | 0xde | 0xdf, ..])
    }

    /// Key of a pair; `None` for one that is no text, which no field has.
    pub fn key(&mut self) -> Read<Option<&'a [u8]>> {
        if matches!(self.rest, [0xa0..=0xbf | 0xd9..=0xdb, ..]) {
            return self.text().map(Some);
        }
        self.skip().map(|()| None)
    }

    /// Name of a block: an integer of either sign, or bytes.
    #[inline]
    pub fn hash(&mut self) -> Read<EngineHash> {
        if let [0xcf, a, b, c, d, e, f, g, h, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(EngineHash(u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])));
        }
        let start = self.rest;
        match self.marker()? {
            Marker::Bin8 => self.length8().and_then(|length| self.take(length)).map(EngineHash::from_bytes),
            Marker::Bin16 => self.length16().and_then(|length| self.take(length)).map(EngineHash::from_bytes),
            Marker::Bin32 => self.length32().and_then(|length| self.take(length)).map(EngineHash::from_bytes),
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                self.rest = start;
                Err(DecodeProblem::TextHash)
            }
            marker => match self.number(marker)? {
                // Signed and unsigned spellings of the same 64 bits are one block.
                Some(number) => Ok(EngineHash(number as u64)),
                None => Err(self.unexpected(start, "an integer or bytes", marker)),
            },
        }
    }

    /// Appends `count` token ids to `tokens`.
    pub fn tokens(&mut self, count: usize, tokens: &mut Vec<u32>) -> Read<()> {
        let start = tokens.len();
        tokens.resize(start + count, 0);
        let read = self.fill_tokens(&mut tokens[start..]);
        read.inspect_err(|_| tokens.truncate(start))
    }

    fn fill_tokens(&mut self, mut slots: &mut [u32]) -> Read<()> {
        loop {
            let taken = common_tokens(&mut self.rest, slots);
            slots = &mut slots[taken..];
            let Some((slot, later)) = slots.split_first_mut() else { return Ok(()) };
            *slot = match common_token(&mut self.rest) {
                Some(token) => token,
                None => self.token()?,
            };
            slots = later;
        }
    }

    /// A token id. Negative ones (placeholders of images) keep their 32 bits, as the hash of a block takes them.
    #[inline]
    pub fn token(&mut self) -> Read<u32> {
        match self.rest {
            [token @ 0..=0x7f, rest @ ..] => {
                self.rest = rest;
                Ok(u32::from(*token))
            }
            _ => self.rare_token(),
        }
    }

    #[cold]
    fn rare_token(&mut self) -> Read<u32> {
        let token = self.integer("a token id", i128::from(i32::MIN)..=i128::from(u32::MAX))?;
        // In range: the low 32 bits are all of it.
        Ok(token as u32)
    }

    /// An unsigned number of at most 32 bits.
    pub fn small(&mut self) -> Read<u32> {
        let number = self.integer("an integer from 0 to 4294967295", 0..=i128::from(u32::MAX))?;
        Ok(number as u32)
    }

    fn integer(&mut self, expected: &'static str, range: std::ops::RangeInclusive<i128>) -> Read<i128> {
        let start = self.rest;
        let marker = self.marker()?;
        match self.number(marker)? {
            Some(value) if range.contains(&value) => Ok(value),
            Some(value) => {
                self.rest = start;
                Err(DecodeProblem::OutOfRange { expected, value })
            }
            None => Err(self.unexpected(start, expected, marker)),
        }
    }

    /// A point in time: any number.
    pub fn seconds(&mut self) -> Read<f64> {
        let start = self.rest;
        match self.marker()? {
            Marker::F64 => self.bytes().map(f64::from_be_bytes),
            Marker::F32 => self.bytes().map(|bytes| f64::from(f32::from_be_bytes(bytes))),
            marker => match self.number(marker)? {
                Some(number) => Ok(number as f64),
                None => Err(self.unexpected(start, "a number of seconds", marker)),
            },
        }
    }

    /// Text, not checked to be UTF-8.
    pub fn text(&mut self) -> Read<&'a [u8]> {
        let start = self.rest;
        match self.marker()? {
            Marker::FixStr(length) => self.take(length.into()),
            Marker::Str8 => self.length8().and_then(|length| self.take(length)),
            Marker::Str16 => self.length16().and_then(|length| self.take(length)),
            Marker::Str32 => self.length32().and_then(|length| self.take(length)),
            found => Err(self.unexpected(start, "a text", found)),
        }
    }

    /// Passes over a value of any type.
    pub fn skip(&mut self) -> Read<()> {
        self.skip_within(MAX_DEPTH)
    }

    fn skip_within(&mut self, depth: u32) -> Read<()> {
        let start = self.rest;
        let length = match self.marker()? {
            Marker::Null | Marker::False | Marker::True | Marker::FixPos(_) | Marker::FixNeg(_) => return Ok(()),
            Marker::U8 | Marker::I8 => 1,
            Marker::U16 | Marker::I16 | Marker::FixExt1 => 2,
            Marker::FixExt2 => 3,
            Marker::U32 | Marker::I32 | Marker::F32 => 4,
            Marker::FixExt4 => 5,
            Marker::U64 | Marker::I64 | Marker::F64 => 8,
            Marker::FixExt8 => 9,
            Marker::FixExt16 => 17,
            Marker::FixStr(length) => length.into(),
            Marker::Str8 | Marker::Bin8 => self.length8()?,
            Marker::Str16 | Marker::Bin16 => self.length16()?,
            Marker::Str32 | Marker::Bin32 => self.length32()?,
            Marker::Ext8 => self.length8()? + 1,
            Marker::Ext16 => self.length16()? + 1,
            Marker::Ext32 => self.length32()?.saturating_add(1),
            found @ Marker::Reserved => return Err(self.unexpected(start, "a value", found)),
            _ => {
                self.rest = start;
                return self.skip_container(depth);
            }
        };
        self.take(length).map(drop)
    }

    fn skip_container(&mut self, depth: u32) -> Read<()> {
        let Some(inner) = depth.checked_sub(1) else { return Err(DecodeProblem::TooDeep { limit: MAX_DEPTH }) };
        let values = match self.head()? {
            Head::Array(count) => count,
            Head::Map(count) => count * 2,
        };
        (0..values).try_for_each(|_| self.skip_within(inner))
    }

    /// The integer behind `marker`; `None` if it is none.
    fn number(&mut self, marker: Marker) -> Read<Option<i128>> {
        Ok(Some(match marker {
            Marker::FixPos(number) => number.into(),
            Marker::FixNeg(number) => number.into(),
            Marker::U8 => u8::from_be_bytes(self.bytes()?).into(),
            Marker::U16 => u16::from_be_bytes(self.bytes()?).into(),
            Marker::U32 => u32::from_be_bytes(self.bytes()?).into(),
            Marker::U64 => u64::from_be_bytes(self.bytes()?).into(),
            Marker::I8 => i8::from_be_bytes(self.bytes()?).into(),
            Marker::I16 => i16::from_be_bytes(self.bytes()?).into(),
            Marker::I32 => i32::from_be_bytes(self.bytes()?).into(),
            Marker::I64 => i64::from_be_bytes(self.bytes()?).into(),
            _ => return Ok(None),
        }))
    }

    #[inline]
    fn marker(&mut self) -> Read<Marker> {
        let (&byte, rest) = self.rest.split_first().ok_or(DecodeProblem::CutShort)?;
        self.rest = rest;
        Ok(Marker::from_u8(byte))
    }

    fn length8(&mut self) -> Read<usize> {
        Ok(u8::from_be_bytes(self.bytes()?).into())
    }

    fn length16(&mut self) -> Read<usize> {
        Ok(u16::from_be_bytes(self.bytes()?).into())
    }

    fn length32(&mut self) -> Read<usize> {
        Ok(u32::from_be_bytes(self.bytes()?) as usize)
    }

    #[inline]
    fn bytes<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeProblem::CutShort)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DecodeProblem::CutShort)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// `count` elements of at least `least` bytes each must fit in what is left.
    fn count(&self, count: usize, least: usize) -> Read<usize> {
        if count <= self.rest.len() / least {
            return Ok(count);
        }
        Err(DecodeProblem::TooMany { count, left: self.rest.len() })
    }

    /// The value at `start` is none of the expected; the reader stands before it again.
    #[cold]
    fn unexpected(&mut self, start: &'a [u8], expected: &'static str, found: Marker) -> DecodeProblem {
        self.rest = start;
        DecodeProblem::Unexpected { expected, found: name(found) }
    }
}

fn name(marker: Marker) -> &'static str {
    match marker {
        Marker::Null => "nil",
        Marker::False | Marker::True => "a truth value",
        Marker::F32 | Marker::F64 => "a float",
        Marker::Reserved => "the byte c1, which is no value",
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => "bytes",
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => "a text",
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => "an array",
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => "a map",
        Marker::FixPos(_) | Marker::U8 | Marker::U16 | Marker::U32 | Marker::U64 => "an integer",
        Marker::FixNeg(_) | Marker::I8 | Marker::I16 | Marker::I32 | Marker::I64 => "an integer",
        Marker::Ext8 | Marker::Ext16 | Marker::Ext32 => "an extension",
        Marker::FixExt1 | Marker::FixExt2 | Marker::FixExt4 | Marker::FixExt8 | Marker::FixExt16 => "an extension",
    }
}
