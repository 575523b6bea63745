//! How things are called outside, for messages: inside they are dense indices.

use crate::base::{RequestIx, SessionIx};

/// Names of sessions and requests as their clients write them; `None` where there is none, and the index stands for it.
pub trait Names {
    /// Id of a session.
    fn session(&self, session: SessionIx) -> Option<&str>;

    /// Id of a request.
    fn request(&self, request: RequestIx) -> Option<&str>;
}

/// Nothing has a name.
impl Names for () {
    fn session(&self, _: SessionIx) -> Option<&str> {
        None
    }

    fn request(&self, _: RequestIx) -> Option<&str> {
        None
    }
}

/// Ids of the sessions, by index.
impl Names for Vec<&str> {
    fn session(&self, session: SessionIx) -> Option<&str> {
        self.get(session.ix()).copied()
    }

    fn request(&self, _: RequestIx) -> Option<&str> {
        None
    }
}
