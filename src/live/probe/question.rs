//! [`Question`]: what a server is asked before a run, and [`Answers`], what it said.
//!
//! Owns the list of questions and their wording on the wire. Every one is harmless: nothing is left behind on the server
//! but a closed session and a token or two in a cache.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::reply::{Looked, Reply};
use crate::live::api::{ADMIT_PATH, AdmitBody, CloseBody, OpenBody};
use crate::live::{Dialect, Target};
use crate::scenario::OpenAiApi;

/// One question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Is it up?
    Health,
    /// Arguments and state of an SGLang server.
    ServerInfo,
    /// The same under its older name.
    GetServerInfo,
    /// Which models?
    Models,
    /// Version of a vLLM server.
    Version,
    /// Load.
    Loads,
    /// Load under its older name.
    GetLoad,
    /// A router: loads of its workers, and its own version.
    GetLoads,
    /// A router: its workers.
    Workers,
    /// Room for an append to a session nobody has.
    Admission,
    /// Open a session …
    OpenSession,
    /// … and close it.
    CloseSession,
    /// One token.
    Generate,
}

/// What one server said.
#[derive(Debug, Clone, Default)]
pub struct Answers(pub BTreeMap<Question, Looked>);

/// Name of everything a probe leaves in a server's log; no two programs have the same at a time.
pub(super) fn probe_id() -> String {
    format!("pdreplay-probe-{}", std::process::id())
}

impl Question {
    /// Path on the server.
    pub fn path(self, target: &Target) -> &'static str {
        match self {
            Question::Health => "/health",
            Question::ServerInfo => "/server_info",
            Question::GetServerInfo => "/get_server_info",
            Question::Models => "/v1/models",
            Question::Version => "/version",
            Question::Loads => "/v1/loads",
            Question::GetLoad => "/get_load",
            Question::GetLoads => "/get_loads",
            Question::Workers => "/workers",
            Question::Admission => ADMIT_PATH,
            Question::OpenSession => "/open_session",
            Question::CloseSession => "/close_session",
            Question::Generate => target.dialect.path(),
        }
    }

    /// Body to post; `None`: the question is a GET.
    pub fn body(self, target: &Target) -> Option<Value> {
        match self {
            Question::Admission => {
                let kind = "append".to_owned();
                Some(json!(AdmitBody { session_id: probe_id(), kind, append_tokens: 1, output_tokens: 1 }))
            }
            Question::OpenSession => {
                let (streaming, timeout) = (true, Some(1.0));
                let session_id = Some(probe_id());
                Some(json!(OpenBody { capacity_of_str_len: 0, session_id, streaming, timeout }))
            }
            Question::CloseSession => Some(json!(CloseBody { session_id: probe_id() })),
            Question::Generate => Some(one_token(target)),
            Question::Health
            | Question::ServerInfo
            | Question::GetServerInfo
            | Question::Models
            | Question::Version
            | Question::Loads
            | Question::GetLoad
            | Question::GetLoads
            | Question::Workers => None,
        }
    }
}

/// A request for one token, with the same `model` as the run's own: `smg` counts workers in another order without it.
fn one_token(target: &Target) -> Value {
    let token = target.token_ids.0;
    let mut body = match target.dialect {
        Dialect::Generate => json!({
            "rid": probe_id(),
            "input_ids": [token],
            "sampling_params": {"max_new_tokens": 1, "ignore_eos": true, "temperature": 0.0},
            "stream": false,
        }),
        Dialect::OpenAi(OpenAiApi::Completions) => {
            json!({"prompt": [token], "max_tokens": 1, "ignore_eos": true, "temperature": 0.0, "stream": false})
        }
        Dialect::OpenAi(OpenAiApi::Chat) => {
            let message = json!({"role": "user", "content": "a"});
            json!({"messages": [message], "max_tokens": 1, "ignore_eos": true, "temperature": 0.0, "stream": false})
        }
    };
    if !target.model.is_empty() {
        body["model"] = json!(target.model);
    }
    body
}

impl Answers {
    /// The answer to a question, when it was asked and answered.
    pub fn reply(&self, question: Question) -> Option<&Reply> {
        self.0.get(&question)?.as_ref().ok()
    }

    /// A 200 answer to a question as one of the bodies of the API.
    pub fn read<T: DeserializeOwned>(&self, question: Question) -> Option<T> {
        self.reply(question)?.read()
    }

    /// Value of a header of any answer.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.values().flatten().find_map(|reply| reply.header(name))
    }

    /// Value of a header that every answer which has it agrees on.
    pub fn agreed(&self, name: &str) -> Option<&str> {
        let mut values = self.0.values().flatten().filter_map(|reply| reply.header(name));
        let first = values.next().filter(|value| !value.is_empty())?;
        values.all(|value| value == first).then_some(first)
    }

    /// One of the answers was a 401 or 403.
    pub fn is_unauthorized(&self) -> bool {
        self.0.values().flatten().any(|reply| matches!(reply.status, 401 | 403))
    }
}
