//! The file source against a real file, and the task of the directory against real health probes. etcd is tested against a
//! real server, in `tests/it/kv/etcd.rs`.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{DirectoryWord, RegistryError, follow, run};
use crate::base::Time;
use crate::kv::directory::{
    Directory, DirectoryOutput, DropReason, Endpoint, Identity, InstanceRecord, InstanceType, KvEventsConfig, News,
    Registry, StateReason, TableInput,
};
use crate::live::clock::Clock;

fn in_time(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await.expect("the test ends") });
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pdreplay-registry-{}-{name}.json", std::process::id()))
}

fn record(name: &str, port: u16) -> InstanceRecord {
    InstanceRecord {
        name: name.into(),
        address: Endpoint { host: "127.0.0.1".into(), port },
        kind: InstanceType::Prefill,
        current: None,
        backend: None,
        dp_size: 1,
        identity: Identity::Incarnation("i1".into()),
    }
}

#[test]
fn a_file_is_followed_as_it_changes_breaks_and_goes() {
    in_time(async {
        let path = file("follow");
        let write = |text: &str| fs::write(&path, text).unwrap();
        let one = r#"{"instances":[{"name":"h:8000","type":"PREFILL","dp_size":1}]}"#;
        write(one);
        let (to, states) = mpsc::channel(16);
        let mut news = one_by_one(states);
        let registry = Registry::File(path.to_str().unwrap().to_owned());
        let following = tokio::spawn(async move { follow(&registry, Duration::from_millis(5), None, to).await });
        let first = news.recv().await.unwrap();
        assert!(matches!(&first, News::Table(TableInput::Put(record)) if record.dp_size == 1), "{first:?}");
        // As long as before, so that no size tells it.
        write(&one.replace("\"dp_size\":1", "\"dp_size\":2"));
        assert_eq!(news.recv().await.unwrap(), News::Listed, "once, behind what was listed");
        let second = news.recv().await.unwrap();
        // A look can fall between the truncation and the writing, which is a broken file for a moment.
        let second = if matches!(second, News::Notice(_)) { skip_notices(&mut news).await } else { second };
        assert!(matches!(&second, News::Table(TableInput::Put(record)) if record.dp_size == 2), "{second:?}");
        fs::remove_file(&path).unwrap();
        let third = news.recv().await.unwrap();
        assert!(matches!(&third, News::Notice(text) if text.contains("last good state")), "{third:?}");
        write(r#"{"instances":[]}"#);
        let fourth = skip_notices(&mut news).await;
        assert_eq!(fourth, News::Table(TableInput::Withdrawn { name: "h:8000".into() }));
        drop(news);
        assert_eq!(following.await.unwrap(), Ok(()), "ends when nobody listens");
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_file_over_the_limit_is_told_with_a_remedy_and_not_read() {
    in_time(async {
        let path = file("large");
        fs::File::create(&path).unwrap().set_len((16 << 20) + 1).unwrap();
        let (to, states) = mpsc::channel(16);
        let mut news = one_by_one(states);
        let registry = Registry::File(path.to_str().unwrap().to_owned());
        tokio::spawn(async move { follow(&registry, Duration::from_millis(5), None, to).await });
        let told = news.recv().await.unwrap();
        let wanted = "has 16777217 bytes, over the limit of 16777216; take out instances";
        assert!(matches!(&told, News::Notice(text) if text.contains(wanted)), "{told:?}");
        fs::remove_file(&path).unwrap();
    });
}

/// What is told, one by one.
fn one_by_one(mut states: mpsc::Receiver<Vec<News>>) -> mpsc::Receiver<News> {
    let (to, news) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let state = tokio::select! {
                state = states.recv() => state.unwrap_or_default(),
                () = to.closed() => return,
            };
            for one in state {
                let _ = to.send(one).await;
            }
        }
    });
    news
}

#[test]
fn a_look_at_a_file_is_told_as_one_state() {
    in_time(async {
        let path = file("whole");
        let put = |ports: &[u16]| {
            let entries: Vec<String> = ports
                .iter()
                .enumerate()
                .map(|(ix, port)| format!(r#"{{"name":"v{ix}","http_address":"h:{port}","type":1}}"#))
                .collect();
            let next = path.with_extension("next");
            fs::write(&next, format!(r#"{{"instances":[{}]}}"#, entries.join(","))).unwrap();
            fs::rename(next, &path).unwrap();
        };
        put(&[25_000, 25_000]);
        let (to, mut states) = mpsc::channel(16);
        let registry = Registry::File(path.to_str().unwrap().to_owned());
        tokio::spawn(async move { follow(&registry, Duration::from_millis(5), None, to).await });
        for (ports, most) in [(&[65_000][..], 3), (&[25_000, 25_000], 2), (&[65_000], 2)] {
            let state = states.recv().await.unwrap();
            assert_eq!(state.len(), most, "{state:?}");
            put(ports);
        }
        fs::remove_file(&path).unwrap();
    });
}

async fn skip_notices(news: &mut mpsc::Receiver<News>) -> News {
    loop {
        match news.recv().await.unwrap() {
            News::Notice(_) | News::Mended(_) => {}
            told => return told,
        }
    }
}

#[test]
fn a_file_that_became_a_pipe_neither_blocks_nor_loses_the_last_good_state() {
    in_time(async {
        let path = file("pipe");
        fs::write(&path, r#"{"instances":[{"name":"h:8000","type":"PREFILL"}]}"#).unwrap();
        let (to, states) = mpsc::channel(16);
        let mut news = one_by_one(states);
        let registry = Registry::File(path.to_str().unwrap().to_owned());
        let following = tokio::spawn(async move { follow(&registry, Duration::from_millis(5), None, to).await });
        assert!(matches!(news.recv().await.unwrap(), News::Table(TableInput::Put(_))));
        assert_eq!(news.recv().await.unwrap(), News::Listed);
        let pipe = path.with_extension("fifo");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // In one step, so that no look finds it absent.
        fs::rename(&pipe, &path).unwrap();
        let told = news.recv().await.unwrap();
        assert!(matches!(&told, News::Notice(text) if text.contains("is no regular file; until")), "{told:?}");
        sleep(Duration::from_millis(50)).await;
        assert!(news.try_recv().is_err(), "once, whoever looks again");
        drop(news);
        assert_eq!(following.await.unwrap(), Ok(()), "ends when nobody listens");
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn etcd_is_refused_with_a_remedy_where_it_cannot_be() {
    in_time(async {
        let (to, _news) = mpsc::channel(1);
        let registry = Registry::Etcd { endpoints: vec!["https://h:2379".into()], namespace: String::new() };
        let refused = follow(&registry, Duration::from_secs(1), None, to).await.unwrap_err();
        if cfg!(feature = "etcd") {
            assert_eq!(refused, RegistryError::Tls("https://h:2379".into()));
        } else {
            assert!(refused.to_string().contains("--features etcd"), "{refused}");
        }
    });
}

/// Answers every request with 200 and nothing.
async fn healthy_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let read = peer.read(&mut head).await.unwrap_or(0);
            let status = if head[..read].starts_with(b"GET /health ") { "200 OK" } else { "404 Not Found" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = peer.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[test]
fn a_lost_lease_is_probed_and_only_who_answers_keeps_its_stream() {
    in_time(async {
        let config = r#"{"discovery":{"event_port_offset":1,"replay_port_offset":2,"refresh_interval_ms":50}}"#;
        let config = KvEventsConfig::parse(config.as_bytes(), "c.json").unwrap();
        // Ten times slower than the wall's: every limit is generous.
        let clock = Clock::start(0.1);
        let (to_task, news) = mpsc::channel(16);
        let (to, mut words) = mpsc::channel(16);
        let task = tokio::spawn(run(Directory::new(&config, Time::ZERO), clock, news, to));
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        for record in [record("well", healthy_server().await), record("dead", closed)] {
            let identity = record.identity.clone();
            let name = record.name.clone();
            to_task.send(vec![News::Table(TableInput::Put(record))]).await.unwrap();
            wait_for(
                &mut words,
                |output| matches!(output, DirectoryOutput::Subscribe(stream) if stream.key.instance == name),
            )
            .await;
            to_task.send(vec![News::Table(TableInput::LeaseLost { name, identity })]).await.unwrap();
        }
        let mut reasons = Vec::new();
        wait_for(&mut words, |output| {
            if let DirectoryOutput::State(change) = output {
                reasons.push((change.instance.clone(), change.reason));
            }
            matches!(output, DirectoryOutput::Unsubscribe { key, reason } if key.instance == "dead" && *reason == DropReason::Suspect)
        })
        .await;
        assert!(reasons.contains(&("dead".into(), StateReason::ProbeFailed)), "{reasons:?}");
        assert!(!reasons.contains(&("well".into(), StateReason::ProbeFailed)), "{reasons:?}");
        to_task.send(vec![News::Notice("for people".into())]).await.unwrap();
        while words.recv().await.unwrap() != DirectoryWord::Notice("for people".into()) {}
        drop(words);
        assert!(task.await.unwrap().is_ok(), "ends when nobody listens");
    });
}

async fn wait_for(words: &mut mpsc::Receiver<DirectoryWord>, mut is_it: impl FnMut(&DirectoryOutput) -> bool) {
    loop {
        match words.recv().await.expect("the task runs") {
            DirectoryWord::Output(output) if is_it(&output) => return,
            DirectoryWord::Output(_) | DirectoryWord::Notice(_) | DirectoryWord::Mended(_) | DirectoryWord::Listed => {}
        }
    }
}
