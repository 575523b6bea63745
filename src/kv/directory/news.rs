//! [`News`]: what a source of instances tells the directory's owner. What is told together is one state of the registry:
//! none of it counts without the rest.

use super::table::TableInput;

/// One word of a registry.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// For [`super::Directory::handle_input`].
    Table(TableInput),
    /// For people: what is wrong with the registry, and what that means.
    Notice(String),
    /// For people: what was wrong is over.
    Mended(String),
    /// The registry was read whole for the first time: what it holds has been told.
    Listed,
}
