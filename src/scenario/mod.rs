//! Scenario files: one file is one cluster shape, policy and caps. Read once, checked, then frozen.
//!
//! Owns the file format, its defaults and its refusals. Invariant: no value a run depends on lives outside a
//! [`Scenario`]; unknown keys and illegal pairs are errors with a remedy.
//! Reading order: `load` (the whole way from text), `layer` and `schema` (one source, checked), `sugar` (presets),
//! `validate…`, `conflicts`, `setup` (beside a trace, for a driver), [`preflight`](mod@preflight).

mod address;
mod conflicts;
mod error;
mod idle_fault;
mod index_conflicts;
mod kv_setup;
mod layer;
mod live;
mod load;
mod model;
mod needs;
pub mod preflight;
mod schema;
mod setup;
mod shipped;
mod sugar;
pub mod sweep;
mod validate;
mod validate_cost;
mod validate_fault;
mod validate_live;
mod validate_range;

pub use address::Address;
pub use conflicts::{Conflict, ConflictKind, Severity, conflicts, resolve_router};
pub use error::{Cause, Located, Origin, Problem, ScenarioError, SetupError, shown_name, without_queries};
pub use kv_setup::{FollowSetup, KvSetup, publisher};
pub use live::{HeaderConfig, Legs, LiveConfig, OpenAiApi, RouterKind, ServedByConfig, TargetKind, TargetValue};
pub use load::{Overlay, load, load_text};
pub use model::{IntegrityConfig, Scenario, SloConfig, TraceConfig};
pub use needs::{IndexNeeds, Needs};
pub use preflight::{Preflight, preflight};
pub use schema::schema;
pub use setup::Setup;
pub use shipped::{shipped_scenarios, shipped_sweep_text, shipped_sweeps, shipped_text};
pub use validate::validate;
pub use validate_cost::check_span;
pub use validate_fault::{FaultFields, fault_fields, fault_label};
pub use validate_live::{SESSIONS_REACH_P, is_header_name, is_reserved_header};
