//! One leg of a request: a POST, the head of its answer, the events to their end or to the break.
//!
//! Keeps what came before a break. Bounds: connect (the HTTP client's), first token, silence. Owns no repeat, no second
//! leg, and no choice of worker.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use serde_json::Value;
use tokio::time::timeout;

use crate::base::Time;
use crate::live::client::fault::Stage;
use crate::live::client::line::Line;
use crate::live::client::patience::Patience;
use crate::live::client::response::Response;
use crate::live::client::retry;
use crate::live::client::site::Site;
use crate::live::client::sse::{SseParser, TooLong};
use crate::live::client::tally::{Tally, Wrong};
use crate::live::client::words::{self, Words};
use crate::protocol::{ErrorClass, Finish};

/// Longest event of a stream, bytes.
const MOST_EVENT: usize = 16 << 20;
/// Longest wait for the end of a body whose answer is complete, so that its connection can be kept.
const DRAIN: Duration = Duration::from_millis(500);

/// What is wrong with tokens for a prompt that the server cannot have read.
const UNREAD: &str =
    "the answer was complete before the server had taken in the whole request: it answers something else";

/// Longest wait for that end before the answer is told: servers send it right behind the end mark.
const SETTLE: Duration = Duration::from_millis(20);
/// Turns of the runtime in which a connection whose body has been read is back among the kept ones of the general client.
const SETTLE_TURNS: u32 = 3;

/// How a leg ended.
#[derive(Debug, Default)]
pub(super) struct LegEnd {
    /// HTTP status, when there was an answer.
    pub status: Option<u16>,
    /// Headers of the answer.
    pub head: HeaderMap,
    pub tally: Tally,
    /// Verdict; an error until there is one.
    pub finish: Option<Finish>,
    /// The server or the rules allow it to be sent again.
    pub again: Option<Again>,
    /// The last event, where a JSON pointer into it tells who served it.
    pub last_event: Vec<u8>,
    /// The rest of a body that nobody needs but its connection.
    pub rest: Option<Response>,
    /// Its connection goes back some turns of the runtime after its body has been read.
    pub is_given_back_later: bool,
}

/// What is posted, and where.
#[derive(Debug)]
pub(super) struct Post<'p> {
    pub site: &'p Arc<Site>,
    pub headers: &'p HeaderMap,
    pub body: Bytes,
    pub asked: Asked<'p>,
}

/// What a leg is sent for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// When the request was first sent.
    pub sent: Time,
    /// Answer tokens it asks for.
    pub tokens: u32,
    /// Where the last event tells who served it, or empty.
    pub pointer: &'a str,
}

/// It may be sent again, after this wait if the server names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Again(pub Option<Duration>);

impl LegEnd {
    pub fn fail(&mut self, class: ErrorClass, message: String) {
        self.finish = Some(Finish::Error { class, message });
    }

    /// What a JSON pointer into the last event says.
    pub fn pointed(&self, pointer: &str) -> Option<String> {
        if self.last_event.is_empty() {
            return None;
        }
        let json: Value = serde_json::from_slice(&self.last_event).ok()?;
        json.pointer(pointer)?.as_str().map(str::to_owned)
    }

    /// The verdict and its class and words, when it is a failure.
    pub fn failure(&self) -> Option<(ErrorClass, &str)> {
        match self.finish.as_ref()? {
            Finish::Length | Finish::Stop => None,
            Finish::Abort { class, message } | Finish::Error { class, message } => Some((*class, message)),
        }
    }

    /// Reads the body to its end where that is near, and lets its connection go back: it is free before the next request
    /// looks for one.
    pub async fn settle(&mut self) {
        if let Some(rest) = &mut self.rest
            && timeout(SETTLE, rest.skip()).await.is_ok()
        {
            self.rest = None;
        }
        if self.is_given_back_later {
            for _ in 0..SETTLE_TURNS {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads what is left of the body, for a moment, so that its connection is kept.
    pub async fn drain(&mut self) {
        let Some(mut rest) = self.rest.take() else { return };
        // A server that keeps it open loses the connection.
        let _ = timeout(DRAIN, rest.skip()).await;
    }
}

/// Posts a leg and reads its answer into `end`, which holds what came so far whenever this is dropped.
pub(super) async fn run(line: &Line, post: Post<'_>, end: &mut LegEnd) {
    let mut patience = Patience::new(line, post.asked.sent);
    let posting = line.http.begin(post.site, post.headers, post.body);
    let (result, was_kept) = match patience.wait(posting).await {
        Ok(answer) => answer,
        Err((class, message)) => return end.fail(class, message),
    };
    match result {
        Ok(response) => read(line, response, post.asked, patience, end).await,
        Err(trouble) => {
            end.again = (was_kept && trouble.is_closed_unanswered()).then_some(Again(None));
            let (class, message) = line.http.fault(&trouble, Stage::Sending);
            end.fail(class, message);
        }
    }
}

async fn read(line: &Line, mut response: Response, asked: Asked<'_>, patience: Patience<'_>, end: &mut LegEnd) {
    let status = response.status();
    end.status = Some(status);
    end.head = line.http.head_of(&mut response);
    end.tally = Tally::of(asked.tokens);
    end.is_given_back_later = response.is_given_back_later();
    if !(200..300).contains(&status) {
        return refused(line, end, response).await;
    }
    if let Some(message) = unreadable(status, &end.head) {
        return end.fail(ErrorClass::BadAnswer, message);
    }
    // Without a type it may be a stream; a wrong type is no stream whatever it holds.
    let other = end.head.get(CONTENT_TYPE).filter(|kind| !is_stream(kind.as_bytes()));
    match other.map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned()) {
        Some(kind) => no_stream(line, end, response, &kind).await,
        None => stream(line, end, response, asked, patience).await,
    }
}

fn is_stream(kind: &[u8]) -> bool {
    const STREAM: &[u8] = b"text/event-stream";
    kind.trim_ascii_start().get(..STREAM.len()).is_some_and(|start| start.eq_ignore_ascii_case(STREAM))
}

/// Why a successful answer holds no events whatever comes.
fn unreadable(status: u16, head: &HeaderMap) -> Option<String> {
    if matches!(status, 204 | 205) {
        return Some(format!("HTTP {status}: an answer without a body"));
    }
    let encoding = String::from_utf8_lossy(head.get(CONTENT_ENCODING)?.as_bytes()).into_owned();
    let plain = encoding.trim().is_empty() || encoding.trim().eq_ignore_ascii_case("identity");
    (!plain).then(|| words::short(&format!("the answer has the content encoding {encoding}, which nobody asked for")))
}

/// An answer outside 200 to 299: its words, and whether it may be sent again.
async fn refused(line: &Line, end: &mut LegEnd, response: Response) {
    let status = end.status.unwrap_or_default();
    let limits = &line.target.limits;
    // Words that do not come are not waited for as if they were an answer: the status says enough.
    let most = limits.stall.map_or(limits.control, |stall| stall.min(limits.control));
    let body = match timeout(most, line.http.body_of(response)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    let words = Words::of_body(&body);
    let header = |name: &str| end.head.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (code, retry_after, location) = (header("x-smg-error-code"), header(RETRY_AFTER.as_str()), header("location"));
    let class = words::class_of(&format!("{code} {} {}", words.labels, words.message), Some(status));
    let mut message = format!("HTTP {status}");
    for (label, part) in [("", &code), ("", &words.message), ("Retry-After: ", &retry_after), ("to ", &location)] {
        if !part.is_empty() {
            message.push_str(&format!(": {label}{part}"));
        }
    }
    let mut message = words::short(&message);
    if matches!(status, 429 | 503) {
        // A router that finds no worker is not under load: it waits for one.
        if class != ErrorClass::NoWorker {
            line.count_throttled();
        }
        let (wait, retries) = (retry::retry_after(&retry_after), line.target.retries);
        let is_long = wait.is_some_and(|wait| wait > retries.longest);
        end.again = (!is_long).then_some(Again(wait));
        if is_long && retries.most > 0 {
            let longest = retries.longest.as_secs_f64();
            message.push_str(&format!("; longer than live.retry_wait_max_s = {longest}: not sent again"));
        }
    }
    end.fail(class, message);
}

/// A 200 answer of another type: an error in JSON, or a page of something in between.
async fn no_stream(line: &Line, end: &mut LegEnd, response: Response, kind: &str) {
    let body = match timeout(line.target.limits.control, line.http.body_of(response)).await {
        Ok(Ok(body)) => body,
        Ok(Err(trouble)) => {
            let (class, message) = line.http.fault(&trouble, Stage::Reading);
            return end.fail(class, message);
        }
        Err(_) => {
            return end
                .fail(ErrorClass::Stalled, format!("no end of the answer within {:?}", line.target.limits.control));
        }
    };
    let words = Words::of_body(&body);
    let is_error = serde_json::from_slice::<Value>(&body).is_ok_and(|json| json.get("error").is_some());
    if is_error {
        return end.fail(words.class(None), words.message);
    }
    end.fail(ErrorClass::BadAnswer, format!("the answer is {kind}, not an event stream: {}", words.message));
}

async fn stream(line: &Line, end: &mut LegEnd, mut response: Response, asked: Asked<'_>, mut patience: Patience<'_>) {
    let mut parser = SseParser::new(MOST_EVENT);
    loop {
        // All that comes at once came at one time.
        let (mut at, mut wrong) = (None, Ok(()));
        let taking = response.read(|piece| {
            let now = *at.get_or_insert_with(|| line.clock.now());
            if wrong.is_ok() {
                wrong = take(line, &mut parser, end, (now, piece), asked);
            }
        });
        let more = match patience.wait(taking).await {
            Ok(Ok(more)) => more,
            Ok(Err(trouble)) => {
                // What came before it may have been wrong already.
                let (class, message) = wrong.err().unwrap_or_else(|| line.http.fault(&trouble, Stage::Reading));
                return end.fail(class, message);
            }
            Err((class, message)) => return end.fail(class, message),
        };
        if let Err((class, message)) = wrong {
            return end.fail(class, message);
        }
        if end.tally.done || !more {
            break;
        }
        patience.hear(at.unwrap_or_else(|| line.clock.now()), end.tally.first.is_some());
    }
    let verdict = end.tally.verdict();
    // A server may refuse a request that it has not read, but nobody can answer such a prompt. Its connection goes too.
    if matches!(verdict, Finish::Length | Finish::Stop) && !response.request_has_left() {
        return end.fail(ErrorClass::BadAnswer, UNREAD.to_owned());
    }
    end.rest = Some(response).filter(|response| end.tally.done && !response.is_over());
    end.finish = Some(verdict);
}

/// Takes in a piece of the body that came then.
fn take(
    line: &Line,
    parser: &mut SseParser,
    end: &mut LegEnd,
    (now, piece): (Time, &[u8]),
    asked: Asked<'_>,
) -> Result<(), Wrong> {
    let keeps_last = !asked.pointer.is_empty();
    let mut wrong = Ok(());
    let LegEnd { tally, last_event, .. } = end;
    let parsed = parser.push(piece, |data| {
        if wrong.is_ok() && !tally.done {
            let data = &*line.http.mask.data(data);
            wrong = tally.take(now, data);
            if keeps_last && !tally.done && !data.is_empty() {
                last_event.clear();
                last_event.extend_from_slice(data);
            }
        }
    });
    wrong.and_then(|()| parsed.map_err(|error: TooLong| (ErrorClass::BadAnswer, error.to_string())))
}
