//! TLS with a certificate authority of one's own. The key in tests/data/tls is the test server's alone.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::fake::{Fake, Script, generate_event};
use super::support::{Rig, block_on, failure, generate_of, target, two_turns};
use crate::live::{Secrets, Target};
use crate::protocol::{ErrorClass, Finish};

const CA: &[u8] = include_bytes!("../../../../tests/data/tls/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("../../../../tests/data/tls/server.pem");
const KEY: &[u8] = include_bytes!("../../../../tests/data/tls/server.key");

/// Serves ten tokens to each connection; its address.
async fn tls_server() -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = vec![0; 1 << 16];
            let _ = stream.read(&mut request).await;
            let events = [generate_event(10, r#"{"type":"length"}"#), "data: [DONE]\n\n".into()].concat();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(format!("{head}{events}").as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    format!("https://localhost:{port}")
}

#[test]
fn a_server_is_trusted_by_the_authority_named_for_it_and_by_no_other() {
    block_on(async {
        let trace = two_turns();
        let url = tls_server().await;
        let with = |ca_pem| Target { secrets: Secrets { ca_pem, headers: Vec::new() }, ..target(&[&url]) };
        let answer = Rig::new(&trace, with(Some(CA.to_vec()))).finish(generate_of(&trace, 0)).await;
        assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Length, 10));
        let answer = Rig::new(&trace, with(Some(CERTIFICATE.to_vec()))).finish(generate_of(&trace, 0)).await;
        let (class, message) = failure(&answer);
        assert_eq!(class, ErrorClass::WorkerLost);
        assert!(message.contains("certificate") && message.contains("live.ca_file"), "{message}");
    });
}

#[test]
fn a_wrong_scheme_is_told_with_the_right_one() {
    block_on(async {
        let trace = two_turns();
        let fake = Fake::start(|_| Script::tokens(10)).await;
        // A server of HTTP that answers anything, as most do, with a refusal.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 64]).await;
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
            }
        });
        let answer =
            Rig::new(&trace, target(&[&format!("https://127.0.0.1:{port}")])).finish(generate_of(&trace, 0)).await;
        let (_, message) = failure(&answer);
        assert!(message.ends_with("it does not speak TLS; write http:// in its address"), "{message}");
        // One that waits for the end of a line that never comes.
        let mut silent = target(&[&fake.url.replace("http:", "https:")]);
        silent.limits.connect = std::time::Duration::from_millis(100);
        let answer = Rig::new(&trace, silent).finish(generate_of(&trace, 0)).await;
        assert!(failure(&answer).1.ends_with("if it speaks no TLS, write http:// in its address"), "{answer:?}");
    });
}
