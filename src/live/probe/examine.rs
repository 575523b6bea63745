//! [`examine`]: a scenario's target looked at and judged, for callers without a runtime.

use tokio::runtime::Builder;

use super::checks::{Check, checks};
use super::look::{glance, look};
use crate::live::client::Http;
use crate::live::resolve::{absent, adopt, describe, refuse};
use crate::live::{Addresses, ResolveError, Secrets};
use crate::scenario::{Needs, Scenario};

/// Connections a look needs at a time: all questions to a worker at once.
const POOL: usize = 16;

/// What a look at a target found.
#[derive(Debug)]
pub struct Examined {
    /// Every check.
    pub checks: Vec<Check>,
    /// Where its workers are, and what they call themselves.
    pub addresses: Addresses,
}

/// Every check of the scenario's target, or of the `embedded` cluster at these addresses. Blocks, at most some seconds.
///
/// # Errors
/// When nothing can be asked at all: no client, no runtime. A target that is down is a check that failed.
pub fn examine(scenario: &Scenario, embedded: Option<&Addresses>, secrets: Secrets) -> Result<Examined, ResolveError> {
    let mut target = describe(scenario, embedded, secrets, POOL);
    let needs = Needs::of(scenario);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ResolveError::Start)?;
    let checks = runtime.block_on(async {
        let http = Http::new(&target)?;
        let seen = glance(&target, &http).await;
        adopt(scenario, &seen, &mut target);
        target.absent = absent(&seen);
        let facts = look(&target, &needs, &http).await;
        let refused = refuse(scenario, &facts, &target).err();
        Ok::<_, ResolveError>(checks(&needs, &target, &facts).into_iter().chain(refused.and_then(refusal)).collect())
    });
    runtime.shutdown_background();
    Ok(Examined { checks: checks?, addresses: target.addresses })
}

/// A row for what a run would be refused for, where no other row says it.
fn refusal(error: ResolveError) -> Option<Check> {
    match error {
        ResolveError::SessionsReachP { .. } | ResolveError::Speed { .. } => {
            Some(Check::fail("replay", format!("is refused: {error}")))
        }
        // Rows of their own: workers, addresses, roles and router, router kind, bootstrap, target header.
        ResolveError::Down { .. }
        | ResolveError::SameServer { .. }
        | ResolveError::Roles { .. }
        | ResolveError::UnknownRouter { .. }
        | ResolveError::Bootstrap { .. }
        | ResolveError::Routes { .. }
        | ResolveError::Unreached { .. }
        | ResolveError::Client(_)
        | ResolveError::Start(_) => None,
    }
}
