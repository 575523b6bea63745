//! [`SweepGroup`]: the cells of one point, their figures as means with intervals over the seeds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CellCounts, CellResult, SweepCell};
use crate::results::{Band, Figure, Figures, Verdict, bands};

/// One point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepGroup {
    /// Position of its value on each axis, from 0.
    pub at: Vec<u32>,
    /// Its value on each axis, as text.
    pub values: Vec<String>,
    /// Its cells by state.
    pub counts: CellCounts,
    /// The worst verdict of those that are done; null when none is.
    pub verdict: Option<Verdict>,
    /// Why the headline may not be read, or why there is nothing: of the first cell that has a reason or an error.
    pub reason: Option<String>,
    /// First cause line of its first cell that has one.
    pub cause: Option<String>,
    /// Direct-to-D share that the preflight predicts, 0 to 1; compare with the band `direct_share`.
    pub predicted_direct_share: Option<f64>,
    /// Lower end of the same, which crowded D may bring it down to; null where the other is.
    #[serde(default)]
    pub predicted_direct_share_at_least: Option<f64>,
    /// Objectives of its goodput, as `ttft:2000 e2el:60000` in ms; null without any.
    #[serde(default)]
    pub objectives: Option<String>,
    /// Its figures over the cells that are done; one that no cell has is left out.
    pub bands: Vec<Band>,
}

impl SweepGroup {
    /// A figure over its cells; `None` when no cell has it.
    pub fn band(&self, figure: Figure) -> Option<&Band> {
        self.bands.iter().find(|band| band.figure == figure)
    }

    /// What the preflight predicts of the direct share, from where crowded D take all they can to room for all.
    pub fn predicted(&self) -> Option<(f64, f64)> {
        let high = self.predicted_direct_share?;
        Some((self.predicted_direct_share_at_least.unwrap_or(high), high))
    }

    /// At least one cell is done, and each of those that are may be read.
    pub fn shows_headline(&self) -> bool {
        self.verdict.is_some_and(Verdict::shows_headline)
    }

    /// A figure that may be read: shares and counts always, the rest when the headline may be.
    pub fn shown(&self, figure: Figure) -> Option<&Band> {
        let describes = [
            Figure::COMPLETED,
            Figure::BAD_SHARE,
            Figure::SLO_ATTAINMENT,
            Figure::DIRECT_SHARE,
            Figure::STARVED_SESSIONS,
        ]
        .contains(&figure);
        self.band(figure).filter(|_| describes || self.shows_headline())
    }

    fn of(cells: &[&SweepCell]) -> SweepGroup {
        let first = cells[0];
        let results = || cells.iter().filter_map(|cell| cell.result.as_ref());
        let worst = results().map(|result| result.verdict).max();
        let reason = |result: &CellResult| result.reason.clone().filter(|_| Some(result.verdict) == worst);
        let error = || cells.iter().find_map(|cell| cell.error.clone());
        let figures: Vec<&Figures> = results().map(|result| &result.figures).collect();
        SweepGroup {
            at: first.at.clone(),
            values: first.values.clone(),
            counts: CellCounts::of(cells.iter().copied()),
            verdict: worst,
            reason: results().find_map(reason).or_else(error),
            cause: results().find_map(|result| result.cause.clone()),
            predicted_direct_share: results().find_map(|result| result.predicted_direct_share),
            predicted_direct_share_at_least: results().find_map(|result| result.predicted_direct_share_at_least),
            objectives: results().find_map(|result| result.objectives.clone()),
            bands: bands(&Figure::HEADLINE, figures.iter().copied()),
        }
    }
}

/// The groups of `cells`, in the order in which their first cells come.
pub(super) fn groups(cells: &[SweepCell]) -> Vec<SweepGroup> {
    let mut of_point: BTreeMap<&[u32], Vec<&SweepCell>> = BTreeMap::new();
    cells.iter().for_each(|cell| of_point.entry(&cell.at).or_default().push(cell));
    let mut members: Vec<Vec<&SweepCell>> = of_point.into_values().collect();
    members.sort_by_key(|cells| cells[0].number);
    members.iter().map(|cells| SweepGroup::of(cells)).collect()
}
