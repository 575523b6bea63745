//! A request through the router: chosen, posted to both legs at once, answered by D's stream.
//!
//! D's chunks pass as they come. The head waits for the first of them, which no client can tell from a slower D, so that
//! a prefill worker that fails before can still be told by a status; after it the KV has left P and its end changes
//! nothing. A client that leaves drops the handler or the stream, and with it both legs.
//! Invariant: a leg lives as long as the answer it serves, but P may finish a word it has begun.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream;

use super::body::Fields;
use super::failure::Failure;
use super::front::{Front, Ticket};
use super::prefill::verdict;
use crate::live::api::{PREFILL_HEADER, SERVED_BY_HEADER};
use crate::live::blame::{PATIENCE, is_of_hand_off};
use crate::live::server::http;
use crate::live::server::upstream::{NoAnswer, read};
use crate::node::Routing;

/// Longest wall time that P may take to end its answer once D's has ended.
const LAST_WORD: Duration = Duration::from_secs(5);
/// Of an error body that is quoted.
const QUOTED: usize = 64 << 10;

/// Request headers that reach the workers, and beginnings of such.
const FORWARDED: [&str; 5] = ["authorization", "x-correlation-id", "traceparent", "tracestate", "x-smg-routing-key"];
const FORWARDED_PREFIX: &str = "x-request-id";
/// Headers of D's answer that concern its connection, not the answer.
const OWN: [&str; 4] = ["connection", "keep-alive", "transfer-encoding", "upgrade"];

/// P's leg until its verdict.
type PrefillLeg = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// `/generate` and the OpenAI endpoints.
pub(super) async fn generate(State(front): State<Arc<Front>>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let began = front.options.clock.now();
    let (answer, rid) = match serve(&front, &uri, &headers, body).await {
        Ok(served) => served,
        Err(failure) => (failure.into_response(), None),
    };
    if let Some(log) = &front.options.log {
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
        let took = front.options.clock.now().since(began).as_millis_f64();
        log.line(format!(
            "router: POST {} {} {} after {took:.1} ms, P {} D {}",
            uri.path(),
            rid.as_deref().unwrap_or("-"),
            answer.status().as_u16(),
            header(PREFILL_HEADER),
            header(SERVED_BY_HEADER),
        ));
    }
    answer
}

async fn serve(
    front: &Arc<Front>,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Response, Option<String>), Failure> {
    http::check_json(headers)?;
    let bytes = http::read(body, front.options.body_limit).await?;
    let fields = Fields::parse(&bytes)?;
    let prompt = if front.node().reads_prompts() { fields.prompt_keys() } else { Vec::new() };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let target = header("x-smg-target-worker");
    let prefill = header("x-pdreplay-target-prefill");
    let of_url = |text: Option<&str>| text.and_then(|text| front.options.workers.named(text)).map(|it| it.to_string());
    let (named, named_prefill) = (of_url(target), of_url(prefill));
    let routing = Routing {
        target: named.as_deref().or(target),
        key: header("x-smg-routing-key"),
        prefill: named_prefill.as_deref().or(prefill),
        prompt: &prompt,
    };
    let mut tries = 0;
    let answer = loop {
        tries += 1;
        let failure = match attempt(front, uri.path(), forwarded(headers), &fields, &bytes, routing).await {
            Ok(answer) => break answer,
            Err(failure) => failure,
        };
        let wait = front.node().wait_before_retry(failure.status.as_u16(), tries);
        let Some(wait) = wait else { break failure.into_response() };
        tokio::time::sleep(front.options.clock.wall(wait)).await;
    };
    Ok((answer, fields.rid()))
}

/// One try: a choice, its legs, and D's answer up to its first chunk.
async fn attempt(
    front: &Arc<Front>,
    path: &str,
    headers: HeaderMap,
    fields: &Fields<'_>,
    whole: &Bytes,
    routing: Routing<'_>,
) -> Result<Response, Failure> {
    let ticket = front.choose(routing).map_err(Failure::no_worker)?;
    let answering = front.address(ticket.chosen.answering).url.clone();
    let mut names = HeaderMap::new();
    names.insert(HeaderName::from_static(SERVED_BY_HEADER), name_of(&answering));
    let (body, prefill) = match ticket.chosen.prefill {
        None => (whole.clone(), None),
        Some((worker, room)) => {
            let endpoint = front.address(worker).clone();
            names.insert(HeaderName::from_static(PREFILL_HEADER), name_of(&endpoint.url));
            let (to_prefill, to_decode) = fields.legs(&endpoint, room)?;
            let (url, headers, upstream) = (format!("{}{path}", endpoint.url), headers.clone(), front.upstream.clone());
            let leg = async move {
                let answer = upstream.post(&url, headers, to_prefill).await;
                verdict(&endpoint.url, answer).await
            };
            (to_decode, Some(Box::pin(leg) as PrefillLeg))
        }
    };
    let leg_name = if prefill.is_some() { "decode" } else { "worker" };
    let mut legs = Legs { prefill, suspect: None, _ticket: ticket };
    let url = format!("{answering}{path}");
    let answered = legs.answer(leg_name, &answering, front.upstream.post(&url, headers, body)).await;
    let (head, first, rest) = answered.map_err(|mut failure| {
        failure.headers.extend(names.clone());
        failure
    })?;
    let mut response = Response::new(pass(first, rest, legs));
    *response.status_mut() = head.status;
    *response.headers_mut() = passed(head.headers);
    response.headers_mut().extend(names);
    Ok(response)
}

/// What is alive of a request beside D's answer.
struct Legs {
    prefill: Option<PrefillLeg>,
    /// P's failure in the hand-off, of which D may say more.
    suspect: Option<Failure>,
    // Held for what it does when it is dropped.
    _ticket: Ticket,
}

impl Legs {
    /// The answering leg up to its first chunk, unless either leg fails before.
    async fn answer(
        &mut self,
        leg: &str,
        url: &str,
        posted: impl Future<Output = Result<Response, NoAnswer>>,
    ) -> Result<(Parts, Option<Bytes>, BodyDataStream), Failure> {
        let answer = match self.unless_prefill_fails(posted).await? {
            Ok(answer) if answer.status().is_success() => answer,
            Ok(answer) => {
                let failure = refused(leg, url, answer).await;
                return Err(self.cause(&failure.message).await.unwrap_or(failure));
            }
            Err(error) => return Err(lost(leg, url, error.unreached, &error)),
        };
        let (head, body) = answer.into_parts();
        let mut rest = body.into_data_stream();
        match self.unless_prefill_fails(rest.next()).await? {
            Some(Ok(chunk)) => match self.cause_of_abort(&chunk).await {
                Some(failure) => Err(failure),
                None => Ok((head, Some(chunk), rest)),
            },
            Some(Err(error)) => Err(lost(leg, url, false, &error)),
            None => Ok((head, None, rest)),
        }
    }

    /// Waits for D's `work`, or for P to fail; where P's failure leaves the blame open, for what D has to say.
    async fn unless_prefill_fails<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::pin!(work);
        if let Some(leg) = &mut self.prefill {
            tokio::select! {
                biased;
                verdict = leg => {
                    self.prefill = None;
                    match verdict {
                        Err(failure) if is_of_hand_off(&failure.message) => self.suspect = Some(failure),
                        other => other?,
                    }
                }
                done = &mut work => return Ok(done),
            }
        }
        let Some(suspect) = &self.suspect else { return Ok(work.await) };
        tokio::time::timeout(PATIENCE, work).await.map_err(|_| suspect.clone())
    }

    /// P's failure, where it explains what D said of its own.
    async fn cause(&mut self, words: &str) -> Option<Failure> {
        let leg = self.prefill.as_mut().filter(|_| is_of_hand_off(words))?;
        let verdict = tokio::time::timeout(PATIENCE, leg).await.ok()?;
        self.prefill = None;
        verdict.err().filter(|failure| !is_of_hand_off(&failure.message))
    }

    async fn cause_of_abort(&mut self, chunk: &[u8]) -> Option<Failure> {
        memchr::memmem::find(chunk, b"\"abort\"")?;
        self.cause(&String::from_utf8_lossy(chunk)).await
    }
}

/// The answer's body: what has come, then what comes, with the legs alive as long.
fn pass(first: Option<Bytes>, rest: BodyDataStream, legs: Legs) -> Body {
    let begun = stream::iter(first.map(Ok));
    let following = stream::unfold((rest, legs), async |(mut rest, mut legs)| {
        let chunk = loop {
            let Some(leg) = &mut legs.prefill else { break rest.next().await };
            tokio::select! {
                chunk = rest.next() => break chunk,
                // Whatever P says now comes after its KV has left.
                _ = leg => legs.prefill = None,
            }
        };
        match chunk {
            Some(chunk) => Some((chunk, (rest, legs))),
            None => {
                if let Some(leg) = legs.prefill.take() {
                    tokio::spawn(tokio::time::timeout(LAST_WORD, leg));
                }
                None
            }
        }
    });
    Body::from_stream(begun.chain(following))
}

/// An answer that is an error, quoted.
async fn refused(leg: &str, url: &str, answer: Response) -> Failure {
    let (head, body) = answer.into_parts();
    let words = match read(body, QUOTED).await {
        Ok(text) => String::from_utf8_lossy(&text).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("{} server error ({}) from {url}: {words}", capital(leg), head.status.as_u16());
    let mut failure = Failure::of_leg(leg, head.status, message);
    failure.headers = Box::new(passed(head.headers));
    failure
}

fn lost(leg: &str, url: &str, unreached: bool, error: &impl Display) -> Failure {
    let what = if unreached { "cannot be reached" } else { "was lost" };
    let message = format!("{} server {url} {what}: {error}", capital(leg));
    Failure::of_leg(leg, StatusCode::BAD_GATEWAY, message)
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// The client's headers that workers see.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let wanted = |name: &str| FORWARDED.contains(&name) || name.starts_with(FORWARDED_PREFIX);
    let kept = headers.iter().filter(|(name, _)| wanted(name.as_str()));
    // `from_iter` would keep the last of several.
    kept.fold(HeaderMap::new(), |mut map, (name, value)| {
        map.append(name, value.clone());
        map
    })
}

/// A worker's headers that the client sees.
fn passed(mut headers: HeaderMap) -> HeaderMap {
    OWN.iter().for_each(|name| drop(headers.remove(*name)));
    headers
}

fn name_of(url: &str) -> HeaderValue {
    HeaderValue::from_str(url).unwrap_or(HeaderValue::from_static("?"))
}
