//! Live runs through the binary: real sockets on loopback, scripted servers, real processes, the real router.

pub mod support;

mod again;
mod between;
mod cases;
mod coverage;
mod doctor;
mod driver;
mod faults;
mod flush;
mod given_up;
mod index;
mod legs;
mod network;
mod parity;
mod refusals;
mod sessions;
mod smg;
mod soak;
mod wire;
mod zmq;
