//! Live runs through the binary: real sockets on loopback, scripted servers, real processes, the real router.

pub mod support;

mod doctor;
mod faults;
mod network;
mod smg;
mod driver;
mod parity;
mod wire;
