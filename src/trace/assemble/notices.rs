//! Remarks on a trace that is odd but not wrong: order, gaps, duplicates, ids that are not prefix-chained.

use std::collections::HashMap;

use crate::kv::NodeId;
use crate::trace::{Notice, Trace};

use super::{Pending, Pile, counted};

/// Examples named in one notice; the rest is counted.
const EXAMPLES: usize = 5;

/// Remarks on the rows in file order.
pub(super) fn of_rows(rows: &[Pending], sessions: &[Pile]) -> Vec<Notice> {
    let notices = [sorted(rows), raised(rows), repeated_turns(rows, sessions), repeated_requests(rows)];
    notices.into_iter().flatten().collect()
}

/// Remarks on the finished trace.
pub(super) fn of_trace(trace: &Trace) -> Vec<Notice> {
    [incomplete(trace), backward(trace), compactions(trace), unchained(trace)].into_iter().flatten().collect()
}

fn sorted(rows: &[Pending]) -> Option<Notice> {
    let mut latest = None;
    let mut early = 0u64;
    for row in rows {
        early += u64::from(latest.is_some_and(|latest| row.turn.timestamp < latest));
        latest = latest.max(Some(row.turn.timestamp));
    }
    notice(early, "rows-sorted", || {
        let was = if early == 1 { "was not in time order and was" } else { "were not in time order and were" };
        format!("{early} of {} rows {was} sorted; equal times keep file order", rows.len())
    })
}

fn raised(rows: &[Pending]) -> Option<Notice> {
    let raised = rows.iter().filter(|row| row.turn.output_raised);
    let count = raised.clone().count() as u64;
    notice(count, "zero-outputs-raised", || {
        let lines = examples(raised.map(|row| format!("line {}", row.turn.line)));
        let ask = counted(count, "row asks", "rows ask");
        format!("{ask} for 0 answer tokens, sent as 1: {lines}")
    })
}

fn repeated_turns(rows: &[Pending], sessions: &[Pile]) -> Option<Notice> {
    let mut found = Vec::new();
    for pile in sessions {
        let mut turns: Vec<(u32, u32)> = pile.rows.iter().map(|&at| (rows[at as usize].turn.turn_id, at)).collect();
        turns.sort_unstable();
        for pair in turns.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let [a, b] = [pair[0].1, pair[1].1].map(|at| rows[at as usize].turn.line);
            found.push(format!("session {} turn {} in lines {a} and {b}", pile.id, pair[0].0));
        }
    }
    let count = found.len() as u64;
    notice(count, "turns-repeated", || {
        let list = examples(found.into_iter());
        let repeat = counted(count, "row repeats", "rows repeat");
        format!("{repeat} a turn of the session, all are kept: {list}")
    })
}

fn repeated_requests(rows: &[Pending]) -> Option<Notice> {
    let mut first: HashMap<&str, u32> = HashMap::new();
    let mut found = Vec::new();
    for row in rows {
        let Some(id) = row.turn.request_id.as_deref() else { continue };
        match first.get(id) {
            Some(line) => found.push(format!("{id} in lines {line} and {}", row.turn.line)),
            None => _ = first.insert(id, row.turn.line),
        }
    }
    let count = found.len() as u64;
    notice(count, "request-ids-repeated", || {
        let list = examples(found.into_iter());
        let repeat = counted(count, "row repeats", "rows repeat");
        format!("{repeat} a `request_id`, all are kept and told apart by line, session and turn: {list}")
    })
}

fn incomplete(trace: &Trace) -> Option<Notice> {
    let cut = trace.sessions.iter().filter(|session| session.incomplete);
    let count = cut.clone().count() as u64;
    notice(count, "sessions-incomplete", || {
        let list = examples(cut.map(|session| session.id.clone()));
        let lack = counted(count, "session lacks", "sessions lack");
        format!("{lack} turns (numbers start above 1 or have a hole); the first row opens it: {list}")
    })
}

fn backward(trace: &Trace) -> Option<Notice> {
    let pairs = trace.turns.windows(2).filter(|pair| pair[0].session == pair[1].session);
    let count = pairs.filter(|pair| pair[1].timestamp < pair[0].timestamp).count() as u64;
    notice(count, "turns-before-predecessor", || {
        let have = counted(count, "turn has", "turns have");
        format!("{have} an earlier timestamp than the turn before; turn order wins")
    })
}

fn compactions(trace: &Trace) -> Option<Notice> {
    let pairs = trace.turns.windows(2).filter(|pair| pair[0].session == pair[1].session);
    let count = pairs.filter(|pair| !pair[1].extends_previous).count() as u64;
    notice(count, "context-compactions", || {
        let turns = counted(count, "turn does", "turns do");
        format!("{turns} not continue the previous prompt and answer (context compaction or edits)")
    })
}

/// The tree keeps a block once per place, so an id it holds twice followed two different prefixes.
fn unchained(trace: &Trace) -> Option<Notice> {
    let mut ids = Vec::with_capacity(trace.tree.block_count() as usize);
    for node in 0..trace.tree.node_count() {
        ids.extend_from_slice(trace.tree.node_ids(NodeId(node as u32)));
    }
    ids.sort_unstable();
    let mut repeats = ids.chunk_by(|a, b| a == b).filter(|same| same.len() > 1).map(|same| same[0]);
    let example = repeats.next()?;
    let count = 1 + repeats.count() as u64;
    notice(count, "ids-not-chained", || {
        let ids = counted(count, "hash id follows", "hash ids follow");
        format!(
            "{ids} two different prefixes, such as {example}: ids name contents here, not prefixes; each place counts \
             as a block of its own"
        )
    })
}

fn notice(count: u64, code: &'static str, text: impl FnOnce() -> String) -> Option<Notice> {
    (count > 0).then(|| Notice { code, text: text() })
}

fn examples(items: impl Iterator<Item = String>) -> String {
    let mut items = items;
    let mut shown: Vec<String> = items.by_ref().take(EXAMPLES).collect();
    let more = items.count();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}
