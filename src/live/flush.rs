//! Empty prefix caches between two runs on the same servers: `POST /flush_cache` on every worker, as SGLang has it.
//!
//! Decides nothing: what could not be emptied is told, and the run that follows is as warm as it is.

use std::time::Duration;

use tokio::runtime::Builder;

use super::client::Http;
use super::resolve::describe;
use super::{ResolveError, Secrets, Target};
use crate::scenario::Scenario;

/// A worker with requests inside refuses; a run that was broken off has some for a moment.
const TRIES: u32 = 20;
const TRY_EVERY: Duration = Duration::from_millis(250);
/// Connections at a time.
const POOL: usize = 4;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Workers whose cache is empty now.
    pub workers: u32,
    /// Why others are not, one sentence each.
    pub refused: Vec<String>,
}

/// Empties the cache of every worker that the scenario names. Blocks, a few seconds for each worker at most.
///
/// # Errors
/// When nothing can be asked at all: no client, no runtime.
pub fn flush_caches(scenario: &Scenario, secrets: Secrets) -> Result<Flushed, ResolveError> {
    let target = describe(scenario, None, secrets, POOL);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ResolveError::Start)?;
    let flushed = runtime.block_on(async {
        let http = Http::new(&target)?;
        Ok(flush_all(&target, &http).await)
    });
    runtime.shutdown_background();
    flushed
}

async fn flush_all(target: &Target, http: &Http) -> Flushed {
    let mut flushed = Flushed::default();
    for (worker, endpoint) in target.addresses.workers() {
        let url = format!("{}/flush_cache", endpoint.url.trim_end_matches('/'));
        match flush(http, &url).await {
            Ok(()) => flushed.workers += 1,
            Err(cause) => flushed.refused.push(format!("{worker}: {cause}")),
        }
    }
    flushed
}

async fn flush(http: &Http, url: &str) -> Result<(), String> {
    for _ in 0..TRIES {
        let reply = http.post(url, Vec::new()).await.map_err(|error| error.message)?;
        match reply.status {
            200 => return Ok(()),
            // Requests are inside.
            400 => tokio::time::sleep(TRY_EVERY).await,
            404 | 405 => return Err("has no /flush_cache".into()),
            status => return Err(format!("/flush_cache answered HTTP {status}")),
        }
    }
    Err("requests are still inside".into())
}
