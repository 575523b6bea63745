//! pdreplay's prefix index beside the published one of Dynamo, told the same events in one run: median seconds of several
//! rounds, as rates and a ratio. Both start from decoded events with token ids; what hashes them counts as storing.

mod dynamo;
mod history;
mod ours;

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use history::{History, PROMPT_TOKENS, WORKERS};

pub type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 7;
const QUERIES: usize = 200;

/// Seconds of one round.
pub struct Round {
    /// All stores, with the hashing of their tokens.
    pub store: f64,
    /// The part of `store` that hashes and makes events, where it is apart.
    pub hashing: Option<f64>,
    /// All removals.
    pub remove: f64,
    /// A query by tokens.
    pub query: f64,
    /// A query by hashes that the caller has.
    pub query_known: f64,
    /// Blocks of the prompt by worker.
    pub hits: BTreeMap<u64, u64>,
}

fn main() -> Outcome<()> {
    println!("{WORKERS} workers, prompt of {PROMPT_TOKENS} tokens, one thread, median of {ROUNDS} rounds");
    for block_size in [16, 128] {
        compare(&History::new(block_size))?;
    }
    Ok(())
}

fn compare(history: &History) -> Outcome<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // In turn the first, so that neither always finds the memory that the other left.
    for last in 0..ROUNDS {
        if last % 2 == 0 {
            ours.push(ours::round(history)?);
        }
        theirs.push(dynamo::round(history)?);
        if last % 2 == 1 {
            ours.push(ours::round(history)?);
        }
        if ours[last].hits.len() != WORKERS as usize || ours[last].hits != theirs[last].hits {
            return Err("the two find different blocks of the prompt".into());
        }
    }
    let blocks = history.blocks() as f64;
    println!("\nblocks of {} tokens, {blocks} of them", history.block_size);
    println!("{:<32} {:>10} {:>10} {:>6}", "", "pdreplay", "dynamo", "ratio");
    let row = |name: &str, seconds: fn(&Round) -> f64, shown: &dyn Fn(f64) -> f64| {
        let (ours, theirs) = (median(&ours, seconds), median(&theirs, seconds));
        println!("{name:<32} {:>10.2} {:>10.2} {:>6.2}", shown(ours), shown(theirs), theirs / ours);
    };
    let rate = |seconds: f64| blocks / seconds / 1e6;
    let micros = |seconds: f64| seconds * 1e6;
    row("store, million blocks/s", |round| round.store, &rate);
    row("remove, million blocks/s", |round| round.remove, &rate);
    row("match by tokens, us", |round| round.query, &micros);
    row("match by known hashes, us", |round| round.query_known, &micros);
    let share = median(&theirs, |round| round.hashing.unwrap_or(0.0)) / median(&theirs, |round| round.store);
    println!("hashing and making events: {:.0} % of Dynamo's storing", share * 100.0);
    Ok(())
}

fn median(rounds: &[Round], seconds: fn(&Round) -> f64) -> f64 {
    middle(rounds.iter().map(seconds).collect())
}

/// Median seconds of a query that finds every worker.
pub fn each_query(mut query: impl FnMut() -> usize) -> f64 {
    middle(
        (0..QUERIES)
            .map(|_| {
                let began = Instant::now();
                let found = black_box(query());
                let seconds = began.elapsed().as_secs_f64();
                assert_eq!(found, WORKERS as usize);
                seconds
            })
            .collect(),
    )
}

fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
