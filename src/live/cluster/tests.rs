//! The embedded cluster as its user sees it: addresses, answers through the router, faults, an end without remains.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::*;
use crate::cluster::{ClusterConfig, FaultConfig, FaultKind, Notice, RouterConfig, RouterPolicy};
use crate::engine::EngineConfig;
use crate::live::server::RequestLog;
use crate::live::server::upstream::{NoAnswer, Upstream, read};

fn plan(counts: [u16; 3], faults: &[&str]) -> ClusterPlan {
    let [prefill, decode, colocated] = counts;
    let router = RouterConfig { decode_policy: RouterPolicy::ConsistentHashing, ..RouterConfig::default() };
    let config =
        ClusterConfig { prefill, decode, colocated, router, discovery_delay_ms: 100, ..ClusterConfig::default() };
    let faults = faults.iter().map(|text| serde_json::from_str::<FaultConfig>(text).unwrap()).collect();
    ClusterPlan { faults, speed: 20.0, ..ClusterPlan::new(config, EngineConfig::default(), 64) }
}

/// A client with time for all that a test does, and no more.
fn with(plan: ClusterPlan, work: impl AsyncFnOnce(&EmbeddedCluster, Client)) -> Result<(), ClusterError> {
    let cluster = EmbeddedCluster::start(plan)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client(Upstream::new(Duration::from_secs(5)));
        tokio::time::timeout(Duration::from_secs(20), work(&cluster, client)).await.expect("nothing hangs");
    });
    cluster.stop()
}

struct Client(Upstream);

impl Client {
    async fn post(&self, url: &str, body: Value, target: &'static str) -> Result<(u16, HeaderMap, String), NoAnswer> {
        let mut headers = HeaderMap::new();
        headers.insert("x-smg-target-worker", target.parse().unwrap());
        let answer = self.0.post(url, headers, body.to_string().into()).await?;
        let (head, body) = answer.into_parts();
        let body = read(body, 1 << 24).await?;
        Ok((head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap()))
    }

    async fn get(&self, url: &str) -> Result<(u16, Value), NoAnswer> {
        let answer = self.0.send(Method::GET, url, HeaderMap::new(), None).await?;
        let status = answer.status().as_u16();
        Ok((status, serde_json::from_slice(&read(answer.into_body(), 1 << 24).await?).unwrap_or(Value::Null)))
    }

    /// Waits for a worker to answer, or not to.
    async fn wait_until_up(&self, url: &str, up: bool) {
        while self.get(&format!("{url}/health")).await.is_ok() != up {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn prompt(session: u32, tokens: u32) -> Value {
    let ids: Vec<u32> = (0..tokens).map(|at| session * 100_000 + at).collect();
    json!({"rid": format!("s{session}/1"), "input_ids": ids, "stream": true,
           "sampling_params": {"max_new_tokens": 5, "ignore_eos": true, "temperature": 0}})
}

#[test]
fn a_request_goes_through_router_p_and_d() {
    let done = with(plan([1, 2, 0], &[]), async |cluster, client| {
        let router = cluster.addresses().router.clone().unwrap();
        for (target, worker) in [("1", "D1"), ("0", "D0"), ("1", "D1")] {
            let (status, headers, body) =
                client.post(&format!("{router}/generate"), prompt(1, 1000), target).await.unwrap();
            assert_eq!((status, headers["x-pdreplay-worker"].to_str().unwrap()), (200, worker), "{body}");
            let served = headers["x-smg-routed-worker-id"].to_str().unwrap();
            assert_eq!(cluster.addresses().named(served).unwrap().to_string(), worker);
            assert_eq!(headers["x-pdreplay-prefill-worker"].to_str().unwrap(), cluster.addresses().prefill[0].url);
            let last = body.lines().rfind(|line| line.starts_with("data: {")).unwrap();
            let last: Value = serde_json::from_str(&last[6..]).unwrap();
            let meta = &last["meta_info"];
            assert_eq!((&meta["prompt_tokens"], &meta["completion_tokens"]), (&1000.into(), &5.into()), "{last}");
            assert_eq!(
                (&meta["finish_reason"]["type"], &meta["emulated"]["prefill_worker"]),
                (&"length".into(), &"P0".into())
            );
        }
        let refused = client.post(&format!("{router}/generate"), prompt(1, 10), "2").await.unwrap();
        assert_eq!((refused.0, refused.1["x-smg-error-code"].to_str().unwrap()), (503, "no_available_workers"));
        let info = client.get(&format!("{router}/server_info")).await.unwrap().1;
        assert_eq!((&info["emulated"]["worker"], &info["emulated"]["speed"]), (&"router".into(), &20.0.into()));
        let loads = client.get(&format!("{router}/get_loads")).await.unwrap().1;
        assert!(
            loads["workers"].as_array().unwrap().iter().all(|worker| worker["load"]["loads"].is_array()),
            "{loads}"
        );
    });
    done.unwrap();
}

#[test]
fn colocated_workers_have_a_router_too() {
    let done = with(plan([0, 0, 2], &[]), async |cluster, client| {
        let router = cluster.addresses().router.clone().unwrap();
        let body = json!({"model": "m", "prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": true});
        let answer = client.post(&format!("{router}/v1/completions"), body, "1").await.unwrap();
        assert_eq!((answer.0, answer.1["x-pdreplay-worker"].to_str().unwrap()), (200, "W1"), "{}", answer.2);
    });
    done.unwrap();
}

#[test]
fn a_killed_worker_refuses_and_comes_back_as_another_process() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&seen);
    let kill = r#"{"kind":"kill","worker":"D0","after_requests":1,"duration_s":2.0}"#;
    let mut plan = plan([1, 2, 0], &[kill]);
    plan.notify = Some(Notify::new(move |notice| heard.lock().unwrap().push(notice)));
    let done = with(plan, async |cluster, client| {
        let router = format!("{}/generate", cluster.addresses().router.as_ref().unwrap());
        let d0 = cluster.addresses().decode[0].url.clone();
        assert_eq!(client.post(&router, prompt(1, 100), "0").await.unwrap().0, 200);
        // The second request begins the fault: it is cut off, or finds nobody.
        let lost = client.post(&router, prompt(2, 60_000), "0").await;
        assert!(!matches!(&lost, Ok((200, ..))), "{lost:?}");
        client.wait_until_up(&d0, false).await;
        client.wait_until_up(&d0, true).await;
        let info = client.get(&format!("{d0}/server_info")).await.unwrap().1;
        assert_eq!((&info["emulated"]["worker"], &info["emulated"]["incarnation"]), (&"D0".into(), &1.into()));
        // The router finds it at its next look.
        while client.post(&router, prompt(3, 100), "0").await.unwrap().0 != 200 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    done.unwrap();
    let [Notice::Fault { kind: FaultKind::Kill, worker: Some(worker) }] = seen.lock().unwrap()[..] else {
        panic!("{:?}", seen.lock().unwrap())
    };
    assert_eq!(worker.to_string(), "D0");
}

#[test]
fn a_fault_inside_a_worker_begins_by_the_clusters_count_and_strikes_as_often_as_it_may() {
    let of = |worker: &str| {
        format!(r#"{{"kind":"error-response","worker":"{worker}","status":500,"after_requests":3,"times":1}}"#)
    };
    for (worker, code) in [("D1", "decode_internal_error"), ("P0", "prefill_internal_error")] {
        let seen = Arc::new(Mutex::new(0));
        let heard = Arc::clone(&seen);
        let mut plan = plan([1, 2, 0], &[&of(worker)]);
        plan.notify = Some(Notify::new(move |_| *heard.lock().unwrap() += 1));
        let done = with(plan, async |cluster, client| {
            let router = format!("{}/generate", cluster.addresses().router.as_ref().unwrap());
            let mut codes = Vec::new();
            for (nth, target) in ["0", "0", "0", "1", "1", "0"].into_iter().enumerate() {
                let (_, headers, _) = client.post(&router, prompt(nth as u32, 100), target).await.unwrap();
                let code = headers.get("x-smg-error-code").map_or("ok", |code| code.to_str().unwrap());
                codes.push(code.to_owned());
            }
            assert_eq!(codes, ["ok", "ok", "ok", code, "ok", "ok"], "{worker}");
        });
        done.unwrap();
        assert_eq!(*seen.lock().unwrap(), 1);
    }
}

#[test]
fn a_fault_strikes_no_more_often_for_several_workers_or_after_a_restart() {
    let once = r#"{"kind":"error-response","session":"s1","status":503,"times":1}"#;
    let twice = r#"{"kind":"error-response","worker":"W0","status":418,"times":1}"#;
    let restart = r#"{"kind":"restart","worker":"W0","after_requests":3}"#;
    let done = with(plan([0, 0, 2], &[once, twice, restart]), async |cluster, client| {
        let all = cluster.addresses().clone();
        let ask = async |worker: usize, session| {
            let url = format!("{}/generate", all.colocated[worker].url);
            client.post(&url, prompt(session, 100), "0").await.map(|(status, ..)| status)
        };
        assert_eq!((ask(1, 1).await.unwrap(), ask(0, 2).await.unwrap(), ask(0, 1).await.unwrap()), (503, 418, 200));
        // The fourth begins the restart of W0; it is served by W1.
        assert_eq!(ask(1, 3).await.unwrap(), 200);
        let incarnation = async || {
            let info = client.get(&format!("{}/server_info", all.colocated[0].url)).await;
            info.ok().and_then(|(_, info)| info["emulated"]["incarnation"].as_u64())
        };
        while incarnation().await != Some(1) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!((ask(0, 1).await.unwrap(), ask(0, 2).await.unwrap()), (200, 200));
    });
    done.unwrap();
}

#[test]
fn joins_leaves_and_restarts_keep_to_their_times() {
    let faults = [
        r#"{"kind":"join","worker":"D1","at_s":3.0}"#,
        r#"{"kind":"restart","worker":"P0","at_s":3.0}"#,
        r#"{"kind":"router-restart","at_s":3.0}"#,
        r#"{"kind":"leave","worker":"D0","at_s":6.0}"#,
    ];
    let done = with(plan([1, 2, 0], &faults), async |cluster, client| {
        let all = cluster.addresses().clone();
        assert!(client.get(&format!("{}/health", all.decode[1].url)).await.unwrap_err().unreached);
        client.wait_until_up(&all.decode[1].url, true).await;
        assert!(cluster.clock().now().as_secs_f64() >= 3.0);
        for url in [&all.prefill[0].url, all.router.as_ref().unwrap()] {
            let incarnation = async || {
                let info = client.get(&format!("{url}/server_info")).await;
                info.ok().and_then(|(_, info)| info["emulated"]["incarnation"].as_u64())
            };
            while incarnation().await != Some(1) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        client.wait_until_up(&all.decode[0].url, false).await;
        assert!(cluster.clock().now().as_secs_f64() >= 6.0);
        let router = all.router.as_ref().unwrap();
        while client.get(&format!("{router}/readiness")).await.unwrap().1["healthy_workers"] != 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    done.unwrap();
}

#[test]
fn nothing_remains_of_a_cluster() {
    for stopped in [true, false] {
        let witness = Arc::new(());
        let held = Arc::clone(&witness);
        let faults: Vec<String> = (1..8)
            .map(|at| format!(r#"{{"kind":"restart","worker":"D{}","at_s":{}}}"#, at % 2, f64::from(at) * 0.2))
            .collect();
        let mut plan = plan([1, 2, 0], &faults.iter().map(String::as_str).collect::<Vec<_>>());
        plan.worker.log = Some(RequestLog::new(move |_| drop(Arc::clone(&held))));
        let cluster = EmbeddedCluster::start(plan).unwrap();
        let ports: Vec<String> =
            cluster.addresses().workers().map(|(_, at)| at.url["http://".len()..].to_owned()).collect();
        while cluster.clock().now().as_secs_f64() < 2.0 {
            std::thread::yield_now();
        }
        // A stream that nobody reads to its end must not hold up the end of the cluster.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let router = format!("{}/generate", cluster.addresses().router.as_ref().unwrap());
        let client = Upstream::new(Duration::from_secs(5));
        let ask = || client.post(&router, HeaderMap::new(), prompt(1, 100).to_string().into());
        // The router may not have seen the last restart yet.
        let unread = std::iter::repeat_with(|| runtime.block_on(ask()).unwrap()).find(|answer| answer.status() == 200);
        assert!(unread.is_some());
        drop((unread, client, runtime));
        if stopped {
            cluster.stop().unwrap();
        } else {
            drop(cluster);
        }
        assert_eq!(Arc::strong_count(&witness), 1, "every server has let go of what it shared");
        for port in ports {
            TcpListener::bind(&port).unwrap_or_else(|error| panic!("{port} is free again: {error}"));
        }
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let plan = ClusterPlan { base_port: Some(port), ..plan([1, 1, 0], &[]) };
    let error = EmbeddedCluster::start(plan).unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}")) && error.contains("router"), "{error}");
}
