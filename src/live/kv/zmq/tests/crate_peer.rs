//! The crate `zeromq` at the other end of each of our sockets.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zeromq::{Socket, SocketRecv, SocketSend, ZmqMessage};

use super::pair::{loopback, until_subscribed};
use super::peer::{frame, greeting, patient, peer, ready, soon};
use crate::live::kv::zmq::{DealerSocket, Frames, PubSocket, QueueLimits, RouterSocket, SubSocket};

fn message(frames: &[&[u8]]) -> ZmqMessage {
    frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect::<Vec<_>>().try_into().unwrap()
}

fn frames_of(message: ZmqMessage) -> Frames {
    message.into_vec().into_iter().map(Vec::from).collect()
}

#[tokio::test]
async fn its_pub_is_read_by_our_sub() {
    let mut publisher = zeromq::PubSocket::new();
    let endpoint = publisher.bind("tcp://127.0.0.1:0").await.unwrap().to_string().parse().unwrap();
    let mut sub = soon(SubSocket::connect(&endpoint, b"kv@", &patient())).await.unwrap();
    let received = soon(async {
        // Until the subscription is in force, messages pass by.
        loop {
            publisher.send(message(&[b"other", &[0; 8], b"no"])).await.unwrap();
            publisher.send(message(&[b"kv@pod", &[0; 8], &[5; 300]])).await.unwrap();
            tokio::select! {
                received = sub.recv() => break received.unwrap(),
                () = tokio::time::sleep(std::time::Duration::from_millis(5)) => {}
            }
        }
    });
    assert_eq!(received.await, [b"kv@pod".to_vec(), vec![0; 8], vec![5; 300]]);
}

#[tokio::test]
async fn its_sub_reads_our_pub() {
    let publisher = PubSocket::bind(&loopback(), QueueLimits::default()).await.unwrap();
    let mut sub = zeromq::SubSocket::new();
    soon(sub.connect(&publisher.endpoint().to_string())).await.unwrap();
    sub.subscribe("kv@").await.unwrap();
    until_subscribed(&publisher, b"kv@pod", 1).await;
    assert_eq!(publisher.send(&[&b"other"[..], &[0; 8], b"no"]).queued, 0);
    assert_eq!(publisher.send(&[&b"kv@pod"[..], &[0; 8], &[5; 300]]).queued, 1);
    let received = soon(sub.recv()).await.unwrap();
    assert_eq!(frames_of(received), [b"kv@pod".to_vec(), vec![0; 8], vec![5; 300]]);
    sub.unsubscribe("kv@").await.unwrap();
    until_subscribed(&publisher, b"kv@pod", 0).await;
}

#[tokio::test]
async fn its_router_answers_our_dealer() {
    let mut router = zeromq::RouterSocket::new();
    let endpoint = router.bind("tcp://127.0.0.1:0").await.unwrap().to_string().parse().unwrap();
    let ask = async {
        let request = [&b""[..], &7u64.to_be_bytes()];
        let mut dealer = DealerSocket::ask(&endpoint, &request, &patient(), patient().connect).await.unwrap();
        [dealer.recv().await.unwrap(), dealer.recv().await.unwrap()]
    };
    let serve = async {
        let request = frames_of(router.recv().await.unwrap());
        assert_eq!(request[1..], [vec![], 7u64.to_be_bytes().to_vec()]);
        for reply in [[&b""[..], &[0; 8], b"batch"], [&b""[..], &[0xFF; 8], b""]] {
            router.send(message(&[&[&request[0][..]], &reply[..]].concat())).await.unwrap();
        }
    };
    let (replies, ()) = soon(async { tokio::join!(ask, serve) }).await;
    assert_eq!(replies, [[vec![], vec![0; 8], b"batch".to_vec()], [vec![], vec![0xFF; 8], vec![]]]);
}

#[tokio::test]
async fn its_dealer_is_answered_by_our_router() {
    let router = RouterSocket::bind(&loopback(), |request| {
        let asked = request.into_iter().skip(1).collect::<Frames>();
        Box::new([asked, vec![vec![], vec![0xFF; 8], vec![]]].into_iter())
    })
    .await
    .unwrap();
    let mut dealer = zeromq::DealerSocket::new();
    soon(dealer.connect(&router.endpoint().to_string())).await.unwrap();
    for from in [1u64, 2] {
        dealer.send(message(&[b"", &from.to_be_bytes()])).await.unwrap();
        assert_eq!(frames_of(soon(dealer.recv()).await.unwrap()), [vec![], from.to_be_bytes().to_vec()]);
        assert_eq!(frames_of(soon(dealer.recv()).await.unwrap()), [vec![], vec![0xFF; 8], vec![]]);
    }
}

/// The first reason for a transport of our own. Should this fail one day, look at the others in docs/kv-events.md again.
#[tokio::test]
async fn its_sub_still_takes_a_ping_for_an_error() {
    let (endpoint, serve) = peer(async |mut stream| {
        stream.write_all(&[greeting(1, "NULL"), ready("PUB")].concat()).await.unwrap();
        stream.read_exact(&mut [0; 64]).await.unwrap();
        stream.write_all(&[frame(4, b"\x04PING\x00\x0a"), frame(0, b"after")].concat()).await.unwrap();
        stream
    })
    .await;
    let receive = async {
        let mut sub = zeromq::SubSocket::new();
        sub.subscribe("").await.unwrap();
        sub.connect(&endpoint.to_string()).await.unwrap();
        sub.recv().await
    };
    let (received, _open) = soon(async { tokio::join!(receive, serve) }).await;
    assert_eq!(received.unwrap_err().to_string(), "Codec Error: Unknown command received");
}
