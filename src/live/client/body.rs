//! [`Bodies`]: the JSON of a generate request, put together from texts that are ready.
//!
//! Nothing is serialised on the way but the few names and numbers around the tokens. Owns no tokens ([`super::tokens`])
//! and no route: which fields a leg gets is the caller's word.

use std::sync::Arc;

use serde_json::Value;

use crate::live::client::tokens::Tokens;
use crate::live::{Dialect, Target};
use crate::protocol::Generate;
use crate::scenario::OpenAiApi;
use crate::trace::Trace;

/// Words a chat prompt is made of: short ones that common vocabularies hold as one token.
const WORDS: [&str; 32] = [
    "time", "year", "people", "way", "day", "man", "thing", "world", "life", "hand", "part", "child", "eye", "woman",
    "place", "work", "week", "case", "point", "company", "number", "group", "problem", "fact", "be", "have", "do",
    "say", "get", "make", "go", "know",
];

/// Bytes of a body that are neither tokens nor names, at most.
const OTHER_BYTES: usize = 512;

/// See the module.
#[derive(Debug)]
pub(super) struct Bodies {
    trace: Arc<Trace>,
    tokens: Tokens,
    dialect: Dialect,
    emulated: bool,
    /// `"model":"…",`, or nothing.
    model: String,
    session_mark: String,
}

/// A body without its end: fields of one leg may follow.
#[derive(Debug)]
pub(super) struct Body {
    common: Vec<u8>,
    session: String,
}

/// Where the legs of a request meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rendezvous {
    /// Host of P's bootstrap server.
    pub host: String,
    /// Its port.
    pub port: Option<u16>,
    /// The room.
    pub room: u64,
}

impl Bodies {
    pub fn new(trace: &Arc<Trace>, target: &Target) -> Bodies {
        let model =
            if target.model.is_empty() { String::new() } else { format!("\"model\":{},", quoted(&target.model)) };
        let tokens = Tokens::new(trace, target.token_ids, target.body_cache);
        let (trace, session_mark) = (Arc::clone(trace), target.session_mark.clone());
        Bodies { trace, tokens, dialect: target.dialect, emulated: target.emulated, model, session_mark }
    }

    /// Bytes of a request's body at most, some left over for what is not tokens.
    pub fn size(&self, generate: &Generate) -> usize {
        let id = self.trace.sessions[generate.session.ix()].id.len() + self.session_mark.len();
        let answer = if self.emulated { generate.output_tokens } else { 0 };
        // The longest word has seven letters.
        let words =
            if self.dialect == Dialect::OpenAi(OpenAiApi::Chat) { 8 * generate.shipped_tokens as usize } else { 0 };
        let tokens = self.tokens.most_bytes(generate.shipped_tokens).max(words) + self.tokens.most_bytes(answer);
        // Characters of an id may be escaped.
        OTHER_BYTES + self.model.len() + 12 * id + tokens
    }

    /// The body of a request.
    pub fn build(&mut self, generate: &Generate) -> Body {
        let body = match self.dialect {
            Dialect::Generate => self.native(generate),
            Dialect::OpenAi(api) => self.openai(api, generate),
        };
        self.tokens.written(generate.request);
        body
    }

    fn native(&mut self, generate: &Generate) -> Body {
        let rid = quoted(&self.trace.request_id(generate.request));
        let mut json = Vec::with_capacity(self.size(generate));
        json.extend_from_slice(format!("{{\"rid\":{rid},{}\"input_ids\":[", self.model).as_bytes());
        self.prompt(&mut json, generate);
        let most = generate.output_tokens;
        json.extend_from_slice(
            format!("],\"stream\":true,\"sampling_params\":{{\"max_new_tokens\":{most},\"ignore_eos\":true,\"temperature\":0")
                .as_bytes(),
        );
        if self.emulated {
            json.extend_from_slice(b",\"custom_params\":{\"output_ids\":[");
            let answer = generate.input_tokens..generate.input_tokens + most;
            self.tokens.write(&mut json, generate.request, answer);
            json.extend_from_slice(b"]}");
        }
        json.push(b'}');
        let session = if generate.session_params {
            let id = wire_id(&self.trace.sessions[generate.session.ix()].id, &self.session_mark);
            format!(",\"session_params\":{{\"id\":{}}}", quoted(&id))
        } else {
            String::new()
        };
        Body { common: json, session }
    }

    fn openai(&mut self, api: OpenAiApi, generate: &Generate) -> Body {
        let mut json = Vec::with_capacity(self.size(generate));
        json.extend_from_slice(format!("{{{}", self.model).as_bytes());
        match api {
            OpenAiApi::Completions => {
                json.extend_from_slice(b"\"prompt\":[");
                self.prompt(&mut json, generate);
                json.push(b']');
            }
            OpenAiApi::Chat => {
                json.extend_from_slice(b"\"messages\":[{\"role\":\"user\",\"content\":\"");
                let mut ids = Vec::with_capacity(generate.shipped_tokens as usize * 6);
                self.prompt(&mut ids, generate);
                write_words(&mut json, &ids);
                json.extend_from_slice(b"\"}]");
            }
        }
        json.extend_from_slice(
            format!(
                ",\"max_tokens\":{},\"ignore_eos\":true,\"temperature\":0,\"stream\":true,\
                 \"stream_options\":{{\"include_usage\":true}}",
                generate.output_tokens
            )
            .as_bytes(),
        );
        Body { common: json, session: String::new() }
    }

    /// The whole prompt, or the tokens at its end that a session lacks.
    fn prompt(&mut self, json: &mut Vec<u8>, generate: &Generate) {
        let from = generate.input_tokens.saturating_sub(generate.shipped_tokens);
        self.tokens.write(json, generate.request, from..generate.input_tokens);
    }
}

impl Body {
    /// For the one leg there is, or for D.
    pub fn whole(mut self, meet: Option<&Rendezvous>) -> Vec<u8> {
        self.common.extend_from_slice(self.session.as_bytes());
        end(self.common, meet)
    }

    /// For P: the same without `session_params`.
    pub fn for_prefill(&self, meet: &Rendezvous) -> Vec<u8> {
        end(self.common.clone(), Some(meet))
    }
}

fn end(mut json: Vec<u8>, meet: Option<&Rendezvous>) -> Vec<u8> {
    if let Some(meet) = meet {
        let port = meet.port.map_or("null".to_owned(), |port| port.to_string());
        let (host, room) = (quoted(&meet.host), meet.room);
        json.extend_from_slice(
            format!(",\"bootstrap_host\":{host},\"bootstrap_port\":{port},\"bootstrap_room\":{room}").as_bytes(),
        );
    }
    json.push(b'}');
    json
}

/// A session's id on the wire and as routing key.
pub(super) fn wire_id(id: &str, session_mark: &str) -> String {
    format!("{id}{session_mark}")
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// One word for each id of a text `1,2,3`.
fn write_words(json: &mut Vec<u8>, ids: &[u8]) {
    let mut words = ids.split(|byte| *byte == b',').filter(|id| !id.is_empty()).map(|id| {
        let id = id.iter().fold(0usize, |id, digit| id.wrapping_mul(10) + usize::from(digit - b'0'));
        WORDS[id % WORDS.len()].as_bytes()
    });
    if let Some(first) = words.next() {
        json.extend_from_slice(first);
    }
    for word in words {
        json.push(b' ');
        json.extend_from_slice(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::api::{GenerateBody, OpenAiBody, Prompt};
    use crate::live::client::tests::support::{generate_of, target, two_turns};

    fn parsed(bytes: &[u8]) -> GenerateBody {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_native_body_says_all_that_a_worker_reads() {
        let trace = two_turns();
        let mut bodies = Bodies::new(&trace, &target(&[]));
        let whole = parsed(&bodies.build(&generate_of(&trace, 1)).whole(None));
        assert_eq!(whole.rid.as_deref(), Some("s\"1/1"));
        assert_eq!(whole.input_ids.as_ref().map(Vec::len), Some(200));
        let sampling = &whole.sampling_params;
        assert_eq!((sampling.max_new_tokens, sampling.ignore_eos, sampling.temperature), (Some(10), true, Some(0.0)));
        assert!(whole.stream && whole.session_params.is_none() && whole.bootstrap_room.is_none());
        assert_eq!(sampling.custom_params.as_ref().map(|custom| custom.output_ids.len()), Some(10));
    }

    #[test]
    fn an_append_is_the_end_of_the_prompt() {
        let trace = two_turns();
        let mut bodies = Bodies::new(&trace, &target(&[]));
        let whole = parsed(&bodies.build(&generate_of(&trace, 1)).whole(None)).input_ids.unwrap();
        let append = Generate { shipped_tokens: 90, session_params: true, ..generate_of(&trace, 1) };
        let append = parsed(&bodies.build(&append).whole(None));
        assert_eq!(append.input_ids.unwrap(), whole[110..]);
        assert_eq!(append.session_params.unwrap().id, "s\"1");
        let first = parsed(&bodies.build(&generate_of(&trace, 0)).whole(None));
        let answer = first.sampling_params.custom_params.unwrap().output_ids;
        assert_eq!([first.input_ids.unwrap(), answer].concat(), whole[..110], "what it continues");
    }

    #[test]
    fn the_prefill_leg_has_no_session() {
        let trace = two_turns();
        let mut bodies = Bodies::new(&trace, &Target { emulated: false, model: "m".into(), ..target(&[]) });
        let body = bodies.build(&Generate { session_params: true, ..generate_of(&trace, 0) });
        let meet = Rendezvous { host: "::1".into(), port: Some(8998), room: (1 << 63) - 1 };
        let prefill = parsed(&body.for_prefill(&meet));
        let decode = parsed(&body.whole(Some(&meet)));
        assert!(prefill.session_params.is_none() && decode.session_params.is_some());
        for leg in [&prefill, &decode] {
            assert_eq!((leg.bootstrap_host.as_deref(), leg.bootstrap_port), (Some("::1"), Some(8998)));
            assert_eq!(leg.bootstrap_room, Some((1 << 63) - 1));
            assert!(leg.sampling_params.custom_params.is_none(), "real engines are told no answer");
        }
        assert_eq!(prefill.input_ids, decode.input_ids);
    }

    #[test]
    fn openai_bodies_hold_as_many_tokens_or_words() {
        let trace = two_turns();
        for api in [OpenAiApi::Completions, OpenAiApi::Chat] {
            let target = Target { dialect: Dialect::OpenAi(api), model: "emu".into(), ..target(&[]) };
            let bytes = Bodies::new(&trace, &target).build(&generate_of(&trace, 1)).whole(None);
            let body: OpenAiBody = serde_json::from_slice(&bytes).unwrap();
            assert_eq!((body.model.as_str(), body.max_tokens, body.ignore_eos), ("emu", Some(10), true));
            assert!(body.stream && body.stream_options.unwrap().include_usage);
            let tokens = match (body.prompt, body.messages) {
                (Some(Prompt::Tokens(ids)), None) => ids.len(),
                (None, Some(messages)) => messages[0].content.as_str().unwrap().split(' ').count(),
                other => panic!("{other:?}"),
            };
            assert_eq!(tokens, 200);
        }
    }
}
