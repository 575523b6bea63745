//! Where the body of an answer ends, and what of the bytes is body (RFC 9112, sections 6 and 7). Pure.
//!
//! Works on bytes in any pieces and copies none. Invariant: what is behind the end is never taken.

/// Bytes of chunk extensions and trailers that are skipped in one answer.
const MOST_EXTRA: usize = 16 << 10;
/// Words of a body that ends too early.
const CUT_SHORT: &str = "end of file before message length reached";

/// How a body ends, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many more bytes.
    Length(u64),
    /// With a chunk of no bytes.
    Chunked(Chunks),
    /// With the connection.
    ToClose,
}

/// How far a chunked body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunks {
    state: State,
    /// Size of the chunk as far as it is read, then what is left of it.
    left: u64,
    /// Bytes that were neither data nor sizes.
    extra: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A first digit must come.
    Start,
    Size,
    /// Behind a size, up to the end of its line.
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a line behind the last chunk.
    Trailers,
    Trailer,
    LastLf,
    Over,
}

impl Framing {
    pub fn chunked() -> Framing {
        Framing::Chunked(Chunks { state: State::Start, left: 0, extra: 0 })
    }

    /// Nothing more belongs to the body.
    pub fn is_over(&self) -> bool {
        match self {
            Framing::Length(left) => *left == 0,
            Framing::Chunked(chunks) => chunks.state == State::Over,
            Framing::ToClose => false,
        }
    }

    /// Hands the body among these bytes to `each`, in pieces; how many bytes belonged to it: all, unless it is over.
    ///
    /// # Errors
    /// What is wrong with the bytes, in words.
    pub fn take(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8])) -> Result<usize, &'static str> {
        match self {
            Framing::ToClose => {
                each(bytes);
                Ok(bytes.len())
            }
            Framing::Length(left) => {
                let part = within(bytes, *left);
                *left -= part.len() as u64;
                if !part.is_empty() {
                    each(part);
                }
                Ok(part.len())
            }
            Framing::Chunked(chunks) => chunks.take(bytes, each),
        }
    }

    /// The connection has ended here.
    ///
    /// # Errors
    /// The body has not, in words.
    pub fn end(&self) -> Result<(), &'static str> {
        match self {
            Framing::ToClose => Ok(()),
            Framing::Chunked(Chunks { state, .. }) if *state != State::Data && !self.is_over() => {
                Err("unexpected EOF during chunk size line")
            }
            Framing::Length(_) | Framing::Chunked(_) => {
                if self.is_over() {
                    Ok(())
                } else {
                    Err(CUT_SHORT)
                }
            }
        }
    }
}

impl Chunks {
    fn take(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8])) -> Result<usize, &'static str> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Over {
            if self.state == State::Data {
                let part = within(&bytes[at..], self.left);
                each(part);
                at += part.len();
                self.left -= part.len() as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
            } else {
                self.state = self.step(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<State, &'static str> {
        match (self.state, byte) {
            (State::Start | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let longer = self.left.checked_mul(16).and_then(|size| size.checked_add(digit));
                self.left = longer.ok_or("invalid chunk size: overflow")?;
                Ok(State::Size)
            }
            (State::Start, _) => Err("invalid chunk size line: missing size digit"),
            (State::Size, b'\r') | (State::Extension, b'\r') => Ok(State::SizeLf),
            (State::Size, b'\t' | b' ' | b';') => Ok(State::Extension),
            (State::Size, _) => Err("invalid chunk size line"),
            (State::Extension, b'\n') => Err("invalid chunk extension contains newline"),
            (State::Extension, _) => self.skip(State::Extension),
            (State::SizeLf, b'\n') if self.left == 0 => Ok(State::Trailers),
            (State::SizeLf, b'\n') => Ok(State::Data),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Start),
            (State::Trailers, b'\r') => Ok(State::LastLf),
            (State::Trailer, b'\n') => Ok(State::Trailers),
            (State::Trailers | State::Trailer, _) => self.skip(State::Trailer),
            (State::LastLf, b'\n') => Ok(State::Over),
            (State::SizeLf | State::DataCr | State::DataLf | State::LastLf, _) => Err("invalid end of a chunk"),
            (State::Data | State::Over, _) => unreachable!("no single bytes are read there"),
        }
    }

    fn skip(&mut self, state: State) -> Result<State, &'static str> {
        self.extra += 1;
        if self.extra > MOST_EXTRA {
            Err("chunk extensions or trailers over limit: more than 16 KiB")
        } else {
            Ok(state)
        }
    }
}

fn within(bytes: &[u8], left: u64) -> &[u8] {
    &bytes[..usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The body and the bytes behind it, taken in pieces of so many bytes.
    fn taken(mut framing: Framing, bytes: &[u8], size: usize) -> Result<(String, usize, bool), &'static str> {
        let (mut body, mut used) = (Vec::new(), 0);
        for piece in bytes.chunks(size) {
            used += framing.take(piece, &mut |part| body.extend_from_slice(part))?;
        }
        Ok((String::from_utf8(body).unwrap(), bytes.len() - used, framing.is_over()))
    }

    #[test]
    fn chunks_are_data_alone_however_they_are_written() {
        let text = b"3\r\nabc\r\n0A ; name=\"v\"\r\n0123456789\r\n0\r\nx-a: 1\r\nx-b: 2\r\n\r\nHTTP";
        for size in 1..text.len() {
            assert_eq!(taken(Framing::chunked(), text, size), Ok(("abc0123456789".into(), 4, true)));
        }
    }

    #[test]
    fn a_length_is_that_many_bytes() {
        assert_eq!(taken(Framing::Length(3), b"abcd", 2), Ok(("abc".into(), 1, true)));
        assert_eq!(taken(Framing::Length(0), b"abcd", 2), Ok((String::new(), 4, true)));
        assert_eq!(taken(Framing::ToClose, b"abcd", 2), Ok(("abcd".into(), 0, false)));
    }

    #[test]
    fn an_early_end_is_told_where_it_matters() {
        let cut = |bytes: &[u8]| {
            let mut framing = Framing::chunked();
            framing.take(bytes, &mut |_| {}).unwrap();
            framing.end()
        };
        assert_eq!(cut(b"3\r\nab"), Err(CUT_SHORT));
        for early in [&b""[..], b"3", b"3\r\nabc", b"3\r\nabc\r\n", b"0\r\n", b"0\r\n\r"] {
            assert_eq!(cut(early), Err("unexpected EOF during chunk size line"), "{early:?}");
        }
        assert_eq!(cut(b"0\r\n\r\n"), Ok(()));
        assert_eq!((Framing::Length(1).end(), Framing::Length(0).end()), (Err(CUT_SHORT), Ok(())));
        assert_eq!(Framing::ToClose.end(), Ok(()));
    }

    #[test]
    fn nonsense_is_no_chunk() {
        let long = format!("1;{}\r\n", "x".repeat(MOST_EXTRA + 1));
        let trailers = format!("0\r\n{}", "a: b\r\n".repeat(MOST_EXTRA / 4));
        let huge = "fffffffffffffffff\r\n";
        for bad in ["\r\n", "x", "1 \n", "1\n", "1\r\nab", "1\r\na\rb", "1\rx", "-1\r\n", huge, &long, &trailers] {
            assert!(taken(Framing::chunked(), bad.as_bytes(), 7).is_err(), "{:.40?}", bad);
        }
    }

    proptest! {
        #[test]
        fn noise_is_never_a_panic(bytes in prop::collection::vec(prop::sample::select(&b"0aF \r\n;:x"[..]), 0..60), size in 1usize..9) {
            let _ = taken(Framing::chunked(), &bytes, size);
        }
    }
}
