//! Scripted peers on loopback, our sockets against each other, and against the crate `zeromq`. libzmq itself is met
//! in tests/it/live/zmq.rs.

mod crate_peer;
mod frames;
mod handshake;
mod hostile;
mod pair;
mod peer;
mod stream;
