//! [`EncodeForm`]: how each release writes its events. A table, no code: docs/kv-events.md has the same one.

use super::fields::{Field, REMOVED_PLACES, STORED_PLACES};
use crate::kv::Dialect;

/// How a release writes batches and answers replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeForm {
    name: &'static str,
    dialect: Dialect,
    shape: Shape,
    /// Fields of a stored event, in order.
    pub(super) stored: &'static [Field],
    /// Fields of a removed event, in order.
    pub(super) removed: &'static [Field],
    hashes: HashForm,
    has_rank: bool,
    has_reply_topic: bool,
}

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Type, then fields by place.
    Array,
    /// Fields by name.
    Map,
    /// The same; stored events have the head of a long map, however few fields they have.
    WideMap,
}

/// How a block is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashForm {
    /// Unsigned 64 bits.
    Unsigned,
    /// The same 64 bits with a sign.
    Signed,
    /// 32 bytes, of which the last 8 are the 64 bits.
    Bytes,
}

const XLLM_STORED: &[Field] = &[Field::Hashes, Field::Parent, Field::Tokens, Field::BlockSize, Field::Medium];
const SGLANG_STORED: &[Field] =
    &[Field::Hashes, Field::Parent, Field::Tokens, Field::BlockSize, Field::LoraId, Field::Medium];
const VLLM_STORED: &[Field] = &[
    Field::Hashes,
    Field::Parent,
    Field::Tokens,
    Field::BlockSize,
    Field::LoraId,
    Field::Medium,
    Field::LoraName,
    Field::Group,
];

const fn array(name: &'static str, dialect: Dialect, stored: usize, removed: usize) -> EncodeForm {
    let hashes = match dialect {
        Dialect::Sglang => HashForm::Signed,
        Dialect::Xllm | Dialect::Vllm => HashForm::Unsigned,
    };
    EncodeForm {
        name,
        dialect,
        shape: Shape::Array,
        stored: STORED_PLACES.split_at(stored).0,
        removed: REMOVED_PLACES.split_at(removed).0,
        hashes,
        has_rank: true,
        has_reply_topic: false,
    }
}

const fn map(name: &'static str, dialect: Dialect, stored: &'static [Field], removed: usize) -> EncodeForm {
    EncodeForm { shape: Shape::Map, stored, ..array(name, dialect, 0, removed) }
}

impl EncodeForm {
    /// xLLM.
    pub const XLLM: EncodeForm = map("xllm", Dialect::Xllm, XLLM_STORED, 2);
    /// vLLM 0.9: no media, no rank.
    pub const VLLM_0_9: EncodeForm = EncodeForm { has_rank: false, ..array("vllm-0.9", Dialect::Vllm, 5, 1) };
    /// vLLM 0.10 to 0.12: media.
    pub const VLLM_0_10: EncodeForm = array("vllm-0.10", Dialect::Vllm, 6, 2);
    /// vLLM 0.16: names of LoRA adapters.
    pub const VLLM_0_16: EncodeForm = array("vllm-0.16", Dialect::Vllm, 7, 2);
    /// vLLM 0.20: extra keys, groups.
    pub const VLLM_0_20: EncodeForm = array("vllm-0.20", Dialect::Vllm, 9, 3);
    /// vLLM 0.22 and 0.23: kinds of groups.
    pub const VLLM_0_22: EncodeForm = array("vllm-0.22", Dialect::Vllm, 11, 3);
    /// vLLM 0.24 and 0.25: maps.
    pub const VLLM_0_24: EncodeForm =
        EncodeForm { shape: Shape::WideMap, ..map("vllm-0.24", Dialect::Vllm, VLLM_STORED, 3) };
    /// vLLM 0.26 to 0.33: replies to replays have a topic.
    pub const VLLM_0_26: EncodeForm = EncodeForm { name: "vllm-0.26", has_reply_topic: true, ..Self::VLLM_0_24 };
    /// SGLang 0.4.7 to 0.5.5: no media.
    pub const SGLANG_0_4_7: EncodeForm = array("sglang-0.4.7", Dialect::Sglang, 5, 1);
    /// SGLang 0.5.9 to 0.5.17: media.
    pub const SGLANG_0_5_9: EncodeForm = array("sglang-0.5.9", Dialect::Sglang, 6, 2);
    /// SGLang 0.5.18 and 0.5.19: a place for a salt.
    pub const SGLANG_0_5_18: EncodeForm = array("sglang-0.5.18", Dialect::Sglang, 7, 2);
    /// SGLang 0.5.20: maps.
    pub const SGLANG_0_5_20: EncodeForm = map("sglang-0.5.20", Dialect::Sglang, SGLANG_STORED, 2);
    /// SGLang 0.5.22 and 0.5.23: replies to replays have a topic.
    pub const SGLANG_0_5_22: EncodeForm =
        EncodeForm { name: "sglang-0.5.22", has_reply_topic: true, ..Self::SGLANG_0_5_20 };

    /// Every form, oldest first in each dialect.
    pub const ALL: [EncodeForm; 13] = [
        Self::XLLM,
        Self::VLLM_0_9,
        Self::VLLM_0_10,
        Self::VLLM_0_16,
        Self::VLLM_0_20,
        Self::VLLM_0_22,
        Self::VLLM_0_24,
        Self::VLLM_0_26,
        Self::SGLANG_0_4_7,
        Self::SGLANG_0_5_9,
        Self::SGLANG_0_5_18,
        Self::SGLANG_0_5_20,
        Self::SGLANG_0_5_22,
    ];

    /// The newest form of a dialect.
    pub const fn current(dialect: Dialect) -> EncodeForm {
        match dialect {
            Dialect::Xllm => Self::XLLM,
            Dialect::Vllm => Self::VLLM_0_26,
            Dialect::Sglang => Self::SGLANG_0_5_22,
        }
    }

    /// The same release, told to name blocks another way (vLLM: `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0` for bytes).
    pub const fn with_hashes(self, hashes: HashForm) -> EncodeForm {
        EncodeForm { hashes, ..self }
    }

    /// Dialect and first release.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Dialect.
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// What an event is.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// How blocks are named.
    pub const fn hashes(&self) -> HashForm {
        self.hashes
    }

    /// Whether a batch says its data-parallel rank.
    pub const fn has_rank(&self) -> bool {
        self.has_rank
    }

    /// Whether a reply to a replay has a frame for the topic.
    pub const fn has_reply_topic(&self) -> bool {
        self.has_reply_topic
    }

    /// Whether events say a medium. Without, all is the device, and events of the host are not written.
    pub fn has_media(&self) -> bool {
        self.stored.contains(&Field::Medium)
    }
}
