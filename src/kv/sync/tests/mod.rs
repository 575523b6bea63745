//! The machine of a stream.
