//! The client against scripted servers: streams, broken HTTP, both legs, control calls.

mod control;
mod counts;
mod embedded;
pub mod fake;
mod given_up;
mod http;
mod legs;
mod served;
mod stream;
pub mod support;
mod tls;
mod wire;
