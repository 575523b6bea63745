//! HTTP from one node to another: the router's to its workers, a decode worker's to the prefill worker it pulls from.
//!
//! Owns the connections: pooled, without proxy, without delay of small writes, never TLS. A call that its caller drops
//! closes its connection, so that the other side notices. Nothing is sent twice: a request is tried anew only on a
//! pooled connection that closed before a byte of it was written. Answers are not judged here: any status is an answer.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// See the module. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Upstream {
    client: Client<HttpConnector, Body>,
}

/// There is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer {
    /// Nothing was sent: the address is wrong or nobody listens there.
    pub unreached: bool,
    /// Causes, outermost first.
    pub message: String,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for NoAnswer {}

impl Upstream {
    /// No connection yet. `connect`: longest time until one stands.
    pub fn new(connect: Duration) -> Upstream {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect));
        // Idle connections end before a server's usual keep-alive does, so that a request seldom meets a closing one.
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(4))
            .pool_timer(TokioTimer::new())
            .build(connector);
        Upstream { client }
    }

    /// Posts a JSON body; the answer's head, its body still to come. `headers` go along beside the content type.
    pub async fn post(&self, url: &str, headers: HeaderMap, json: Bytes) -> Result<Response<Body>, NoAnswer> {
        self.send(Method::POST, url, headers, Some(json)).await
    }

    /// Any method, with or without a JSON body.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        json: Option<Bytes>,
    ) -> Result<Response<Body>, NoAnswer> {
        let address: Uri = url
            .parse()
            .map_err(|error| NoAnswer { unreached: true, message: format!("`{url}` is no URL: {error}") })?;
        let mut request = Request::new(json.clone().map_or_else(Body::empty, Body::from));
        *request.method_mut() = method;
        *request.uri_mut() = address;
        *request.headers_mut() = headers;
        if json.is_some() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let answer = self
            .client
            .request(request)
            .await
            .map_err(|error| NoAnswer { unreached: error.is_connect(), message: causes(&error) })?;
        Ok(answer.map(Body::new))
    }
}

/// The rest of a body, at most `limit` bytes of it.
pub async fn read(body: Body, limit: usize) -> Result<Bytes, NoAnswer> {
    axum::body::to_bytes(body, limit)
        .await
        .map_err(|error| NoAnswer { unreached: false, message: format!("the answer broke off: {}", causes(&error)) })
}

/// An error and what is behind it, in one line.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut words = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        words.push(cause.to_string());
        next = cause.source();
    }
    words.dedup();
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    async fn listen() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        (listener, url)
    }

    async fn request_of(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"{}") {
            assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0, "the request ends early");
        }
        String::from_utf8(text).unwrap().to_ascii_lowercase()
    }

    fn post(url: String) -> tokio::task::JoinHandle<Result<Response<Body>, NoAnswer>> {
        let upstream = Upstream::new(Duration::from_secs(5));
        let headers = HeaderMap::from_iter([("traceparent".parse().unwrap(), HeaderValue::from_static("t"))]);
        tokio::spawn(async move { upstream.post(&url, headers, Bytes::from_static(b"{}")).await })
    }

    #[test]
    fn chunks_pass_as_they_come() {
        run(async {
            let (listener, url) = listen().await;
            let call = post(url);
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = request_of(&mut stream).await;
            for part in ["post /x http/1.1\r\n", "traceparent: t\r\n", "content-type: application/json\r\n"] {
                assert!(request.contains(part), "{request}");
            }
            stream.write_all(b"HTTP/1.1 503 X\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n").await.unwrap();
            let answer = call.await.unwrap().unwrap();
            assert_eq!(answer.status(), 503);
            let mut chunks = futures_util::StreamExt::boxed(answer.into_body().into_data_stream());
            let mut next = async || futures_util::StreamExt::next(&mut chunks).await;
            assert_eq!(next().await.unwrap().unwrap(), "ab");
            stream.write_all(b"1\r\nc\r\n0\r\n\r\n").await.unwrap();
            assert_eq!(next().await.unwrap().unwrap(), "c");
            assert!(next().await.is_none());
        });
    }

    #[test]
    fn a_dropped_call_closes_its_connection() {
        run(async {
            let (listener, url) = listen().await;
            for head in ["", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n"] {
                let call = post(url.clone());
                let (mut stream, _) = listener.accept().await.unwrap();
                request_of(&mut stream).await;
                stream.write_all(head.as_bytes()).await.unwrap();
                if head.is_empty() {
                    call.abort();
                } else {
                    drop(call.await.unwrap().unwrap());
                }
                let end = stream.read(&mut [0; 8]).await;
                assert!(end.as_ref().is_ok_and(|read| *read == 0) || end.is_err(), "{end:?}");
            }
        });
    }

    #[test]
    fn no_answer_says_whether_anything_was_sent() {
        run(async {
            let (listener, url) = listen().await;
            let call = post(url.clone());
            let (mut stream, _) = listener.accept().await.unwrap();
            request_of(&mut stream).await;
            drop(stream);
            let lost = call.await.unwrap().unwrap_err();
            assert!(!lost.unreached, "{lost}");
            drop(listener);
            let refused = post(url).await.unwrap().unwrap_err();
            assert!(refused.unreached && refused.message.contains("refused"), "{refused}");
            assert!(post("no url".into()).await.unwrap().unwrap_err().unreached);
            let broken = std::io::Error::new(ErrorKind::BrokenPipe, "inner");
            assert_eq!(causes(&broken), "inner");
        });
    }

    #[test]
    fn a_long_body_is_cut_and_a_short_one_read() {
        run(async {
            assert_eq!(read(Body::from("abc"), 3).await.unwrap(), "abc");
            assert!(read(Body::from("abcd"), 3).await.is_err());
        });
    }
}
