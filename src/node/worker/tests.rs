//! Tests of the worker node: alone, and P and D wired together in virtual time.

mod alone;
mod bench;
mod faults;
mod forgets;
mod handoff;
mod parity;
mod property;
mod sessions;
