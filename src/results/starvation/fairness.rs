//! [`Fairness`]: how evenly the fast path is spread over sessions, and which of them starve.

use schemars::JsonSchema;
use serde::Serialize;

use super::starved::{Starved, starved};
use crate::results::SessionRow;
use crate::results::stats::{bimodality, gini, jain, share};

/// A session starves when its direct share is below this, and a later turn of it did not go direct for another reason than a
/// first placement. It is starved beside the others when the run's share is above.
pub const STARVED_BELOW: f64 = 0.2;

/// Spread of the direct-to-D share and of the mean E2E over sessions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Fairness {
    /// Direct-to-D share of the run: direct and ok over all turns sent after each session's first; null without such turns,
    /// and where no sessions are kept on D.
    pub direct_share: Option<f64>,
    /// Sessions by direct share: below 20 %, 40 %, 60 %, 80 %, and the rest; all 0 where none has a share.
    pub histogram: [u64; 5],
    /// Sessions without a direct share: no second turn was sent, or no sessions are kept on D.
    pub sessions_without_share: u64,
    /// Sarle's bimodality coefficient of the direct shares: above 5/9 hints at two peaks; null without spread.
    pub bimodality: Option<f64>,
    /// Two peaks: both outer bins hold more sessions than any bin between them.
    pub two_peaked: bool,
    /// Gini coefficient of the sessions' mean E2E: 0 equal.
    pub gini_mean_e2e: Option<f64>,
    /// Jain's index of the sessions' mean E2E: 1 equal.
    pub jain_mean_e2e: Option<f64>,
    /// Sessions with a direct share below 20 % and a main reason, whatever the run's own share: where that is below 20 % too,
    /// nobody is starved *beside the others*, but nearly everybody starves. Means nothing without sessions on D.
    pub starved_sessions: u64,
    /// The starved sessions; null when there are none.
    pub starved: Option<Starved>,
}

/// Computes the fairness over the sessions of a run, and marks the starved rows.
pub fn assess(rows: &mut [SessionRow]) -> Fairness {
    let later: u64 = rows.iter().filter(|row| row.direct_share.is_some()).map(|row| row.later_turns).sum();
    let direct: u64 = rows.iter().map(|row| row.direct_turns).sum();
    let direct_share = share(direct, later);
    let uses_sessions = direct_share.is_some_and(|share| share > STARVED_BELOW);
    for row in rows.iter_mut() {
        row.starved = uses_sessions && row.starves();
    }
    let shares: Vec<f64> = rows.iter().filter_map(|row| row.direct_share).collect();
    let means: Vec<f64> = rows.iter().filter_map(|row| row.mean_e2e_ms).collect();
    let mut histogram = [0; 5];
    for share in &shares {
        histogram[((share * 5.0) as usize).min(4)] += 1;
    }
    let middle = histogram[1..4].iter().copied().max().unwrap_or(0);
    Fairness {
        direct_share,
        histogram,
        sessions_without_share: (rows.len() - shares.len()) as u64,
        bimodality: bimodality(&shares),
        two_peaked: histogram[0].min(histogram[4]) > middle,
        gini_mean_e2e: gini(&means),
        jain_mean_e2e: jain(&means),
        starved_sessions: rows.iter().filter(|row| row.starves()).count() as u64,
        starved: starved(rows),
    }
}
