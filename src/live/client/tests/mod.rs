//! The client against scripted servers: streams, broken HTTP, both legs, control calls.

mod embedded;
pub mod fake;
mod given_up;
mod http;
mod legs;
mod stream;
pub mod support;
mod tls;
