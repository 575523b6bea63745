//! Live runs through the binary: real sockets on loopback, scripted servers, real processes, the real router.

pub mod support;

mod driver;
mod faults;
mod parity;
mod smg;
mod wire;
