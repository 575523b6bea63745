//! Empty prefix caches between two runs on the same servers: `POST /flush_cache` on every worker, as SGLang has it, else
//! `POST /reset_prefix_cache`, as vLLM has it in its development mode.
//!
//! SGLang answers 200 and a text that begins with `Cache flushed.`, and 400 while requests are inside; vLLM 200 and nothing
//! (it does not say whether it did it). Invariant: only these words count; a proxy's page or another tool's JSON does not. What
//! could not be emptied is told, and the run that follows is as warm as it is.

use std::time::Duration;

use tokio::runtime::Builder;

use super::client::{Http, shortened};
use super::resolve::describe;
use super::{ResolveError, Secrets, Target};
use crate::scenario::Scenario;

/// A worker with requests inside refuses; a run that was broken off has some for a moment.
const TRIES: u32 = 20;
const TRY_EVERY: Duration = Duration::from_millis(250);
/// Characters of an odd answer that are repeated.
const LONGEST: usize = 60;
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
        match flush(http, endpoint.url.trim_end_matches('/')).await {
            Ok(()) => flushed.workers += 1,
            Err(cause) => flushed.refused.push(format!("{worker}: {cause}")),
        }
    }
    flushed
}

/// A way to empty a cache, and how the server that has it says that it did.
struct Way {
    path: &'static str,
    says: &'static str,
    is_done: fn(&[u8]) -> bool,
}

const WAYS: [Way; 2] = [
    Way {
        path: "/flush_cache",
        says: "`Cache flushed.`, as SGLang says it",
        is_done: |body| body.trim_ascii_start().starts_with(b"Cache flushed."),
    },
    Way { path: "/reset_prefix_cache", says: "nothing, as vLLM says it", is_done: |body| body.is_empty() },
];

async fn flush(http: &Http, base: &str) -> Result<(), String> {
    for way in &WAYS {
        if way.flush(http, base).await? {
            return Ok(());
        }
    }
    Err(format!("has neither {}", WAYS.map(|way| way.path).join(" nor ")))
}

impl Way {
    /// False where the server has no such way.
    async fn flush(&self, http: &Http, base: &str) -> Result<bool, String> {
        let Way { path, says, is_done } = self;
        for _ in 0..TRIES {
            let reply = http.post(&format!("{base}{path}"), Vec::new()).await.map_err(|error| error.message)?;
            match reply.status {
                200 if is_done(&reply.body) => return Ok(true),
                200 => {
                    let body = String::from_utf8_lossy(&reply.body);
                    let body = shortened(&body.split_whitespace().collect::<Vec<_>>().join(" "), LONGEST);
                    return Err(format!("{path} answered HTTP 200 with `{body}`, not with {says}"));
                }
                // Requests are inside.
                400 => tokio::time::sleep(TRY_EVERY).await,
                404 | 405 => return Ok(false),
                status => return Err(format!("{path} answered HTTP {status}")),
            }
        }
        Err("requests are still inside".into())
    }
}
