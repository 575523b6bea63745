//! Processes killed under open sessions: a session-aware run on P, D and router processes, `kill -9` of D in the middle of
//! a turn that runs inside its session, of P in the middle of a seed.
//!
//! What D held is lost with it and is believed lost; what it holds does not need P. Phases are waited for by what the
//! workers report, as in `faults`.

use serde_json::Value;

use super::support::process::{Server, load, made, metric, wait_for};
use super::support::run::{LiveRun, Played, row};

/// A step takes 20 ms, a prompt of 192 tokens a fifth of a second.
const STEPS: &[&str] = &["engine.timing.p0=20", "engine.timing.p1=1", "engine.timing.d0=20", "engine.timing.d1=0"];

const SHORT: u32 = 8;
/// Two seconds.
const LONG: u32 = 100;

/// One P, one D, a router, as processes.
struct Cluster {
    prefill: Server,
    decode: Server,
    router: Server,
}

impl Cluster {
    fn start() -> Cluster {
        let sets: Vec<&str> = STEPS.iter().flat_map(|set| ["--set", *set]).collect();
        let (prefill, decode) = (Server::worker("P0", &sets), Server::worker("D0", &sets));
        let policy = ["--decode-policy", "consistent_hashing", "--health-interval-ms", "100"];
        let router = Server::router(&[&prefill], &[&decode], &policy);
        Cluster { prefill, decode, router }
    }

    /// Sessions live on D from their first turn.
    fn run(&self, trace: &str) -> LiveRun {
        LiveRun::of(trace)
            .args(&["--router", &self.router.url, "--decode", &self.decode.url, "--emulation-speed", "1"])
            .set("live.prefill", &format!("[\"{} {}\"]", self.prefill.url, self.prefill.port()))
            .set("replay.mechanism", "kvc")
            .set("policy.name", "sticky")
            .set("replay.first_turn", "seed")
            .set("replay.stall_timeout_s", "25")
            .set("live.first_token_timeout_s", "25")
            .set("live.health_poll_ms", "100")
            .set("integrity.max_bad_share", "1")
    }

    fn sessions_open(&self) -> Option<f64> {
        metric(&self.decode, "num_streaming_sessions")
    }

    /// No session of the run is left on D.
    #[track_caller]
    fn is_left_alone(&self) {
        wait_for("sessions are closed", || (self.sessions_open()? == 0.0).then_some(()));
    }
}

/// A turn that extends the one before it.
fn turn(session: &str, turn: u32, at_s: f64, output: u32) -> String {
    row(session, turn, at_s, 192 + 192 * turn, output)
}

fn of(played: &Played, session: &str, turn: u32) -> Value {
    let is_it = |record: &Value| record["session_id"] == session && record["turn_id"] == turn;
    played.records().into_iter().find(is_it).unwrap()
}

#[track_caller]
fn went(record: &Value, mode: &str, reasons: &[&str]) {
    assert_eq!((&record["outcome"], &record["execution_mode"]), (&"ok".into(), &mode.into()), "{record:#}");
    let reason = record["mode_reason"].as_str().unwrap();
    assert!(reasons.contains(&reason), "{reason} is none of {reasons:?}: {record:#}");
}

#[test]
fn a_decode_worker_killed_in_a_turn_of_a_session_loses_all_its_sessions_and_they_are_placed_again() {
    let mut cluster = Cluster::start();
    let trace = [
        turn("a", 0, 0.0, SHORT),
        turn("b", 0, 0.2, SHORT),
        turn("a", 1, 1.5, LONG),
        turn("a", 2, 7.0, SHORT),
        turn("b", 1, 7.2, SHORT),
        turn("a", 3, 9.0, SHORT),
        turn("b", 2, 9.2, SHORT),
    ];
    let playing = cluster.run(&trace.concat()).start();
    wait_for("a's second turn is answered", || (made(&cluster.decode)? > f64::from(2 * SHORT + 5)).then_some(()));
    assert_eq!(cluster.sessions_open(), Some(2.0));
    cluster.decode.kill();
    cluster.decode.restart();
    let played = playing.wait().code(0);
    played.sound();
    assert_eq!((played.count("ok"), played.count("error")), (6, 1), "{:#?}", played.records());
    let lost = of(&played, "a", 1);
    assert_eq!((&lost["outcome"], &lost["execution_mode"]), (&"error".into(), &"kvcache-direct-to-d-session".into()));
    let class = lost["error_class"].as_str().unwrap();
    assert!(["worker-lost", "connection-closed"].contains(&class), "{lost:#}");
    assert!(lost["output_tokens"].as_u64().unwrap() < u64::from(LONG), "{lost:#}");
    let gone = ["previous-turn-failed", "worker-restarted", "worker-gone"];
    for (session, turn) in [("a", 2), ("b", 1)] {
        let placed = of(&played, session, turn);
        went(&placed, "kvcache-reseed", &gone);
        assert_eq!(placed["append_tokens"], placed["input_tokens"], "the whole prompt is sent again: {placed:#}");
        went(&of(&played, session, turn + 1), "kvcache-direct-to-d-session", &["admitted"]);
    }
    cluster.is_left_alone();
}

#[test]
fn a_prefill_worker_killed_in_a_seed_fails_it_alone_and_open_sessions_go_on_without_it() {
    let mut cluster = Cluster::start();
    let trace = [
        turn("b", 0, 0.0, SHORT),
        row("a", 0, 1.5, 2048, SHORT),
        turn("b", 1, 3.0, LONG),
        row("a", 1, 9.0, 2240, SHORT),
        turn("b", 2, 9.2, SHORT),
    ];
    let playing = cluster.run(&trace.concat()).start();
    wait_for("a is prefilled", || {
        let is_there = made(&cluster.decode)? >= f64::from(SHORT) && load(&cluster.prefill)?["num_running_reqs"] == 1;
        is_there.then_some(())
    });
    cluster.prefill.kill();
    // b's first turn, a's that failed, and b's second without any P.
    wait_for("b goes on", || (playing.ended() >= 3).then_some(()));
    cluster.prefill.restart();
    let played = playing.wait().code(0);
    played.sound();
    assert_eq!((played.count("ok"), played.records().len()), (4, 5), "{:#?}", played.records());
    let failed = of(&played, "a", 0);
    assert_eq!(failed["execution_mode"], "kvcache-seed", "{failed:#}");
    let class = failed["error_class"].as_str().unwrap();
    assert!(["prefill-failed", "worker-lost", "kv-transfer-failed"].contains(&class), "{failed:#}");
    for turn in [1, 2] {
        went(&of(&played, "b", turn), "kvcache-direct-to-d-session", &["admitted"]);
    }
    assert!(failed["ended_ns"].as_u64() < of(&played, "b", 1)["ended_ns"].as_u64(), "b went on while P was gone");
    let placed = of(&played, "a", 1);
    went(&placed, placed["execution_mode"].as_str().unwrap(), &["never-seeded", "previous-turn-failed"]);
    assert_eq!(placed["append_tokens"], placed["input_tokens"], "{placed:#}");
    cluster.is_left_alone();
}
