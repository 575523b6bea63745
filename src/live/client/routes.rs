//! [`Routes`]: which value of the target header reaches which worker, and when that must be found out anew.
//!
//! An index is a place in a list of the router's that changes as workers come and go; an answer of another worker than
//! the intended one, or of none, shows that the map is old. One probe at a time, and none for requests sent before the
//! last one ended. Sending probes is `live::probe`'s.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::Time;
use crate::live::Heard;
use crate::live::client::line::{Line, locked};
use crate::live::probe::RouteMap;
use crate::record::LedgerKind;
use crate::scenario::TargetValue;

/// Finds out the route map of a router; set by whoever starts the run.
pub type Prober = Arc<dyn Fn() -> Probing + Send + Sync>;
/// A probe under way: the map, or why there is none.
pub type Probing = Pin<Box<dyn Future<Output = Result<RouteMap, String>> + Send>>;

/// Least wall time between two probes: a router that sheds load for long is not asked again and again.
const REST: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(super) struct Routes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    map: Option<RouteMap>,
    prober: Option<Prober>,
    probing: bool,
    probed_at: Option<Time>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("map", &locked(&self.state).map).finish()
    }
}

impl Routes {
    pub fn set_map(&self, map: RouteMap) {
        locked(&self.state).map = Some(map);
    }

    pub fn set_prober(&self, prober: Prober) {
        locked(&self.state).prober = Some(prober);
    }

    /// Index that reaches D `decode`. Without a map the router counts as we do.
    pub fn index(&self, decode: u16) -> Option<u16> {
        locked(&self.state).map.as_ref().map_or(Some(decode), |map| map.of(decode))
    }

    /// A request sent then, by the map, did not reach its worker: asks for a new map.
    pub fn missed(line: &Arc<Line>, sent: Time) {
        if line.target.header.target_value != TargetValue::Index {
            return;
        }
        let mut state = locked(&line.routes.state);
        let now = line.clock.now();
        let fresh = |at: Time| sent < at || line.clock.wall(now.since(at)) < REST;
        if state.probing || state.probed_at.is_some_and(fresh) {
            return;
        }
        let Some(prober) = state.prober.clone() else { return };
        state.probing = true;
        let line = Arc::clone(line);
        tokio::spawn(async move {
            let found = prober().await;
            let changed = {
                let mut state = locked(&line.routes.state);
                (state.probing, state.probed_at) = (false, Some(line.clock.now()));
                // A probe that failed leaves the old map: it says nothing of the workers.
                found.ok().filter(|map| state.map.as_ref() != Some(map)).inspect(|map| state.map = Some(map.clone()))
            };
            if let Some(map) = changed {
                let detail = map.to_string();
                let _ =
                    line.heard.send(Heard::Notice { kind: LedgerKind::RouteMapChanged, worker: None, detail }).await;
            }
        });
    }
}
