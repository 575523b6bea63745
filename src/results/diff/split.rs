//! Kitagawa's split of a difference of means: how much other shares of the modes make, how much the modes themselves.
//!
//! With shares p and means m of each mode, Δ = Σ (p_B − p_A)·(m_A + m_B)/2 + Σ (m_B − m_A)·(p_A + p_B)/2 (Kitagawa 1955,
//! "Components of a difference between two rates"). A mode of one side alone has no mean on the other: it is taken to be the
//! same there, so all of it is mix. The mix of a mode is told against the mean of all, which changes no sum (Σ Δp = 0) and
//! gives it its sign: a slow mode that grows adds. Invariant: mix + within = Δ, up to rounding.

use std::collections::BTreeMap;

use super::pairing::Run;
use super::report::{ModeShift, Split};
use super::requests::{LATENCIES, NONE};
use crate::base::words::without_zero_sign;
use crate::record::ExecutionMode;
use crate::results::Metric;

/// Requests and sum of their latency, ns.
type Modes = BTreeMap<ExecutionMode, (u64, u128)>;

/// The split of the difference of the mean `metric`; `None` where a side has no value.
pub(super) fn split(metric: Metric, a: &[Run], b: &[Run]) -> Option<Split> {
    let latency = LATENCIES.iter().position(|known| *known == metric)?;
    of_modes(metric, &modes(a, latency), &modes(b, latency))
}

fn modes(runs: &[Run], latency: usize) -> Modes {
    let mut modes = Modes::new();
    for run in runs {
        let values = run.requests.latencies[latency].iter().enumerate();
        for (row, ns) in values.filter(|(row, ns)| run.paired[*row] && **ns != NONE) {
            let (n, sum) = modes.entry(run.requests.mode[row]).or_default();
            *n += 1;
            *sum += u128::from(*ns);
        }
    }
    modes
}

fn of_modes(metric: Metric, a: &Modes, b: &Modes) -> Option<Split> {
    let total = |modes: &Modes| modes.values().fold((0, 0), |(n, sum), (m, more)| (n + m, sum + more));
    let (total_a, total_b) = (total(a), total(b));
    let (mean_a, mean_b) = (mean(total_a)?, mean(total_b)?);
    let middle = (mean_a + mean_b) / 2.0;
    let shift = |mode: &ExecutionMode| {
        let [of_a, of_b] = [a, b].map(|modes| modes.get(mode).copied().unwrap_or_default());
        let (share_a, share_b) = (of_a.0 as f64 / total_a.0 as f64, of_b.0 as f64 / total_b.0 as f64);
        let (own_a, own_b) = (mean(of_a), mean(of_b));
        let (used_a, used_b) = (own_a.or(own_b).unwrap_or(middle), own_b.or(own_a).unwrap_or(middle));
        ModeShift {
            mode: *mode,
            n_a: of_a.0,
            n_b: of_b.0,
            share_a,
            share_b,
            mean_a_ms: own_a,
            mean_b_ms: own_b,
            mix_ms: without_zero_sign((share_b - share_a) * ((used_a + used_b) / 2.0 - middle)),
            within_ms: without_zero_sign((used_b - used_a) * (share_a + share_b) / 2.0),
        }
    };
    let known = ExecutionMode::ALL.iter().filter(|mode| a.contains_key(mode) || b.contains_key(mode));
    let mut by_mode: Vec<ModeShift> = known.map(shift).collect();
    let size = |shift: &ModeShift| shift.mix_ms.abs() + shift.within_ms.abs();
    by_mode.sort_by(|x, y| size(y).total_cmp(&size(x)));
    let sum = |of: fn(&ModeShift) -> f64| without_zero_sign(by_mode.iter().map(of).sum());
    Some(Split {
        metric: metric.as_str().into(),
        mean_a_ms: mean_a,
        mean_b_ms: mean_b,
        delta_ms: mean_b - mean_a,
        mix_ms: sum(|shift| shift.mix_ms),
        within_ms: sum(|shift| shift.within_ms),
        by_mode,
    })
}

fn mean((n, sum): (u64, u128)) -> Option<f64> {
    (n > 0).then(|| sum as f64 / n as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn modes(of: &[(ExecutionMode, u64, u64)]) -> Modes {
        of.iter().map(|(mode, n, each_ms)| (*mode, (*n, u128::from(n * each_ms) * 1_000_000))).collect()
    }

    const FAST: ExecutionMode = ExecutionMode::KvcacheDirectToDSession;
    const SLOW: ExecutionMode = ExecutionMode::FallbackSessionCap;

    #[test]
    fn other_shares_alone_are_mix_and_other_latencies_alone_are_within() {
        let base = modes(&[(FAST, 50, 1_000), (SLOW, 50, 5_000)]);
        let mixed = of_modes(Metric::E2e, &base, &modes(&[(FAST, 75, 1_000), (SLOW, 25, 5_000)])).unwrap();
        assert_eq!((mixed.delta_ms, mixed.mix_ms, mixed.within_ms), (-1_000.0, -1_000.0, 0.0));
        let slower = of_modes(Metric::E2e, &base, &modes(&[(FAST, 50, 1_000), (SLOW, 50, 7_000)])).unwrap();
        assert_eq!((slower.delta_ms, slower.mix_ms, slower.within_ms), (1_000.0, 0.0, 1_000.0));
        assert_eq!(slower.by_mode[0].mode, SLOW);
    }

    #[test]
    fn a_mode_of_one_side_alone_is_all_mix() {
        let split = of_modes(Metric::E2e, &modes(&[(SLOW, 10, 4_000)]), &modes(&[(FAST, 10, 1_000)])).unwrap();
        assert_eq!((split.delta_ms, split.mix_ms, split.within_ms), (-3_000.0, -3_000.0, 0.0));
        let slow = split.by_mode.iter().find(|shift| shift.mode == SLOW).unwrap();
        assert_eq!((slow.mean_b_ms, slow.n_b), (None, 0));
    }

    #[test]
    fn nothing_has_no_split() {
        assert_eq!(of_modes(Metric::E2e, &Modes::new(), &modes(&[(FAST, 1, 1)])), None);
    }

    proptest! {
        #[test]
        fn the_parts_add_up(
            a in prop::collection::vec((0usize..12, 1u64..1000, 0u64..1_000_000), 1..8),
            b in prop::collection::vec((0usize..12, 1u64..1000, 0u64..1_000_000), 1..8),
        ) {
            let of = |list: &[(usize, u64, u64)]| {
                modes(&list.iter().map(|(mode, n, ms)| (ExecutionMode::ALL[*mode], *n, *ms)).collect::<Vec<_>>())
            };
            let split = of_modes(Metric::E2e, &of(&a), &of(&b)).unwrap();
            let scale = split.mean_a_ms + split.mean_b_ms + 1.0;
            prop_assert!((split.mix_ms + split.within_ms - split.delta_ms).abs() <= 1e-12 * scale);
        }
    }
}
