//! Options of the policies, every one visible in the scenario.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which policy, and its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Policy.
    pub name: PolicyName,
    /// Options of `kv-aware`.
    pub kv_aware: KvAwareConfig,
    /// Options of `cache-aware`.
    pub cache_aware: CacheAwareConfig,
}

/// A policy's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Round robin by the replayer's own counter; no header.
    Default,
    /// First turn by round robin, then always the same D; `x-smg-routing-key`.
    Sticky,
    /// Best (overlap + sticky bonus, sticky, −inflight, −assigned); `x-smg-target-worker`.
    KvAware,
    /// Longest cached prefix unless overloaded, else least loaded (for `dp`).
    CacheAware,
}

/// `kv-aware`; the defaults are the behaviour the source documents ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KvAwareConfig {
    /// Where the overlap comes from.
    pub overlap: OverlapSource,
    /// Blocks added to the score of the D the session used last.
    pub sticky_bonus: u32,
    /// Cap the overlap, rank by free capacity, drop Ds above `hard_cap`.
    pub capacity_aware: bool,
    /// Most blocks of overlap that count, with `capacity_aware`.
    pub overlap_cap_blocks: u32,
    /// Usage (0 to 1) above which a D is no candidate, with `capacity_aware`.
    pub hard_cap: f64,
    /// Let a session move after this many rejections in a row; 0: never.
    pub migrate_after_rejections: u32,
}

/// Source of the overlap score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OverlapSource {
    /// Blocks once sent to a D count as held there for ever.
    Assumed,
}

/// `cache-aware`, after the SGLang router's rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheAwareConfig {
    /// Least share of the prompt a worker must hold to be chosen for its cache, 0 to 1.
    pub cache_threshold: f64,
    /// Overloaded when (max − min) in-flight requests exceeds this …
    pub balance_abs_threshold: u32,
    /// … and max exceeds min times this.
    pub balance_rel_threshold: f64,
}

impl PolicyName {
    /// Every policy.
    pub const ALL: [PolicyName; 4] =
        [PolicyName::Default, PolicyName::Sticky, PolicyName::KvAware, PolicyName::CacheAware];

    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Default => "default",
            PolicyName::Sticky => "sticky",
            PolicyName::KvAware => "kv-aware",
            PolicyName::CacheAware => "cache-aware",
        }
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        PolicyConfig {
            name: PolicyName::KvAware,
            kv_aware: KvAwareConfig::default(),
            cache_aware: CacheAwareConfig::default(),
        }
    }
}

impl Default for KvAwareConfig {
    fn default() -> Self {
        KvAwareConfig {
            overlap: OverlapSource::Assumed,
            sticky_bonus: 1,
            capacity_aware: false,
            overlap_cap_blocks: 256,
            hard_cap: 0.9,
            migrate_after_rejections: 0,
        }
    }
}

impl Default for CacheAwareConfig {
    fn default() -> Self {
        CacheAwareConfig { cache_threshold: 0.3, balance_abs_threshold: 64, balance_rel_threshold: 1.5 }
    }
}
