//! Scenario files: one file is one cluster shape, policy and caps. Read once, checked, then frozen.
//!
//! Owns the file format, its defaults and its refusals. Invariant: no value a run depends on lives outside a
//! [`Scenario`]; unknown keys and illegal pairs are errors with a remedy.

mod model;

pub use model::{IntegrityConfig, Scenario, TraceConfig};
