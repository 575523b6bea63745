//! What is asked of a target before a run.

mod route_map;

pub use route_map::RouteMap;
