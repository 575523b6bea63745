//! Our sockets against each other: topics, queues, limits, replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::peer::{expect, frame, greeting, patient, ready, soon};
use crate::live::kv::zmq::{
    DealerSocket, Endpoint, Frames, PubSocket, QueueLimits, RouterSocket, Sent, SubSocket, ZmqError,
};

/// Any free port of loopback.
pub fn loopback() -> Endpoint {
    "tcp://127.0.0.1:0".parse().unwrap()
}

/// Waits until so many subscribers want the topic.
pub async fn until_subscribed(publisher: &PubSocket, topic: &[u8], count: usize) {
    let wait = async {
        while publisher.subscribers_of(topic) != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(wait).await;
}

/// A raw connection that has shaken hands as this kind of socket.
async fn raw_peer(endpoint: &Endpoint, minor: u8, socket: &str, other: &str) -> TcpStream {
    let Endpoint::Tcp { host, port } = endpoint else { panic!("{endpoint}") };
    let mut stream = TcpStream::connect((host.as_str(), *port)).await.unwrap();
    stream.write_all(&[greeting(minor, "NULL"), ready(socket)].concat()).await.unwrap();
    let mut hello = [0; 64];
    stream.read_exact(&mut hello).await.unwrap();
    assert_eq!(hello[..16], *b"\xFF\0\0\0\0\0\0\0\0\x7F\x03\0NULL");
    if other == "PUB" {
        expect(&mut stream, &ready(other)).await;
    }
    stream
}

#[tokio::test]
async fn a_message_at_the_limit_passes_and_one_byte_more_does_not() {
    let publisher = PubSocket::bind(&loopback(), QueueLimits::default()).await.unwrap();
    let mut sub = soon(SubSocket::connect(publisher.endpoint(), b"", &patient())).await.unwrap();
    until_subscribed(&publisher, b"xllm-kv", 1).await;
    let exact = vec![3; 8_388_608 - 8 - 7];
    assert_eq!(publisher.send(&[&b"xllm-kv"[..], &[0; 8], &exact]), Sent { queued: 1, dropped: 0 });
    let received = soon(sub.recv()).await.unwrap();
    assert!(received[2] == exact && received.len() == 3);
    publisher.send(&[&b"xllm-kv"[..], &[0; 8], &vec![3; exact.len() + 1]]);
    let error = soon(sub.recv()).await.unwrap_err();
    assert!(matches!(error, ZmqError::TooLarge { bytes: 8_388_609, limit: 8_388_608 }), "{error}");
    drop(sub);
    until_subscribed(&publisher, b"xllm-kv", 0).await;
}

#[tokio::test]
async fn a_subscriber_gets_its_topics_only_in_both_forms_of_subscription() {
    let publisher = PubSocket::bind(&loopback(), QueueLimits::default()).await.unwrap();
    let mut by_message = raw_peer(publisher.endpoint(), 0, "SUB", "PUB").await;
    let mut by_command = raw_peer(publisher.endpoint(), 1, "XSUB", "PUB").await;
    by_message.write_all(&[frame(0, b"\x01foo"), frame(0, b"\x01foo"), frame(0, b"\x01bar")].concat()).await.unwrap();
    by_command.write_all(&[frame(4, b"\x09SUBSCRIBEfoo"), frame(0, b"\x05user data")].concat()).await.unwrap();
    until_subscribed(&publisher, b"foo", 2).await;
    until_subscribed(&publisher, b"bar", 1).await;
    let none = Sent { queued: 0, dropped: 0 };
    assert_eq!(publisher.send(&[&b"fo"[..], b"1"]), none);
    assert_eq!(publisher.send(&[&b"food"[..], b"2"]), Sent { queued: 2, dropped: 0 });
    for stream in [&mut by_message, &mut by_command] {
        expect(stream, &[frame(1, b"food"), frame(0, b"2")].concat()).await;
    }
    // Twice subscribed, once cancelled: still wanted.
    by_message.write_all(&frame(0, b"\x00foo")).await.unwrap();
    by_message.write_all(&frame(0, b"\x00bar")).await.unwrap();
    by_command.write_all(&frame(4, b"\x06CANCELfoo")).await.unwrap();
    until_subscribed(&publisher, b"bar", 0).await;
    until_subscribed(&publisher, b"foo", 1).await;
    by_message.write_all(&frame(0, b"\x00foo")).await.unwrap();
    until_subscribed(&publisher, b"foo", 0).await;
    assert_eq!(publisher.send(&[&b"foo"[..], b"3"]), none);
}

#[tokio::test]
async fn a_ping_to_a_publisher_is_answered() {
    let publisher = PubSocket::bind(&loopback(), QueueLimits::default()).await.unwrap();
    let mut stream = raw_peer(publisher.endpoint(), 1, "SUB", "PUB").await;
    stream.write_all(&frame(4, b"\x04PING\x00\x0aabc")).await.unwrap();
    expect(&mut stream, &frame(4, b"\x04PONGabc")).await;
}

#[tokio::test]
async fn a_subscriber_that_reads_nothing_costs_its_queue_and_no_one_else() {
    let limits = QueueLimits { messages: 10, bytes: 1 << 30 };
    let publisher = PubSocket::bind(&loopback(), limits).await.unwrap();
    let mut slow = raw_peer(publisher.endpoint(), 0, "SUB", "PUB").await;
    slow.write_all(&frame(0, b"\x01")).await.unwrap();
    until_subscribed(&publisher, b"", 1).await;
    let mut quick = soon(SubSocket::connect(publisher.endpoint(), b"", &patient())).await.unwrap();
    until_subscribed(&publisher, b"", 2).await;
    let payload = vec![9; 1 << 20];
    let mut dropped = 0;
    for sequence in 0..100u64 {
        dropped += publisher.send(&[&b""[..], &sequence.to_be_bytes(), &payload]).dropped;
        let received = soon(quick.recv()).await.unwrap();
        assert_eq!(received[1], sequence.to_be_bytes());
    }
    assert!((50..100).contains(&dropped), "the sockets' buffers and 10 messages passed: {dropped} dropped");
    // What it did not lose it gets, in order and whole: the gap shows in the sequence.
    let mut got = Vec::new();
    for _ in dropped..100 {
        let mut head = [0; 2 + 2 + 8 + 9];
        slow.read_exact(&mut head).await.unwrap();
        got.push(u64::from_be_bytes(head[4..12].try_into().unwrap()));
        let mut body = vec![0; payload.len()];
        slow.read_exact(&mut body).await.unwrap();
        assert!(body == payload);
    }
    assert!(got.is_sorted_by(|a, b| a < b) && got[0] == 0, "{got:?}");
}

#[tokio::test]
async fn bytes_bound_a_queue_too_but_never_a_single_message() {
    let publisher = PubSocket::bind(&loopback(), QueueLimits { messages: 1000, bytes: 100 }).await.unwrap();
    let mut sub = soon(SubSocket::connect(publisher.endpoint(), b"", &patient())).await.unwrap();
    until_subscribed(&publisher, b"", 1).await;
    // One thread: the subscriber's task does not run between these.
    let sent: Vec<usize> = (0..4).map(|_| publisher.send(&[vec![0; 60]]).queued).collect();
    assert_eq!(sent, [1, 0, 0, 0]);
    assert_eq!(soon(sub.recv()).await.unwrap(), [vec![0; 60]]);
    assert_eq!(publisher.send(&[vec![0; 5000]]), Sent { queued: 1, dropped: 0 });
    assert_eq!(soon(sub.recv()).await.unwrap(), [vec![0; 5000]]);
}

#[tokio::test]
async fn a_router_answers_each_request_and_makes_replies_as_they_are_taken() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let router = RouterSocket::bind(&loopback(), move |request| {
        let [identity, empty, from] = <[Vec<u8>; 3]>::try_from(request).unwrap();
        assert!(identity.len() == 5 && empty.is_empty());
        let from = u64::from_be_bytes(from.try_into().unwrap());
        let count = Arc::clone(&count);
        let batch = move |sequence: u64| {
            count.fetch_add(1, Ordering::Relaxed);
            vec![vec![], sequence.to_be_bytes().to_vec(), vec![1; 1 << 20]]
        };
        Box::new((from..1000).map(batch).chain([vec![vec![], vec![0xFF; 8], vec![]]]))
    })
    .await
    .unwrap();
    let ask = async |from: u64| {
        let request = [vec![], from.to_be_bytes().to_vec()];
        soon(DealerSocket::ask(router.endpoint(), &request, &patient(), patient().connect)).await.unwrap()
    };
    let mut dealer = ask(995).await;
    let mut replies: Vec<Frames> = Vec::new();
    while replies.last().is_none_or(|reply| !reply[2].is_empty()) {
        replies.push(soon(dealer.recv()).await.unwrap());
    }
    let sequences: Vec<u64> = replies.iter().map(|r| u64::from_be_bytes(r[1].clone().try_into().unwrap())).collect();
    assert_eq!(sequences, [995, 996, 997, 998, 999, u64::MAX]);
    made.store(0, Ordering::Relaxed);
    let mut unread = ask(0).await;
    soon(unread.recv()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let made = made.load(Ordering::Relaxed);
    assert!((1..900).contains(&made), "what nobody takes is not made: {made}");
}

#[tokio::test]
async fn a_peer_that_asks_without_end_is_let_go() {
    let router =
        RouterSocket::bind(&loopback(), |_| Box::new(std::iter::repeat(vec![vec![0; 1 << 16]]))).await.unwrap();
    let mut stream = raw_peer(router.endpoint(), 0, "DEALER", "ROUTER").await;
    let requests = frame(0, &[0; 8]).repeat(1000);
    let asked = async { while stream.write_all(&requests).await.is_ok() {} };
    soon(asked).await;
}

#[tokio::test]
async fn sockets_of_the_wrong_kind_are_not_served() {
    let publisher = PubSocket::bind(&loopback(), QueueLimits::default()).await.unwrap();
    let mut stream = raw_peer(publisher.endpoint(), 0, "DEALER", "PUB").await;
    assert_eq!(soon(stream.read(&mut [0])).await.unwrap_or(0), 0, "closed");
}

#[tokio::test]
async fn a_closed_port_can_be_bound_again_at_once_and_a_taken_one_cannot() {
    let folder = std::env::temp_dir().join(format!("pdreplay-zmq-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let ipc: Endpoint = format!("ipc://{}", folder.join("kv").display()).parse().unwrap();
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    let ipv6 = has_ipv6.then(|| "tcp://[::1]:0".parse().unwrap());
    for endpoint in [loopback(), ipc.clone()].into_iter().chain(ipv6) {
        let first = PubSocket::bind(&endpoint, QueueLimits::default()).await.unwrap();
        let bound = first.endpoint().clone();
        let mut sub = soon(SubSocket::connect(&bound, b"", &patient())).await.unwrap();
        until_subscribed(&first, b"", 1).await;
        assert!(PubSocket::bind(&bound, QueueLimits::default()).await.is_err(), "{bound} is taken");
        first.send(&[b"one"]);
        assert_eq!(soon(sub.recv()).await.unwrap(), [b"one"]);
        first.close().await;
        assert!(soon(sub.recv()).await.is_err());
        PubSocket::bind(&bound, QueueLimits::default()).await.unwrap().close().await;
    }
    // The file of a publisher that was killed is in nobody's way.
    drop(std::os::unix::net::UnixListener::bind(folder.join("kv")).unwrap());
    assert!(folder.join("kv").exists());
    PubSocket::bind(&ipc, QueueLimits::default()).await.unwrap().close().await;
    std::fs::remove_dir(&folder).unwrap();
}
