//! [`Tally`]: what the events of one stream add up to, in either dialect.
//!
//! Counts tokens as the server counts them (`meta_info.completion_tokens`, `usage`), else, also where it counts 0 or far fewer
//! than chunks with text, one for each of these; a count that leads the text is shared out among the chunks that follow.
//! Keeps when they came and the engine's verdict. Reads only the fields it needs. Owns no sockets and no time-outs.
//! Invariants: the runs add up to `tokens`; a success is an end that the engine itself has named, where its form of
//! answer can.

use serde_json::Value;

use crate::base::{Dur, Time};
use crate::live::api::{DONE, Emulated};
use crate::live::client::event::{Choice, Delta, Event, Filled, Meta, Reason, Usage};
use crate::live::client::words::{self, Words};
use crate::protocol::{ErrorClass, Finish, TokenRun};

/// Tokens beyond those asked for at which an answer is a flood: so many, and a quarter of what was asked for. A server
/// without counts may cut a token's text into several chunks, which is no flood.
const OVERRUN: u32 = 64;

/// Events that brought tokens for which there is room from the start.
const RUNS_AT_FIRST: u32 = 32;

/// What the server's count of an answer is worth beside its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// There is none.
    Untold,
    Agrees,
    /// 0, or far fewer tokens than chunks with text, which are counted in its place.
    TooFew,
    /// It was far ahead of the text, or fell.
    Led,
}

/// What a server may not send: its class and words.
pub(super) type Wrong = (ErrorClass, String);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Tokens asked for; `None`: nobody minds how many come.
    asked: Option<u32>,
    /// Answer tokens so far.
    pub tokens: u32,
    pub first: Option<Time>,
    pub last: Option<Time>,
    /// One an event that brought tokens.
    pub runs: Vec<TokenRun>,
    /// Prompt tokens found cached, where the server tells.
    pub cached_tokens: Option<u32>,
    /// Length of the prompt by the server's count.
    pub prompt_tokens: Option<u32>,
    /// Length of the answer by the server's last count.
    told: Option<u32>,
    /// Chunks with text of a dialect that sends each text once.
    chunks: u32,
    /// Of these, those whose token the server had counted before.
    led: u32,
    pub retractions: u16,
    /// What an emulated worker told of itself.
    pub emulated: Option<Box<Emulated>>,
    /// Events that carried anything.
    pub events: u32,
    /// The end mark came.
    pub done: bool,
    /// The server's own count in the last event that brought text, or after it.
    counted: Option<u32>,
    /// An event had a place for a finish reason: all have but those of bare text.
    names_ends: bool,
    verdict: Option<Finish>,
}

impl Tally {
    /// Of the answer to a request for `asked` tokens.
    pub fn of(asked: u32) -> Tally {
        Tally { asked: Some(asked), runs: Vec::with_capacity(asked.min(RUNS_AT_FIRST) as usize), ..Tally::default() }
    }

    /// Takes the data of one event that was complete at `now`. `Err`: it is not what a server may send, or so much that no
    /// more is to be read; what it brought is counted all the same.
    pub fn take(&mut self, now: Time, data: &[u8]) -> Result<(), Wrong> {
        if data.trim_ascii() == DONE.as_bytes() {
            self.done = true;
        }
        if self.done || data.trim_ascii().is_empty() {
            return Ok(());
        }
        self.events += 1;
        let bad = |message| (ErrorClass::BadAnswer, message);
        let event: Event<'_> = serde_json::from_slice(data)
            .map_err(|error| bad(format!("an event is not the JSON of an answer ({error}): {}", excerpt(data))))?;
        if let Some(error) = &event.error {
            self.failed(error);
        }
        match (&event.meta_info, &event.choices) {
            (Some(meta), _) => self.generate(now, event.text, meta),
            (None, Some(choices)) => self.openai(now, choices, event.usage.as_ref()),
            (None, None) if event.error.is_some() => {}
            // A form of /generate without counts.
            (None, None) if event.text.0 => self.arrived(now, self.tokens + 1),
            (None, None) => return Err(bad(format!("an event is neither an answer nor an error: {}", excerpt(data)))),
        }
        self.check_flood()
    }

    /// Looks at what came: a count that leads the text is a promise.
    fn check_flood(&self) -> Result<(), Wrong> {
        let came = if self.chunks > 0 { self.chunks } else { self.tokens };
        let Some(asked) = self.asked.filter(|asked| came > asked.saturating_add(OVERRUN + asked / 4)) else {
            return Ok(());
        };
        let message = format!("a flood: {came} tokens for {asked} asked for, and the rest was not read");
        Err((ErrorClass::ExcessOutput, message))
    }

    fn generate(&mut self, now: Time, text: Filled, meta: &Meta<'_>) {
        self.names_ends = true;
        match meta.completion_tokens {
            None | Some(0) if text.0 => self.arrived(now, self.tokens + 1),
            Some(tokens) => self.arrived(now, tokens),
            None => {}
        }
        self.told = meta.completion_tokens.or(self.told);
        self.prompt_tokens = meta.prompt_tokens.or(self.prompt_tokens);
        self.cached_tokens = meta.cached_tokens.or(self.cached_tokens);
        self.retractions = meta.num_retractions.or(meta.total_retractions).unwrap_or(self.retractions);
        if let Some(emulated) = &meta.emulated {
            self.emulated = Some(emulated.clone());
        }
        if let Some(reason) = &meta.finish_reason {
            self.finished(reason);
        }
    }

    fn openai(&mut self, now: Time, choices: &[Choice<'_>], usage: Option<&Usage>) {
        self.names_ends = true;
        let has_text =
            choices.iter().any(|choice| choice.text.0 || choice.delta.as_ref().is_some_and(Delta::is_filled));
        let counted = usage.and_then(|usage| usage.completion_tokens);
        self.told = counted.or(self.told);
        if has_text || counted.is_some() {
            self.counted = counted;
        }
        match counted {
            _ if has_text => self.text(now, counted),
            Some(tokens) => self.recount(tokens),
            None => {}
        }
        self.prompt_tokens = usage.and_then(|usage| usage.prompt_tokens).or(self.prompt_tokens);
        let details = usage.and_then(|usage| usage.prompt_tokens_details.as_ref());
        self.cached_tokens = details.and_then(|details| details.cached_tokens).or(self.cached_tokens);
        for reason in choices.iter().filter_map(|choice| choice.finish_reason.as_ref()) {
            self.finished(reason);
        }
    }

    /// A chunk with text brings a token or more. A server that counts along may count a token before its text (a part of a
    /// character, or all of the answer at once) or after: what was counted before is taken from the chunk it was counted with.
    fn text(&mut self, now: Time, counted: Option<u32>) {
        self.chunks += 1;
        if counted.is_some_and(|total| total <= self.tokens)
            && let Some(early) = self.runs.iter_mut().rev().find(|run| run.count > 1)
        {
            early.count -= 1;
            self.tokens -= 1;
            self.led += 1;
        }
        self.arrived(now, counted.unwrap_or(0).max(self.tokens.saturating_add(1)));
    }

    /// There are `total` tokens now; a lower count than before says nothing.
    fn arrived(&mut self, now: Time, total: u32) {
        let Some(new) = total.checked_sub(self.tokens).filter(|new| *new > 0) else { return };
        if matches!(self.verdict, Some(Finish::Length | Finish::Stop)) {
            let message = format!("{new} more tokens after the finish reason");
            self.verdict = Some(Finish::Error { class: ErrorClass::BadAnswer, message });
        }
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.runs.push(TokenRun { first: now, step: Dur::ZERO, count: new });
        self.tokens = total;
    }

    /// The server's own count, which came without text: what its chunks of text could not tell is set right at the last
    /// of them, unless it contradicts them.
    fn recount(&mut self, told: u32) {
        let total = if is_too_few(told, self.chunks) { self.chunks } else { told };
        if total > self.tokens {
            let Some(last) = self.runs.last_mut() else { return };
            last.count += total - self.tokens;
            self.tokens = total;
        }
        let mut less = self.tokens - total;
        self.tokens = total;
        for run in self.runs.iter_mut().rev() {
            let beyond_one = less.min(run.count - 1);
            run.count -= beyond_one;
            less -= beyond_one;
        }
        // A chunk that brought no token after all is no arrival.
        self.runs.truncate(self.runs.len().saturating_sub(less as usize));
        self.last = self.runs.last().map(|run| run.first);
    }

    fn failed(&mut self, error: &Value) {
        let words = Words::of_error(error);
        let status = words.status.map(|status| format!("{status}: ")).unwrap_or_default();
        let class = words.class(None);
        self.verdict = Some(Finish::Error { class, message: format!("{status}{}", words.message) });
    }

    fn finished(&mut self, reason: &Reason<'_>) {
        let (kind, message, status, err_type) = match reason {
            Reason::Word(word) => (word, None, None, None),
            Reason::Object { kind, message, status_code, err_type } => {
                (kind, message.as_deref(), status_code.as_ref().and_then(words::status_of), err_type.as_deref())
            }
        };
        let verdict = match kind.as_ref() {
            // Some servers write "none yet" so.
            "" => return,
            "length" => Finish::Length,
            "stop" | "tool_calls" | "function_call" => Finish::Stop,
            "abort" | "error" => {
                let message = message.unwrap_or("the engine gave the request up without a word");
                let class = words::class_of(&format!("{} {message}", err_type.unwrap_or_default()), status);
                Finish::Abort { class, message: words::short(message) }
            }
            other => {
                let message = words::short(&format!("the answer ended with the unknown finish reason `{other}`"));
                Finish::Error { class: ErrorClass::BadAnswer, message }
            }
        };
        // The first verdict counts, and a failure beats a success.
        let is_success = |verdict: &Finish| matches!(verdict, Finish::Length | Finish::Stop);
        if self.verdict.as_ref().is_none_or(|before| is_success(before) && !is_success(&verdict)) {
            self.verdict = Some(verdict);
        }
    }

    /// What its count was worth, of a whole answer.
    pub fn counting(&self) -> Counting {
        match self.told {
            None => Counting::Untold,
            Some(told) if told == 0 || is_too_few(told, self.chunks) => Counting::TooFew,
            Some(_) if is_too_few(self.tokens - self.led.min(self.tokens), self.tokens) => Counting::Led,
            Some(_) => Counting::Agrees,
        }
    }

    /// The engine has said how it ends.
    pub fn is_decided(&self) -> bool {
        self.verdict.is_some()
    }

    /// The end of a stream that came to its proper end; the server's last count is the count.
    pub fn verdict(&mut self) -> Finish {
        if let Some(total) = self.counted.take() {
            self.recount(total);
        }
        let error = |class, message: &str| Finish::Error { class, message: message.to_owned() };
        match &self.verdict {
            Some(Finish::Length | Finish::Stop) if self.tokens == 0 => {
                error(ErrorClass::NoOutput, "no output: the answer ended without a token")
            }
            Some(verdict) => verdict.clone(),
            None if self.done && self.tokens == 0 => {
                error(ErrorClass::NoOutput, "no output: an end mark and nothing else")
            }
            None if self.done && self.names_ends => error(
                ErrorClass::BadAnswer,
                "the answer has an end mark, but no finish reason: nothing says that it is whole",
            ),
            None if self.done => Finish::Stop,
            None if self.events == 0 => error(ErrorClass::BadAnswer, "the answer holds no event"),
            None => error(
                ErrorClass::ConnectionClosed,
                "the answer was closed too early: its stream ended without a finish reason or an end mark",
            ),
        }
    }
}

/// Whether so many tokens cannot be the text of so many chunks. A token's text may be cut in two, by a character or a parser:
/// up to two and a quarter of the tokens are no contradiction.
fn is_too_few(tokens: u32, chunks: u32) -> bool {
    chunks > 0 && (tokens == 0 || chunks > tokens.saturating_add(2 + tokens / 4))
}

fn excerpt(data: &[u8]) -> String {
    words::short(&String::from_utf8_lossy(&data[..data.len().min(200)]))
}
