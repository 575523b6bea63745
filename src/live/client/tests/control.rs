//! Control calls: sessions, admission, loads.

use std::time::Duration;

use super::fake::{End, Fake, Script};
use super::support::{Rig, block_on, cluster, generate_of, routed, target, two_turns, worker};
use crate::base::SessionIx;
use crate::live::Target;
use crate::protocol::{
    Action, AdmitAsk, AdmitKind, AdmitReason, CallId, Event, Generate, Route, RoutingHeader, WorkerState,
};

#[test]
fn control_calls_are_answered_and_keep_their_order() {
    block_on(async {
        let trace = two_turns();
        let admission = r#"{"can_admit":true,"reason":"fits-after-trim","available_tokens":9,"capacity_tokens":10,"evicted":["s\"1","other"]}"#;
        let d = Fake::start(move |request| {
            match request.line.as_str() {
                "POST /open_session" => Script::json(200, r#""s\"1""#),
                "POST /close_session" => Script::json(200, "").header("slow", "").then(60, ""),
                _ => Script::json(200, admission),
            }
            .header("x-pdreplay-incarnation", "p17")
        })
        .await;
        let mut rig = Rig::new(&trace, cluster(None, &[], &[&d]));
        let (session, at) = (SessionIx(0), worker("D0"));
        rig.client.perform(Action::CloseSession { worker: at, session });
        rig.client.perform(Action::OpenSession { call: CallId(1), worker: at, session });
        assert_eq!(rig.event().await, Event::Opened { call: CallId(1), worker: at, result: Ok(0) });
        let lines: Vec<_> = d.requests().into_iter().map(|request| request.line).collect();
        assert_eq!(lines, ["POST /close_session", "POST /open_session"]);
        let opened = d.requests()[1].json();
        assert_eq!((opened["session_id"].as_str(), opened["streaming"].as_bool()), (Some("s\"1"), Some(true)));
        let ask = AdmitAsk { session, kind: AdmitKind::Seed, append_tokens: 5, output_tokens: 6 };
        rig.client.perform(Action::Admit { call: CallId(2), worker: at, ask });
        let Event::Admission { call: CallId(2), result: Ok(answer), .. } = rig.event().await else { panic!() };
        assert_eq!((answer.reason, answer.evicted, answer.incarnation), (AdmitReason::FitsAfterTrim, vec![session], 0));
        assert_eq!(d.requests()[2].json()["kind"], "seed");
        rig.client.perform(Action::CloseSession { worker: at, session });
        rig.client.close(Duration::from_secs(5)).await;
        assert_eq!(d.requests().len(), 4);
    });
}

#[test]
fn a_run_marks_its_sessions_wherever_they_are_named() {
    block_on(async {
        let trace = two_turns();
        let admission = r#"{"can_admit":true,"reason":"fits","evicted":["s\"1","s\"1~c0ffee"]}"#;
        let d = Fake::start(move |request| match request.line.as_str() {
            "POST /open_session" => Script::json(200, r#""s\"1~c0ffee""#),
            "POST /close_session" => Script::json(200, ""),
            "POST /generate" => Script::tokens(10),
            _ => Script::json(200, admission),
        })
        .await;
        let marked = |target: Target| Target { session_mark: "~c0ffee".into(), ..target };
        let mut rig = Rig::new(&trace, marked(cluster(None, &[], &[&d])));
        let (session, at) = (SessionIx(0), worker("D0"));
        rig.client.perform(Action::OpenSession { call: CallId(1), worker: at, session });
        assert_eq!(rig.event().await, Event::Opened { call: CallId(1), worker: at, result: Ok(0) });
        let ask = AdmitAsk { session, kind: AdmitKind::Append, append_tokens: 5, output_tokens: 6 };
        rig.client.perform(Action::Admit { call: CallId(2), worker: at, ask });
        let Event::Admission { result: Ok(answer), .. } = rig.event().await else { panic!() };
        assert_eq!(answer.evicted, [session], "another run's session of that name is none of ours");
        rig.finish(Generate { route: Route::Worker(at), session_params: true, ..generate_of(&trace, 0) }).await;
        rig.client.perform(Action::CloseSession { worker: at, session });
        rig.client.close(Duration::from_secs(5)).await;
        let bodies: Vec<_> = d.requests().iter().map(|request| request.json()).collect();
        let named = ["/session_id", "/session_id", "/session_params/id", "/session_id"];
        for (body, pointer) in bodies.iter().zip(named) {
            assert_eq!(body.pointer(pointer).and_then(|id| id.as_str()), Some("s\"1~c0ffee"), "{body}");
        }
        assert_eq!((bodies.len(), bodies[2]["rid"].as_str()), (4, Some("s\"1/0")), "a rid is the trace's");
        let router = Fake::start(|_| Script::tokens(10)).await;
        let mut rig = Rig::new(&trace, marked(cluster(Some(&router), &[], &[])));
        rig.finish(routed(&trace, 0, RoutingHeader::RoutingKey(session))).await;
        assert_eq!(router.requests()[0].header("x-smg-routing-key"), Some("s\"1~c0ffee"));
    });
}

#[test]
fn control_calls_that_fail_say_why_within_their_limit() {
    block_on(async {
        let trace = two_turns();
        let d = Fake::start(|request| match request.line.as_str() {
            "POST /open_session" => {
                Script::json(400, r#"{"error":{"message":"Failed to open the session. Check if it is still open."}}"#)
            }
            "POST /close_session" => Script::nothing().end(End::Mute),
            _ => Script::nothing().end(End::Mute),
        })
        .await;
        let mut target = cluster(None, &[], &[&d]);
        target.limits.control = Duration::from_millis(80);
        let mut rig = Rig::new(&trace, target);
        let (session, at) = (SessionIx(0), worker("D0"));
        rig.client.perform(Action::OpenSession { call: CallId(1), worker: at, session });
        let Event::Opened { result: Err(error), .. } = rig.event().await else { panic!() };
        assert_eq!(error.status, Some(400));
        assert!(error.message.starts_with("D0: Failed to open"), "{}", error.message);
        let ask = AdmitAsk { session, kind: AdmitKind::Append, append_tokens: 5, output_tokens: 6 };
        rig.client.perform(Action::Admit { call: CallId(2), worker: at, ask });
        let Event::Admission { result: Err(error), .. } = rig.event().await else { panic!() };
        assert_eq!((error.status, error.message.as_str()), (None, "D0: no answer within 80ms"));
        rig.client.perform(Action::PollLoads);
        assert_eq!(rig.event().await, Event::Loads(Vec::new()));
    });
}

#[test]
fn loads_come_from_every_worker_that_tells_old_or_new() {
    block_on(async {
        let trace = two_turns();
        let new = Fake::start(|_| {
            Script::json(200, r#"{"loads":[{"num_running_reqs":2,"token_usage":0.5,"max_total_num_tokens":100,"num_waiting_reqs":1}]}"#)
        })
        .await;
        let old = Fake::start(|request| match request.line.as_str() {
            "GET /get_load" => Script::json(200, r#"[{"dp_rank":0,"num_reqs":3,"num_waiting_reqs":1,"num_tokens":7}]"#),
            _ => Script::json(404, ""),
        })
        .await;
        let dead = Fake::start(|_| Script::nothing()).await;
        let mut rig = Rig::new(&trace, cluster(None, &[&new], &[&old, &dead]));
        rig.client.perform(Action::PollLoads);
        let Event::Loads(loads) = rig.event().await else { panic!() };
        let seen: Vec<_> = loads.iter().map(|load| (load.worker, load.num_running, load.capacity_tokens)).collect();
        assert_eq!(seen, [(worker("P0"), 2, 100), (worker("D0"), 2, 0)]);
    });
}

#[test]
fn a_worker_that_names_no_process_is_another_one_after_nobody_listened() {
    block_on(async {
        let trace = two_turns();
        let first = Fake::start(|_| Script::tokens(10)).await;
        let rig = Rig::new(&trace, Target { emulated: false, ..target(&[&first.url, "http://127.0.0.1:1"]) });
        let look = async |name: &str| rig.client.looker().look(worker(name)).await;
        assert_eq!(look("W0").await, WorkerState::Up { incarnation: 0 });
        assert_eq!(look("W1").await, WorkerState::Down);
        assert_eq!(look("W0").await, WorkerState::Up { incarnation: 0 }, "the other worker's end is not its");
    });
}
