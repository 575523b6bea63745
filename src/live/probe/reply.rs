//! What a question to a server brought: the client's answer as it is, or why there was none.
//!
//! The questions are [`super::look()`]'s, what the answers mean is read from them without a socket.

pub use crate::live::client::{Reply, shortened};

/// An answer, or why there was none.
pub type Looked = Result<Reply, String>;
