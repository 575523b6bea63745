//! Control calls of a decode worker: sessions, admission, abort.

use serde::{Deserialize, Serialize};

/// `POST /open_session`; the answer is the id as a bare JSON string, or 400 for a duplicate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OpenBody {
    /// Required by SGLang, never enforced.
    pub capacity_of_str_len: u64,
    /// Id; the server makes one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// A streaming session: append only, KV outside the radix cache.
    #[serde(default)]
    pub streaming: bool,
    /// Idle seconds after which it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

/// `POST /close_session`; always 200.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CloseBody {
    /// Id.
    pub session_id: String,
}

/// `POST /abort_request`; always 200.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AbortBody {
    /// Request id; a prefix of it in SGLang.
    pub rid: String,
    /// Every request.
    pub abort_all: bool,
}

/// `POST /session_cache/admit_direct_append`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AdmitBody {
    /// Session it is about.
    pub session_id: String,
    /// `append` (default) to a session the worker holds, or `seed` a new one.
    #[serde(default = "append")]
    pub kind: String,
    /// Prompt tokens to add.
    pub append_tokens: u32,
    /// Answer tokens to add.
    #[serde(default)]
    pub output_tokens: u32,
}

fn append() -> String {
    "append".to_owned()
}

/// Answer to [`AdmitBody`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AdmitReply {
    /// There is room. An answer without it is none.
    pub can_admit: bool,
    /// `fits`, `fits-after-trim`, `no-capacity`, `session-not-found`, `session-busy`; free text from others.
    #[serde(default)]
    pub reason: String,
    /// Free and evictable tokens after this answer.
    #[serde(default)]
    pub available_tokens: u64,
    /// Tokens of the pool; 0 when the server does not say.
    #[serde(default)]
    pub capacity_tokens: u64,
    /// Ids of the idle sessions it dropped to make room.
    #[serde(default)]
    pub evicted: Vec<String>,
}
