//! Publishers that are ready and then misbehave, or just live longer than the connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::join;
use tokio::net::TcpStream;

use super::peer::{expect, frame, greeting, long_head, patient, peer, publisher, ready, soon};
use crate::live::kv::zmq::{DealerSocket, Frames, Limits, SubSocket, ZmqError};

/// What a subscriber gets, up to the error that ends it, from a publisher of 3.`minor` that does as `script` says.
async fn heard<F>(minor: u8, limits: &Limits, script: impl FnOnce(TcpStream) -> F) -> (Vec<Frames>, ZmqError)
where
    F: Future,
{
    let (endpoint, serve) = peer(async |mut stream| {
        publisher(&mut stream, minor).await;
        script(stream).await
    })
    .await;
    let receive = async {
        let mut sub = SubSocket::connect(&endpoint, b"", limits).await.unwrap();
        let mut messages = Vec::new();
        loop {
            match sub.recv().await {
                Ok(frames) => messages.push(frames),
                Err(error) => return (messages, error),
            }
        }
    };
    soon(async { join!(receive, serve) }).await.0
}

/// Says no more, and stays until the other side has read all: a peer that goes with something unread resets.
async fn leave(mut stream: TcpStream) -> TcpStream {
    stream.shutdown().await.unwrap();
    stream
}

/// Keeps writing until the other side is gone.
async fn flood(stream: &mut TcpStream, bytes: &[u8]) {
    while stream.write_all(bytes).await.is_ok() {}
}

#[tokio::test]
async fn a_ping_is_answered_with_its_context_and_messages_go_on() {
    let (messages, end) = heard(1, &patient(), async |mut stream| {
        stream.write_all(&frame(1, b"first")).await.unwrap();
        // Between the frames of a message, too.
        stream.write_all(&frame(4, b"\x04PING\x00\x0actx")).await.unwrap();
        expect(&mut stream, &frame(4, b"\x04PONGctx")).await;
        stream.write_all(&frame(4, b"\x04PING\x00\x00")).await.unwrap();
        expect(&mut stream, &frame(4, b"\x04PONG")).await;
        stream.write_all(&[frame(4, b"\x04PING"), frame(4, b"\x07UNHEARD!")].concat()).await.unwrap();
        expect(&mut stream, &frame(4, b"\x04PONG")).await;
        stream.write_all(&frame(0, b"second")).await.unwrap();
    })
    .await;
    assert_eq!(messages, [[b"first".to_vec(), b"second".to_vec()]]);
    assert!(matches!(end, ZmqError::Closed), "{end}");
}

#[tokio::test]
async fn pings_of_a_peer_that_never_reads_do_not_pile_up() {
    let (messages, _) = heard(1, &patient(), async |mut stream| {
        let pings = frame(4, b"\x04PING\x00\x0a0123456789abcdef").repeat(1000);
        for _ in 0..1000 {
            stream.write_all(&pings).await.unwrap();
        }
        stream.write_all(&frame(0, b"after a million")).await.unwrap();
        leave(stream).await
    })
    .await;
    assert_eq!(messages, [[b"after a million"]]);
}

#[tokio::test]
async fn a_reset_right_after_ready_ends_the_connection() {
    let (endpoint, serve) = peer(async |mut stream| {
        stream.write_all(&[greeting(0, "NULL"), ready("PUB")].concat()).await.unwrap();
        stream.read_exact(&mut [0; 64]).await.unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    })
    .await;
    let receive = async {
        match SubSocket::connect(&endpoint, b"", &patient()).await {
            Ok(mut sub) => sub.recv().await.unwrap_err(),
            Err(error) => error,
        }
    };
    let (error, ()) = soon(async { join!(receive, serve) }).await;
    assert!(matches!(error, ZmqError::Closed | ZmqError::Broken(_)), "{error}");
}

#[tokio::test]
async fn a_frame_of_a_tebibyte_is_refused_unread() {
    for bytes in [1 << 40, 200_000_000_000, u64::MAX] {
        let script = async |mut stream: TcpStream| flood(&mut stream, &long_head(0, bytes)).await;
        let (messages, end) = heard(0, &patient(), script).await;
        assert_eq!(
            (messages, end.to_string()),
            (vec![], format!("a message of {bytes} bytes or more, allowed are 8388608"))
        );
    }
    let script = async |mut stream: TcpStream| flood(&mut stream, &long_head(4, 1 << 40)).await;
    let (_, end) = heard(0, &patient(), script).await;
    assert!(matches!(end, ZmqError::TooLarge { bytes, .. } if bytes == 1 << 40), "a command: {end}");
}

#[tokio::test]
async fn frames_count_towards_their_message() {
    let limits = Limits { max_message_bytes: 100, ..patient() };
    let (messages, end) = heard(0, &limits, async |mut stream| {
        let fits = [frame(1, &[7; 60]), frame(0, &[8; 40])].concat();
        let more = [frame(1, &[7; 60]), frame(0, &[8; 41])].concat();
        stream.write_all(&[fits.clone(), fits, more].concat()).await.unwrap();
        stream
    })
    .await;
    assert_eq!(messages.len(), 2, "a message gives back its bytes");
    assert!(matches!(end, ZmqError::TooLarge { bytes: 101, limit: 100 }), "{end}");
}

#[tokio::test]
async fn an_endless_message_ends_at_the_limit_of_frames() {
    for part in [frame(1, b""), frame(1, &[1; 200])] {
        let many = part.repeat(1000);
        let (messages, end) = heard(0, &patient(), async |mut stream| flood(&mut stream, &many).await).await;
        assert_eq!((messages, end.to_string()), (vec![], "a message of more than 16 frames".to_owned()));
    }
    let most = [frame(1, b"").repeat(15), frame(0, b"")].concat();
    let (messages, _) = heard(0, &patient(), async |mut stream| stream.write_all(&most).await.unwrap()).await;
    assert_eq!(messages, [vec![Vec::<u8>::new(); 16]]);
}

#[tokio::test]
async fn what_came_whole_before_the_end_is_delivered_and_a_part_is_not() {
    let (messages, end) = heard(0, &patient(), async |mut stream| {
        let cut = [frame(0, b"whole"), frame(1, b"half"), long_head(0, 1000), vec![5; 999]].concat();
        stream.write_all(&cut).await.unwrap();
    })
    .await;
    assert_eq!(messages, [[b"whole"]]);
    assert!(matches!(end, ZmqError::Closed), "{end}");
}

#[tokio::test]
async fn a_peer_that_answers_no_heartbeat_counts_as_dead() {
    let limits = Limits { heartbeat: Some(Duration::from_millis(10)), ..patient() };
    let (messages, end) = heard(1, &limits, async |mut stream| {
        stream.write_all(&frame(0, b"last words")).await.unwrap();
        for _ in 0..3 {
            expect(&mut stream, &frame(4, b"\x04PING\x00\x00")).await;
        }
        // Open, and silent.
        stream
    })
    .await;
    assert_eq!(messages, [[b"last words"]]);
    assert_eq!(end.to_string(), "the peer answered no heartbeat for 40 ms");
}

#[tokio::test]
async fn a_peer_that_answers_lives_and_an_old_one_is_not_asked() {
    let limits = Limits { heartbeat: Some(Duration::from_millis(10)), ..patient() };
    let (messages, _) = heard(1, &limits, async |mut stream| {
        for _ in 0..10 {
            expect(&mut stream, &frame(4, b"\x04PING\x00\x00")).await;
            stream.write_all(&frame(4, b"\x04PONG")).await.unwrap();
        }
        stream.write_all(&frame(0, b"quiet, not dead")).await.unwrap();
        leave(stream).await
    })
    .await;
    assert_eq!(messages, [[b"quiet, not dead"]]);
    let (messages, _) = heard(0, &limits, async |mut stream| {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(
            stream.try_read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock),
            "3.0 knows no PING"
        );
        stream.write_all(&frame(0, b"old")).await.unwrap();
    })
    .await;
    assert_eq!(messages, [[b"old"]]);
}

#[tokio::test]
async fn a_receive_that_is_given_up_loses_nothing() {
    let wanted: Vec<Frames> = (0..200u8).map(|n| vec![vec![n; 3], vec![n; 70_000], vec![n]]).collect();
    let bytes: Vec<u8> = wanted
        .iter()
        .flat_map(|m| [frame(1, &m[0]), long_head(1, 70_000), m[1].clone(), frame(0, &m[2])].concat())
        .collect();
    let (endpoint, serve) = peer(async |mut stream| {
        publisher(&mut stream, 0).await;
        for piece in bytes.chunks(33_333) {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        stream
    })
    .await;
    let receive = async {
        let mut sub = SubSocket::connect(&endpoint, b"", &patient()).await.unwrap();
        let mut messages = Vec::new();
        while messages.len() < wanted.len() {
            tokio::select! {
                biased;
                received = sub.recv() => messages.push(received.unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
        messages
    };
    let (messages, _open) = soon(async { join!(receive, serve) }).await;
    assert!(messages == wanted);
}

#[tokio::test]
async fn a_replay_that_never_ends_costs_its_time_limit() {
    let within = Duration::from_millis(200);
    let (endpoint, serve) = peer(async |mut stream| {
        stream.write_all(&[greeting(1, "NULL"), ready("ROUTER")].concat()).await.unwrap();
        let reply = [frame(1, b""), frame(1, &[0; 8]), frame(0, b"batch")].concat();
        flood(&mut stream, &reply).await;
    })
    .await;
    let ask = async {
        let mut dealer = DealerSocket::ask(&endpoint, &[&b""[..], &[0; 8]], &patient(), within).await.unwrap();
        loop {
            if let Err(error) = dealer.recv().await {
                return error;
            }
        }
    };
    let (error, ()) = soon(async { join!(ask, serve) }).await;
    assert_eq!(error.to_string(), "the replay took longer than 200 ms");
}
