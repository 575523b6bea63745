//! Arrival of generate requests: at the PD router, at a worker; and their end.

use crate::base::{Dur, RequestIx, Role, Time, WorkerId};
use crate::cluster::FaultKind;
use crate::cluster::flight::{Flight, Transfer};
use crate::cluster::machine::{Cluster, Message};
use crate::cluster::router::{RouteAsk, prefix_keys};
use crate::engine::{Cx, Done, Input, Job};
use crate::protocol::{Answer, CallError, ErrorClass, Event, Finish, Generate, Route, RoutingHeader};

impl Cluster {
    /// The PD router takes a request in: chooses both legs and posts the body to both.
    pub(super) fn route(&mut self, cx: Cx<'_>, generate: Generate) {
        if self.unwanted.remove(&generate.request) {
            return;
        }
        self.count_request(cx);
        let header = match generate.route {
            Route::Router(header) => header,
            Route::Worker(_) => RoutingHeader::None,
        };
        let eligible = |role| -> Vec<Option<u32>> {
            let sites = self.sites.iter().filter(|site| site.id.role == role);
            sites.map(|site| site.eligible.then_some(site.in_flight)).collect()
        };
        let (prefill, decode) = (eligible(Role::Prefill), eligible(Role::Decode));
        let prompt = if self.router.reads_prompts() { prefix_keys(cx.tree.ids(generate.prompt)) } else { Vec::new() };
        let ask = RouteAsk { prompt: &prompt, ..header.into() };
        let (p, d) = match self.router.select(ask, &prefill, &decode) {
            Ok((p, d)) => (p, self.config.prefill as usize + d),
            Err(message) => {
                let flight = Flight::new(generate, None, None);
                let answer = flight.failed(&self.sites, ErrorClass::NoWorker, Some(503), message);
                self.flights.insert(answer.request, flight);
                self.end_flight(cx, cx.now, answer);
                return;
            }
        };
        let request = generate.request;
        self.take_off(Flight::new(generate, Some(p), Some(d)));
        if !self.struck_at_arrival(cx, request) {
            let base = self.job(request, cx.now);
            self.post(cx, p, Input::Generate(Job { session: None, hang_after: None, ..base.clone() }));
            self.post(cx, d, Input::Reserve(base));
        }
    }

    /// A request straight to a worker: to its session on D, or to a colocated worker.
    pub(super) fn go_direct(&mut self, cx: Cx<'_>, site: usize, generate: Generate) {
        let request = generate.request;
        if self.unwanted.remove(&request) {
            return;
        }
        self.count_request(cx);
        self.take_off(Flight::new(generate, None, Some(site)));
        if !self.struck_at_arrival(cx, request) {
            let job = self.job(request, cx.now);
            self.post(cx, site, Input::Generate(job));
        }
    }

    /// A message reaches a worker's address; the process it was meant for may be gone.
    pub(super) fn reach_worker(&mut self, cx: Cx<'_>, site: usize, incarnation: u32, input: Input) {
        if let Input::Generate(job) | Input::Reserve(job) = &input
            && !self.flights.contains_key(&job.request)
        {
            // Ended while this leg was on its way.
            return;
        }
        let place = &self.sites[site];
        let alive = place.worker.is_some() && place.incarnation == incarnation;
        let worker = place.id;
        // A new process at the same address answers what is posted to it; what concerns the old one's state is void.
        let posted = matches!(input, Input::Generate(_) | Input::Reserve(_) | Input::Open { .. } | Input::Admit { .. });
        if place.worker.is_none() || (!alive && !posted) {
            self.refuse_connection(cx, worker, input);
            return;
        }
        let failure = match &input {
            Input::Open { call, .. } => self.faults.strike(FaultKind::OpenFailure, worker).map(|fault| {
                let error =
                    CallError { status: Some(fault.status), message: format!("open_session failed on {worker}") };
                (fault.after, Event::Opened { call: *call, worker, result: Err(error) })
            }),
            Input::Admit { call, .. } => self.faults.strike(FaultKind::AdmissionTimeout, worker).map(|fault| {
                let error = CallError { status: None, message: format!("admission call to {worker} timed out") };
                (fault.after, Event::Admission { call: *call, worker, result: Err(error) })
            }),
            _ => None,
        };
        match failure {
            Some((after, event)) => self.schedule(cx.now + after + self.hop(), Message::ToClient(event)),
            None => self.feed(cx, site, input),
        }
    }

    /// A leg says that it is done.
    pub(super) fn leg_done(&mut self, cx: Cx<'_>, at: Time, site: usize, done: Done) {
        let Some(flight) = self.flights.get(&done.request) else { return };
        if flight.prefill == Some(site) && !flight.prefill_open() {
            // P dies, but its KV has left: D goes on without it.
            return;
        }
        let answer = if flight.prefill == Some(site) {
            let worker = self.sites[site].id;
            let (class, words) = match done.finish {
                Finish::Abort { class, message } | Finish::Error { class, message } => (class, message),
                Finish::Length | Finish::Stop => (ErrorClass::PrefillFailed, "ended before its transfer".to_owned()),
            };
            let class = if class == ErrorClass::ContextLimit { class } else { ErrorClass::PrefillFailed };
            flight.failed(&self.sites, class, Some(done.http_status), format!("prefill failed on {worker}: {words}"))
        } else {
            flight.answer(done, &self.sites, self.way_back(flight))
        };
        self.end_flight_but(cx, at, answer, Some(site));
    }

    /// Ends a flight: whatever a leg still holds for it is dropped, the client gets its answer.
    pub(super) fn end_flight(&mut self, cx: Cx<'_>, at: Time, answer: Answer) {
        self.end_flight_but(cx, at, answer, None);
    }

    fn end_flight_but(&mut self, cx: Cx<'_>, at: Time, answer: Answer, done_at: Option<usize>) {
        let Some(back) = self.land(cx, answer.request, done_at) else { return };
        self.schedule(at + back, Message::Answered(answer.request));
        self.answers.insert(answer.request, answer);
    }

    /// The client gave a request up: it is told at once what had reached it.
    pub(super) fn abandon(&mut self, cx: Cx<'_>, request: RequestIx) {
        let answer = self.received(cx.now, request);
        let (is_back, is_inside) = (self.answers.remove(&request).is_some(), self.land(cx, request, None).is_some());
        if !is_back && !is_inside {
            self.unwanted.insert(request);
        }
        self.events.push_back(Event::Finished(Box::new(answer)));
    }

    /// What the client has of an answer by `now`: nothing before its first token, not even a status.
    fn received(&self, now: Time, request: RequestIx) -> Answer {
        let under_way = || {
            let flight = self.flights.get(&request)?;
            let done = self.sites[flight.decode?].worker.as_ref()?.sent_so_far(request, now)?;
            Some(flight.answer(done, &self.sites, self.way_back(flight)))
        };
        let answer = self.answers.get(&request).cloned().or_else(under_way).map(|answer| answer.until(now));
        let heard = answer.filter(|answer| answer.output_tokens > 0);
        heard.map_or_else(|| Answer::unheard(request), |answer| Answer { finish: Finish::given_up(), ..answer })
    }

    fn way_back(&self, flight: &Flight) -> Dur {
        Dur(self.hop().ns() * flight.hops_back())
    }

    /// Answers `status` for a request that a fault refuses.
    pub(super) fn refuse(&mut self, cx: Cx<'_>, request: RequestIx, status: u16, message: String) {
        let Some(flight) = self.flights.get(&request) else { return };
        let class = match (flight.prefill.is_some(), status) {
            (true, _) if message.starts_with("prefill") => ErrorClass::PrefillFailed,
            (_, 401 | 403) => ErrorClass::Unauthorized,
            (_, 429 | 503) => ErrorClass::Overloaded,
            (_, 400..=499) => ErrorClass::BadRequest,
            _ => ErrorClass::ServerError,
        };
        let answer = flight.failed(&self.sites, class, Some(status), message);
        self.end_flight(cx, cx.now, answer);
    }

    /// Nobody listens at the address, or another process does.
    pub(super) fn refuse_connection(&mut self, cx: Cx<'_>, worker: WorkerId, input: Input) {
        let message = format!("connection refused by {worker}");
        let error = CallError { status: None, message: message.clone() };
        match input {
            Input::Generate(job) | Input::Reserve(job) => {
                let Some(flight) = self.flights.get(&job.request) else { return };
                let status = matches!(flight.generate.route, Route::Router(_)).then_some(502);
                let answer = flight.failed(&self.sites, ErrorClass::WorkerLost, status, message);
                self.end_flight(cx, cx.now, answer);
            }
            Input::Open { call, .. } => {
                self.schedule(
                    cx.now + self.hop(),
                    Message::ToClient(Event::Opened { call, worker, result: Err(error) }),
                );
            }
            Input::Admit { call, .. } => {
                let refused = Event::Admission { call, worker, result: Err(error) };
                self.schedule(cx.now + self.hop(), Message::ToClient(refused));
            }
            Input::KvArrived(_) | Input::KvSent(_) | Input::Abort(_) | Input::Close(_) => {}
        }
    }

    fn take_off(&mut self, flight: Flight) {
        for site in flight.prefill.iter().chain(&flight.decode) {
            self.sites[*site].in_flight += 1;
        }
        let before = self.flights.insert(flight.generate.request, flight);
        assert!(before.is_none(), "a request is on its way once");
    }

    /// Takes a flight out of the books and drops what its legs hold, but for the one that is done with it. The way back
    /// to the client, or `None` when it was not in the books.
    fn land(&mut self, cx: Cx<'_>, request: RequestIx, done_at: Option<usize>) -> Option<Dur> {
        let flight = self.flights.remove(&request)?;
        for site in flight.prefill.iter().chain(&flight.decode) {
            self.sites[*site].in_flight -= 1;
        }
        if matches!(flight.transfer, Transfer::Moving(_)) {
            self.links.cancel(cx.now, request);
            self.replan_links();
        }
        let open_prefill = flight.prefill.filter(|_| flight.prefill_open());
        for site in open_prefill.into_iter().chain(flight.decode).filter(|site| Some(*site) != done_at) {
            let incarnation = self.sites[site].incarnation;
            let input = Input::Abort(request);
            self.schedule(cx.now, Message::ToWorker { site, incarnation, input });
        }
        Some(self.way_back(&flight))
    }

    fn count_request(&mut self, cx: Cx<'_>) {
        self.requests += 1;
        for fault in self.faults.counted(self.requests) {
            self.begin_fault(cx, fault);
        }
    }

    /// A fault refuses the request, or makes its stream hang (then it goes on).
    fn struck_at_arrival(&mut self, cx: Cx<'_>, request: RequestIx) -> bool {
        let flight = &self.flights[&request];
        let session = flight.generate.session;
        let legs: Vec<WorkerId> = flight.prefill.iter().chain(&flight.decode).map(|&at| self.sites[at].id).collect();
        let Some((fault, worker)) = self.faults.strike_request(FaultKind::ErrorResponse, &legs, session, request)
        else {
            return false;
        };
        let leg = if worker.role == Role::Prefill { "prefill" } else { "request" };
        let message = format!("{leg} failed on {worker}: server answered {}", fault.status);
        self.schedule(cx.now + fault.after, Message::Refuse { request, status: fault.status, message });
        true
    }

    /// Posts a request's leg to a worker; taking it in costs time.
    fn post(&mut self, cx: Cx<'_>, site: usize, input: Input) {
        let (Input::Generate(job) | Input::Reserve(job)) = &input else { return };
        let micros = self.engine.ingest_base_ms * 1e3 + self.engine.ingest_per_token_us * f64::from(job.shipped_tokens);
        let ingest = Dur::from_secs_f64(micros / 1e6).unwrap_or(Dur::ZERO);
        let arrived = cx.now + ingest + self.hop();
        let input = match input {
            Input::Generate(job) => Input::Generate(Job { arrived, ..job }),
            Input::Reserve(job) => Input::Reserve(Job { arrived, ..job }),
            other => other,
        };
        let incarnation = self.sites[site].incarnation;
        self.schedule(arrived, Message::ToWorker { site, incarnation, input });
    }

    fn job(&mut self, request: RequestIx, arrived: Time) -> Job {
        let flight = &self.flights[&request];
        let generate = &flight.generate;
        let decode: Vec<WorkerId> = flight.decode.iter().map(|&at| self.sites[at].id).collect();
        let hang = self.faults.strike_request(FaultKind::Hang, &decode, generate.session, request);
        Job {
            request,
            session: generate.session_params.then_some(generate.session),
            prompt: generate.prompt,
            context: generate.context,
            input_tokens: generate.input_tokens,
            shipped_tokens: generate.shipped_tokens,
            output_tokens: generate.output_tokens,
            hang_after: hang.map(|(fault, _)| fault.after_tokens),
            arrived,
        }
    }
}
