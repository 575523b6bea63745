//! A signal between two runs of a set: the set ends at once, and what is done is kept.

use std::time::{Duration, Instant};

use super::support::fake::Fake;
use super::support::process::wait_for;
use super::support::run::{Api, LiveRun, one};
use super::support::script::Script;

/// Far longer than the set may take to end.
const CONTROL_S: &str = "120";

#[test]
fn ctrl_c_while_the_next_replica_looks_at_its_target_ends_the_set() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let fake = Fake::always(Script::chat(2)).falling_silent();
        let run = LiveRun::against(&fake, Api::Chat, &one(2));
        let run =
            run.set("live.control_timeout_s", CONTROL_S).set("live.health_poll_ms", "0").args(&["--replicas", "3"]);
        let playing = run.start();
        wait_for("the look of the second replica", || (fake.unanswered() > 0).then_some(()));
        let began = Instant::now();
        playing.signal(name);
        let played = playing.wait().code(code);
        assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
        let set = played.scratch.json("outputs/live/replicas.json");
        assert_eq!((set["asked"].as_u64(), set["finished"].as_u64()), (Some(3), Some(1)), "{set:#}");
        assert_eq!(played.scratch.json("outputs/live/r01/summary.json")["completed"], 1);
        assert!(!played.scratch.join("outputs/live/r02").exists(), "nothing is left of what was not begun");
        assert!(played.ran.stderr.contains("interrupted: 1 of 3 replicas ran to their end"), "{:#?}", played.ran);
    }
}

#[test]
fn ctrl_c_before_the_first_replica_leaves_nothing_in_the_way() {
    let fake = Fake::always(Script::chat(2)).silent();
    let run = LiveRun::against(&fake, Api::Chat, &one(2));
    let run = run.set("live.control_timeout_s", CONTROL_S).set("live.health_poll_ms", "0").args(&["--replicas", "2"]);
    let playing = run.start();
    wait_for("the look of the first replica", || (fake.unanswered() > 0).then_some(()));
    playing.signal("INT");
    let played = playing.wait().code(130);
    assert!(!played.scratch.join("outputs/live").exists(), "{:#?}", played.ran);
    assert!(played.ran.stderr.contains("interrupted: 0 of 2 replicas"), "{:#?}", played.ran);
}
