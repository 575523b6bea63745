//! From stored bytes to text: decompression, and a clear word when the file is something else.
//!
//! The magic number decides; a name that promises compression the bytes do not have is remarked on.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

use crate::trace::Notice;

use super::TraceError;

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Bytes reserved at most on the word of a frame header; larger texts grow as they come.
const LARGEST_HINT: u64 = 1 << 28;

/// The decompressed bytes, or `None` when they are stored plainly.
pub(super) fn unpack(file: &str, stored: &[u8], notices: &mut Vec<Notice>) -> Result<Option<Vec<u8>>, TraceError> {
    let (packing, result) = if stored.starts_with(GZIP) {
        let mut text = Vec::new();
        ("gzip", MultiGzDecoder::new(stored).read_to_end(&mut text).map(|_| text))
    } else if stored.starts_with(ZSTD) {
        ("zstd", unpack_zstd(stored))
    } else {
        if (file.ends_with(".gz") || file.ends_with(".zst")) && !stored.is_empty() {
            let text = format!("{file} is named as compressed but is not; it was read as plain text");
            notices.push(Notice { code: "not-compressed", text });
        }
        return Ok(None);
    };
    match result {
        Ok(text) => Ok(Some(text)),
        Err(cause) => Err(TraceError::Unpack { file: file.to_owned(), packing, cause }),
    }
}

/// One frame that states its size is unpacked straight into the text, without a window in between; frames after it, or
/// a frame of unknown or doubtful size, come as a stream.
fn unpack_zstd(stored: &[u8]) -> io::Result<Vec<u8>> {
    let frame = zstd::zstd_safe::find_frame_compressed_size(stored).unwrap_or(stored.len());
    let size = zstd::zstd_safe::get_frame_content_size(stored).ok().flatten();
    let mut text = Vec::new();
    let mut rest = stored;
    if let Some(size) = size.filter(|size| *size <= LARGEST_HINT) {
        text.reserve_exact(size as usize);
        zstd::bulk::Decompressor::new()?.decompress_to_buffer(&stored[..frame], &mut text)?;
        rest = &stored[frame..];
    }
    if !rest.is_empty() {
        zstd::stream::read::Decoder::with_buffer(rest)?.read_to_end(&mut text)?;
    }
    Ok(text)
}

/// Whether the bytes are packed.
pub(super) fn is_packed(stored: &[u8]) -> bool {
    stored.starts_with(GZIP) || stored.starts_with(ZSTD)
}

/// Refuses what is plainly no JSONL, by its first bytes.
pub(super) fn check_looks(file: &str, text: &[u8]) -> Result<(), TraceError> {
    const CONVERT: &str = "convert it to one JSON object per line";
    let Some(start) = text.iter().position(|byte| !byte.is_ascii_whitespace()) else {
        return Err(TraceError::Empty { file: file.to_owned() });
    };
    let body = &text[start..];
    let first_line = &body[..memchr::memchr(b'\n', body).unwrap_or(body.len())];
    let (kind, remedy) = match body {
        [b'P', b'A', b'R', b'1', ..] => ("a Parquet file", CONVERT),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => ("an Arrow file", CONVERT),
        [b'P', b'K', 3, 4, ..] => ("a zip archive", "unpack it, or compress with gzip or zstd instead"),
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] | [b'{' | b'[', 0, 0, 0, ..] | [0, 0, 0, b'{' | b'[', ..] => {
            ("UTF-32 text", "save it as UTF-8")
        }
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [b'{' | b'[', 0, ..] | [0, b'{' | b'[', ..] => {
            ("UTF-16 text", "save it as UTF-8")
        }
        [b'[', ..] => ("a JSON array", "write its elements one per line, such as with `jq -c '.[]'`"),
        [b'{', ..] if first_line.trim_ascii_end() == b"{" => {
            ("JSON spread over several lines", "write one object per line, such as with `jq -c .`")
        }
        [b'{', ..] => return Ok(()),
        _ if body.iter().take(4096).any(|&byte| byte == 0) => ("a binary file", CONVERT),
        _ if first_line.contains(&b',') && !first_line.contains(&b'{') => ("a CSV file", CONVERT),
        _ => ("plain text", "each line must begin with `{`"),
    };
    Err(TraceError::NotJsonl { file: file.to_owned(), kind, remedy })
}
