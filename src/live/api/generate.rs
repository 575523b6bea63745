//! `POST /generate`: request, events of the stream, verdict.

use serde::{Deserialize, Serialize};

/// Body of `/generate` as a worker or router reads it. Batches are refused by emulated nodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerateBody {
    /// Request id; pdreplay sends `<session>/<turn>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rid: Option<String>,
    /// Prompt as text; one token a word for emulated workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Prompt as token ids: the whole prompt, or the append of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_ids: Option<Vec<u32>>,
    /// Sampling.
    #[serde(deserialize_with = "super::null_is_default")]
    pub sampling_params: SamplingParams,
    /// Answer as an event stream.
    #[serde(deserialize_with = "super::null_is_default")]
    pub stream: bool,
    /// Session to append to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_params: Option<SessionParams>,
    /// Host of the prefill worker's bootstrap server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_host: Option<String>,
    /// Its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_port: Option<u16>,
    /// Rendezvous of the two legs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_room: Option<u64>,
}

/// `sampling_params`; unknown keys are refused with 400, as SGLang does.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// Answer tokens at most; SGLang's default is 128.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<u32>,
    /// Answer exactly `max_new_tokens`.
    #[serde(deserialize_with = "super::null_is_default")]
    pub ignore_eos: bool,
    /// Temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Free parameters of SGLang's custom logit processors; emulated workers read the answer to give from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_params: Option<CustomParams>,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// What pdreplay tells an emulated worker beside the prompt; sent to emulated targets only.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CustomParams {
    /// The answer's token ids, as the trace's next turn names them; fewer than `max_new_tokens` or none is fine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_ids: Vec<u32>,
}

/// `session_params` of a streaming session: append only.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionParams {
    /// Session id.
    pub id: String,
    /// Ignored by streaming sessions.
    pub rid: Option<String>,
    /// Not supported by streaming sessions.
    pub offset: Option<i64>,
    /// Not supported by streaming sessions.
    pub replace: Option<bool>,
    /// Not supported by streaming sessions.
    pub drop_previous_output: Option<bool>,
}

/// One event of the stream, or the whole answer without streaming.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerateEvent {
    /// Text so far (cumulative) or since the last event (incremental).
    pub text: String,
    /// Token ids, in the same manner.
    pub output_ids: Vec<u32>,
    /// Counts and verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_info: Option<MetaInfo>,
    /// An error inside a 200 answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<InBandError>,
}

/// `meta_info`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MetaInfo {
    /// The `rid`.
    pub id: String,
    /// Null while running.
    pub finish_reason: Option<FinishReason>,
    /// Prompt tokens; in a session the whole context.
    pub prompt_tokens: u32,
    /// Answer tokens so far: the only right count of tokens.
    pub completion_tokens: u32,
    /// Prompt tokens found in the cache.
    pub cached_tokens: u32,
    /// Times the engine threw it out (0.5.23).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_retractions: Option<u32>,
    /// The same in 0.5.10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_retractions: Option<u32>,
    /// Last event: seconds from arrival to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_latency: Option<f64>,
    /// Last event of an emulated worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<Emulated>,
}

/// What only an emulated worker tells. Times in nanoseconds of the emulation; phases that did not occur are absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Emulated {
    /// Its name.
    pub worker: String,
    /// Its process identity.
    pub incarnation: u32,
    /// The prefill worker that sent the KV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_worker: Option<String>,
    /// [`crate::protocol::Phases::prefill_queue`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_queue_ns: Option<u64>,
    /// [`crate::protocol::Phases::prefill`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_ns: Option<u64>,
    /// [`crate::protocol::Phases::kv_transfer`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_transfer_ns: Option<u64>,
    /// [`crate::protocol::Phases::decode_queue`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode_queue_ns: Option<u64>,
}

/// `finish_reason`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum FinishReason {
    /// All tokens asked for.
    Length {
        /// How many; 0 from a prefill leg.
        #[serde(default)]
        length: u64,
    },
    /// The model stopped.
    Stop {
        /// Token id or text that stopped it.
        #[serde(default)]
        matched: Option<serde_json::Value>,
    },
    /// The engine gave it up.
    Abort {
        /// Its words.
        #[serde(default)]
        message: String,
        /// Status it would have had.
        #[serde(default)]
        status_code: Option<u16>,
        /// Class of its own, such as `BadRequestError`.
        #[serde(default)]
        err_type: Option<String>,
    },
}

/// `{"error": {...}}` inside a 200 stream, or the body of a refusal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InBandError {
    /// The server's words.
    pub message: String,
    /// Class.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Status as a number, or a code as a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<serde_json::Value>,
    /// Status, in the router's form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// May be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}
