//! `/v1/completions` and `/v1/chat/completions`, streamed or at once, with errors in OpenAI's form.
//!
//! A chunk brings one step's tokens; the role chunk of a chat and the chunk with the counts bring none.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use jiff::Timestamp;
use serde_json::json;

use super::event;
use super::exchange::{Open, Step};
use super::frames::{self, write, write_error};
use super::front::Front;
use super::generate::{Chunk, bootstrap, event_stream, refusal};
use super::words;
use crate::live::api::{ChunkChoice, ChunkDelta, OpenAiBody, OpenAiChunk, Prompt, Usage};
use crate::live::server::http::{self, Refused};
use crate::node::{GenerateAsk, NodeInput, NodeOutput, Progress};
use crate::protocol::Finish;

/// Answer tokens of a completion that asks for no number: OpenAI's default.
const COMPLETION_TOKENS: u32 = 16;
/// The same of a chat, which has no default: SGLang's of `/generate`.
const CHAT_TOKENS: u32 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Completion,
    Chat,
}

/// Handles `/v1/completions`.
pub(super) async fn completions(State(front): State<Arc<Front>>, request: Request) -> Response {
    answer(&front, request, Kind::Completion).await.unwrap_or_else(Refused::open_ai)
}

/// Handles `/v1/chat/completions`.
pub(super) async fn chat(State(front): State<Arc<Front>>, request: Request) -> Response {
    answer(&front, request, Kind::Chat).await.unwrap_or_else(Refused::open_ai)
}

async fn answer(front: &Arc<Front>, request: Request, kind: Kind) -> Result<Response, Refused> {
    let (head, body) = request.into_parts();
    http::check_json(&head.headers)?;
    let bytes = http::read(body, front.options.body_limit).await?;
    let mut body: OpenAiBody = http::parse(&bytes)?;
    drop(bytes);
    front.check_ready()?;
    let model = if body.model.is_empty() { front.options.model.clone() } else { std::mem::take(&mut body.model) };
    let with_usage = body.stream_options.as_ref().is_some_and(|options| options.include_usage);
    let stream = body.stream;
    let id = body.rid.clone().unwrap_or_else(|| front.make_id());
    let ask = ask(front, id.clone(), body, kind)?;
    let open = front.begin(|exchange| NodeInput::Generate { exchange, ask: Box::new(ask) }).await?;
    let form = Form { kind, id, model, created: Timestamp::now().as_second().unsigned_abs(), with_usage };
    if stream { streamed(front, open, form).await } else { whole(front, open, &form).await }
}

fn ask(front: &Front, rid: String, body: OpenAiBody, kind: Kind) -> Result<GenerateAsk, Refused> {
    if body.n.is_some_and(|n| n != 1) {
        return Err(Refused::bad("emulated workers give one answer a request; leave `n` out or at 1"));
    }
    let input_ids = match (kind, body.prompt, body.messages) {
        (Kind::Completion, Some(Prompt::Tokens(ids)), _) => ids,
        (Kind::Completion, Some(Prompt::Text(text)), _) => words::tokens(&text),
        (Kind::Completion, None, _) => return Err(Refused::bad("`prompt` is missing; send text or token ids")),
        (Kind::Chat, _, Some(messages)) => words::chat_tokens(&messages),
        (Kind::Chat, _, None) => return Err(Refused::bad("`messages` is missing; send a list of messages")),
    };
    let default = if kind == Kind::Chat { CHAT_TOKENS } else { COMPLETION_TOKENS };
    let max_new_tokens = body.max_completion_tokens.or(body.max_tokens).unwrap_or(default);
    let bootstrap = bootstrap(front, body.bootstrap_room, body.bootstrap_host, body.bootstrap_port)?;
    let answer_ids = body.custom_params.map(|custom| custom.output_ids).unwrap_or_default();
    Ok(GenerateAsk { rid: Some(rid), input_ids, session: None, max_new_tokens, answer_ids, bootstrap })
}

async fn streamed(front: &Front, mut open: Open, form: Form) -> Result<Response, Refused> {
    let first = open.next().await;
    match &first {
        Step::End(output) => refuse(output)?,
        Step::Lost => return Err(front.stopped()),
        Step::Tokens(_) | Step::Hangs | Step::Moves => {}
    }
    let mut told_role = form.kind == Kind::Completion;
    let events = move |step: Step| {
        let mut events = Vec::new();
        if !std::mem::replace(&mut told_role, true) {
            write(&mut events, &form.role());
        }
        match step {
            Step::Tokens(progress) => write(&mut events, &form.chunk(&progress, None)),
            Step::Hangs | Step::Moves if events.is_empty() => return Chunk::Nothing,
            Step::Hangs | Step::Moves => {}
            Step::End(output) => return Chunk::Last(form.last(events, &output)),
            Step::Lost => return Chunk::Broken,
        }
        Chunk::More(events.into())
    };
    Ok(event_stream(first, open, events))
}

async fn whole(front: &Front, open: Open, form: &Form) -> Result<Response, Refused> {
    let Some(output) = open.end().await else { return Err(front.stopped()) };
    refuse(&output)?;
    let NodeOutput::Finished { finish, last, .. } = &output else {
        unreachable!("a generate request ends refused or finished: {output:?}")
    };
    let mut text = String::new();
    words::append_text(&mut text, &last.new_ids);
    let reason = reason(finish);
    let choice = match form.kind {
        Kind::Completion => json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason }),
        Kind::Chat => {
            let message = json!({ "role": "assistant", "content": text });
            json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": reason })
        }
    };
    let object = if form.kind == Kind::Chat { "chat.completion" } else { "text_completion" };
    Ok(http::json(&json!({
        "id": form.id, "object": object, "created": form.created, "model": form.model, "choices": [choice],
        "usage": usage(last),
    })))
}

/// Refused by a status, or given up for a reason that has one.
fn refuse(output: &NodeOutput) -> Result<(), Refused> {
    refusal(output)?;
    match output {
        NodeOutput::Finished { finish: Finish::Abort { class, message }, last, .. } if last.completion_tokens == 0 => {
            Err(Refused::numbered(event::status(*class).unwrap_or(500), message))
        }
        _ => Ok(()),
    }
}

fn reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::Stop => "stop",
        Finish::Abort { .. } | Finish::Error { .. } => "abort",
    }
}

fn usage(progress: &Progress) -> Usage {
    Usage {
        prompt_tokens: progress.prompt_tokens,
        completion_tokens: progress.completion_tokens,
        total_tokens: progress.prompt_tokens + progress.completion_tokens,
        prompt_tokens_details: Some(json!({ "cached_tokens": progress.cached_tokens })),
    }
}

/// What all chunks of an answer share.
#[derive(Debug)]
struct Form {
    kind: Kind,
    id: String,
    model: String,
    created: u64,
    with_usage: bool,
}

impl Form {
    fn with(&self, choices: Vec<ChunkChoice>) -> OpenAiChunk {
        let object = if self.kind == Kind::Chat { "chat.completion.chunk" } else { "text_completion" };
        OpenAiChunk {
            id: self.id.clone(),
            object: object.into(),
            created: self.created,
            model: self.model.clone(),
            choices,
            usage: None,
            error: None,
        }
    }

    fn role(&self) -> OpenAiChunk {
        let delta =
            ChunkDelta { role: Some("assistant".into()), content: Some(String::new()), ..ChunkDelta::default() };
        self.with(vec![ChunkChoice { delta: Some(delta), ..ChunkChoice::default() }])
    }

    fn chunk(&self, progress: &Progress, finish: Option<&Finish>) -> OpenAiChunk {
        let mut text = String::new();
        words::append_text(&mut text, &progress.new_ids);
        let finish_reason = finish.map(|finish| reason(finish).to_owned());
        let choice = match self.kind {
            Kind::Completion => ChunkChoice { text: Some(text), finish_reason, ..ChunkChoice::default() },
            Kind::Chat => {
                let content = (!text.is_empty()).then_some(text);
                let delta = Some(ChunkDelta { content, ..ChunkDelta::default() });
                ChunkChoice { delta, finish_reason, ..ChunkChoice::default() }
            }
        };
        self.with(vec![choice])
    }

    /// The end of the stream, after what `events` holds.
    fn last(&self, mut events: Vec<u8>, output: &NodeOutput) -> Bytes {
        match output {
            NodeOutput::Finished {
                finish: Finish::Error { class, message } | Finish::Abort { class, message },
                ..
            } => write_error(&mut events, frames::Form::OpenAi, event::status(*class).unwrap_or(500), message),
            NodeOutput::Finished { finish, last, .. } => {
                write(&mut events, &self.chunk(last, Some(finish)));
                if self.with_usage {
                    write(&mut events, &OpenAiChunk { usage: Some(usage(last)), ..self.with(Vec::new()) });
                }
            }
            NodeOutput::Refused { refusal, .. } => {
                write_error(&mut events, frames::Form::OpenAi, refusal.status, &refusal.message)
            }
            other => unreachable!("not the end of a generate request: {other:?}"),
        }
        frames::end(events)
    }
}
