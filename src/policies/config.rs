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
    /// Options of `car`.
    pub car: CarConfig,
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
    /// Least cost of prefix hits in the KV index and of queues, for P and D; `x-smg-target-worker` and
    /// `x-pdreplay-target-prefill`.
    Car,
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
    /// Blocks that the KV index sees there, on the device or the host.
    Index,
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

/// `car`, after the xLLM service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CarConfig {
    /// Weight of the prompt's misses in the cost of a P, 0 to 1; the rest is the weight of its queue.
    pub prefill_lambda: f64,
    /// Worth of a prompt token that lies on the host alone, 0 to 1; one on the device is worth 1.
    pub host_hit_weight: f64,
    /// Costs that differ by no more than this take turns, 0 to 1; 0: only equal ones.
    pub tie_epsilon: f64,
    /// Requests sent to a worker since it last reported its load count as waiting there, so that a burst does not find
    /// every worker idle. False: reports alone count.
    pub count_own: bool,
    /// Streams listed by hand count too, although nothing tells whether they are of the process that serves.
    pub static_streams: bool,
    /// Each choice is a line of events.jsonl, with every candidate's numbers.
    pub explain: bool,
}

impl PolicyName {
    /// Every policy.
    pub const ALL: [PolicyName; 5] =
        [PolicyName::Default, PolicyName::Sticky, PolicyName::KvAware, PolicyName::CacheAware, PolicyName::Car];

    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Default => "default",
            PolicyName::Sticky => "sticky",
            PolicyName::KvAware => "kv-aware",
            PolicyName::CacheAware => "cache-aware",
            PolicyName::Car => "car",
        }
    }
}

impl PolicyConfig {
    /// Choices depend on the workers' loads: they are worth polling.
    pub fn reads_loads(&self) -> bool {
        match self.name {
            PolicyName::KvAware => self.kv_aware.capacity_aware,
            PolicyName::Car => true,
            PolicyName::Default | PolicyName::Sticky | PolicyName::CacheAware => false,
        }
    }

    /// Choices depend on the KV index.
    pub fn reads_index(&self) -> bool {
        match self.name {
            PolicyName::KvAware => self.kv_aware.overlap == OverlapSource::Index,
            PolicyName::Car => true,
            PolicyName::Default | PolicyName::Sticky | PolicyName::CacheAware => false,
        }
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        PolicyConfig {
            name: PolicyName::KvAware,
            kv_aware: KvAwareConfig::default(),
            cache_aware: CacheAwareConfig::default(),
            car: CarConfig::default(),
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

impl Default for CarConfig {
    fn default() -> Self {
        CarConfig {
            prefill_lambda: 0.5,
            host_hit_weight: 0.5,
            tie_epsilon: 0.0,
            count_own: true,
            static_streams: false,
            explain: true,
        }
    }
}
