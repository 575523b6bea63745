//! `/v1/completions` and `/v1/chat/completions`, streamed.

use serde::{Deserialize, Serialize};

/// Body of both endpoints, as a server reads it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenAiBody {
    /// Model.
    #[serde(deserialize_with = "super::null_is_default")]
    pub model: String,
    /// Completions: prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// Chat: messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<ChatMessage>>,
    /// Answer tokens at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The same under its newer name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u32>,
    /// Answer exactly that many (vLLM, SGLang).
    #[serde(deserialize_with = "super::null_is_default")]
    pub ignore_eos: bool,
    /// Answer as an event stream.
    #[serde(deserialize_with = "super::null_is_default")]
    pub stream: bool,
    /// What the stream includes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Answers wanted; emulated workers give one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u32>,
    /// Request id (SGLang).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rid: Option<String>,
    /// Host of the prefill worker's bootstrap server (SGLang; routers add it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_host: Option<String>,
    /// Its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_port: Option<u16>,
    /// Rendezvous of the two legs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_room: Option<u64>,
    /// As in `sampling_params` of `/generate`; sent to emulated targets only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_params: Option<super::CustomParams>,
}

/// Prompt of a completion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    /// Token ids.
    Tokens(Vec<u32>),
    /// Text; one token a word for emulated workers.
    Text(String),
}

/// One chat message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatMessage {
    /// `user`, `system` or `assistant`.
    pub role: String,
    /// Text, or parts.
    pub content: serde_json::Value,
}

/// `stream_options`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamOptions {
    /// A last chunk with the counts.
    pub include_usage: bool,
}

/// One chunk of either stream.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenAiChunk {
    /// Id of the answer.
    pub id: String,
    /// `text_completion` or `chat.completion.chunk`.
    pub object: String,
    /// Unix seconds.
    pub created: u64,
    /// Model.
    pub model: String,
    /// Empty in the chunk with the counts.
    pub choices: Vec<ChunkChoice>,
    /// Counts; null but at the end.
    pub usage: Option<Usage>,
    /// An error inside a 200 answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<super::InBandError>,
}

/// One choice of a chunk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChunkChoice {
    /// 0.
    pub index: u32,
    /// Completions: text since the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Chat: what the chunk adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<ChunkDelta>,
    /// `length`, `stop`, `abort`, …; null while running.
    pub finish_reason: Option<String>,
}

/// What a chat chunk adds. Tokens may come in any of its texts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChunkDelta {
    /// First chunk only; no token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Text of a thinking model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The same under vLLM's newer name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Calls of tools, as they come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<serde_json::Value>,
}

/// Counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Answer tokens.
    pub completion_tokens: u32,
    /// Both.
    pub total_tokens: u32,
    /// `{"cached_tokens": n}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<serde_json::Value>,
}

/// Body of a refusal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenAiErrorBody {
    /// The error.
    pub error: OpenAiError,
}

/// `{"error": {...}}` of a refusal, also the routers' form.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenAiError {
    /// Class.
    #[serde(rename = "type")]
    pub kind: String,
    /// Code of the router, such as `no_available_workers`, or the status.
    pub code: serde_json::Value,
    /// Words.
    pub message: String,
    /// Field at fault.
    pub param: Option<String>,
}
