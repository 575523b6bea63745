//! What all handlers of a router share: the node, the connections, and the looks at the workers' health.
//!
//! The node is behind a lock that is held for a choice, never across a wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, Method};
use futures_util::future::join_all;

use super::options::RouterServerOptions;
use crate::base::WorkerId;
use crate::live::Endpoint;
use crate::live::server::upstream::Upstream;
use crate::node::{Chosen, RouterNode, Routing};

/// Shortest wall time between two looks at a worker, however fast the emulation goes.
const LEAST_REST: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Front {
    node: Mutex<RouterNode>,
    /// Connections to the workers.
    pub upstream: Upstream,
    /// Options of the server.
    pub options: RouterServerOptions,
}

/// A choice under way: it counts as load until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    front: Arc<Front>,
    /// Where the request goes.
    pub chosen: Chosen,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.front.node().done(self.chosen);
    }
}

impl Front {
    pub fn new(options: RouterServerOptions) -> Front {
        let node = Mutex::new(RouterNode::new(&options.node()));
        Front { node, upstream: Upstream::new(options.connect), options }
    }

    /// The node. It holds no promise across calls, so a handler that panicked with it leaves it usable.
    pub fn node(&self) -> MutexGuard<'_, RouterNode> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses for a request.
    pub fn choose(self: &Arc<Front>, routing: Routing<'_>) -> Result<Ticket, String> {
        let chosen = self.node().choose(routing)?;
        Ok(Ticket { front: Arc::clone(self), chosen })
    }

    /// Address of a worker. Panics for one that is not this router's.
    pub fn address(&self, worker: WorkerId) -> &Endpoint {
        self.options.workers.of(worker).unwrap_or_else(|| panic!("{worker} is no worker of this router"))
    }

    /// Every worker is asked for its health once.
    pub async fn look_once(&self) {
        join_all(self.options.workers.workers().map(|(worker, at)| self.look(worker, at))).await;
    }

    /// Looks again and again, each worker in its own rhythm.
    pub async fn watch(&self) {
        let every = self.options.clock.wall(self.options.health_every).max(LEAST_REST);
        let watches = self.options.workers.workers().map(async |(worker, at)| {
            loop {
                tokio::time::sleep(every).await;
                self.look(worker, at).await;
            }
        });
        join_all(watches).await;
    }

    async fn look(&self, worker: WorkerId, at: &Endpoint) {
        let url = format!("{}/health", at.url);
        let asked = self.upstream.send(Method::GET, &url, HeaderMap::new(), None);
        let answer = tokio::time::timeout(self.options.health_timeout, asked).await;
        let healthy = matches!(answer, Ok(Ok(answer)) if answer.status().is_success());
        if self.node().heard(worker, healthy)
            && let Some(log) = &self.options.log
        {
            log.line(format!("router: {worker} at {} is {}", at.url, if healthy { "healthy" } else { "not healthy" }));
        }
    }
}
