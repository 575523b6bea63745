//! Which requests of two sides are the same request: by (session, turn), and where a trace repeats a turn, by its order in
//! the trace.
//!
//! Invariant: sessions are numbered once for all runs of a comparison, and the rows of a run are walked in the order of
//! their keys.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::report::Paired;
use super::requests::Requests;

/// Session, turn, and its number among equal ones.
pub(super) type Key = (u32, u32, u32);

/// A run of a comparison.
#[derive(Debug)]
pub(super) struct Run {
    pub requests: Requests,
    /// Rows in the order of their keys.
    pub order: Vec<u32>,
    /// By row: the other side has it, too.
    pub paired: Vec<bool>,
}

/// Session ids of all runs, the same number in each.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    pub names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Sessions {
    /// `requests` with sessions by their common numbers.
    pub fn number(&mut self, mut requests: Requests) -> Run {
        let common: Vec<u32> = std::mem::take(&mut requests.names).into_iter().map(|name| self.of(name)).collect();
        requests.session.iter_mut().for_each(|session| *session = common[*session as usize]);
        let mut order: Vec<u32> = (0..requests.len() as u32).collect();
        let place = |row: &u32| {
            let row = *row as usize;
            (requests.session[row], requests.turn[row], requests.line[row])
        };
        order.sort_by_key(place);
        let paired = vec![true; requests.len()];
        Run { requests, order, paired }
    }

    fn of(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

impl Run {
    /// Rows with their keys, in the order of the keys.
    pub fn keyed(&self) -> impl Iterator<Item = (Key, usize)> + '_ {
        let mut last = None;
        self.order.iter().map(move |row| {
            let row = *row as usize;
            let (session, turn) = (self.requests.session[row], self.requests.turn[row]);
            let nth = match last {
                Some((at, nth)) if at == (session, turn) => nth + 1,
                Some(_) | None => 0,
            };
            last = Some(((session, turn), nth));
            ((session, turn, nth), row)
        })
    }

    fn keys(&self) -> Vec<Key> {
        self.keyed().map(|(key, _)| key).collect()
    }

    /// Marks the rows whose key is in `others`, which are in order.
    fn mark(&mut self, others: &[Key]) {
        let mut ahead = others.iter().peekable();
        let mut marks = vec![false; self.paired.len()];
        for (key, row) in self.keyed() {
            while ahead.next_if(|other| **other < key).is_some() {}
            marks[row] = ahead.peek().is_some_and(|other| **other == key);
        }
        self.paired = marks;
    }
}

/// Rows of `a` and `b` with the same key.
pub(super) fn pairs<'r>(a: &'r Run, b: &'r Run) -> impl Iterator<Item = (usize, usize)> + 'r {
    let mut ahead = b.keyed().peekable();
    a.keyed().filter_map(move |(key, row)| {
        while ahead.next_if(|(other, _)| *other < key).is_some() {}
        ahead.next_if(|(other, _)| *other == key).map(|(_, other)| (row, other))
    })
}

/// Requests of a side that not every run of it has.
pub(super) fn uneven(runs: &[Run]) -> u64 {
    let Some(first) = runs.first() else { return 0 };
    let first = first.keys();
    let differing = |run: &Run| {
        let (_, only_first, only_other) = overlap(&first, &run.keys());
        only_first + only_other
    };
    runs[1..].iter().map(differing).max().unwrap_or(0)
}

/// Marks the requests that both sides have, and counts them.
pub(super) fn pair(a: &mut [Run], b: &mut [Run]) -> Paired {
    let (keys_a, keys_b) = (union(a), union(b));
    let (both, only_a, only_b) = overlap(&keys_a, &keys_b);
    if only_a + only_b > 0 {
        a.iter_mut().for_each(|run| run.mark(&keys_b));
        b.iter_mut().for_each(|run| run.mark(&keys_a));
    }
    let sessions = |keys: &[Key]| {
        let mut sessions: Vec<Key> = keys.iter().map(|(session, _, _)| (*session, 0, 0)).collect();
        sessions.dedup();
        sessions
    };
    let (sessions, _, _) = overlap(&sessions(&keys_a), &sessions(&keys_b));
    let both_ok = match (a.first(), b.first()) {
        (Some(a), Some(b)) => {
            let is_ok = |(x, y): &(usize, usize)| a.requests.outcome[*x].is_ok() && b.requests.outcome[*y].is_ok();
            pairs(a, b).filter(is_ok).count() as u64
        }
        (_, _) => 0,
    };
    Paired { both, both_ok, only_a, only_b, sessions }
}

fn union(runs: &[Run]) -> Vec<Key> {
    let mut keys: Vec<Key> = runs.iter().flat_map(|run| run.keyed().map(|(key, _)| key)).collect();
    if runs.len() > 1 {
        keys.sort_unstable();
        keys.dedup();
    }
    keys
}

/// How many keys both lists have, and how many each alone; both in order and without repeats.
fn overlap(a: &[Key], b: &[Key]) -> (u64, u64, u64) {
    let (mut at_a, mut at_b, mut both) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(at_a), b.get(at_b)) {
        let order = x.cmp(y);
        both += u64::from(order == Ordering::Equal);
        at_a += usize::from(order != Ordering::Greater);
        at_b += usize::from(order != Ordering::Less);
    }
    (both, a.len() as u64 - both, b.len() as u64 - both)
}
