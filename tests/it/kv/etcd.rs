//! The registry of a real etcd: keys that come, change and go, leases that run out, and a server that goes and is back.
//! Says that it skips where there is no `etcd`; `PDREPLAY_REQUIRE_ETCD=1` makes that a failure.

use std::env;
#[cfg(feature = "etcd")]
use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

#[cfg(feature = "etcd")]
use crate::run::root;

/// Whether the tests can run; the reason why not is printed, or fails them.
fn is_there(why_not: Option<&str>) -> bool {
    let Some(why) = why_not else { return true };
    assert!(env::var_os("PDREPLAY_REQUIRE_ETCD").is_none(), "PDREPLAY_REQUIRE_ETCD is set, but {why}");
    println!("skipped: {why}");
    false
}

#[cfg(not(feature = "etcd"))]
#[test]
fn a_real_etcd_is_followed() {
    is_there(Some("this build has no etcd client (cargo test --features etcd; it needs protoc)"));
}

/// The server's binary: where scripts/test_tools.sh puts it, or on the path.
#[cfg(feature = "etcd")]
fn binary() -> Option<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let own = target.join("test-tools-etcd/usr/bin/etcd");
    let binary = if own.exists() { own } else { "etcd".into() };
    let version = Command::new(&binary).arg("--version").stdout(Stdio::null()).status();
    is_there(version.is_err().then_some("there is no etcd (scripts/test_tools.sh brings it)")).then_some(binary)
}

#[cfg(feature = "etcd")]
mod real {
    use std::collections::VecDeque;
    use std::fs;
    use std::net::TcpListener;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use etcd_client::{Client, PutOptions, Txn, TxnOp};
    use pdreplay::kv::directory::{News, Registry, TableInput};
    use pdreplay::live::kv::registry::follow;
    use tokio::sync::mpsc;
    use tokio::time::{sleep, timeout};

    use serde_json::json;

    use super::binary;
    use crate::kv::peers::{Publisher, stored};
    use crate::kv::query::{hits, query, request};
    use crate::live::support::process::{Server, wait_for};
    use crate::run::Scratch;

    /// A server on loopback; killed when it is dropped.
    struct Etcd(Child);

    impl Etcd {
        fn start(binary: &Path, data: &Path, ports: [u16; 2]) -> Etcd {
            let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
            let log = fs::File::create(data.with_extension("log")).unwrap();
            let child = Command::new(binary)
                .args(["--name", "one", "--data-dir", data.to_str().unwrap()])
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &format!("one={peer}"), "--logger", "zap", "--log-outputs", "stderr"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            Etcd(child)
        }
    }

    impl Drop for Etcd {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn two_free_ports() -> [u16; 2] {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        listeners.map(|listener| listener.local_addr().unwrap().port())
    }

    /// A client of a server that has come up.
    async fn client(port: u16) -> Client {
        loop {
            let connected = Client::connect([format!("127.0.0.1:{port}")], None).await;
            if let Ok(client) = connected {
                let mut probe = client.clone();
                if let Ok(Ok(_)) = timeout(Duration::from_secs(2), probe.get("x", None)).await {
                    return client;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn registration(dp_size: u32) -> String {
        format!(
            r#"{{"name":"h:8000","rpc_address":"h:9000","type":1,"dp_size":{dp_size},"incarnation_id":"i1","register_ts_ms":7,
                "addrs":[],"cluster_ids":[],"k_cache_ids":[],"v_cache_ids":[],"device_ips":[],"ports":[],
                "ttft_profiling_data":[],"tpot_profiling_data":[]}}"#
        )
    }

    struct Heard(mpsc::Receiver<Vec<News>>, VecDeque<News>);

    impl Heard {
        /// All that is told at once.
        async fn state(&mut self) -> Vec<News> {
            self.0.recv().await.expect("the registry is followed")
        }

        async fn next(&mut self) -> News {
            loop {
                match self.1.pop_front() {
                    None => self.1 = self.state().await.into(),
                    Some(News::Listed) => {}
                    Some(news) => return news,
                }
            }
        }

        /// The next word about an instance.
        async fn input(&mut self) -> TableInput {
            loop {
                if let News::Table(input) = self.next().await {
                    return input;
                }
            }
        }

        async fn put(&mut self) -> (String, u32) {
            match self.input().await {
                TableInput::Put(record) => (record.name, record.dp_size),
                other => panic!("{other:?}"),
            }
        }

        async fn lost(&mut self) -> String {
            match self.input().await {
                TableInput::LeaseLost { name, .. } => name,
                other => panic!("{other:?}"),
            }
        }
    }

    fn listen(port: u16, namespace: &str) -> Heard {
        let (to, news) = mpsc::channel(64);
        let registry =
            Registry::Etcd { endpoints: vec![format!("http://127.0.0.1:{port}")], namespace: namespace.into() };
        tokio::spawn(async move { follow(&registry, Duration::from_secs(1), None, to).await });
        Heard(news, VecDeque::new())
    }

    fn in_time(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { timeout(Duration::from_secs(120), work).await.expect("the test ends") });
    }

    #[test]
    fn keys_come_change_and_go_and_leases_run_out() {
        let Some(binary) = binary() else { return };
        let scratch = Scratch::new();
        in_time(async {
            let ports = two_free_ports();
            let _etcd = Etcd::start(&binary, &scratch.path().join("data"), ports);
            let mut client = client(ports[0]).await;
            let key = "/prod/XLLM:PREFILL:h:8000";
            client.put(key, registration(1), None).await.unwrap();
            client.put("XLLM:PREFILL:of:1", registration(1), None).await.unwrap();
            let mut heard = listen(ports[0], "prod");
            assert_eq!(heard.put().await, ("h:8000".into(), 1), "listed; the other namespace is not");
            client.put(key, registration(2), None).await.unwrap();
            assert_eq!(heard.put().await, ("h:8000".into(), 2));
            let load = r#"{"waiting_requests_num":4,"gpu_cache_usage_perc":0.25}"#;
            client.put("/prod/XLLM:LOADMETRICS:h:8000", load, None).await.unwrap();
            let TableInput::Heartbeat { load: Some(load), .. } = heard.input().await else { panic!("a load") };
            assert_eq!((load.waiting_requests_num, load.gpu_cache_usage_perc), (4, 0.25));
            client.put(key, "{", None).await.unwrap();
            assert!(matches!(heard.next().await, News::Notice(text) if text.contains(key)));
            client.delete(key, None).await.unwrap();
            assert_eq!(heard.lost().await, "h:8000");
            // Never kept alive: the server ends it after two seconds or so.
            let lease = client.lease_grant(1, None).await.unwrap().id();
            client
                .put("/prod/XLLM:DEFAULT:w:8000", registration(1), Some(PutOptions::new().with_lease(lease)))
                .await
                .unwrap();
            assert_eq!(heard.put().await.0, "w:8000");
            assert_eq!(heard.lost().await, "w:8000");
        });
    }

    #[test]
    fn the_index_follows_a_real_etcd() {
        let Some(binary) = binary() else { return };
        let scratch = Scratch::new();
        let publisher = Publisher::start();
        let ids = [1, 2, 3, 4];
        let last = publisher.publish(&[stored(&[7], None, &ids, "gpu")]);
        let port = |endpoint: &str| endpoint.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
        let rules = json!({"discovery": {"enabled": true, "block_size": 4, "topic": "xllm-kv", "refresh_interval_ms": 50,
            "event_port_offset": port(&publisher.endpoint) - 1, "replay_port_offset": port(&publisher.replay_endpoint) - 1}});
        let config = scratch.write("kv.json", &rules.to_string());
        let ports = two_free_ports();
        let registry = format!("etcd:http://127.0.0.1:{},prod", ports[0]);
        let server = Server::index(&config, &["--registry", &registry]);
        let health = || request(&server.url, "GET", "/health", &[], b"").0;
        assert_eq!(health(), 503, "there is no etcd yet");
        let _etcd = Etcd::start(&binary, &scratch.path().join("data"), ports);
        wait_for("the empty registry is read", || (health() == 200).then_some(()));
        in_time(async {
            let mut client = client(ports[0]).await;
            let lease = client.lease_grant(60, None).await.unwrap().id();
            let key = "/prod/XLLM:PREFILL:127.0.0.1:1";
            let value = registration(1).replace("h:8000", "127.0.0.1:1");
            client.put(key, value, Some(PutOptions::new().with_lease(lease))).await.unwrap();
            wait_for("registered", || query(&server.url, &[]).contains_key("127.0.0.1:1/0").then_some(()));
            assert_eq!(hits(&server.url, "127.0.0.1:1/0", last, &ids), [4, 0, 4, 1, 0]);
            // The lease is lost, and nobody answers at its HTTP port: it is suspect.
            client.lease_revoke(lease).await.unwrap();
            wait_for("gone", || query(&server.url, &[]).is_empty().then_some(()));
        });
    }

    #[test]
    fn a_server_that_is_back_tells_only_what_changed() {
        let Some(binary) = binary() else { return };
        let scratch = Scratch::new();
        in_time(async {
            let (ports, data) = (two_free_ports(), scratch.path().join("data"));
            let etcd = Etcd::start(&binary, &data, ports);
            let mut writer = client(ports[0]).await;
            for name in ["a:1", "b:1"] {
                writer.put(format!("XLLM:PREFILL:{name}"), registration(1), None).await.unwrap();
            }
            let mut heard = listen(ports[0], "");
            assert_eq!([heard.put().await.0, heard.put().await.0], ["a:1", "b:1"]);
            // A transaction is one state, as is a listing.
            let both = ["a:1", "b:1"].map(|name| TxnOp::put(format!("XLLM:PREFILL:{name}"), registration(2), None));
            writer.txn(Txn::new().and_then(both)).await.unwrap();
            let state = heard.state().await;
            assert!(
                matches!(&state[..], [News::Table(TableInput::Put(_)), News::Table(TableInput::Put(_))]),
                "{state:?}"
            );
            drop(etcd);
            let News::Notice(text) = heard.next().await else { panic!("a notice") };
            assert!(text.contains("instances stay as they are"), "{text}");
            assert!(!text.contains("h2") && !text.contains("reading a body"), "plain words: {text}");
            let _etcd = Etcd::start(&binary, &data, ports);
            let mut writer = client(ports[0]).await;
            // Whether these fall before the new listing or after it, they are all there is to tell.
            writer.delete("XLLM:PREFILL:b:1", None).await.unwrap();
            assert_eq!(heard.lost().await, "b:1");
            writer.put("XLLM:MIX:c:1", registration(3), None).await.unwrap();
            assert_eq!(heard.put().await, ("c:1".into(), 3));
            // History that is compacted away is no matter: what is followed is listed before.
            let revision = writer.get("x", None).await.unwrap().header().unwrap().revision();
            writer.compact(revision, None).await.unwrap();
            writer.delete("XLLM:PREFILL:a:1", None).await.unwrap();
            assert_eq!(heard.lost().await, "a:1");
        });
    }
}
