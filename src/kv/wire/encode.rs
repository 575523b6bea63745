//! [`Encoder`]: an [`EventBatch`] to the bytes that a release would send.
//!
//! Used by emulated publishers and by tests. What a release cannot say it leaves out: the host tier where there are no
//! media, the rank where there is none. Events counted as ignored are gone already.

use rmp::encode::{self, ByteBuf};

use super::dialect;
use super::event::Tag;
use super::fields::Field;
use super::form::{EncodeForm, HashForm, Shape};
use crate::kv::{EngineHash, EventBatch, KvEvent, Tier};

/// Writes batches in one form.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    form: EncodeForm,
}

/// An event as the wire sees it: a type and values of fields.
struct Event<'a> {
    tag: Tag,
    hashes: &'a [EngineHash],
    parent: Option<EngineHash>,
    tokens: &'a [u32],
    bigram: bool,
    block_size: u32,
    tier: Tier,
    is_foreign: bool,
}

/// Adapter that stands for any context the index does not cover.
const FOREIGN_LORA: u32 = 1;

impl Encoder {
    /// In the form of a release.
    pub fn new(form: EncodeForm) -> Encoder {
        Encoder { form }
    }

    /// Its form.
    pub fn form(&self) -> EncodeForm {
        self.form
    }

    /// The payload of a batch.
    pub fn batch(&self, batch: &EventBatch) -> Vec<u8> {
        let events: Vec<Event<'_>> = batch.events.iter().map(Event::of).filter(|event| self.can_say(event)).collect();
        let mut out = Out(ByteBuf::with_capacity(64 + events.iter().map(Event::most_bytes).sum::<usize>()));
        out.array(if self.form.has_rank() { 3 } else { 2 });
        out.float(batch.timestamp);
        out.array(events.len());
        for event in &events {
            self.event(event, &mut out);
        }
        if self.form.has_rank() {
            match batch.dp_rank {
                Some(rank) => out.unsigned(rank.into()),
                None => out.nil(),
            }
        }
        out.0.into_vec()
    }

    fn can_say(&self, event: &Event<'_>) -> bool {
        event.tag == Tag::Cleared || event.tier == Tier::Device || self.form.has_media()
    }

    fn event(&self, event: &Event<'_>, out: &mut Out) {
        let fields = match event.tag {
            Tag::Stored => self.form.stored,
            Tag::Removed => self.form.removed,
            Tag::Cleared => &[],
        };
        if self.form.shape() == Shape::Array {
            out.array(1 + fields.len());
            out.text(event.tag.name());
            fields.iter().for_each(|field| self.value(*field, event, out));
            return;
        }
        // xLLM names no adapter unless there is one.
        let adapter = (event.is_foreign && !fields.contains(&Field::LoraId)).then_some(Field::LoraId);
        let count = 1 + fields.len() + usize::from(adapter.is_some());
        if event.tag == Tag::Stored && self.form.shape() == Shape::WideMap {
            out.wide_map(count);
        } else {
            out.map(count);
        }
        out.text("type");
        out.text(event.tag.name());
        for field in fields.iter().copied().chain(adapter) {
            out.text(field.key());
            self.value(field, event, out);
        }
    }

    fn value(&self, field: Field, event: &Event<'_>, out: &mut Out) {
        match field {
            Field::Hashes => {
                out.array(event.hashes.len());
                event.hashes.iter().for_each(|hash| self.hash(*hash, out));
            }
            Field::Parent => match event.parent {
                Some(parent) => self.hash(parent, out),
                None => out.nil(),
            },
            Field::Tokens => tokens(event, out),
            Field::BlockSize => out.unsigned(event.block_size.into()),
            Field::Medium => out.text(dialect::medium(self.form.dialect(), event.tier)),
            Field::LoraId if event.is_foreign => out.unsigned(FOREIGN_LORA.into()),
            Field::Group => out.unsigned(0),
            Field::Kind => out.text("full_attention"),
            Field::LoraId | Field::LoraName | Field::ExtraKeys | Field::Window | Field::Locality | Field::CacheSalt => {
                out.nil()
            }
        }
    }

    fn hash(&self, hash: EngineHash, out: &mut Out) {
        match self.form.hashes() {
            HashForm::Unsigned => out.unsigned(hash.0),
            HashForm::Signed => out.signed(hash.0.cast_signed()),
            HashForm::Bytes => {
                let mut bytes = [0; 32];
                bytes[24..].copy_from_slice(&hash.0.to_be_bytes());
                out.bytes(&bytes);
            }
        }
    }
}

fn tokens(event: &Event<'_>, out: &mut Out) {
    if !event.bigram {
        out.array(event.tokens.len());
        event.tokens.iter().for_each(|token| out.unsigned(u64::from(*token)));
        return;
    }
    out.array(event.tokens.len().saturating_sub(1));
    for pair in event.tokens.windows(2) {
        out.array(2);
        pair.iter().for_each(|token| out.unsigned(u64::from(*token)));
    }
}

impl<'a> Event<'a> {
    fn of(event: &'a KvEvent) -> Event<'a> {
        let bare = |tag, hashes: &'a [EngineHash], tier| Event {
            tag,
            hashes,
            parent: None,
            tokens: &[],
            bigram: false,
            block_size: 0,
            tier,
            is_foreign: false,
        };
        match event {
            KvEvent::Stored(stored) => Event {
                parent: stored.parent,
                tokens: &stored.tokens,
                bigram: stored.bigram,
                block_size: stored.block_size,
                ..bare(Tag::Stored, &stored.hashes, stored.tier)
            },
            KvEvent::Removed(removed) => bare(Tag::Removed, &removed.hashes, removed.tier),
            KvEvent::Cleared => bare(Tag::Cleared, &[], Tier::Device),
            KvEvent::Foreign { hashes } => Event { is_foreign: true, ..bare(Tag::Stored, hashes, Tier::Device) },
        }
    }

    /// Room for it, so that the buffer does not grow often.
    fn most_bytes(&self) -> usize {
        160 + 34 * self.hashes.len() + 5 * self.tokens.len()
    }
}

/// Writes values, each in its shortest form. Memory takes every byte: there is no error.
struct Out(ByteBuf);

impl Out {
    fn array(&mut self, count: usize) {
        let Ok(_) = encode::write_array_len(&mut self.0, count as u32);
    }

    fn map(&mut self, count: usize) {
        let Ok(_) = encode::write_map_len(&mut self.0, count as u32);
    }

    /// Head with a count of 16 bits.
    fn wide_map(&mut self, count: usize) {
        let out = self.0.as_mut_vec();
        out.push(rmp::Marker::Map16.to_u8());
        out.extend((count as u16).to_be_bytes());
    }

    fn nil(&mut self) {
        let Ok(()) = encode::write_nil(&mut self.0);
    }

    fn unsigned(&mut self, number: u64) {
        let Ok(_) = encode::write_uint(&mut self.0, number);
    }

    fn signed(&mut self, number: i64) {
        let Ok(_) = encode::write_sint(&mut self.0, number);
    }

    fn float(&mut self, number: f64) {
        let Ok(()) = encode::write_f64(&mut self.0, number);
    }

    fn text(&mut self, text: &str) {
        let Ok(()) = encode::write_str(&mut self.0, text);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let Ok(()) = encode::write_bin(&mut self.0, bytes);
    }
}
