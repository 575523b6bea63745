//! Event streams, by the WHATWG standard: bytes in, in any pieces; data of whole events out.
//!
//! Works on bytes alone: a character cut in two is whole again before anyone reads it, and only CR, LF and CRLF end a
//! line. What is pending at the end of the stream is dropped, as the standard asks. Linear in the bytes, however they
//! are cut. Owns no meaning of the data.

use memchr::memchr2;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// An event that is longer than the limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {limit} bytes")]
pub struct TooLong {
    /// Bytes allowed.
    pub limit: usize,
}

/// Incremental parser of one stream.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    // Bytes of the mark at the start seen so far; all of them: over.
    bom: usize,
    after_cr: bool,
    // A line that has not ended.
    line: Vec<u8>,
    // Lines of data of the event, each with a line feed.
    data: Vec<u8>,
}

impl SseParser {
    /// For events of at most `limit` bytes.
    pub fn new(limit: usize) -> SseParser {
        SseParser { limit, bom: 0, after_cr: false, line: Vec::new(), data: Vec::new() }
    }

    /// Takes the next bytes; `each` gets the data of every event they complete (it may be empty).
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), TooLong> {
        let mut rest = self.skip_mark(bytes);
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                return self.check();
            };
            self.after_cr = rest[end] == b'\r';
            if self.line.is_empty() {
                self.end_line(&rest[..end], &mut each);
            } else {
                self.line.extend_from_slice(&rest[..end]);
                let mut line = std::mem::take(&mut self.line);
                self.end_line(&line, &mut each);
                line.clear();
                self.line = line;
            }
            self.check()?;
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    /// Skips a byte-order mark at the start of the stream, which may come in pieces.
    fn skip_mark<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        while self.bom < BOM.len() {
            match rest.split_first() {
                None => break,
                Some((&first, after)) if first == BOM[self.bom] => {
                    self.bom += 1;
                    rest = after;
                }
                Some(_) => {
                    self.line.extend_from_slice(&BOM[..self.bom]);
                    self.bom = BOM.len();
                }
            }
        }
        rest
    }

    fn end_line(&mut self, line: &[u8], each: &mut impl FnMut(&[u8])) {
        if line.is_empty() {
            if self.data.pop().is_some() {
                each(&self.data);
                self.data.clear();
            }
        } else if let Some(value) = line.strip_prefix(b"data") {
            // Comments (`:`), `event`, `id`, `retry` and unknown fields say nothing a token stream needs.
            let value = match value.split_first() {
                None => value,
                Some((b':', value)) => value.strip_prefix(b" ").unwrap_or(value),
                Some(_) => return,
            };
            self.data.extend_from_slice(value);
            self.data.push(b'\n');
        }
    }

    fn check(&self) -> Result<(), TooLong> {
        let held = self.line.len() + self.data.len();
        if held > self.limit { Err(TooLong { limit: self.limit }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut parser = SseParser::new(1 << 24);
        let mut seen = Vec::new();
        for piece in pieces {
            parser.push(piece, |data| seen.push(String::from_utf8(data.to_vec()).unwrap())).unwrap();
        }
        seen
    }

    #[test]
    fn fields_comments_and_line_ends_are_those_of_the_standard() {
        let stream = "\u{feff}: ping\n\n:\nevent: ping\ndata\n\nretry: 3000\nid: 9\ndata:{\"a\":1}\r\n\r\ndata: x\r\rdata:  y\n\
                      data: z\n\ndatum: no\n\ndata: a\u{2028}b\u{85}c\u{2029}\n\ndata: pending\n";
        assert_eq!(events(&[stream.as_bytes()]), ["", "{\"a\":1}", "x", " y\nz", "a\u{2028}b\u{85}c\u{2029}"]);
    }

    #[test]
    fn a_broken_mark_is_the_start_of_a_line() {
        assert_eq!(events(&[b"\xEF", b"\xBB", b"\xBFdata: a\n\n"]), ["a"]);
        assert_eq!(events(&[b"\xEF", b"\xBBdata: a\n\ndata: b\n\n"]), ["b"]);
    }

    #[test]
    fn a_long_line_in_many_pieces_takes_linear_time() {
        let mut parser = SseParser::new(16 << 20);
        let mut sizes = Vec::new();
        for _ in 0..20 {
            parser.push(b"data: ", |_| {}).unwrap();
            for _ in 0..15_000 {
                parser.push(&[b'x'; 100], |_| {}).unwrap();
            }
            parser.push(b"\n\n", |data| sizes.push(data.len())).unwrap();
        }
        assert_eq!(sizes, [1_500_000; 20]);
    }

    #[test]
    fn an_event_beyond_the_limit_is_an_error_that_names_it() {
        let mut parser = SseParser::new(1000);
        let many_lines = b"data: 0123456789\n".repeat(100);
        let error = parser.push(&many_lines, |_| {}).unwrap_err();
        assert!(error.to_string().contains("1000 bytes"), "{error}");
        let mut parser = SseParser::new(1000);
        assert!(parser.push(&[b'x'; 1001], |_| {}).is_err());
    }

    proptest! {
        #[test]
        fn any_cut_of_the_bytes_gives_the_same_events(
            parts in prop::collection::vec(
                prop::sample::select(vec!["data: ", "data:", "data", "\n", "\r\n", "\r", "\n\n", ": c", "é🙂", "x", "\u{feff}", "id: 1"]),
                0..40,
            ),
            cuts in prop::collection::vec(0usize..200, 0..20),
        ) {
            let stream = parts.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[&stream]));
        }
    }
}
