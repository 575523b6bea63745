//! What a target is and can do, found out by asking it: before a run, by `doctor`, and when a route proves wrong.
//!
//! `question` is what is asked, `look` asks it, `addresses` looks up where servers are, `facts` reads the answers,
//! `route_map` is the map of target-header values, `checks` says what follows for a scenario, `events` looks at publishers
//! of KV events. All but `look`, `addresses` and `events` are pure. Decides nothing about a run.

mod addresses;
pub mod checks;
mod events;
mod examine;
mod facts;
mod look;
mod question;
mod reply;
mod route_map;

pub use addresses::{Shared, workers_at};
pub use checks::{
    Check, Facts, KV_EVENTS, Verdict, address_fault, bootstrap_fault, cautions, checks, down_first, name_fault,
    role_fault,
};
pub use events::{event_checks, no_file_check};
pub use examine::{Examined, examine};
pub use facts::{Engine, Health, RouterFacts, WorkerFacts};
pub use look::{bootstrap_servers, glance, has_indices, has_names, look, named, route_map, routes};
pub use question::{Answers, Question};
pub use reply::{Looked, Reply, shortened};
pub use route_map::{Probed, RouteFault, RouteMap, Routes, next_probe};
