//! What goes wrong over real processes: workers and routers killed, stopped and restarted in each phase of a request, and
//! a network that loses bytes. For each: the outcome is the right one, the run ends by itself, nothing counts as ok that
//! is not, and the survivors keep no descriptor.
//!
//! A phase is waited for by what the workers themselves report, not by the clock, and the struck request stays in it for
//! some seconds: a machine that is ten times too slow changes no verdict.

use std::io::Write;
use std::net::TcpStream;

use serde_json::Value;

use super::support::process::{Server, load, made, wait_for};
use super::support::proxy::{Net, Proxy};
use super::support::run::{Api, LiveRun, Played, Playing, row};

/// A step takes 20 ms, and so does a short prompt.
const STEPS: &[&str] = &["engine.timing.p0=20", "engine.timing.p1=0", "engine.timing.d0=20", "engine.timing.d1=0"];

/// Tokens of the prompt and of the answer of the request that is struck, and of the one after it. The long answer takes two
/// seconds, and one of the long prompt's phases does where [`Phase::setting`] says so.
const LONG: (u32, u32) = (2048, 100);
const SHORT: (u32, u32) = (64, 10);

/// When the second request is sent: long after the struck server is there again.
const LATER_S: f64 = 4.0;

/// One P, one D, a router, as processes.
struct Cluster {
    prefill: Server,
    decode: Server,
    router: Server,
}

/// Whom a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Prefill,
    Decode,
    Router,
}

/// Where the struck request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Prefill,
    Transfer,
    Decode,
}

impl Phase {
    /// Makes this phase of the long request last two seconds and leaves the others short, but for the answer.
    fn setting(self) -> &'static [&'static str] {
        match self {
            Phase::Prefill => &["engine.timing.p1=1"],
            Phase::Transfer => &["cluster.link.gbytes_per_s=0.1"],
            Phase::Decode => &[],
        }
    }
}

/// A request of a trace; its tokens are [`LONG`] or [`SHORT`].
fn request(session: &str, at_s: f64, (input, output): (u32, u32)) -> String {
    row(session, 0, at_s, input, output)
}

impl Cluster {
    /// Where the long request is longest in `phase`.
    fn start(phase: Phase) -> Cluster {
        let sets: Vec<&str> = STEPS.iter().chain(phase.setting()).flat_map(|set| ["--set", *set]).collect();
        let (prefill, decode) = (Server::worker("P0", &sets), Server::worker("D0", &sets));
        let router = Server::router(&[&prefill], &[&decode], &["--health-interval-ms", "100"]);
        Cluster { prefill, decode, router }
    }

    /// A run over its router (or over `router`, such as a proxy before it). Silence is borne for longer than a slow machine
    /// is silent.
    fn run_over(&self, router: &str, trace: &str) -> LiveRun {
        LiveRun::of(trace)
            .set("replay.mechanism", "pd")
            .set("policy.name", "default")
            .set("live.target", "sglang")
            .set("live.router", router)
            .set("live.prefill", &format!("[\"{}\"]", self.prefill.url))
            .set("live.decode", &format!("[\"{}\"]", self.decode.url))
            .set("replay.stall_timeout_s", "25")
            .set("live.first_token_timeout_s", "25")
            .set("live.health_poll_ms", "100")
    }

    /// The long request, then the short one.
    fn run(&self) -> LiveRun {
        self.run_over(&self.router.url, &(request("a", 0.0, LONG) + &request("b", LATER_S, SHORT)))
    }

    fn victim(&mut self, victim: Victim) -> &mut Server {
        match victim {
            Victim::Prefill => &mut self.prefill,
            Victim::Decode => &mut self.decode,
            Victim::Router => &mut self.router,
        }
    }

    /// Waits until the first request is there.
    fn wait_for(&self, phase: Phase) {
        wait_for(&format!("{phase:?}"), || {
            let (prefill, decode) = (load(&self.prefill)?, load(&self.decode)?);
            let transfers = decode["disaggregation"]["decode_transfer_queue_reqs"].as_u64()?;
            let is_there = match phase {
                Phase::Prefill => prefill["num_running_reqs"].as_u64()? > 0,
                Phase::Transfer => transfers > 0,
                Phase::Decode => decode["num_running_reqs"].as_u64()? > 0 && made(&self.decode)? > 2.0,
            };
            is_there.then_some(())
        });
    }
}

/// Kills `victim` in `phase` of the first request, restarts it on the same port, and lets the run end.
fn kill_and_restart(victim: Victim, phase: Phase) -> Played {
    let mut cluster = Cluster::start(phase);
    let playing = cluster.run().start();
    cluster.wait_for(phase);
    cluster.victim(victim).kill();
    cluster.victim(victim).restart();
    let played = playing.wait();
    played.sound();
    let records = played.records();
    assert_eq!(records[1]["outcome"], "ok", "after the restart of {victim:?} in {phase:?}: {records:#?}");
    played
}

#[track_caller]
fn first(played: &Played, outcome: &str, classes: &[&str]) -> Value {
    let record = played.records().remove(0);
    assert_eq!(record["outcome"], outcome, "{record:#}");
    let class = record["error_class"].as_str().unwrap_or_default();
    assert!(classes.contains(&class), "{class} is none of {classes:?}: {record:#}");
    record
}

/// The same in each phase, all at once.
fn in_each_phase(victim: Victim) -> Vec<(Phase, Played)> {
    let phases = [Phase::Prefill, Phase::Transfer, Phase::Decode];
    let runs = phases.map(|phase| (phase, std::thread::spawn(move || kill_and_restart(victim, phase))));
    runs.into_iter().map(|(phase, run)| (phase, run.join().unwrap())).collect()
}

#[test]
fn a_prefill_worker_killed_fails_its_request_alone_and_only_before_d_has_the_kv() {
    for (phase, played) in in_each_phase(Victim::Prefill) {
        if phase == Phase::Decode {
            assert_eq!(played.count("ok"), 2, "{:#?}", played.records());
            continue;
        }
        let record = played.records().remove(0);
        assert!(["error", "aborted"].contains(&record["outcome"].as_str().unwrap()), "{record:#}");
        let class = record["error_class"].as_str().unwrap();
        // By whoever sees the connection break: a time-out would be another class, and told long after.
        assert!(["prefill-failed", "worker-lost", "kv-transfer-failed"].contains(&class), "{phase:?}: {record:#}");
        assert!(record["e2e_ms"].as_f64().unwrap() < 20_000.0, "told late: {record:#}");
    }
}

#[test]
fn a_decode_worker_killed_in_any_phase_loses_its_request_and_no_other() {
    const LOST: &[&str] = &["worker-lost", "connection-closed", "server-error"];
    for (phase, played) in in_each_phase(Victim::Decode) {
        let record = first(&played, "error", LOST);
        let tokens = record["output_tokens"].as_u64().unwrap();
        assert!(tokens < u64::from(LONG.1) && (tokens == 0 || phase == Phase::Decode), "{phase:?}: {record:#}");
    }
}

#[test]
fn a_router_killed_in_any_phase_loses_the_streams_it_carried() {
    for (_, played) in in_each_phase(Victim::Router) {
        first(&played, "error", &["connection-closed", "worker-lost"]);
    }
}

#[test]
fn workers_that_are_down_from_the_start_are_errors_at_once() {
    for victim in [Victim::Prefill, Victim::Decode, Victim::Router] {
        let mut cluster = Cluster::start(Phase::Decode);
        let run = cluster.run_over(&cluster.router.url, &(request("a", 0.0, SHORT) + &request("b", 0.2, SHORT)));
        cluster.victim(victim).kill();
        let played = run.play();
        if played.ran.code == Some(2) {
            assert!(played.ran.stderr.contains("error: "), "{:#?}", played.ran);
            continue;
        }
        played.code(1).sound();
    }
}

/// Gives silent servers up after a second or two: for what must end in a time-out.
fn impatient(run: LiveRun) -> LiveRun {
    run.set("replay.stall_timeout_s", "1").set("live.first_token_timeout_s", "2.5")
}

#[test]
fn a_worker_that_stands_still_is_waited_for_and_then_given_up() {
    let cluster = Cluster::start(Phase::Decode);
    let trace = request("a", 0.0, LONG) + &request("b", 1.0, SHORT);
    let playing = impatient(cluster.run_over(&cluster.router.url, &trace)).start();
    cluster.wait_for(Phase::Decode);
    cluster.decode.signal("STOP");
    // Stalled for longer than the limit: the run must end while it still stands.
    let played = playing.wait();
    cluster.decode.signal("CONT");
    played.sound();
    let record = first(&played, "timeout", &["stalled"]);
    assert!(record["output_tokens"].as_u64().unwrap() > 0, "{record:#}");
    assert_eq!(played.records()[1]["outcome"], "timeout", "{:#?}", played.records());
}

#[test]
fn a_short_standstill_costs_time_and_nothing_else() {
    let cluster = Cluster::start(Phase::Decode);
    let trace = request("a", 0.0, LONG) + &request("b", 1.0, SHORT);
    let playing = cluster.run_over(&cluster.router.url, &trace).start();
    cluster.wait_for(Phase::Decode);
    cluster.decode.signal("STOP");
    std::thread::sleep(std::time::Duration::from_millis(300));
    cluster.decode.signal("CONT");
    let played = playing.wait();
    played.sound();
    assert_eq!(played.count("ok"), 2, "{:#?}", played.records());
}

/// A run through a proxy whose state changes while the first request is decoded, so many seconds before the second.
fn over_a_network(second_at_s: f64, spoil: impl Fn(&Proxy), patience: impl Fn(LiveRun) -> LiveRun) -> Played {
    let cluster = Cluster::start(Phase::Decode);
    let proxy = Proxy::before(&cluster.router.url);
    let trace = request("a", 0.0, LONG) + &request("b", second_at_s, SHORT);
    let playing: Playing = patience(cluster.run_over(&proxy.url(), &trace)).start();
    cluster.wait_for(Phase::Decode);
    spoil(&proxy);
    let played = playing.wait();
    played.sound();
    played
}

#[test]
fn a_network_that_swallows_bytes_is_a_stall_and_the_run_ends() {
    let played = over_a_network(LATER_S, |proxy| proxy.set(Net::Blackhole), impatient);
    first(&played, "timeout", &["stalled"]);
    let second = &played.records()[1];
    assert_eq!(second["outcome"], "timeout", "{second:#}");
}

#[test]
fn a_connection_reset_in_the_middle_keeps_the_tokens_that_came() {
    let played = over_a_network(1.0, |proxy| proxy.set(Net::Reset), |run| run);
    let record = first(&played, "error", &["connection-closed"]);
    assert!(record["output_tokens"].as_u64().unwrap() > 0, "{record:#}");
}

#[test]
fn half_closed_sockets_end_the_stream_and_not_the_run() {
    let played = over_a_network(LATER_S, Proxy::half_close, |run| run);
    first(&played, "error", &["connection-closed"]);
    assert_eq!(played.records()[1]["outcome"], "ok", "{:#?}", played.records());
}

/// Clients that come and go in the middle of an answer.
#[test]
fn clients_that_leave_cost_the_servers_no_descriptor() {
    let cluster = Cluster::start(Phase::Decode);
    let servers = [&cluster.prefill, &cluster.decode, &cluster.router];
    // Whatever is kept open between the servers themselves is opened once.
    let all_at_once = |requests: u32, tokens: (u32, u32)| -> String {
        (0..requests).map(|nth| request(&format!("s{nth}"), 0.0, tokens)).collect()
    };
    cluster.run_over(&cluster.router.url, &all_at_once(1, SHORT)).play().code(0);
    let before = servers.map(Server::descriptors);
    let run = cluster.run_over(&cluster.router.url, &all_at_once(20, (64, LONG.1)));
    let played = run.set("replay.request_timeout_s", "0.75").play();
    played.sound();
    assert_eq!(played.count("timeout"), 20, "{:#?}", played.records());
    wait_for("connections are closed", || {
        let now = servers.map(Server::descriptors);
        now.iter().zip(&before).all(|(now, before)| *now <= before + 2).then_some(())
    });
}

/// One that asks for a long answer and never reads it.
#[test]
fn a_reader_that_does_not_read_delays_only_itself() {
    let worker = Server::worker("W0", &["--set", "cluster.colocated=1", "--emulation-speed", "10"]);
    let body = "{\"input_ids\":[1],\"sampling_params\":{\"max_new_tokens\":3000,\"ignore_eos\":true},\"stream\":true}";
    let slow: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", worker.port())).unwrap();
            let head = format!(
                "POST /generate HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}",
                body.len()
            );
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
            stream
        })
        .collect();
    wait_for("they are served", || (load(&worker)?["num_running_reqs"].as_u64()? == 4).then_some(()));
    let trace: String = (0..10).map(|nth| request(&format!("s{nth}"), 0.0, SHORT)).collect();
    let played = LiveRun::of(&trace).on(&worker.url, Api::Generate).set("live.emulation_speed", "10").play();
    played.sound();
    assert_eq!(played.count("ok"), 10, "{:#?}", played.records());
    let before = worker.descriptors();
    drop(slow);
    wait_for("their connections are closed", || (worker.descriptors() + 4 <= before).then_some(()));
}
