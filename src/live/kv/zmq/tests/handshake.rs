//! From connected to ready: every version, and every peer that is not the one wanted.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::join;

use super::peer::{expect, frame, greeting, patient, peer, publisher, ready, soon, subscriber_hello};
use crate::live::kv::zmq::{Endpoint, Frames, Limits, SubSocket, ZmqError};

/// What connecting to a peer that says `hello` ends with.
async fn refusal(hello: Vec<u8>) -> ZmqError {
    let (endpoint, serve) = peer(async |mut stream| {
        stream.write_all(&hello).await.unwrap();
        stream
    })
    .await;
    let (limits, topic) = (patient(), *b"");
    let (connected, _open) = soon(async { join!(SubSocket::connect(&endpoint, &topic, &limits), serve) }).await;
    connected.err().expect("a refusal")
}

#[tokio::test]
async fn bytes_that_come_one_by_one_make_the_same_message() {
    let (endpoint, serve) = peer(async |mut stream| {
        let live = [frame(1, b"abcd"), frame(1, &[0; 8]), frame(0, b"batch")].concat();
        for byte in [greeting(1, "NULL"), ready("XPUB"), live].concat() {
            stream.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        expect(&mut stream, &subscriber_hello("abc")).await;
        stream
    })
    .await;
    let receive = async {
        let mut sub = SubSocket::connect(&endpoint, b"abc", &patient()).await.unwrap();
        sub.recv().await.unwrap()
    };
    let (frames, _open) = soon(async { join!(receive, serve) }).await;
    assert_eq!(frames, [b"abcd".to_vec(), vec![0; 8], b"batch".to_vec()]);
}

#[tokio::test]
async fn a_publisher_of_version_2_is_understood() {
    for revision in [1, 2] {
        let (endpoint, serve) = peer(async |mut stream| {
            stream.write_all(&[0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, revision]).await.unwrap();
            expect(&mut stream, &[0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 3]).await;
            // PUB, and an identity of three bytes.
            stream.write_all(&[&[1][..], &frame(0, b"pub")].concat()).await.unwrap();
            expect(&mut stream, &[&[2, 0, 0][..], &frame(0, b"\x01t")].concat()).await;
            stream.write_all(&[frame(1, b"topic"), frame(0, b"batch")].concat()).await.unwrap();
            stream
        })
        .await;
        let receive = async {
            let mut sub = SubSocket::connect(&endpoint, b"t", &patient()).await.unwrap();
            sub.recv().await.unwrap()
        };
        let (frames, _open) = soon(async { join!(receive, serve) }).await;
        assert_eq!(frames, [&b"topic"[..], b"batch"]);
    }
    let request = refusal([&[0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 1][..], &[3], &frame(0, b"")].concat()).await;
    let wanted = "a REQ socket is at the other end of this SUB socket: compare the port with the publisher's (`endpoint`, or \
        `event_port_offset`)";
    assert_eq!(request.to_string(), wanted);
}

#[tokio::test]
async fn a_peer_that_is_not_the_one_wanted_is_named() {
    let hello = |mechanism, after: Vec<u8>| [greeting(1, mechanism), after].concat();
    let cases = [
        (
            hello("PLAIN", vec![]),
            "the peer wants the security mechanism PLAIN, only NULL is spoken: switch it off at the peer",
        ),
        (
            hello("CURVE", vec![]),
            "the peer wants the security mechanism CURVE, only NULL is spoken: switch it off at the peer",
        ),
        (
            hello("NULL", ready("PUSH")),
            "a PUSH socket is at the other end of this SUB socket: compare the port with the publisher's (`endpoint`, or \
             `event_port_offset`)",
        ),
        (
            hello("NULL", ready("ROUTER")),
            "a ROUTER socket is at the other end of this SUB socket: compare the port with the publisher's (`endpoint`, or \
             `event_port_offset`)",
        ),
        (hello("NULL", frame(4, b"\x05ERROR\x0bnot allowed")), "the peer refused: not allowed"),
        (hello("NULL", frame(4, b"\x05READY")), "not ZMTP: READY without Socket-Type"),
        (hello("NULL", frame(4, b"\x05READY\x0bSock")), "not ZMTP: READY with metadata that is cut off"),
        (hello("NULL", frame(4, b"\x05HELLO")), "not ZMTP: a command other than READY after the greeting"),
        (hello("NULL", frame(4, b"\x09READY")), "not ZMTP: a command without its name"),
        (hello("NULL", frame(4, b"")), "not ZMTP: a command without its name"),
        (hello("NULL", frame(0, b"early")), "not ZMTP: a message before READY"),
        (hello("NULL", frame(0x40, b"")), "not ZMTP: a frame with flags that mean nothing"),
        (hello("NULL", frame(5, b"")), "not ZMTP: a frame with flags that mean nothing"),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "not ZMTP: no ZMTP greeting: is this another protocol's port?"),
        (vec![0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3], "not ZMTP: no ZMTP greeting: is this another protocol's port?"),
        (vec![0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 0], "the peer speaks ZMTP revision 0, needed is 2.0 or later"),
    ];
    for (hello, wanted) in cases {
        assert_eq!(refusal(hello).await.to_string(), wanted);
    }
}

#[tokio::test]
async fn a_peer_that_accepts_and_stays_silent_costs_the_time_limit() {
    let (endpoint, serve) = peer(async |stream| stream).await;
    let limits = Limits { handshake: Duration::from_millis(50), ..patient() };
    let (connected, _open) = soon(async { join!(SubSocket::connect(&endpoint, b"", &limits), serve) }).await;
    assert_eq!(connected.err().unwrap().to_string(), "the handshake took longer than 50 ms");
}

#[tokio::test]
async fn a_peer_that_leaves_early_or_was_never_there_is_told_apart() {
    let (endpoint, serve) = peer(async |stream| drop(stream)).await;
    let limits = patient();
    let (connected, ()) = soon(async { join!(SubSocket::connect(&endpoint, b"", &limits), serve) }).await;
    assert!(matches!(connected, Err(ZmqError::Closed | ZmqError::Broken(_))));
    let (endpoint, serve) = peer(async |mut stream| {
        stream.write_all(&greeting(1, "NULL")).await.unwrap();
        expect(&mut stream, &subscriber_hello("")[..64]).await;
    })
    .await;
    let (connected, ()) = soon(async { join!(SubSocket::connect(&endpoint, b"", &limits), serve) }).await;
    let hung_up = "the peer closed on hearing of a SUB socket, so it is none of the kind: compare the port with the \
        publisher's (`endpoint`, or `event_port_offset`)";
    assert_eq!(connected.err().unwrap().to_string(), hung_up);
    let gone = soon(SubSocket::connect(&endpoint, b"", &limits)).await.err().unwrap();
    assert!(matches!(gone, ZmqError::Unreachable { .. }), "{gone}");
    let unknown: Endpoint = "tcp://no-such-host.invalid:5557".parse().unwrap();
    let unknown = soon(SubSocket::connect(&unknown, b"", &limits)).await.err().unwrap();
    assert!(unknown.to_string().starts_with("tcp://no-such-host.invalid:5557: "), "{unknown}");
}

#[tokio::test]
async fn names_are_looked_up() {
    let (endpoint, serve) = peer(async |mut stream| {
        publisher(&mut stream, 0).await;
        stream.write_all(&frame(0, b"one")).await.unwrap();
        stream
    })
    .await;
    let Endpoint::Tcp { port, .. } = endpoint else { panic!("{endpoint}") };
    let named = Endpoint::Tcp { host: "localhost".to_owned(), port };
    let receive = async { SubSocket::connect(&named, b"", &patient()).await.unwrap().recv().await.unwrap() };
    let (frames, _open): (Frames, _) = soon(async { join!(receive, serve) }).await;
    assert_eq!(frames, [b"one"]);
}

#[test]
fn endpoints_are_read_and_written() {
    for text in ["tcp://127.0.0.1:5557", "tcp://[::1]:5557", "tcp://node-3.example:18000", "tcp://*:0", "ipc:///tmp/kv"]
    {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
    }
    for (text, problem) in [
        ("127.0.0.1:5557", "expected tcp://host:port or ipc://path"),
        ("inproc://kv", "expected tcp://host:port or ipc://path"),
        ("tcp://host", "the port is missing"),
        ("tcp://host:", "the port is not a number from 0 to 65535"),
        ("tcp://host:65536", "the port is not a number from 0 to 65535"),
        ("tcp://:5557", "the host is missing"),
        ("tcp://::1:5557", "an IPv6 address stands in brackets"),
        ("ipc://", "the path is missing"),
        ("ipc://@kv", "abstract names are not spoken; give a path"),
    ] {
        let error = text.parse::<Endpoint>().unwrap_err().to_string();
        assert_eq!(error, format!("endpoint `{text}`: {problem}"));
    }
    for wildcard in ["tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://host:0"] {
        assert!(wildcard.parse::<Endpoint>().unwrap().not_to_connect_to().is_some(), "{wildcard}");
    }
}
