//! A peer that does what a test tells it, byte for byte.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::live::kv::zmq::{Endpoint, Limits};

/// Long enough for a machine that is busy with other tests; only a hang takes it.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
}

/// Limits of time that no test runs into by accident.
pub fn patient() -> Limits {
    let long = Duration::from_secs(60);
    Limits { connect: long, handshake: long, heartbeat: None, ..Limits::default() }
}

/// Where a scripted peer listens; it serves one connection.
pub async fn peer<F>(script: impl FnOnce(TcpStream) -> F) -> (Endpoint, impl Future<Output = F::Output>)
where
    F: Future,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    let serve = async move {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        script(stream).await
    };
    (endpoint, serve)
}

/// A greeting of version 3.`minor`.
pub fn greeting(minor: u8, mechanism: &str) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, minor];
    bytes.extend(mechanism.as_bytes());
    bytes.resize(64, 0);
    bytes
}

/// A READY command that names a socket type.
pub fn ready(socket: &str) -> Vec<u8> {
    let mut data = b"\x05READY\x0bSocket-Type".to_vec();
    data.extend((socket.len() as u32).to_be_bytes());
    data.extend(socket.as_bytes());
    frame(4, &data)
}

/// A short frame.
pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags, u8::try_from(body.len()).unwrap()];
    bytes.extend(body);
    bytes
}

/// The head of a frame that announces so many bytes.
pub fn long_head(flags: u8, bytes: u64) -> Vec<u8> {
    let mut head = vec![flags | 2];
    head.extend(bytes.to_be_bytes());
    head
}

/// What a 3.x SUB sends before anything else: greeting, READY, the subscription to `topic`.
pub fn subscriber_hello(topic: &str) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 3, 0];
    bytes.extend(b"NULL");
    bytes.resize(64, 0);
    bytes.extend(ready("SUB"));
    bytes.extend(frame(0, &[&[1], topic.as_bytes()].concat()));
    bytes
}

/// Greets as a PUB of 3.`minor` and reads what a subscriber to everything says.
pub async fn publisher(stream: &mut TcpStream, minor: u8) {
    stream.write_all(&[greeting(minor, "NULL"), ready("PUB")].concat()).await.unwrap();
    expect(stream, &subscriber_hello("")).await;
}

/// Reads exactly these bytes.
pub async fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(read, bytes);
}
