//! Words of the dialects: media, localities, kinds of attention.
//!
//! xLLM has two media, and a third is an error. vLLM and SGLang have tiers beyond the host, which the index leaves out.

use super::error::{DecodeProblem, shown};
use crate::kv::{Dialect, Tier};

/// Tier of a medium; `None` for one that is neither device nor host. No medium, or an empty one, is the device.
pub(super) fn tier(dialect: Dialect, medium: Option<&[u8]>) -> Result<Option<Tier>, DecodeProblem> {
    let Some(medium) = medium.filter(|medium| !medium.is_empty()) else { return Ok(Some(Tier::Device)) };
    let is_one_of = |names: &[&str]| names.iter().any(|name| medium.eq_ignore_ascii_case(name.as_bytes()));
    if is_one_of(&["gpu", "device"]) {
        return Ok(Some(Tier::Device));
    }
    if is_one_of(&["cpu", "cpu_pinned", "cpu_tier1"]) {
        return Ok(Some(Tier::Host));
    }
    match dialect {
        Dialect::Xllm => Err(DecodeProblem::UnknownMedium { medium: shown(medium) }),
        Dialect::Vllm | Dialect::Sglang => Ok(None),
    }
}

/// How a dialect writes a tier.
pub(super) const fn medium(dialect: Dialect, tier: Tier) -> &'static str {
    match (dialect, tier) {
        (Dialect::Xllm, Tier::Device) => "gpu",
        (Dialect::Xllm, Tier::Host) => "cpu",
        (Dialect::Vllm | Dialect::Sglang, Tier::Device) => "GPU",
        (Dialect::Vllm, Tier::Host) => "CPU",
        (Dialect::Sglang, Tier::Host) => "CPU_PINNED",
    }
}

/// Whether blocks lie with the worker itself. Engines write this word in capitals only.
pub(super) fn is_local(locality: Option<&[u8]>) -> bool {
    locality.is_none_or(|locality| locality == b"LOCAL")
}

/// Whether a group of this kind of attention holds every block of a prefix, so that its blocks are prefix hits. Kinds
/// not known are not counted.
pub(super) fn is_full_attention(kind: &[u8]) -> bool {
    matches!(kind, b"full_attention" | b"mla_attention" | b"sink_full_attention")
}
