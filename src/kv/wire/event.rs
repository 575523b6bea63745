//! One event: its type, and what its fields mean in its dialect.
//!
//! Decides what is stored, removed, foreign or left out. Sizes of blocks and counts of tokens are the index's to check,
//! which checks them for every source of events.

use super::dialect;
use super::error::{DecodeProblem, shown};
use super::fields::{Field, Fields, REMOVED_PLACES, STORED_PLACES};
use super::groups::Groups;
use super::read::{Head, Reader};
use super::spare::Spare;
use crate::kv::{BlockRemoved, BlockStored, Dialect, EventBatch, KvEvent, Tier};

/// What an event is read against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub dialect: Dialect,
    pub block_size: u32,
    /// Data-parallel rank of the batch.
    pub rank: Option<u32>,
}

/// Types of events, as every dialect names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Stored,
    Removed,
    Cleared,
}

impl Tag {
    pub fn of_name(name: &[u8]) -> Option<Tag> {
        match name {
            b"BlockStored" => Some(Tag::Stored),
            b"BlockRemoved" => Some(Tag::Removed),
            b"AllBlocksCleared" => Some(Tag::Cleared),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Tag::Stored => "BlockStored",
            Tag::Removed => "BlockRemoved",
            Tag::Cleared => "AllBlocksCleared",
        }
    }

    /// Fields of its array form.
    fn places(self) -> &'static [Field] {
        match self {
            Tag::Stored => STORED_PLACES,
            Tag::Removed => REMOVED_PLACES,
            Tag::Cleared => &[],
        }
    }
}

/// Field an error of the event itself names.
const EVENT: &str = "event";
const TYPE: &str = "type";

/// Reads the next event and adds what it says to `batch`.
pub(super) fn read_event(
    reader: &mut Reader<'_>,
    context: Context,
    groups: &mut Groups,
    spare: &mut Spare,
    batch: &mut EventBatch,
) -> Result<(), DecodeProblem> {
    reader.field = EVENT;
    let mut fields = Fields::default();
    let tag = match reader.head()? {
        Head::Array(count) => from_array(reader, context.dialect, count, spare, &mut fields)?,
        Head::Map(count) => from_map(reader, context.dialect, count, spare, &mut fields)?,
    };
    match tag {
        Some(Tag::Stored) => stored(&mut fields, reader, context, groups, batch),
        Some(Tag::Removed) => removed(&mut fields, reader, context, groups, batch),
        Some(Tag::Cleared) => {
            batch.events.push(KvEvent::Cleared);
            Ok(())
        }
        None => {
            batch.ignored += 1;
            Ok(())
        }
    }
}

/// `[tag, field, …]`: may end early, may have more.
fn from_array<'a>(
    reader: &mut Reader<'a>,
    dialect: Dialect,
    count: usize,
    spare: &mut Spare,
    fields: &mut Fields<'a>,
) -> Result<Option<Tag>, DecodeProblem> {
    reader.field = TYPE;
    if count == 0 {
        return Err(DecodeProblem::Missing);
    }
    let tag = tag(reader, dialect)?;
    let places = tag.map_or(&[][..], Tag::places);
    for place in 0..count - 1 {
        match places.get(place) {
            Some(field) => fields.read(*field, reader, spare)?,
            None => pass_over(reader)?,
        }
    }
    Ok(tag)
}

/// `{type: tag, field: …}` in any order.
fn from_map<'a>(
    reader: &mut Reader<'a>,
    dialect: Dialect,
    count: usize,
    spare: &mut Spare,
    fields: &mut Fields<'a>,
) -> Result<Option<Tag>, DecodeProblem> {
    let tag = find_tag(reader, dialect, count)?;
    for _ in 0..count {
        reader.field = EVENT;
        let field = reader.key()?.and_then(Field::of_key);
        match field.filter(|_| tag.is_some()) {
            Some(field) => fields.read(field, reader, spare)?,
            None => pass_over(reader)?,
        }
    }
    Ok(tag)
}

/// The type of a map, wherever it stands; the reader of the fields does not move.
fn find_tag(reader: &mut Reader<'_>, dialect: Dialect, count: usize) -> Result<Option<Tag>, DecodeProblem> {
    let mut ahead = reader.clone();
    let found = next_tag(&mut ahead, dialect, count);
    if found.is_err() {
        // The error is where the search ended.
        *reader = ahead;
    }
    found
}

fn next_tag(reader: &mut Reader<'_>, dialect: Dialect, count: usize) -> Result<Option<Tag>, DecodeProblem> {
    for _ in 0..count {
        reader.field = EVENT;
        if reader.key()? == Some(TYPE.as_bytes()) {
            reader.field = TYPE;
            return tag(reader, dialect);
        }
        reader.skip()?;
    }
    reader.field = TYPE;
    Err(DecodeProblem::Missing)
}

/// A type; `None` for an unknown one where the dialect allows that.
fn tag(reader: &mut Reader<'_>, dialect: Dialect) -> Result<Option<Tag>, DecodeProblem> {
    let name = reader.text()?;
    match (Tag::of_name(name), dialect) {
        (None, Dialect::Xllm) => Err(DecodeProblem::UnknownType { tag: shown(name) }),
        (tag, _) => Ok(tag),
    }
}

fn pass_over(reader: &mut Reader<'_>) -> Result<(), DecodeProblem> {
    reader.field = EVENT;
    reader.skip()
}

fn stored(
    fields: &mut Fields<'_>,
    reader: &mut Reader<'_>,
    context: Context,
    groups: &mut Groups,
    batch: &mut EventBatch,
) -> Result<(), DecodeProblem> {
    groups.learn(context.rank, fields.group, fields.kind).inspect_err(|_| reader.field = Field::Group.key())?;
    let hashes = required(fields.hashes.take(), Field::Hashes, reader)?;
    let Some(tier) = place(fields, reader, context, groups)? else {
        batch.ignored += 1;
        return Ok(());
    };
    if fields.is_foreign || is_partial(fields, hashes.len(), context) {
        batch.events.push(KvEvent::Foreign { hashes });
        return Ok(());
    }
    let tokens = std::mem::take(&mut fields.tokens);
    let block_size = match fields.block_size {
        None if tokens.is_empty() => 0,
        given => required(given, Field::BlockSize, reader)?,
    };
    if block_size == 0 && !tokens.is_empty() {
        reader.field = Field::BlockSize.key();
        return Err(DecodeProblem::OutOfRange { expected: "blocks of at least one token", value: 0 });
    }
    let bigram = fields.bigram;
    let whole = BlockStored { hashes, parent: fields.parent, tokens, block_size, tier, bigram };
    match fields.plain_blocks {
        None => batch.events.push(KvEvent::Stored(whole)),
        Some(plain) => split(whole, plain, batch),
    }
    Ok(())
}

/// The first `plain` blocks are text alone; those behind them are under the context of an image, a salt or an adapter.
fn split(mut whole: BlockStored, plain: usize, batch: &mut EventBatch) {
    let foreign = whole.hashes.split_off(plain.min(whole.hashes.len()));
    if !foreign.is_empty() {
        let tokens = plain.saturating_mul(whole.block_size as usize).saturating_add(usize::from(whole.bigram));
        whole.tokens.truncate(tokens);
    }
    if !whole.hashes.is_empty() {
        batch.events.push(KvEvent::Stored(whole));
    }
    if !foreign.is_empty() {
        batch.events.push(KvEvent::Foreign { hashes: foreign });
    }
}

/// A block that vLLM keeps of a prompt's tail for a hybrid model. It never begins another block, and no whole block hits it.
fn is_partial(fields: &Fields<'_>, blocks: usize, context: Context) -> bool {
    let is_short = fields.block_size.is_some_and(|size| size < context.block_size) && !fields.tokens.is_empty();
    context.dialect == Dialect::Vllm && fields.group.is_some() && blocks == 1 && is_short
}

fn removed(
    fields: &mut Fields<'_>,
    reader: &mut Reader<'_>,
    context: Context,
    groups: &Groups,
    batch: &mut EventBatch,
) -> Result<(), DecodeProblem> {
    let hashes = required(fields.hashes.take(), Field::Hashes, reader)?;
    match place(fields, reader, context, groups)? {
        Some(tier) => batch.events.push(KvEvent::Removed(BlockRemoved { hashes, tier })),
        None => batch.ignored += 1,
    }
    Ok(())
}

/// Tier of an event that the index has a use for.
fn place(
    fields: &Fields<'_>,
    reader: &mut Reader<'_>,
    context: Context,
    groups: &Groups,
) -> Result<Option<Tier>, DecodeProblem> {
    reader.field = Field::Medium.key();
    let tier = dialect::tier(context.dialect, fields.medium)?;
    let counts = dialect::is_local(fields.locality) && groups.is_main(context.rank, fields.group, fields.kind);
    Ok(tier.filter(|_| counts))
}

fn required<T>(value: Option<T>, field: Field, reader: &mut Reader<'_>) -> Result<T, DecodeProblem> {
    value.ok_or_else(|| {
        reader.field = field.key();
        DecodeProblem::Missing
    })
}
