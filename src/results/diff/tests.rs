//! Resamples are exact, and intervals cover what they promise.

use proptest::prelude::*;

use super::bootstrap::{Bootstrap, Target, interval};
use super::sample::Sample;
use crate::base::Rng;
use crate::results::Percentile;

/// Sessions of a made-up data set, and turns of each.
const SESSIONS: usize = 40;
const TURNS: usize = 5;

/// A and B, paired by session: turns of a session share what makes it slow, B is slower by `shift_ms`.
fn data_set(rng: &mut Rng, shift_ms: f64) -> [Sample; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    for session in 0..SESSIONS {
        let own = 20.0 * rng.normal();
        for _ in 0..TURNS {
            for (side, shift) in sides.iter_mut().zip([0.0, shift_ms]) {
                let ms = 1000.0 + shift + own + 30.0 * rng.normal();
                side.push(((ms * 1e6) as u64, session as u32));
            }
        }
    }
    sides.map(|pairs| Sample::of_pairs(pairs, SESSIONS))
}

/// How often the 95 % interval of a made-up difference holds it, over so many data sets, for the mean and the median.
fn coverage(data_sets: u64) -> [f64; 2] {
    const SHIFT_MS: f64 = 7.0;
    let mut held = [0u64; 2];
    let mut rng = Rng::new(7, 0);
    for seed in 0..data_sets {
        let [a, b] = data_set(&mut rng, SHIFT_MS);
        let medians = [rank_target(&a, Percentile::P50), rank_target(&b, Percentile::P50)];
        let targets = vec![[Target::mean(&a), Target::mean(&b)], medians];
        let draws = Bootstrap { targets, sessions: SESSIONS, seed }.draw(0..200);
        for (held, draws) in held.iter_mut().zip(&draws) {
            let interval = interval(draws, 0.95, SESSIONS as u64).unwrap();
            *held += u64::from(interval.lo <= SHIFT_MS && SHIFT_MS <= interval.hi);
        }
    }
    held.map(|held| held as f64 / data_sets as f64)
}

fn rank_target(sample: &Sample, percentile: Percentile) -> Target<'_> {
    Target::Rank { rank: sample.rank(percentile, 0), counts: &sample.counts, failures: None }
}

#[test]
fn ninety_five_per_cent_intervals_hold_the_truth_so_often() {
    for share in coverage(1000) {
        assert!((0.93..=0.97).contains(&share), "{share}");
    }
}

#[test]
fn resamples_depend_on_their_number_alone() {
    let [a, b] = data_set(&mut Rng::new(1, 0), 1.0);
    let bootstrap = Bootstrap { targets: vec![[Target::mean(&a), Target::mean(&b)]], sessions: SESSIONS, seed: 3 };
    let whole = bootstrap.draw(0..50);
    let parts = [bootstrap.draw(0..7), bootstrap.draw(7..50)];
    assert_eq!(whole[0], [parts[0][0].clone(), parts[1][0].clone()].concat());
}

#[test]
fn a_side_against_itself_has_an_interval_of_nothing() {
    let [a, _] = data_set(&mut Rng::new(1, 0), 0.0);
    let median = || rank_target(&a, Percentile::P99);
    let bootstrap = Bootstrap { targets: vec![[median(), median()]], sessions: SESSIONS, seed: 3 };
    let found = interval(&bootstrap.draw(0..100)[0], 0.95, SESSIONS as u64).unwrap();
    assert_eq!((found.lo, found.hi), (0.0, 0.0));
}

#[test]
fn too_little_has_no_interval() {
    assert_eq!(interval(&[1.0, 2.0], 0.95, 1), None);
    assert_eq!(interval(&[], 0.95, 5), None);
    assert_eq!(interval(&[1.0, f64::NAN, f64::NAN], 0.95, 5), None);
}

proptest! {
    /// Each value stands as often as its session was drawn.
    #[test]
    fn a_percentile_of_a_resample_is_the_one_of_its_values_written_out(
        pairs in prop::collection::vec((0u64..1_000_000, 0u32..6), 1..60),
        failures in prop::collection::vec(0u32..4, 6),
        weights in prop::collection::vec(0u32..4, 6),
        percent in 0u32..=1000,
    ) {
        let percentile: Percentile = (f64::from(percent) / 10.0).to_string().parse().unwrap();
        let sample = Sample::of_pairs(pairs.clone(), 6);
        let all: u64 = failures.iter().map(|n| u64::from(*n)).sum();
        let mut written: Vec<u64> = pairs
            .iter()
            .flat_map(|(value, session)| vec![*value; weights[*session as usize] as usize])
            .collect();
        written.sort_unstable();
        let endless: u64 = failures.iter().zip(&weights).map(|(n, weight)| u64::from(n * weight)).sum();
        let total = written.len() as u64 + endless;
        let rank = percentile.rank(total) as usize;
        let naive = rank.checked_sub(1).and_then(|at| written.get(at)).map(|ns| *ns as f64 / 1e6);
        prop_assert_eq!(sample.rank(percentile, all).value_ms(&weights, total), naive);
        prop_assert_eq!(sample.rank(percentile, 0).value_ms(&[1; 6], sample.n()), sample.percentile_ms(percentile, 0));
    }
}
