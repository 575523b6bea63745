//! `/metrics`: the router's counters as Prometheus text.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::front::Front;
use crate::node::Place;

/// The counters.
pub(super) async fn metrics(State(front): State<Arc<Front>>) -> Response {
    let (places, refused) = {
        let node = front.node();
        (node.places().to_vec(), node.refused())
    };
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Place) -> u64| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP pdreplay_router_{name} {help}\n# TYPE pdreplay_router_{name} {kind}");
        for place in &places {
            let url = &front.address(place.worker).url;
            let worker = place.worker;
            let _ = writeln!(text, "pdreplay_router_{name}{{worker=\"{worker}\",url=\"{url}\"}} {}", value(place));
        }
    };
    family("worker_healthy", "gauge", "The last look found the worker healthy.", &|place| place.eligible.into());
    family("worker_requests_active", "gauge", "Requests under way.", &|place| place.in_flight.into());
    family("worker_requests_total", "counter", "Requests sent to the worker.", &|place| place.requests);
    let name = "pdreplay_router_no_available_workers_total";
    let _ = writeln!(
        text,
        "# HELP {name} Requests for which there was no worker.\n# TYPE {name} counter\n{name} {refused}"
    );
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
