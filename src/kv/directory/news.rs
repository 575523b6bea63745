//! [`News`]: what a source of instances tells the directory's owner.

use super::table::TableInput;

/// One word of a registry.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// For [`super::Directory::handle_input`].
    Table(TableInput),
    /// For people: what is wrong with the registry, or well again, and what that means.
    Notice(String),
    /// The registry was read whole for the first time: what it holds has been told.
    Listed,
}
