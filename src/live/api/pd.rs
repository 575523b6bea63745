//! The hand-off between emulated workers: KV as a timed message.
//!
//! D asks P for the KV of a room once it has room for it; P answers when the transfer has taken its modelled time.
//! Both ends' links are shared: P counts its own transfers, D tells every P it pulls from how many share its ingress.

use serde::{Deserialize, Serialize};

/// `POST /pdreplay/v1/pull`: D has reserved room and waits for the KV. Closing the connection gives it up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PullBody {
    /// Rendezvous.
    pub room: u64,
    /// Prompt tokens D lacks.
    pub tokens: u32,
    /// Name of D, such as `D3`.
    pub decode: String,
    /// Transfers that move into D now; this one is not among them yet.
    pub ingress_flows: u32,
}

/// Answer once the KV has arrived (200); refusals are a status and an `error` body.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PullReply {
    /// Name of P.
    pub prefill: String,
    /// Prompt tokens P found in its cache.
    pub cached_tokens: u32,
    /// Arrival at P to the start of the prefill, ns of the emulation.
    pub prefill_queue_ns: u64,
    /// Start to end of the prefill, ns.
    pub prefill_ns: u64,
    /// End of the prefill to the start of the transfer, ns.
    pub wait_ns: u64,
    /// The transfer with its set-up, ns.
    pub transfer_ns: u64,
}

/// `POST /pdreplay/v1/ingress`: D's ingress is now shared by so many transfers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct IngressBody {
    /// Name of D.
    pub decode: String,
    /// Transfers.
    pub flows: u32,
}
