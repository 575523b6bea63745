//! Servers around the `node` machines: sockets and HTTP, no decision.

pub mod upstream;
