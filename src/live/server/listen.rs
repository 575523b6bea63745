//! The door of every server here: accepts connections, gives each its limits, and ends them.
//!
//! A client that says nothing, or takes for ever to say it, costs a task and a descriptor: heads have a time limit, which
//! runs while a connection is idle, too. Bodies have theirs where they are read (`http::read`). Answers have none: a stream
//! of events lasts as long as it lasts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::seats::Seats;

/// Wait after an accept that failed while nothing could be closed for it.
const REST: Duration = Duration::from_millis(100);
/// Longest time that a caller without a place has to take its answer.
const LINGER: Duration = Duration::from_millis(500);
/// Callers without a place that are told so at a time; more are told nothing.
pub(super) const LINGERING: usize = 32;

/// What a server bears.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// From the opening of a connection, or its last answer, to the end of the next request's head.
    pub head: Duration,
    /// Connections at once; `None`: as many as come.
    pub seats: Option<Arc<Seats>>,
    /// What a caller is told for whom there is no place: a whole HTTP answer.
    pub full: &'static str,
}

impl Bounds {
    /// Of a node: its callers keep connections for a while (a minute and more is usual), and are the run's own.
    pub const NODE: Bounds = Bounds { head: Duration::from_secs(120), seats: None, full: "" };
}

/// Serves without delay of small writes. Ends once `stopped` says so and every connection is closed; when it is dropped,
/// connections break.
pub(super) async fn listen(listener: TcpListener, routes: Router, bounds: Bounds, stopped: watch::Receiver<bool>) {
    // Made once: routes served as they are would be laid out anew for each connection, 8 KB each.
    let routes: Router = routes.with_state(());
    let (mut connections, mut turned_away) = (JoinSet::new(), JoinSet::new());
    let mut stop = stopped.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stopped| *stopped) => break,
        };
        while connections.try_join_next().is_some() {}
        while turned_away.try_join_next().is_some() {}
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                make_room(&error, bounds.seats.as_deref(), &mut turned_away).await;
                continue;
            }
        };
        // A connection that is gone already shows it on its first read.
        let _ = stream.set_nodelay(true);
        let (routes, head, stop) = (routes.clone(), bounds.head, stopped.clone());
        match bounds.seats.as_ref().map(Seats::take) {
            None => {
                connections.spawn(serve(stream, routes, head, stop));
            }
            Some(Some(place)) => {
                connections.spawn(async move {
                    tokio::select! {
                        () = serve(place.watch(stream), routes, head, stop) => {}
                        () = place.wanted() => {}
                    }
                });
            }
            Some(None) if turned_away.len() < LINGERING => {
                turned_away.spawn(turn_away(stream, bounds.full));
            }
            Some(None) => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// After an accept that failed: without descriptors whoever is of least use goes at once, as the next caller waits.
async fn make_room(error: &io::Error, seats: Option<&Seats>, turned_away: &mut JoinSet<()>) {
    let is_short = [Errno::MFILE, Errno::NFILE].iter().any(|short| Some(short.raw_os_error()) == error.raw_os_error());
    if is_short && !turned_away.is_empty() {
        // They were told already.
        turned_away.shutdown().await;
    } else if is_short && seats.is_some_and(Seats::make_room) {
        // Its task closes it now.
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(REST).await;
    }
}

/// One connection, to its end.
async fn serve<S>(stream: S, routes: Router, head: Duration, mut stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    tokio::pin!(connection);
    // What goes wrong on a connection is its client's to see.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Tells a caller that there is no place. What it sent is read before the end, or its kernel would drop the answer.
async fn turn_away(mut stream: TcpStream, answer: &str) {
    let told = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut sent = [0; 4096];
        while stream.read(&mut sent).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(LINGER, told).await;
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::response::{IntoResponse, Response};
    use axum::routing::{get, post};
    use futures_util::stream;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::live::server::http::read_within;

    const HEAD: Duration = Duration::from_millis(400);
    const BODY: Duration = Duration::from_millis(300);
    const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";

    /// A server of its own; its address, and the hand that stops it.
    async fn serve(most: usize) -> (String, watch::Sender<bool>, Arc<Seats>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let body = async |body: Body| -> Response {
            read_within(body, 1000, BODY).await.map_or_else(IntoResponse::into_response, IntoResponse::into_response)
        };
        // An answer that takes longer than any limit of what is asked.
        let events = stream::unfold(0, async |number| {
            sleep(HEAD / 2).await;
            (number < 6).then(|| (Ok::<_, std::io::Error>(Bytes::from(format!("data: {number}\n\n"))), number + 1))
        });
        let events = Arc::new(std::sync::Mutex::new(Some(Box::pin(events))));
        let stream = get(async move || Body::from_stream(events.lock().unwrap().take().unwrap()));
        let routes = Router::new().route("/body", post(body)).route("/stream", stream);
        let (stop, stopped) = watch::channel(false);
        let seats = Seats::new(most);
        let bounds = Bounds { head: HEAD, seats: Some(Arc::clone(&seats)), full: FULL };
        tokio::spawn(listen(listener, routes, bounds, stopped));
        (address, stop, seats)
    }

    async fn say(address: &str, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// All that comes until the server closes, and after how long that was.
    async fn hear(mut stream: TcpStream) -> (String, Duration) {
        let (began, mut text) = (Instant::now(), Vec::new());
        timeout(Duration::from_secs(20), stream.read_to_end(&mut text)).await.expect("it closes").unwrap();
        (String::from_utf8(text).unwrap(), began.elapsed())
    }

    const GOOD: &str = "POST /body HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";
    const SLOW: &str = "POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 900\r\n\r\n";

    #[tokio::test]
    async fn heads_and_idle_connections_have_a_limit() {
        let (address, _stop, seats) = serve(100).await;
        let mut slow = say(&address, "GET /str").await;
        for _ in 0..3 {
            slow.write_all(b"e").await.unwrap();
            sleep(HEAD / 8).await;
        }
        let idle = say(&address, &GOOD.replace("connection: close\r\n", "")).await;
        let silent = say(&address, "").await;
        let (slow, idle, silent) = tokio::join!(hear(slow), hear(idle), hear(silent));
        assert!(!slow.0.contains("200 OK"), "{slow:?}");
        assert!(idle.0.contains("200 OK") && idle.1 >= HEAD, "{idle:?}");
        assert_eq!(silent.0, "");
        assert_eq!(seats.counts().open, 0);
    }

    #[tokio::test]
    async fn a_body_byte_by_byte_is_refused_and_holds_up_nobody() {
        let (address, _stop, _) = serve(100).await;
        let slow: Vec<TcpStream> = futures_util::future::join_all((0..60).map(|_| say(&address, SLOW))).await;
        let slow = slow.into_iter().map(async |mut stream| {
            for _ in 0..3 {
                // Perhaps refused already.
                let _ = stream.write_all(b"x").await;
                sleep(BODY / 4).await;
            }
            hear(stream).await.0
        });
        let good = async { timeout(Duration::from_secs(5), async { hear(say(&address, GOOD).await).await }).await };
        let (slow, good) = tokio::join!(futures_util::future::join_all(slow), good);
        assert!(good.expect("served meanwhile").0.contains("200 OK"));
        for answer in slow {
            assert!(answer.contains("408 Request Timeout") && answer.contains("send it faster"), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_stream_of_events_outlives_the_limits() {
        let (address, _stop, _) = serve(100).await;
        let (text, took) =
            hear(say(&address, "GET /stream HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await).await;
        assert!(text.contains("data: 5") && took > HEAD + BODY, "{took:?}: {text}");
    }

    #[tokio::test]
    async fn too_many_are_told_so_and_the_longest_idle_makes_room() {
        let (address, _stop, seats) = serve(8).await;
        let idle = futures_util::future::join_all((0..8).map(|_| say(&address, "GET"))).await;
        while seats.counts().open < 8 {
            sleep(Duration::from_millis(1)).await;
        }
        // Not all of them have been idle for long: one more is told so, or takes the place of the first.
        let (answer, _) = hear(say(&address, GOOD).await).await;
        assert!(answer.contains("503") && answer.contains("retry-after: 1") || answer.contains("200 OK"), "{answer}");
        sleep(Duration::from_millis(300)).await;
        let (answer, took) = hear(say(&address, GOOD).await).await;
        assert!(answer.contains("200 OK") && took < Duration::from_secs(5), "{took:?}: {answer}");
        let counts = seats.counts();
        assert!(counts.evicted + counts.refused >= 1 && counts.open <= 8, "{counts:?}");
        drop(idle);
    }

    #[tokio::test]
    async fn a_stop_ends_idle_connections_and_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = watch::channel(false);
        let bounds = Bounds { seats: Some(Seats::new(4)), ..Bounds::NODE };
        let server = tokio::spawn(listen(listener, Router::new(), bounds, stopped));
        let idle = say(&address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        sleep(Duration::from_millis(50)).await;
        stop.send(true).unwrap();
        timeout(Duration::from_secs(10), server).await.expect("it ends").unwrap();
        assert!(hear(idle).await.0.contains("404"));
    }
}
