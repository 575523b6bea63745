//! Live runs through the binary: real sockets on loopback, scripted servers, real processes, the real router.

pub mod support;

mod again;
mod cases;
mod coverage;
mod doctor;
mod driver;
mod faults;
mod given_up;
mod index;
mod network;
mod parity;
mod refusals;
mod sessions;
mod smg;
mod soak;
mod wire;
mod zmq;
