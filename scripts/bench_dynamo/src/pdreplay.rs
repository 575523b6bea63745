//! pdreplay's prefix index, compiled from its own files: the module [`kv`] and the only one that it uses.

#[path = "../../../src/base/mod.rs"]
pub mod base;
#[path = "../../../src/kv/mod.rs"]
pub mod kv;
