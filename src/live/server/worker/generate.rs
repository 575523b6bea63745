//! `POST /generate`: what is asked of the node, and the answer as a stream or at once.
//!
//! The head of an answer leaves with its first output, because until then it may be refused by a status.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::event::{self, Writer};
use super::exchange::{Open, Step};
use super::front::Front;
use super::words;
use crate::base::Role;
use crate::live::Endpoint;
use crate::live::api::{GenerateBody, SamplingParams, SessionParams};
use crate::live::server::http::{self, Refused};
use crate::node::{Bootstrap, GenerateAsk, NodeInput, NodeOutput};
use crate::protocol::{ErrorClass, Finish};

/// SGLang's default.
const MAX_NEW_TOKENS: u32 = 128;

/// Keys of `sampling_params` that SGLang knows. Those the emulation has no use for change nothing.
const SAMPLING_KEYS: &[&str] = &[
    "n",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "logit_bias",
    "sampling_seed",
];

/// Handles it.
pub(super) async fn generate(State(front): State<Arc<Front>>, request: Request) -> Response {
    match answer(&front, request).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    }
}

async fn answer(front: &Arc<Front>, request: Request) -> Result<Response, Refused> {
    let (head, body) = request.into_parts();
    http::check_json(&head.headers)?;
    let bytes = http::read(body, front.options.body_limit).await?;
    let body = parse(&bytes)?;
    drop(bytes);
    front.check_ready()?;
    let stream = body.stream;
    let rid = body.rid.clone().unwrap_or_else(|| front.make_id());
    let writer = Writer::new(rid.clone(), front);
    if let Some(unsupported) = body.session_params.as_ref().and_then(unsupported) {
        return aborted(front, writer, stream, unsupported);
    }
    let ask = ask(front, rid, body)?;
    let open = front.begin(|exchange| NodeInput::Generate { exchange, ask: Box::new(ask) }).await?;
    if stream { streamed(front, open, writer).await } else { whole(front, open, writer).await }
}

/// A request that SGLang's tokenizer gives up: a verdict inside a 200 stream, else 400.
fn aborted(front: &Front, mut writer: Writer, stream: bool, message: String) -> Result<Response, Refused> {
    if !stream {
        return Err(Refused::bad(message));
    }
    let last = writer.aborted(front.options.clock.now(), ErrorClass::BadRequest, message);
    Ok((event_stream_head(), Body::from(last)).into_response())
}

async fn whole(front: &Front, open: Open, writer: Writer) -> Result<Response, Refused> {
    let Some(output) = open.end().await else { return Err(front.stopped()) };
    refusal(&output)?;
    if let NodeOutput::Finished { finish: Finish::Abort { class, message }, .. } = &output
        && let Some(status) = event::status(*class)
    {
        return Err(Refused::numbered(status, message));
    }
    let body = writer.whole(front.options.clock.now(), &output).expect("a generate request ends refused or finished");
    Ok(http::json(&body))
}

/// The refusal that an output is.
pub(super) fn refusal(output: &NodeOutput) -> Result<(), Refused> {
    match output {
        NodeOutput::Refused { refusal, .. } => Err(Refused::numbered(refusal.status, &refusal.message)),
        NodeOutput::Finished { finish: Finish::Error { class, message }, .. } => {
            Err(Refused::numbered(event::status(*class).unwrap_or(500), message))
        }
        _ => Ok(()),
    }
}

async fn streamed(front: &Arc<Front>, mut open: Open, writer: Writer) -> Result<Response, Refused> {
    let first = open.next().await;
    match &first {
        Step::End(output) => refusal(output)?,
        Step::Lost => return Err(front.stopped()),
        Step::Tokens(_) | Step::Hangs | Step::Moves => {}
    }
    let clock = front.options.clock;
    let mut writer = writer;
    let events = move |step: Step| match step {
        Step::Tokens(progress) => Chunk::More(writer.tokens(&progress)),
        Step::Hangs | Step::Moves => Chunk::Nothing,
        Step::End(output) => Chunk::Last(writer.last(clock.now(), &output)),
        Step::Lost => Chunk::Broken,
    };
    Ok(event_stream(first, open, events))
}

/// What a step becomes.
pub(super) enum Chunk {
    /// Bytes, and more to come.
    More(Bytes),
    /// No bytes.
    Nothing,
    /// The last bytes.
    Last(Bytes),
    /// The connection breaks: there is no end to tell.
    Broken,
}

/// A 200 answer of server-sent events: one chunk a step, `first` at once.
pub(super) fn event_stream(first: Step, open: Open, write: impl FnMut(Step) -> Chunk + Send + 'static) -> Response {
    let state = Some((Some(first), open, write));
    let chunks = futures_util::stream::unfold(state, |state| async move {
        let (mut step, mut open, mut write) = state?;
        loop {
            let next = match step.take() {
                Some(step) => step,
                None => open.next().await,
            };
            match write(next) {
                Chunk::More(bytes) => return Some((Ok(bytes), Some((None, open, write)))),
                Chunk::Nothing => {}
                Chunk::Last(bytes) => return Some((Ok(bytes), None)),
                Chunk::Broken => return Some((Err("the worker is stopping"), None)),
            }
        }
    });
    (event_stream_head(), Body::from_stream(chunks)).into_response()
}

fn event_stream_head() -> [(HeaderName, HeaderValue); 2] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ]
}

/// The body; batches are refused in words of their own.
fn parse(bytes: &[u8]) -> Result<GenerateBody, Refused> {
    http::parse(bytes).map_err(|refused| {
        let whole: Option<Value> = serde_json::from_slice(bytes).ok();
        let is_batch = whole.is_some_and(|body| {
            let of = |key: &str| body.get(key).and_then(Value::as_array);
            of("text").is_some()
                || of("rid").is_some()
                || of("input_ids").is_some_and(|ids| ids.iter().any(Value::is_array))
        });
        if is_batch { Refused::bad("emulated workers take no batches; send one prompt a request") } else { refused }
    })
}

fn ask(front: &Front, rid: String, body: GenerateBody) -> Result<GenerateAsk, Refused> {
    let sampling = &body.sampling_params;
    check_sampling(sampling)?;
    let max_new_tokens = sampling.max_new_tokens.unwrap_or(MAX_NEW_TOKENS);
    let session = body.session_params.map(|params| params.id);
    let input_ids = match (body.input_ids, body.text) {
        (Some(ids), None) => ids,
        (None, Some(text)) => words::tokens(&text),
        (None, None) | (Some(_), Some(_)) => {
            return Err(Refused::bad("Either text, input_ids or input_embeds should be provided."));
        }
    };
    let bootstrap = bootstrap(front, body.bootstrap_room, body.bootstrap_host, body.bootstrap_port)?;
    let answer_ids = body.sampling_params.custom_params.map(|custom| custom.output_ids).unwrap_or_default();
    Ok(GenerateAsk { rid: Some(rid), input_ids, session, max_new_tokens, answer_ids, bootstrap })
}

fn check_sampling(sampling: &SamplingParams) -> Result<(), Refused> {
    if let Some(key) = sampling.other.keys().find(|key| !SAMPLING_KEYS.contains(&key.as_str())) {
        return Err(Refused::bad(format!("SamplingParams.__init__() got an unexpected keyword argument '{key}'")));
    }
    if sampling.other.get("n").is_some_and(|n| !n.is_null() && n.as_u64() != Some(1)) {
        return Err(Refused::bad("emulated workers give one answer a request; leave `n` out or at 1"));
    }
    Ok(())
}

/// What streaming sessions do not support, in SGLang's words.
fn unsupported(params: &SessionParams) -> Option<String> {
    let what = match params {
        SessionParams { replace: Some(true), .. } => "replace",
        SessionParams { offset: Some(offset), .. } if *offset != 0 => "offset",
        SessionParams { drop_previous_output: Some(true), .. } => "drop_previous_output",
        SessionParams { .. } => return None,
    };
    Some(format!("Streaming sessions do not support {what}."))
}

/// Where the legs meet. Prefill workers need the room alone.
pub(super) fn bootstrap(
    front: &Front,
    room: Option<u64>,
    host: Option<String>,
    port: Option<u16>,
) -> Result<Option<Bootstrap>, Refused> {
    let Some(room) = room else { return Ok(None) };
    match (front.config.id.role, host) {
        (Role::Prefill, host) => {
            Ok(Some(Bootstrap { host: host.unwrap_or_default(), port: front.bootstrap_port, room }))
        }
        (Role::Decode, Some(host)) => {
            Ok(Some(Bootstrap { host, port: port.unwrap_or(Endpoint::BOOTSTRAP_PORT), room }))
        }
        (Role::Decode, None) => {
            Err(Refused::bad("bootstrap_room without bootstrap_host; name the prefill worker's bootstrap server"))
        }
        (Role::Colocated, _) => {
            Err(Refused::bad("this worker is colocated: it has no prefill worker; leave bootstrap_room out"))
        }
    }
}
