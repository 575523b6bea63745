//! Entry point of the `pdreplay` binary.

fn main() {}
