//! Shape of the emulated cluster: workers, router, network, faults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Topology and everything between the workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// Prefill workers.
    pub prefill: u16,
    /// Decode workers.
    pub decode: u16,
    /// Colocated workers (mechanism `dp`).
    pub colocated: u16,
    /// Time after which a P→D transfer that has not finished fails with `KVTransferError`, seconds.
    pub transfer_timeout_s: f64,
    /// One-way time of a message between two nodes, microseconds.
    pub hop_us: u64,
    /// Time until discovery notices a worker's change, milliseconds.
    pub discovery_delay_ms: u64,
    /// PD router.
    pub router: RouterConfig,
    /// KV links between P and D.
    pub link: LinkConfig,
}

/// The PD router's own policies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouterConfig {
    /// Policy for the prefill leg.
    pub prefill_policy: RouterPolicy,
    /// Policy for the decode leg; `auto` follows the replayer's policy (default → round_robin, sticky → manual,
    /// kv-aware → consistent_hashing). Colocated workers behind a router are chosen by it too.
    pub decode_policy: RouterPolicy,
    /// `x-smg-target-worker` counts all workers of the leg. False: those that are alive now, as `smg` and `sglang-router`
    /// do, so that an index names another worker once one before it has died.
    pub stable_indices: bool,
}

/// Policy of one leg of the PD router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RouterPolicy {
    /// Follow the replayer's policy; resolved before the run.
    Auto,
    /// The router's own counter.
    RoundRobin,
    /// Sticky map by routing key; an unknown key goes to the worker with the fewest requests in flight.
    Manual,
    /// Target header, else hash of the routing key on a ring, else the counter.
    ConsistentHashing,
    /// The worker that was sent the longest prefix of the prompt before, unless loads differ too much.
    CacheAware,
}

/// A KV link: one egress per P and one ingress per D, shared evenly by concurrent transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkConfig {
    /// Preset the numbers came from: `mooncake-tcp`, `rdma` or `nvlink`; keys beside it override it.
    pub preset: String,
    /// Set-up time of a transfer, microseconds.
    pub setup_us: u64,
    /// Bandwidth of each egress and ingress, GB/s (10⁹ bytes).
    pub gbytes_per_s: f64,
}

/// One `[[fault]]`: something that goes wrong, at a time or at a request count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultConfig {
    /// What happens.
    pub kind: FaultKind,
    /// When, seconds of the run. Give this or `after_requests`; neither means from the start.
    #[serde(default)]
    pub at_s: Option<f64>,
    /// When, as the number of generate requests the cluster has received.
    #[serde(default)]
    pub after_requests: Option<u64>,
    /// Worker it strikes (`P0`, `D2`, `W1`).
    #[serde(default)]
    pub worker: Option<String>,
    /// Second worker: the D of a P→D pair for `transfer-failure` and `slow-link`.
    #[serde(default)]
    pub to: Option<String>,
    /// Session it is limited to (`error-response`, `hang`).
    #[serde(default)]
    pub session: Option<String>,
    /// Turn it is limited to, with `session`.
    #[serde(default)]
    pub turn: Option<u32>,
    /// How often it strikes; without it, as long as it lasts.
    #[serde(default)]
    pub times: Option<u32>,
    /// How long it lasts, seconds; without it, to the end.
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// Slow-down factor (`slow-worker`, `slow-link`), above 1 is slower.
    #[serde(default)]
    pub factor: Option<f64>,
    /// HTTP status of a refusal (`error-response`, `open-failure`).
    #[serde(default)]
    pub status: Option<u16>,
    /// Time until the failure shows, seconds (`transfer-failure`, `error-response`, `admission-timeout`).
    #[serde(default)]
    pub after_s: Option<f64>,
    /// Tokens sent before the stream goes quiet (`hang`).
    #[serde(default)]
    pub after_tokens: Option<u32>,
}

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The worker dies: requests inside are lost, connections refused.
    Kill,
    /// The worker comes back at the same address: cold cache, no sessions. After a kill, or at once (kill + restart).
    Restart,
    /// The worker leaves the cluster for good; discovery removes it.
    Leave,
    /// The worker joins at this time; it is not there before.
    Join,
    /// The worker computes `factor` times slower.
    SlowWorker,
    /// The link of `worker` (or of the pair `worker` → `to`) is `factor` times slower.
    SlowLink,
    /// Transfers from `worker` to `to` fail after `after_s`.
    TransferFailure,
    /// Streams go quiet after `after_tokens` tokens.
    Hang,
    /// Admission calls at `worker` time out after `after_s`.
    AdmissionTimeout,
    /// `/generate` at `worker` (or of `session`, `turn`) answers `status` after `after_s`.
    ErrorResponse,
    /// `/open_session` at `worker` answers `status`.
    OpenFailure,
    /// The PD router restarts: its counters and sticky map start anew.
    RouterRestart,
    /// Batches of KV events of `worker` (of any, without) are lost.
    KvEventDrop,
    /// They arrive twice.
    KvEventDuplicate,
    /// Each is overtaken by the one that follows it.
    KvEventReorder,
    /// The publisher of `worker` begins anew, with sequence number 0 and without a history; its cache stays.
    PublisherRestart,
    /// The address at which KV events of `worker` (of any, without) are looked for is wrong: nothing answers there.
    KvEndpointWrong,
}

/// What a fault does to a whole process, beyond what the processes do themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// The worker dies; it is there again when the fault ends.
    Kill,
    /// The worker dies for good.
    Leave,
    /// The worker dies if it lives, and a new process is there at once.
    Restart,
    /// A new process is there.
    Join,
    /// A new router is there.
    Router,
}

impl FaultKind {
    /// It makes the run hear something else of KV events than was said.
    pub fn is_of_kv_events(self) -> bool {
        match self {
            FaultKind::KvEventDrop
            | FaultKind::KvEventDuplicate
            | FaultKind::KvEventReorder
            | FaultKind::PublisherRestart
            | FaultKind::KvEndpointWrong => true,
            FaultKind::Kill
            | FaultKind::Restart
            | FaultKind::Leave
            | FaultKind::Join
            | FaultKind::SlowWorker
            | FaultKind::SlowLink
            | FaultKind::TransferFailure
            | FaultKind::Hang
            | FaultKind::AdmissionTimeout
            | FaultKind::ErrorResponse
            | FaultKind::OpenFailure
            | FaultKind::RouterRestart => false,
        }
    }

    /// `None`: it concerns what a worker does, not whether it is there.
    pub fn outage(self) -> Option<Outage> {
        match self {
            FaultKind::Kill => Some(Outage::Kill),
            FaultKind::Leave => Some(Outage::Leave),
            FaultKind::Restart => Some(Outage::Restart),
            FaultKind::Join => Some(Outage::Join),
            FaultKind::RouterRestart => Some(Outage::Router),
            FaultKind::SlowWorker
            | FaultKind::SlowLink
            | FaultKind::TransferFailure
            | FaultKind::Hang
            | FaultKind::AdmissionTimeout
            | FaultKind::ErrorResponse
            | FaultKind::OpenFailure
            | FaultKind::KvEventDrop
            | FaultKind::KvEventDuplicate
            | FaultKind::KvEventReorder
            | FaultKind::PublisherRestart
            | FaultKind::KvEndpointWrong => None,
        }
    }
}

impl RouterPolicy {
    /// Every policy a running router can have.
    pub const CHOICES: [RouterPolicy; 4] =
        [RouterPolicy::RoundRobin, RouterPolicy::Manual, RouterPolicy::ConsistentHashing, RouterPolicy::CacheAware];

    /// As in scenarios.
    pub fn as_str(self) -> &'static str {
        match self {
            RouterPolicy::Auto => "auto",
            RouterPolicy::RoundRobin => "round_robin",
            RouterPolicy::Manual => "manual",
            RouterPolicy::ConsistentHashing => "consistent_hashing",
            RouterPolicy::CacheAware => "cache_aware",
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        ClusterConfig {
            prefill: 2,
            decode: 6,
            colocated: 0,
            transfer_timeout_s: 32.0,
            hop_us: 100,
            discovery_delay_ms: 1000,
            router: RouterConfig::default(),
            link: LinkConfig::default(),
        }
    }
}

impl Default for RouterConfig {
    fn default() -> Self {
        RouterConfig {
            prefill_policy: RouterPolicy::RoundRobin,
            decode_policy: RouterPolicy::Auto,
            stable_indices: true,
        }
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig { preset: "mooncake-tcp".into(), setup_us: 1000, gbytes_per_s: 2.5 }
    }
}
