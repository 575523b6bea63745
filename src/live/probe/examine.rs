//! [`examine`]: a scenario's target looked at and judged, for callers without a runtime.

use tokio::runtime::Builder;

use super::checks::{Check, checks};
use super::look::{glance, look};
use crate::live::client::Http;
use crate::live::resolve::describe;
use crate::live::{Addresses, Dialect, ResolveError, Secrets};
use crate::scenario::{Needs, Scenario};

/// Connections a look needs at a time: all questions to a worker at once.
const POOL: usize = 16;

/// Every check of the scenario's target, or of the `embedded` cluster at these addresses. Blocks, at most some seconds.
///
/// # Errors
/// When nothing can be asked at all: no client, no runtime. A target that is down is a check that failed.
pub fn examine(
    scenario: &Scenario,
    embedded: Option<&Addresses>,
    secrets: Secrets,
) -> Result<Vec<Check>, ResolveError> {
    let mut target = describe(scenario, embedded, secrets, POOL);
    let needs = Needs::of(scenario);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ResolveError::Start)?;
    let found = runtime.block_on(async {
        let http = Http::new(&target)?;
        // OpenAI endpoints refuse a request without a model; SGLang's own takes it.
        if target.model.is_empty() && target.dialect != Dialect::Generate {
            let seen = glance(&target, &http).await;
            target.model = seen.workers.iter().find_map(|worker| worker.models.first().cloned()).unwrap_or_default();
        }
        let facts = look(&target, &needs, &http).await;
        Ok(checks(&needs, &target, &facts))
    });
    runtime.shutdown_background();
    found
}
