//! A long run with many live sessions and faults drawn at random: every planned request has one outcome, memory does not
//! grow, the run ends by itself.
//!
//! Short by default; scripts/soak.sh sets the length (`PDREPLAY_SOAK_*`) to half an hour of emulated time.

use std::fmt::Write as _;
use std::time::Duration;

use super::support::run::{LiveRun, row};

/// A number from the environment, or the short form's.
fn knob(name: &str, short: u32) -> u32 {
    let Ok(text) = std::env::var(format!("PDREPLAY_SOAK_{name}")) else { return short };
    text.parse().unwrap_or_else(|_| panic!("PDREPLAY_SOAK_{name}={text} is no number"))
}

/// The same numbers each time for the same seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }
}

/// Faults over the whole time, one every ten seconds: workers killed and restarted, streams that hang, refusals, transfers
/// that fail.
fn faults(draws: &mut Draws, seconds: u32) -> String {
    let mut text = String::new();
    for at in (5..seconds.saturating_sub(10)).step_by(10) {
        let (d, p) = (draws.below(6), draws.below(2));
        let fault = match draws.below(5) {
            0 => format!(
                "kind = \"kill\"\nworker = \"D{d}\"\nat_s = {at}\n\n[[fault]]\nkind = \"restart\"\nworker = \"D{d}\"\nat_s = {}",
                at + 3
            ),
            1 => format!("kind = \"restart\"\nworker = \"P{p}\"\nat_s = {at}"),
            2 => format!("kind = \"hang\"\nworker = \"D{d}\"\nat_s = {at}\nafter_tokens = 3\ntimes = 1"),
            3 => format!("kind = \"error-response\"\nworker = \"D{d}\"\nat_s = {at}\nstatus = 503\ntimes = 2"),
            _ => format!(
                "kind = \"transfer-failure\"\nworker = \"P{p}\"\nto = \"D{d}\"\nat_s = {at}\nafter_s = 0.5\ntimes = 2"
            ),
        };
        writeln!(text, "[[fault]]\n{fault}\n").unwrap();
    }
    text
}

/// Sessions that all live from the first seconds to the end, a turn each `gap` seconds.
fn trace(draws: &mut Draws, sessions: u32, seconds: u32, gap: u32) -> String {
    let mut text = String::new();
    for session in 0..sessions {
        let begin = f64::from(draws.below(gap * 1000)) / 1000.0;
        for turn in 0..(seconds / gap).max(1) {
            let at = begin + f64::from(turn * gap);
            text += &row(&format!("s{session:04}"), turn, at, 128 + 64 * turn, 4 + draws.below(16));
        }
    }
    text
}

fn mean(values: &[u64]) -> u64 {
    values.iter().sum::<u64>() / values.len().max(1) as u64
}

#[test]
fn many_sessions_and_random_faults_leave_nothing_uncounted_and_no_memory_behind() {
    let (sessions, seconds) = (knob("SESSIONS", 100), knob("SECONDS", 150));
    let (speed, gap, seed) = (knob("SPEED", 12), knob("GAP", 25), knob("SEED", 7));
    let mut draws = Draws(u64::from(seed));
    let rows = trace(&mut draws, sessions, seconds, gap);
    let planned = rows.lines().count();
    let run = LiveRun::of(&rows);
    run.scratch.write("soak.toml", &faults(&mut draws, seconds));
    let run = run.args(&["-s", "soak.toml", "--policy", "sticky", "--mechanism", "kvc", "--emulation-speed"]);
    // Three seconds of the wall's without a token are a stream that hangs, and no machine that is busy.
    let run =
        run.args(&[&speed.to_string()]).set("replay.stall_timeout_s", "36").set("replay.request_timeout_s", "120");
    let playing = run.set("admission.slot_release", "idle-lru").start();
    let mut memory = Vec::new();
    while let Some(kib) = playing.rss_kib() {
        memory.push(kib);
        std::thread::sleep(Duration::from_millis(100));
    }
    let played = playing.wait();
    let records = played.records();
    assert_eq!(records.len(), planned, "{:#?}", played.ran);
    let outcomes = ["ok", "truncated", "aborted", "error", "timeout", "cancelled", "skipped"];
    let counted: Vec<usize> = outcomes.iter().map(|outcome| played.count(outcome)).collect();
    assert_eq!(counted.iter().sum::<usize>(), planned);
    assert_eq!(played.summary()["integrity"]["planned"].as_u64(), Some(planned as u64));
    assert!(counted[0] * 10 >= planned * 7, "{outcomes:?} {counted:?}");
    assert!(counted[0] < planned, "no fault struck");
    let third = memory.len() / 3;
    let thirds = [0, third, 2 * third].map(|from| mean(&memory[from..from + third]));
    println!("{planned} requests: {outcomes:?} {counted:?}; memory by thirds of the time {thirds:?} KiB");
    // The first sixth is the start: caches fill, connections open.
    let (early, late) = (mean(&memory[third / 2..third + third / 2]), mean(&memory[memory.len() - third..]));
    assert!(late < early + early / 4 + 8192, "memory grew from {early} to {late} KiB");
}
