//! Scripts of a fake server: the `wire*.jsonl` files of the bug cases, and answers written in a test.
//!
//! A file's first line is the head (`status`, `headers`, `framing`), then come pieces, each one flushed write (and one
//! chunk) at `at_ms` after the request was read, then how it ends.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::case_path;

/// One answer on the wire.
#[derive(Debug, Clone)]
pub struct Script {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub framing: Framing,
    pub pieces: Vec<Piece>,
    pub end: End,
    pub end_at: Duration,
}

/// How the body's length is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Chunked,
    /// So many bytes, whatever is sent.
    Length(usize),
}

/// Bytes written at a time after the request was read.
#[derive(Debug, Clone)]
pub struct Piece {
    pub at: Duration,
    pub bytes: Vec<u8>,
}

/// What follows the last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The proper end of the body; the connection is kept.
    Complete,
    /// The connection is closed without it.
    Fin,
    /// The connection is reset.
    Rst,
    /// Nothing more, the connection stays open.
    Hang,
}

impl Script {
    /// A case's file, such as `41-error-event-after-200/wire.jsonl`.
    pub fn of_case(path: &str) -> Script {
        Script::parse(&fs::read_to_string(case_path(path)).unwrap())
    }

    /// Of the text of such a file.
    pub fn parse(text: &str) -> Script {
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut script = Script::with_head(&lines[0]["response"]);
        for line in &lines[1..] {
            let at = Duration::from_millis(line["at_ms"].as_u64().unwrap());
            match line["end"].as_str() {
                Some(end) => (script.end, script.end_at) = (End::named(end), at),
                None => script.pieces.push(Piece { at, bytes: bytes_of(line) }),
            }
        }
        script
    }

    fn with_head(response: &Value) -> Script {
        let header = |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap().to_owned());
        let framing = match response["framing"].as_str().unwrap() {
            "chunked" => Framing::Chunked,
            other => Framing::Length(other.strip_prefix("content-length:").unwrap().parse().unwrap()),
        };
        Script {
            status: response["status"].as_u64().unwrap() as u16,
            headers: response["headers"].as_object().unwrap().iter().map(header).collect(),
            framing,
            pieces: Vec::new(),
            end: End::Complete,
            end_at: Duration::ZERO,
        }
    }

    /// A whole answer at once.
    pub fn plain(status: u16, content_type: &str, body: &str) -> Script {
        Script {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            framing: Framing::Length(body.len()),
            pieces: vec![Piece { at: Duration::ZERO, bytes: body.into() }],
            end: End::Complete,
            end_at: Duration::ZERO,
        }
    }

    /// A whole JSON answer at once.
    pub fn json(status: u16, body: &Value) -> Script {
        Script::plain(status, "application/json", &body.to_string())
    }

    /// An event stream, each piece at its time in milliseconds, ended properly.
    pub fn events(pieces: &[(u64, &str)]) -> Script {
        let piece = |(at, text): &(u64, &str)| Piece { at: Duration::from_millis(*at), bytes: (*text).into() };
        Script {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            framing: Framing::Chunked,
            pieces: pieces.iter().map(piece).collect(),
            end: End::Complete,
            end_at: Duration::ZERO,
        }
    }

    /// `tokens` chat tokens, one event each, all at once, with the counts and the end mark.
    pub fn chat(tokens: u32) -> Script {
        let event = |choices: Value, usage: Value| {
            let chunk = json!({"id": "r", "object": "chat.completion.chunk", "model": "emu", "choices": choices, "usage": usage});
            format!("data: {chunk}\n\n")
        };
        let token = |nth: u32| {
            let finish = if nth + 1 == tokens { json!("length") } else { Value::Null };
            event(json!([{"index": 0, "delta": {"content": "a"}, "finish_reason": finish}]), Value::Null)
        };
        let usage = json!({"prompt_tokens": 4, "completion_tokens": tokens, "total_tokens": 4 + tokens});
        let text: String = (0..tokens).map(token).collect();
        Script::events(&[(1, &(text + &event(json!([]), usage) + "data: [DONE]\n\n"))])
    }

    /// The same in `/generate` form, one event; it does not tell the length of the prompt.
    pub fn generate(tokens: u32) -> Script {
        let meta = json!({"completion_tokens": tokens, "finish_reason": {"type": "length", "length": tokens}});
        let event = json!({"text": "a", "meta_info": meta});
        Script::events(&[(1, &format!("data: {event}\n\ndata: [DONE]\n\n"))])
    }

    /// The same with another header.
    pub fn header(mut self, name: &str, value: &str) -> Script {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with another end, so many milliseconds after the request.
    pub fn ending(mut self, end: End, at_ms: u64) -> Script {
        (self.end, self.end_at) = (end, Duration::from_millis(at_ms));
        self
    }
}

impl Piece {
    /// The same, so many milliseconds later.
    pub fn after(self, ms: u64) -> Piece {
        Piece { at: self.at + Duration::from_millis(ms), ..self }
    }
}

impl End {
    fn named(name: &str) -> End {
        match name {
            "complete" => End::Complete,
            "fin" => End::Fin,
            "rst" => End::Rst,
            "hang" => End::Hang,
            other => panic!("no such end: {other}"),
        }
    }
}

fn bytes_of(line: &Value) -> Vec<u8> {
    let bytes = match (line["text"].as_str(), line["hex"].as_str()) {
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(hex)) => {
            let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(digits).collect()
        }
        _ => panic!("a piece is text or hex: {line}"),
    };
    bytes.repeat(line["repeat"].as_u64().unwrap_or(1) as usize)
}
