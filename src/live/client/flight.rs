//! One generate request, from its first send to its answer: routing headers, both legs, repeats, who served it.
//!
//! Invariant: ends in exactly one [`Answer`], unless the task is dropped; then every stream of it is closed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};

use crate::base::{Dur, Role, Time, WorkerId};
use crate::live::ServedBy;
use crate::live::api::{INCARNATION_HEADER, PREFILL_HEADER, WORKER_HEADER};
use crate::live::blame::{PATIENCE, is_of_hand_off};
use crate::live::client::body::Rendezvous;
use crate::live::client::http::Counts;
use crate::live::client::leg::{self, LegEnd};
use crate::live::client::line::{Line, OnWorker};
use crate::live::client::outbox::Parcel;
use crate::live::client::routes::Routes;
use crate::live::client::words;
use crate::protocol::{Answer, ErrorClass, Finish, Generate, Outgoing, Phases, Route, RoutingHeader};
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

/// Where it went and what the legs said.
#[derive(Debug)]
struct Landing {
    end: LegEnd,
    prefill: Option<WorkerId>,
    decode: Option<WorkerId>,
    /// From send to the end of the prefill leg.
    prefill_leg: Option<Dur>,
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
    /// Sends it, again where that is allowed, to the end. Gives the answer, and the leg whose connection may be kept.
    pub async fn fly(self, line: &Arc<Line>) -> (Answer, LegEnd) {
        let (mut attempts, mut waited) = (1u16, Duration::ZERO);
        let retries = line.target.retries;
        let mut backoff = retries.backoff;
        loop {
            // Built anew for a repeat: no body waits for a failure that may never come.
            let parcel = line.outbox.parcel(&self.generate, self.copies(line)).await;
            let first = attempts == 1;
            let sent =
                if first { line.begin(Outgoing::Request(self.generate.request)).await } else { line.clock.now() };
            let landing = self.once(line, parcel, sent).await;
            self.look_at_route(line, &landing, sent);
            if let Some(stranger) = landing.stranger(line) {
                line.met_stranger(stranger).await;
            }
            let again = landing.end.again.filter(|_| u32::from(attempts) <= retries.most);
            let Some(again) = again else {
                return self.answer(line, landing, attempts, line.clock.of_wall(waited));
            };
            let wait = again.0.unwrap_or(backoff.min(retries.longest));
            backoff = backoff.saturating_mul(2);
            sleep(wait).await;
            waited += wait;
            attempts += 1;
            Counts::add(&line.http.counts.retries, 1);
        }
    }

    /// Legs that get the body.
    fn copies(&self, line: &Line) -> usize {
        match (self.generate.route, line.target.legs) {
            (Route::Router(_), Legs::Direct) => 2,
            (Route::Worker(_), _) | (Route::Router(_), Legs::Router) => 1,
        }
    }

    async fn once(&self, line: &Arc<Line>, parcel: Parcel, sent: Time) -> Landing {
        match (self.generate.route, line.target.legs) {
            (Route::Worker(worker), _) => self.to_worker(line, worker, parcel, sent).await,
            (Route::Router(header), Legs::Router) => self.to_router(line, header, parcel, sent).await,
            (Route::Router(header), Legs::Direct) => self.both_legs(line, header, parcel, sent).await,
        }
    }

    async fn to_worker(&self, line: &Arc<Line>, worker: WorkerId, parcel: Parcel, sent: Time) -> Landing {
        let Some(url) = line.generate_url(worker) else {
            return Landing::failed(ErrorClass::NoWorker, format!("the target has no {worker}"));
        };
        let _counted = OnWorker::new(line, worker);
        let body = parcel.whole(None);
        let end = self.leg(line, worker, url, &self.headers(line), body, sent).await;
        Landing { end, prefill: None, decode: Some(worker), prefill_leg: None }
    }

    /// A leg to a worker; its failure names it.
    async fn leg(
        &self,
        line: &Line,
        worker: WorkerId,
        url: &Url,
        headers: &HeaderMap,
        body: Bytes,
        sent: Time,
    ) -> LegEnd {
        let mut end = leg::run(line, url, headers, body, sent, &line.target.served_by.pointer).await;
        if let Some(Finish::Error { class: ErrorClass::WorkerLost, message }) = &mut end.finish {
            line.failed_at(worker, message);
            *message = format!("{worker}: {message}");
        }
        end
    }

    async fn to_router(&self, line: &Arc<Line>, header: RoutingHeader, parcel: Parcel, sent: Time) -> Landing {
        let Some(url) = line.router_url() else {
            return Landing::failed(ErrorClass::NoWorker, "the target has no router".to_owned());
        };
        let mut headers = self.headers(line);
        if let Err(message) = self.add_routing(line, header, &mut headers) {
            return Landing::failed(ErrorClass::NoWorker, message);
        }
        let body = parcel.whole(None);
        let mut end = leg::run(line, url, &headers, body, sent, &line.target.served_by.pointer).await;
        if let (None, Some(Finish::Error { class: ErrorClass::WorkerLost, message })) = (end.status, &mut end.finish) {
            *message = format!("the router: {message}");
        }
        Landing { end, prefill: None, decode: None, prefill_leg: None }
    }

    /// The client as its own router: both legs at once; P's failure ends the request.
    async fn both_legs(&self, line: &Arc<Line>, header: RoutingHeader, parcel: Parcel, sent: Time) -> Landing {
        let (p, d) = match line.join(header, &self.prompt) {
            Ok(chosen) => chosen,
            Err(message) => return Landing::failed(ErrorClass::NoWorker, message),
        };
        let (Some(p_url), Some(d_url)) = (line.generate_url(p), line.generate_url(d)) else {
            return Landing::failed(ErrorClass::NoWorker, format!("the target lacks {p} or {d}"));
        };
        let meet = Rendezvous {
            host: p_url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: line.target.addresses.of(p).and_then(|endpoint| endpoint.bootstrap_port),
            room: line.room(),
        };
        let headers = self.headers(line);
        let _counted = OnWorker::new(line, d);
        let (mut prefilled, prefill) = prefill_leg(line, p, p_url, &headers, parcel.for_prefill(&meet), sent);
        let mut guard = AbortOnDrop(Some(prefill.abort_handle()));
        let decode = self.leg(line, d, d_url, &headers, parcel.whole(Some(&meet)), sent);
        tokio::pin!(decode);
        let mut prefill_leg = None;
        let end = tokio::select! {
            biased;
            outcome = &mut prefilled => match prefill_end(line, p, outcome) {
                Err(end) if blame_is_open(&end) => timeout(PATIENCE, decode).await.unwrap_or(*end),
                Err(end) => *end,
                Ok(took) => {
                    prefill_leg = Some(took);
                    decode.await
                }
            },
            end = &mut decode => match end.failure() {
                Some(_) if blame_is_open(&end) => {
                    let outcome = timeout(PATIENCE, &mut prefilled).await;
                    let prefill = outcome.ok().and_then(|outcome| prefill_end(line, p, outcome).err());
                    prefill.filter(|prefill| !blame_is_open(prefill)).map_or(end, |prefill| *prefill)
                }
                _ => end,
            },
        };
        if end.failure().is_none() {
            guard.0 = None;
            finish_later(line, prefill);
        }
        Landing { end, prefill: Some(p), decode: Some(d), prefill_leg }
    }

    fn headers(&self, line: &Line) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
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

    fn answer(&self, line: &Line, landing: Landing, attempts: u16, retry_wait: Dur) -> (Answer, LegEnd) {
        let decode_worker = landing.served_by(line);
        let prefill_worker = landing.prefilled_by(line);
        let phases = landing.phases();
        let mut end = landing.end;
        let tally = std::mem::take(&mut end.tally);
        let named = tally.emulated.as_ref().map(|emulated| emulated.incarnation.to_string());
        let raw = text(&end.head, INCARNATION_HEADER).map(str::to_owned).or(named);
        let echo = &line.target.header.echo_name;
        if let Some(value) = end.head.get(echo.as_str()).filter(|_| !echo.is_empty()) {
            line.keep_echo(self.generate.session, value.clone());
        }
        let lost = || Finish::Error { class: ErrorClass::ConnectionClosed, message: "no answer".to_owned() };
        let answer = Answer {
            request: self.generate.request,
            finish: end.finish.take().unwrap_or_else(lost),
            http_status: end.status,
            prefill_worker,
            decode_worker,
            incarnation: decode_worker.zip(raw).map(|(worker, raw)| line.incarnation(worker, Some(&raw))),
            cached_tokens: tally.cached_tokens,
            output_tokens: tally.tokens,
            first_token_at: tally.first,
            last_token_at: tally.last,
            phases,
            retractions: tally.retractions,
            token_runs: tally.runs,
            attempts,
            retry_wait,
        };
        (answer, end)
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

impl Landing {
    fn failed(class: ErrorClass, message: String) -> Landing {
        let end = LegEnd { finish: Some(Finish::Error { class, message }), ..LegEnd::default() };
        Landing { end, prefill: None, decode: None, prefill_leg: None }
    }

    /// The decode or colocated worker: who was posted to; through a router, the first word that names one.
    fn served_by(&self, line: &Line) -> Option<WorkerId> {
        if self.decode.is_some() {
            return self.decode;
        }
        let addresses = &line.target.addresses;
        let header = &line.target.served_by.header;
        let header = if header.is_empty() { None } else { text(&self.end.head, header) };
        let emulated = self.end.tally.emulated.as_ref().map(|emulated| emulated.worker.as_str());
        let (pointed, own_header) = (self.end.pointed.as_deref(), text(&self.end.head, WORKER_HEADER));
        let said = ServedBy { header, pointed, own_header, emulated };
        let mut named = said.words().filter_map(|word| addresses.named(word));
        named.find(|worker| worker.role != Role::Prefill)
    }

    /// The worker that served it by the target's own word, where that is none of ours.
    fn stranger(&self, line: &Line) -> Option<&str> {
        let header = &line.target.served_by.header;
        let header = if header.is_empty() { None } else { text(&self.end.head, header) };
        let named = header.or(self.end.pointed.as_deref()).filter(|name| !name.is_empty())?;
        let emulated = text(&self.end.head, WORKER_HEADER);
        let is_ours = |name: &str| line.target.addresses.named(name).is_some();
        (!is_ours(named) && !emulated.is_some_and(is_ours)).then_some(named)
    }

    fn prefilled_by(&self, line: &Line) -> Option<WorkerId> {
        if self.prefill.is_some() {
            return self.prefill;
        }
        let emulated = self.end.tally.emulated.as_ref().and_then(|emulated| emulated.prefill_worker.as_deref());
        let words = [text(&self.end.head, PREFILL_HEADER), emulated];
        let mut named = words.into_iter().flatten().filter_map(|word| line.target.addresses.named(word));
        named.find(|worker| worker.role == Role::Prefill)
    }

    /// An emulated worker tells them. Of a real P that the client posted to, all it knows is when its leg ended: queue,
    /// prefill and transfer in one, told as prefill.
    fn phases(&self) -> Phases {
        match &self.end.tally.emulated {
            Some(emulated) => Phases {
                prefill_queue: emulated.prefill_queue_ns.map(Dur),
                prefill: emulated.prefill_ns.map(Dur),
                kv_transfer: emulated.kv_transfer_ns.map(Dur),
                decode_queue: emulated.decode_queue_ns.map(Dur),
            },
            None => Phases { prefill: self.prefill_leg, ..Phases::default() },
        }
    }
}

type Prefilled = oneshot::Receiver<(LegEnd, Dur)>;

/// Starts the prefill leg; what comes of it and how long it took.
fn prefill_leg(
    line: &Arc<Line>,
    p: WorkerId,
    url: &Url,
    headers: &HeaderMap,
    body: Bytes,
    sent: Time,
) -> (Prefilled, JoinHandle<()>) {
    let (tell, prefilled) = oneshot::channel();
    let (line, url, headers) = (Arc::clone(line), url.clone(), headers.clone());
    let task = tokio::spawn(async move {
        let _counted = OnWorker::new(&line, p);
        let mut end = leg::run(&line, &url, &headers, body, sent, "").await;
        let took = line.clock.now().since(sent);
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

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// A session id as a header's value: what HTTP does not allow is escaped.
fn header_text(id: &str) -> String {
    if id.bytes().all(|byte| (b' '..=b'~').contains(&byte)) { id.to_owned() } else { id.escape_default().to_string() }
}
