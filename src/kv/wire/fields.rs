//! Fields of an event: their names in maps, their places in arrays, and the reading of each.
//!
//! Maps and arrays meet here: both end as the same [`Fields`]. What a field means is decided in `event`.

use super::error::DecodeProblem;
use super::read::{Head, Reader};
use super::spare::Spare;
use crate::kv::EngineHash;

/// A field that events have in their array forms, or that means something to us; all others are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Hashes,
    Parent,
    Tokens,
    BlockSize,
    LoraId,
    Medium,
    /// In arrays of SGLang 0.5.18 and 0.5.19 this place may hold a map with the salt instead.
    LoraName,
    ExtraKeys,
    Group,
    Kind,
    /// Window of a kind that has one: read past, written as nil.
    Window,
    Locality,
    CacheSalt,
}

/// Places 1.. of an array `["BlockStored", …]` (vLLM 0.23, the longest); older releases end earlier.
pub(super) const STORED_PLACES: &[Field] = &[
    Field::Hashes,
    Field::Parent,
    Field::Tokens,
    Field::BlockSize,
    Field::LoraId,
    Field::Medium,
    Field::LoraName,
    Field::ExtraKeys,
    Field::Group,
    Field::Kind,
    Field::Window,
];
/// Places 1.. of an array `["BlockRemoved", …]`.
pub(super) const REMOVED_PLACES: &[Field] = &[Field::Hashes, Field::Medium, Field::Group];

/// What an event said, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    pub hashes: Option<Vec<EngineHash>>,
    pub parent: Option<EngineHash>,
    pub tokens: Vec<u32>,
    /// Tokens came as overlapping pairs and are flattened.
    pub bigram: bool,
    pub block_size: Option<u32>,
    pub medium: Option<&'a [u8]>,
    /// A LoRA adapter or a salt: the whole event is under another context.
    pub is_foreign: bool,
    /// Leading blocks without extra keys, when a later block has some.
    pub plain_blocks: Option<usize>,
    pub group: Option<u32>,
    pub kind: Option<&'a [u8]>,
    pub locality: Option<&'a [u8]>,
}

impl Field {
    /// By its key in a map.
    pub fn of_key(key: &[u8]) -> Option<Field> {
        Some(match key {
            b"block_hashes" => Field::Hashes,
            b"parent_block_hash" => Field::Parent,
            b"token_ids" => Field::Tokens,
            b"block_size" => Field::BlockSize,
            b"lora_id" => Field::LoraId,
            b"medium" => Field::Medium,
            b"lora_name" => Field::LoraName,
            b"extra_keys" => Field::ExtraKeys,
            b"group_idx" => Field::Group,
            b"kv_cache_spec_kind" => Field::Kind,
            b"kv_cache_spec_sliding_window" => Field::Window,
            b"locality" => Field::Locality,
            b"cache_salt" => Field::CacheSalt,
            _ => return None,
        })
    }

    /// Its key in a map.
    pub fn key(self) -> &'static str {
        match self {
            Field::Hashes => "block_hashes",
            Field::Parent => "parent_block_hash",
            Field::Tokens => "token_ids",
            Field::BlockSize => "block_size",
            Field::LoraId => "lora_id",
            Field::Medium => "medium",
            Field::LoraName => "lora_name",
            Field::ExtraKeys => "extra_keys",
            Field::Group => "group_idx",
            Field::Kind => "kv_cache_spec_kind",
            Field::Window => "kv_cache_spec_sliding_window",
            Field::Locality => "locality",
            Field::CacheSalt => "cache_salt",
        }
    }
}

impl<'a> Fields<'a> {
    /// Reads the value of `field`. Nil is the same as absence.
    pub fn read(&mut self, field: Field, reader: &mut Reader<'a>, spare: &mut Spare) -> Result<(), DecodeProblem> {
        reader.field = field.key();
        if reader.nil() {
            return Ok(());
        }
        match field {
            Field::Hashes => self.hashes = Some(hashes(reader, spare)?),
            Field::Parent => self.parent = Some(reader.hash()?),
            Field::Tokens => (self.tokens, self.bigram) = tokens(reader, spare)?,
            Field::BlockSize => self.block_size = Some(reader.small()?),
            Field::Medium => self.medium = Some(reader.text()?),
            Field::ExtraKeys => self.plain_blocks = plain_blocks(reader)?,
            Field::Group => self.group = Some(reader.small()?),
            Field::Window => reader.skip()?,
            Field::Kind => self.kind = Some(reader.text()?),
            Field::Locality => self.locality = Some(reader.text()?),
            Field::LoraName => {
                lora_name(reader)?;
                self.is_foreign = true;
            }
            Field::CacheSalt => {
                reader.text()?;
                self.is_foreign = true;
            }
            Field::LoraId => {
                reader.skip()?;
                self.is_foreign = true;
            }
        }
        Ok(())
    }
}

/// Elements that are made room for at once; more are made room for as they come.
const ROOM: usize = 4096;

fn hashes(reader: &mut Reader<'_>, spare: &mut Spare) -> Result<Vec<EngineHash>, DecodeProblem> {
    let count = reader.array()?;
    let mut hashes = spare.hashes(count.min(ROOM));
    for _ in 0..count {
        hashes.push(reader.hash()?);
    }
    Ok(hashes)
}

/// Token ids, and whether they came as pairs.
fn tokens(reader: &mut Reader<'_>, spare: &mut Spare) -> Result<(Vec<u32>, bool), DecodeProblem> {
    let count = reader.array()?;
    let mut tokens = spare.tokens(count.min(ROOM));
    if count > 0 && reader.is_array() {
        pairs(reader, count, &mut tokens)?;
        return Ok((tokens, true));
    }
    reader.tokens(count, &mut tokens)?;
    Ok((tokens, false))
}

/// `[a,b],[b,c],[c,d]` as `a,b,c,d`: pages of SGLang under EAGLE.
fn pairs(reader: &mut Reader<'_>, count: usize, tokens: &mut Vec<u32>) -> Result<(), DecodeProblem> {
    for _ in 0..count {
        match reader.array()? {
            2 => {}
            length => {
                return Err(DecodeProblem::OutOfRange { expected: "pairs of tokens", value: length as i128 });
            }
        }
        let first = reader.token()?;
        match tokens.last() {
            None => tokens.push(first),
            Some(last) if *last == first => {}
            Some(_) => return Err(DecodeProblem::BrokenPairs),
        }
        tokens.push(reader.token()?);
    }
    Ok(())
}

/// Extra keys come a block each: images, salts, adapters. The first block that has some makes all after it foreign.
fn plain_blocks(reader: &mut Reader<'_>) -> Result<Option<usize>, DecodeProblem> {
    let count = reader.array()?;
    let mut plain = None;
    for at in 0..count {
        if !reader.nil() {
            reader.skip()?;
            plain = plain.or(Some(at));
        }
    }
    Ok(plain)
}

/// A name, or a map that holds a salt.
fn lora_name(reader: &mut Reader<'_>) -> Result<(), DecodeProblem> {
    if !reader.is_map() {
        return reader.text().map(drop);
    }
    let Head::Map(count) = reader.head()? else { return Ok(()) };
    let mut salted = false;
    for _ in 0..count {
        let is_salt = reader.key()? == Some(b"cache_salt".as_slice());
        if is_salt {
            reader.field = Field::CacheSalt.key();
            reader.text()?;
            salted = true;
        } else {
            reader.skip()?;
        }
    }
    reader.field = Field::CacheSalt.key();
    if salted { Ok(()) } else { Err(DecodeProblem::Missing) }
}
