//! `sweep --filter`: which of the cells are run now.

use crate::cli::exit::Failure;
use crate::results::sweep::SweepCell;
use crate::scenario::sweep::{Point, Sweep};

/// `--filter`: the cells that are run now.
#[derive(Debug)]
pub struct Chosen {
    /// Positions by axis; an axis without any takes all.
    at: Vec<Vec<u32>>,
    seeds: Vec<u64>,
}

impl Chosen {
    /// Of `KEY=VALUE`s: a cell must have one of the values given for each key.
    pub fn new(filters: &[String], sweep: &Sweep) -> Result<Chosen, Failure> {
        let mut chosen = Chosen { at: vec![Vec::new(); sweep.axes.len()], seeds: Vec::new() };
        for filter in filters {
            let refuse = |cause: String| Failure::input(format!("--filter {filter}: {cause}"));
            let (key, value) =
                filter.split_once('=').ok_or_else(|| refuse("is not KEY=VALUE, such as cap=4".into()))?;
            if key == "seed" {
                let seed = value.parse().ok().filter(|seed| sweep.seeds.contains(seed));
                chosen
                    .seeds
                    .push(seed.ok_or_else(|| refuse(format!("no cell has this seed; there are {:?}", sweep.seeds)))?);
                continue;
            }
            let keys: Vec<String> = sweep.axes.iter().map(|axis| axis.key.clone()).collect();
            let is_meant = |known: &String| known == key || known.rsplit('.').next() == Some(key);
            let ix = keys.iter().position(is_meant).ok_or_else(|| {
                refuse(format!("no axis is called `{key}`")).hint(format!("axes: {}, seed", keys.join(", ")))
            })?;
            let labels: Vec<&str> = sweep.axes[ix].values.iter().map(|value| value.label.as_str()).collect();
            let at = labels.iter().position(|label| *label == value).ok_or_else(|| {
                refuse("the axis has no such value".into()).hint(format!("values: {}", labels.join(", ")))
            })?;
            chosen.at[ix].push(at as u32);
        }
        let is_there = |point: &Point| chosen.takes_at(&point.at);
        if !sweep.points.iter().any(is_there) {
            return Err(
                Failure::input("no cell passes all the filters").hint("--dry-run without --filter prints the cells")
            );
        }
        Ok(chosen)
    }

    fn takes_at(&self, at: &[u32]) -> bool {
        self.at.iter().zip(at).all(|(wanted, at)| wanted.is_empty() || wanted.contains(at))
    }

    /// Whether a cell is asked for.
    pub fn takes(&self, cell: &SweepCell) -> bool {
        self.takes_at(&cell.at) && (self.seeds.is_empty() || self.seeds.contains(&cell.seed))
    }
}
