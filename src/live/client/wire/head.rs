//! The head of an answer: its status, its headers, how its body ends, and whether its connection can be used again. Pure.
//!
//! The grammar is httparse's; what it means is RFC 9112's. Interim answers (100 Continue, 103 Early Hints) are skipped.

use reqwest::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::framing::Framing;

/// Headers of an answer at most.
const MOST_HEADERS: usize = 100;
/// Bytes of a head at most, interim ones included.
const MOST_HEAD: usize = 256 << 10;
/// Words of a head that has more bytes.
const TOO_LARGE: &str = "message head is too large: more than 256 KiB";
/// Words of one that has more headers.
const TOO_MANY: &str = "message head is too large: more than 100 headers";

/// See the module.
#[derive(Debug)]
pub(super) struct Head {
    pub status: u16,
    pub headers: HeaderMap,
    pub framing: Framing,
    /// The other end keeps the connection open after the body.
    pub keeps: bool,
}

/// The head these bytes begin with, and its length; `None`: it is not whole.
///
/// # Errors
/// What is wrong with it, in words; `invalid HTTP …` where it may be none at all.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, &'static str> {
    let mut start = 0;
    loop {
        let mut lines = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut answer = httparse::Response::new(&mut lines);
        let length = match answer.parse(&bytes[start..]).map_err(words)? {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial if bytes.len() > MOST_HEAD => return Err(TOO_LARGE),
            httparse::Status::Partial => return Ok(None),
        };
        start += length;
        let status = answer.code.unwrap_or_default();
        // A switch of protocols is an answer, if none that anybody asked for.
        if (100..200).contains(&status) && status != 101 {
            continue;
        }
        let mut headers = HeaderMap::with_capacity(answer.headers.len());
        for line in answer.headers.iter() {
            let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| words(httparse::Error::HeaderName))?;
            let value = HeaderValue::from_bytes(line.value).map_err(|_| words(httparse::Error::HeaderValue))?;
            headers.append(name, value);
        }
        let is_1_1 = answer.version == Some(1);
        let framing = framing(status, is_1_1, &headers)?;
        let both = headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH);
        let keeps = keeps(is_1_1, &headers) && framing != Framing::ToClose && status != 101 && !both;
        return Ok(Some((Head { status, headers, framing, keeps }, start)));
    }
}

fn framing(status: u16, is_1_1: bool, headers: &HeaderMap) -> Result<Framing, &'static str> {
    if matches!(status, 101 | 204 | 304) {
        return Ok(Framing::Length(0));
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        if !is_1_1 {
            return Err("unexpected transfer-encoding parsed");
        }
        let is_chunked = tokens(headers, TRANSFER_ENCODING).last().is_some_and(|last| is(last, "chunked"));
        return Ok(if is_chunked { Framing::chunked() } else { Framing::ToClose });
    }
    if !headers.contains_key(CONTENT_LENGTH) {
        return Ok(Framing::ToClose);
    }
    let mut lengths = tokens(headers, CONTENT_LENGTH).map(length);
    let first = lengths.next().flatten();
    let agreed = first.filter(|first| lengths.all(|other| other == Some(*first)));
    agreed.map(Framing::Length).ok_or("invalid content-length parsed")
}

fn keeps(is_1_1: bool, headers: &HeaderMap) -> bool {
    let says = |word| tokens(headers, CONNECTION).any(|token| is(token, word));
    !says("close") && (is_1_1 || says("keep-alive"))
}

/// What stands between the commas of all lines of a name.
fn tokens(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

fn is(token: &[u8], word: &str) -> bool {
    token.eq_ignore_ascii_case(word.as_bytes())
}

/// Digits alone; no sign.
fn length(token: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(token).ok()?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn words(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::Version => "invalid HTTP version parsed",
        httparse::Error::Status => "invalid HTTP status-code parsed",
        httparse::Error::TooManyHeaders => TOO_MANY,
        httparse::Error::HeaderName
        | httparse::Error::HeaderValue
        | httparse::Error::NewLine
        | httparse::Error::Token => "invalid HTTP header parsed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &str) -> Head {
        let text = lines.replace('\n', "\r\n");
        for cut in 0..text.len() {
            assert!(matches!(parse(&text.as_bytes()[..cut]), Ok(None)), "{text:?} cut at {cut}");
        }
        let (head, length) = parse(format!("{text}body").as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        head
    }

    #[test]
    fn bodies_end_as_the_standard_says() {
        let of = |lines: &str| {
            let head = head(&format!("HTTP/1.1 {lines}\n\n"));
            (head.framing, head.keeps)
        };
        assert_eq!(of("200 OK\ntransfer-encoding: chunked"), (Framing::chunked(), true));
        assert_eq!(of("200 OK\nTransfer-Encoding: gzip, Chunked"), (Framing::chunked(), true));
        assert_eq!(of("200 OK\ntransfer-encoding: gzip"), (Framing::ToClose, false));
        assert_eq!(of("200 OK\ntransfer-encoding: chunked\ncontent-length: 3"), (Framing::chunked(), false));
        assert_eq!(of("200 OK\ncontent-length: 12"), (Framing::Length(12), true));
        assert_eq!(of("200 OK\ncontent-length: 12, 12\ncontent-length: 12"), (Framing::Length(12), true));
        assert_eq!(of("200 OK"), (Framing::ToClose, false));
        assert_eq!(of("204 No Content"), (Framing::Length(0), true));
        assert_eq!(of("304 Not Modified\ncontent-length: 9"), (Framing::Length(0), true));
        assert_eq!(of("101 Switching Protocols"), (Framing::Length(0), false));
    }

    #[test]
    fn a_connection_is_kept_as_the_answer_says() {
        let keeps = |version: &str, connection: &str| {
            head(&format!("HTTP/{version} 200 OK\ncontent-length: 1\n{connection}\n\n")).keeps
        };
        assert!(keeps("1.1", "connection: keep-alive") && keeps("1.0", "connection: Keep-Alive"));
        assert!(!keeps("1.1", "connection: close") && !keeps("1.0", "x-a: b"));
        assert!(!keeps("1.1", "connection: keep-alive, Close"));
        assert!(!keeps("1.1", "connection: close\nconnection: keep-alive"));
    }

    #[test]
    fn interim_answers_are_skipped() {
        let text =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 201 C\r\nx-a: b\r\n\r\n";
        let (head, length) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((head.status, head.headers.len(), length), (201, 1, text.len()));
    }

    #[test]
    fn what_is_no_head_is_told_in_words() {
        let of = |text: &str| parse(text.as_bytes()).map(|_| ()).unwrap_err();
        assert_eq!(of("SSH-2.0-OpenSSH_9.2\r\n"), "invalid HTTP version parsed");
        assert_eq!(of("\u{15}\u{3}\u{3}"), "invalid HTTP version parsed");
        assert_eq!(of("HTTP/1.1 20 OK\r\n"), "invalid HTTP status-code parsed");
        assert_eq!(of("HTTP/1.1 200 OK\r\na b: c\r\n\r\n"), "invalid HTTP header parsed");
        for lengths in ["-1", "+1", "1, 2", "", "99999999999999999999999", "1\r\ncontent-length: 2"] {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {lengths}\r\n\r\n");
            assert_eq!(of(&text), "invalid content-length parsed", "{lengths}");
        }
        assert_eq!(of("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), "unexpected transfer-encoding parsed");
        assert_eq!(of(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MOST_HEADERS + 1))), TOO_MANY);
        assert_eq!(of(&format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(MOST_HEAD))), TOO_LARGE);
    }
}
