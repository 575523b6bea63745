//! One generate request, from its first send to its end: routing headers, both legs, repeats.
//!
//! Invariant: when its future is dropped every stream of it is closed, and its [`Course`] holds what had come.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};

use crate::base::{Dur, Role, Time, WorkerId};
use crate::live::blame::{PATIENCE, is_of_hand_off};
use crate::live::client::body::Rendezvous;
use crate::live::client::counts::Counts;
use crate::live::client::landing::{Course, Landing};
use crate::live::client::leg::{self, Asked, LegEnd, Post};
use crate::live::client::line::{Line, OnWorker};
use crate::live::client::outbox::Parcel;
use crate::live::client::routes::Routes;
use crate::live::client::site::Site;
use crate::live::client::words;
use crate::protocol::{ErrorClass, Finish, Generate, Outgoing, Route, RoutingHeader};
use crate::scenario::{Legs, TargetValue};

/// A request that is ready to go.
#[derive(Debug)]
pub(super) struct Flight {
    pub generate: Generate,
    /// Its session's id, for a routing key.
    pub session_id: String,
    /// Prefix keys of its prompt, where a policy reads them.
    pub prompt: Vec<u64>,
}

/// Drops a task with its owner.
#[derive(Debug)]
struct AbortOnDrop(Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            handle.abort();
        }
    }
}

impl Flight {
    /// Sends it, again where that is allowed, to the end.
    pub async fn fly(&self, line: &Arc<Line>, course: &mut Course) {
        let retries = line.target.retries;
        let mut backoff = retries.backoff;
        loop {
            // Built anew for a repeat: no body waits for a failure that may never come.
            let parcel = line.outbox.parcel(&self.generate, self.copies(line)).await;
            let first = course.attempts == 0;
            let sent =
                if first { line.begin(Outgoing::Request(self.generate.request)).await } else { line.clock.now() };
            course.send();
            self.once(line, parcel, sent, &mut course.landing).await;
            self.look_at_route(line, &course.landing, sent);
            if let Some(stranger) = course.landing.stranger(line) {
                line.met_stranger(&stranger).await;
            }
            let again = course.landing.end.again.filter(|_| u32::from(course.attempts) <= retries.most);
            let Some(again) = again else { return };
            let wait = again.0.unwrap_or(backoff.min(retries.longest));
            backoff = backoff.saturating_mul(2);
            sleep(wait).await;
            course.waited += wait;
            Counts::add(&line.http.counts.retries, 1);
        }
    }

    fn asked<'l>(&self, line: &'l Line, sent: Time) -> Asked<'l> {
        Asked { sent, tokens: self.generate.output_tokens, pointer: &line.target.served_by.pointer }
    }

    /// Legs that get the body.
    fn copies(&self, line: &Line) -> usize {
        match (self.generate.route, line.target.legs) {
            (Route::Router(_), Legs::Direct) => 2,
            (Route::Worker(_), _) | (Route::Router(_), Legs::Router) => 1,
        }
    }

    async fn once(&self, line: &Arc<Line>, parcel: Parcel, sent: Time, landing: &mut Landing) {
        match (self.generate.route, line.target.legs) {
            (Route::Worker(worker), _) => self.to_worker(line, worker, parcel, sent, landing).await,
            (Route::Router(header), Legs::Router) => self.to_router(line, header, parcel, sent, landing).await,
            (Route::Router(header), Legs::Direct) => self.both_legs(line, header, parcel, sent, landing).await,
        }
    }

    async fn to_worker(&self, line: &Arc<Line>, worker: WorkerId, parcel: Parcel, sent: Time, landing: &mut Landing) {
        let Some(site) = line.generate_site(worker) else {
            return landing.end.fail(ErrorClass::NoWorker, format!("the target has no {worker}"));
        };
        landing.decode = Some(worker);
        let _counted = OnWorker::new(line, worker);
        let post = Post { site, headers: &self.headers(line), body: parcel.whole(None), asked: self.asked(line, sent) };
        worker_leg(line, worker, post, &mut landing.end).await;
    }

    async fn to_router(
        &self,
        line: &Arc<Line>,
        header: RoutingHeader,
        parcel: Parcel,
        sent: Time,
        landing: &mut Landing,
    ) {
        let end = &mut landing.end;
        let Some(site) = line.router_site() else {
            return end.fail(ErrorClass::NoWorker, "the target has no router".to_owned());
        };
        let mut headers = self.headers(line);
        if let Err(message) = self.add_routing(line, header, &mut headers) {
            return end.fail(ErrorClass::NoWorker, message);
        }
        let post = Post { site, headers: &headers, body: parcel.whole(None), asked: self.asked(line, sent) };
        leg::run(line, post, end).await;
        // With a status, the words of a lost worker are the router's, of one of its own.
        let is_of_its_own = end.status.is_some() && matches!(end.failure(), Some((ErrorClass::WorkerLost, _)));
        if !is_of_its_own {
            name_peer(end, "the router");
        }
    }

    /// The client as its own router: both legs at once; P's failure ends the request.
    async fn both_legs(
        &self,
        line: &Arc<Line>,
        header: RoutingHeader,
        parcel: Parcel,
        sent: Time,
        landing: &mut Landing,
    ) {
        let (p, d) = match line.join(header, &self.prompt) {
            Ok(chosen) => chosen,
            Err(message) => return landing.end.fail(ErrorClass::NoWorker, message),
        };
        let (Some(p_site), Some(site)) = (line.generate_site(p), line.generate_site(d)) else {
            return landing.end.fail(ErrorClass::NoWorker, format!("the target lacks {p} or {d}"));
        };
        (landing.prefill, landing.decode) = (Some(p), Some(d));
        let meet = Rendezvous {
            host: p_site.url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: line.target.addresses.of(p).and_then(|endpoint| endpoint.bootstrap_port),
            room: line.room(),
        };
        let headers = self.headers(line);
        let _counted = OnWorker::new(line, d);
        let asked = Asked { pointer: "", ..self.asked(line, sent) };
        let (prefilled, prefill) = prefill_leg(line, p, p_site, &headers, parcel.for_prefill(&meet), asked);
        let mut guard = AbortOnDrop(Some(prefill.abort_handle()));
        let post = Post { site, headers: &headers, body: parcel.whole(Some(&meet)), asked: self.asked(line, sent) };
        if let Some(failed) = joined(line, (p, prefilled), (d, post), landing).await {
            landing.end = *failed;
        }
        if landing.end.failure().is_none() {
            guard.0 = None;
            finish_later(line, prefill);
        }
    }

    fn headers(&self, line: &Line) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let echo = &line.target.header.echo_name;
        if !echo.is_empty()
            && let Some(value) = line.echo(self.generate.session)
            && let Ok(name) = HeaderName::from_bytes(echo.as_bytes())
        {
            headers.insert(name, value);
        }
        headers
    }

    fn add_routing(&self, line: &Line, header: RoutingHeader, headers: &mut HeaderMap) -> Result<(), String> {
        let config = &line.target.header;
        match header {
            RoutingHeader::None => Ok(()),
            RoutingHeader::RoutingKey(_) => add(headers, &config.key_name, &header_text(&self.session_id)),
            RoutingHeader::TargetWorker(index) => add(headers, &config.target_name, &decode_value(line, index)?),
            RoutingHeader::TargetLegs { prefill, decode } => {
                add(headers, &config.target_name, &decode_value(line, decode)?)?;
                add(headers, &config.prefill_name, &prefill_value(line, prefill)?)
            }
        }
    }

    /// Notices that the router's indices are not what they were.
    fn look_at_route(&self, line: &Arc<Line>, landing: &Landing, sent: Time) {
        let index = match (self.generate.route, line.target.legs) {
            (Route::Router(RoutingHeader::TargetWorker(index)), Legs::Router)
            | (Route::Router(RoutingHeader::TargetLegs { decode: index, .. }), Legs::Router) => index,
            (Route::Router(_) | Route::Worker(_), _) => return,
        };
        let intended = WorkerId::new(Role::Decode, index);
        let elsewhere = landing.served_by(line).is_some_and(|served| served != intended);
        let nowhere = landing.end.failure().is_some_and(|(class, _)| class == ErrorClass::NoWorker);
        if elsewhere || nowhere {
            Routes::missed(line, sent);
        }
    }
}

/// A leg to a worker; its failure names it.
async fn worker_leg(line: &Line, worker: WorkerId, post: Post<'_>, end: &mut LegEnd) {
    leg::run(line, post, end).await;
    if let Some(Finish::Error { class: ErrorClass::WorkerLost, message }) = &end.finish {
        line.failed_at(worker, message);
    }
    name_peer(end, &worker.to_string());
}

/// Puts who it was before the words of a connection that failed: they have an address alone.
fn name_peer(end: &mut LegEnd, peer: &str) {
    use ErrorClass::{ConnectTimeout, ConnectionClosed, WorkerLost};
    if let Some(Finish::Error { class: ConnectTimeout | ConnectionClosed | WorkerLost, message }) = &mut end.finish {
        *message = format!("{peer}: {message}");
    }
}

/// How the target header names D `index`.
fn decode_value(line: &Line, index: u16) -> Result<String, String> {
    let worker = WorkerId::new(Role::Decode, index);
    match line.target.header.target_value {
        TargetValue::Index => {
            let index = line.routes.index(index).map(|index| index.to_string());
            index.ok_or_else(|| format!("no index of the router reaches {worker}"))
        }
        TargetValue::Url | TargetValue::Id => named(line, worker),
    }
}

/// How our own header names P `index`: our router counts all of them, in the order of its list.
fn prefill_value(line: &Line, index: u16) -> Result<String, String> {
    match line.target.header.target_value {
        TargetValue::Index => Ok(index.to_string()),
        TargetValue::Url | TargetValue::Id => named(line, WorkerId::new(Role::Prefill, index)),
    }
}

fn named(line: &Line, worker: WorkerId) -> Result<String, String> {
    line.target.named_in_header(worker).ok_or_else(|| format!("the target has no {worker}"))
}

fn add(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let wrong = || format!("`{name}: {value}` is no HTTP header");
    let value = HeaderValue::from_str(value).map_err(|_| wrong())?;
    headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
    Ok(())
}

/// Reads D's leg to its end while P's is under way. The end of P's leg, when that is the request's.
async fn joined(
    line: &Line,
    (p, mut prefilled): (WorkerId, Prefilled),
    (d, post): (WorkerId, Post<'_>),
    landing: &mut Landing,
) -> Option<Box<LegEnd>> {
    {
        let decode = worker_leg(line, d, post, &mut landing.end);
        tokio::pin!(decode);
        tokio::select! {
            biased;
            outcome = &mut prefilled => return match prefill_end(line, p, outcome) {
                Err(end) if blame_is_open(&end) => timeout(PATIENCE, decode).await.is_err().then_some(end),
                Err(end) => Some(end),
                Ok(took) => {
                    landing.prefill_leg = Some(took);
                    decode.await;
                    None
                }
            },
            () = &mut decode => {}
        }
    }
    if !blame_is_open(&landing.end) {
        return None;
    }
    let outcome = timeout(PATIENCE, prefilled).await;
    let prefill = outcome.ok().and_then(|outcome| prefill_end(line, p, outcome).err());
    prefill.filter(|prefill| !blame_is_open(prefill))
}

type Prefilled = oneshot::Receiver<(LegEnd, Dur)>;

/// Starts the prefill leg; what comes of it and how long it took.
fn prefill_leg(
    line: &Arc<Line>,
    p: WorkerId,
    site: &Arc<Site>,
    headers: &HeaderMap,
    body: Bytes,
    asked: Asked<'static>,
) -> (Prefilled, JoinHandle<()>) {
    let (tell, prefilled) = oneshot::channel();
    let (line, site, headers) = (Arc::clone(line), Arc::clone(site), headers.clone());
    let task = tokio::spawn(async move {
        let _counted = OnWorker::new(&line, p);
        let mut end = LegEnd::default();
        leg::run(&line, Post { site: &site, headers: &headers, body, asked }, &mut end).await;
        let took = line.clock.now().since(asked.sent);
        let mut rest = LegEnd { rest: end.rest.take(), ..LegEnd::default() };
        // The request may have ended meanwhile.
        let _ = tell.send((end, took));
        rest.drain().await;
    });
    (prefilled, task)
}

/// How long a prefill leg took, or its end when that ends the request.
fn prefill_end(
    line: &Line,
    p: WorkerId,
    outcome: Result<(LegEnd, Dur), oneshot::error::RecvError>,
) -> Result<Dur, Box<LegEnd>> {
    // Its task ends without a word only at the end of the run.
    let Ok((end, took)) = outcome else { return Ok(Dur::ZERO) };
    let Some(finish) = prefill_failure(line, p, &end) else { return Ok(took) };
    // What P said of itself is nothing that D served.
    Err(Box::new(LegEnd { status: end.status, again: end.again, finish: Some(finish), ..LegEnd::default() }))
}

fn blame_is_open(end: &LegEnd) -> bool {
    end.failure().is_some_and(|(_, words)| is_of_hand_off(words))
}

/// What a prefill leg's end means for the request, if it ends it.
fn prefill_failure(line: &Line, p: WorkerId, end: &LegEnd) -> Option<Finish> {
    let (class, message) = end.failure()?;
    // P has no token of its own to give: the end of its leg is its verdict.
    if class == ErrorClass::NoOutput && end.tally.is_decided() {
        return None;
    }
    line.failed_at(p, message);
    let class = match class {
        ErrorClass::ContextLimit | ErrorClass::KvTransferFailed | ErrorClass::KvTransferTimeout => class,
        // Its word that D has died.
        ErrorClass::WorkerLost if end.status.is_some() => class,
        class if class.is_timeout() => class,
        _ => ErrorClass::PrefillFailed,
    };
    Some(Finish::Error { class, message: words::short(&format!("prefill failed on {p}: {message}")) })
}

/// D has all it needs: what P still says is read for its connection's sake, for a while.
fn finish_later(line: &Line, mut prefill: JoinHandle<()>) {
    let bound = line.target.limits.control;
    tokio::spawn(async move {
        if timeout(bound, &mut prefill).await.is_err() {
            prefill.abort();
        }
    });
}

/// A session id as a header's value: what HTTP does not allow is escaped.
fn header_text(id: &str) -> String {
    if id.bytes().all(|byte| (b' '..=b'~').contains(&byte)) { id.to_owned() } else { id.escape_default().to_string() }
}
