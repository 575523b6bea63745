//! [`Row`]: one request as read or generated, before it takes its place in a [`super::Trace`].

/// One row, borrowed from its reader or generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// Session id.
    pub session_id: &'a str,
    /// Turn number of the file.
    pub turn_id: u32,
    /// Physical line, from 1; 0 for a generated row.
    pub line: u32,
    /// Timestamp in the file's own clock, nanoseconds.
    pub timestamp_ns: u64,
    /// Prompt tokens.
    pub input_length: u32,
    /// Answer tokens, at least 1.
    pub output_length: u32,
    /// The file said 0 answer tokens.
    pub output_raised: bool,
    /// Tokens already present, when the file says so.
    pub cached_tokens: Option<u32>,
    /// Block ids, the part-filled last one included or not; `None` when the file has none.
    pub hash_ids: Option<&'a [u64]>,
    /// Request id, when the file has one.
    pub request_id: Option<&'a str>,
}
