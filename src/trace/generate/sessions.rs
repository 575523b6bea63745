//! Which sessions there are: their ids, turn counts and size classes.
//!
//! Ids are multiples of 160, `160 * instance`, as in the recorded run. A trace of at least 20 sessions with more
//! than 60 turns each contains the eight sessions that run names, with their published turn counts.

use std::ops::{Range, RangeInclusive};

use super::Draw;
use super::spec::GenerateSpec;
use crate::base::Rng;

/// Most turns of a session.
pub(super) const MOST_TURNS: u32 = 150;

/// Fewest turns of a session when sessions are long on average, as in the preset.
const FEWEST_LONG_TURNS: u32 = 28;

/// Distance of session ids: above the most turns, so that `id + turn` never meets the next session.
const ID_STEP: u32 = 160;

/// Instances of SWE-bench Verified; a larger trace goes on counting.
const INSTANCES: u32 = 500;

/// A session before its turns are drawn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Session {
    /// Its id.
    pub id: u32,
    /// Its turns in the columns of the plan.
    pub turns: Range<usize>,
    /// Long context.
    pub heavy: bool,
}

struct Named {
    id: u32,
    turns: u32,
    heavy: bool,
}

const fn named(id: u32, turns: u32, heavy: bool) -> Named {
    Named { id, turns, heavy }
}

const NAMED: [Named; 8] = [
    named(22_080, 129, false),
    named(3_840, 118, false),
    named(70_560, 150, true),
    named(39_360, 148, true),
    named(61_600, 117, true),
    named(50_400, 105, true),
    named(11_360, 58, false),
    named(18_720, 87, false),
];

/// Draws the sessions, in id order.
pub(super) fn draw_sessions(spec: &GenerateSpec) -> Vec<Session> {
    let names: &[Named] = if has_named_sessions(spec) { &NAMED } else { &[] };
    let rest = Rest::of(spec, names);
    let turns = draw_turn_counts(&rest, turn_limits(spec), &mut Draw::Turns.rng(spec.seed));
    let ids = draw_ids(spec.sessions, names, &mut Draw::Ids.rng(spec.seed));
    let heavy = draw_heavy(&turns, rest.heavy, &mut Draw::Classes.rng(spec.seed));

    let drawn = ids.into_iter().zip(turns).zip(heavy).map(|((id, turns), heavy)| Named { id, turns, heavy });
    let mut all: Vec<Named> = names.iter().map(|n| named(n.id, n.turns, n.heavy)).chain(drawn).collect();
    all.sort_by_key(|session| session.id);
    let mut next = 0;
    all.iter()
        .map(|session| {
            let first = next;
            next += session.turns as usize;
            Session { id: session.id, turns: first..next, heavy: session.heavy }
        })
        .collect()
}

/// Whether the eight published sessions are part of the trace.
pub(super) fn has_named_sessions(spec: &GenerateSpec) -> bool {
    if spec.sessions < 20 || spec.mean_turns() <= 60.0 {
        return false;
    }
    let named_turns: u32 = NAMED.iter().map(|n| n.turns).sum();
    let named_heavy = NAMED.iter().filter(|n| n.heavy).count() as u32;
    let others = spec.sessions - NAMED.len() as u32;
    let heavy = spec.heavy_count();
    // They must leave the other sessions something possible.
    let turns_left = spec.request_count().saturating_sub(named_turns);
    (others * FEWEST_LONG_TURNS..=others * MOST_TURNS).contains(&turns_left)
        && (named_heavy..=named_heavy + others).contains(&heavy)
}

/// What the sessions without a published name share.
struct Rest {
    sessions: u32,
    requests: u32,
    heavy: u32,
}

impl Rest {
    fn of(spec: &GenerateSpec, names: &[Named]) -> Rest {
        Rest {
            sessions: spec.sessions - names.len() as u32,
            requests: spec.request_count() - names.iter().map(|n| n.turns).sum::<u32>(),
            heavy: spec.heavy_count() - names.iter().filter(|n| n.heavy).count() as u32,
        }
    }
}

fn turn_limits(spec: &GenerateSpec) -> RangeInclusive<u32> {
    let mean = spec.mean_turns();
    if mean > 45.0 {
        FEWEST_LONG_TURNS..=MOST_TURNS
    } else {
        ((mean / 3.0) as u32).max(1)..=((2.0 * mean) as u32).max(4)
    }
}

/// Log-normal turn counts within `limits` that sum to the requests exactly.
fn draw_turn_counts(rest: &Rest, limits: RangeInclusive<u32>, rng: &mut Rng) -> Vec<u32> {
    let weights: Vec<f64> = (0..rest.sessions).map(|_| (0.38 * rng.normal()).exp()).collect();
    let unit = f64::from(rest.requests) / weights.iter().sum::<f64>();
    let (fewest, most) = limits.into_inner();
    let mut turns: Vec<u32> = weights.iter().map(|w| ((w * unit).round() as u32).clamp(fewest, most)).collect();

    let mut order: Vec<usize> = (0..turns.len()).collect();
    rng.shuffle(&mut order);
    let mut sum: u32 = turns.iter().sum();
    while sum != rest.requests {
        for &i in &order {
            if sum < rest.requests && turns[i] < most {
                turns[i] += 1;
                sum += 1;
            } else if sum > rest.requests && turns[i] > fewest {
                turns[i] -= 1;
                sum -= 1;
            }
        }
    }
    turns
}

fn draw_ids(sessions: u32, names: &[Named], rng: &mut Rng) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..INSTANCES.max(sessions))
        .map(|instance| instance * ID_STEP)
        .filter(|id| names.iter().all(|n| n.id != *id))
        .collect();
    rng.shuffle(&mut ids);
    ids.truncate(sessions as usize - names.len());
    ids
}

/// Marks `count` sessions heavy, those with more turns more likely.
fn draw_heavy(turns: &[u32], count: u32, rng: &mut Rng) -> Vec<bool> {
    let mut order: Vec<(f64, usize)> =
        turns.iter().enumerate().map(|(i, &t)| (f64::from(t) * (0.45 * rng.normal()).exp(), i)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut heavy = vec![false; turns.len()];
    for &(_, i) in &order[..count as usize] {
        heavy[i] = true;
    }
    heavy
}
