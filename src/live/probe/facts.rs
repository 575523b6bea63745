//! What a worker and a router are, read from their answers.
//!
//! Pure. Says what is known and leaves open what is not; what follows for a run is [`super::checks()`]'s.

use std::time::Duration;

use serde_json::Value;

use super::question::{Answers, Question};
use crate::base::WorkerId;
use crate::live::api::{AdmitReply, LoadsReply, ModelList, ServerInfo, WORKER_HEADER};
use crate::scenario::RouterKind;

/// A worker as it presents itself.
#[derive(Debug, Clone)]
pub struct WorkerFacts {
    /// Which of ours.
    pub worker: WorkerId,
    /// Its base URL.
    pub url: String,
    /// State of `/health`.
    pub health: Health,
    /// Round trip of `/health`.
    pub rtt: Option<Duration>,
    /// Kind of server.
    pub engine: Engine,
    /// Its version; empty when it does not say.
    pub version: String,
    /// What it calls itself; empty when it does not say.
    pub own_name: String,
    /// `/server_info`, of SGLang and emulated workers.
    pub info: Option<ServerInfo>,
    /// Names of `/v1/models`.
    pub models: Vec<String>,
    /// Opening and closing a session; `None`: not asked.
    pub sessions: Option<Result<(), String>>,
    /// The admission call; `None`: not asked.
    pub admission: Option<Result<(), String>>,
    /// Where its load can be read.
    pub loads: Option<Question>,
    /// Tokens it holds in cache and sessions; only emulated workers tell.
    pub held_tokens: Option<u64>,
    /// Its calendar less ours, seconds; see [`super::Reply`].
    pub clock_ahead_s: Option<f64>,
    /// It publishes KV events; `None`: it does not say.
    pub kv_events: Option<bool>,
    /// One token; `None`: not asked.
    pub generate: Option<Result<(), String>>,
    /// Seconds after which it closes idle connections, where it says so.
    pub keep_alive_s: Option<f64>,
    /// It refused one of the questions with 401 or 403.
    pub unauthorized: bool,
}

/// State of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// 200.
    Up,
    /// 503: it loads, or has failed.
    NotReady(String),
    /// It answers, but has no `/health`.
    Unknown,
    /// No answer.
    Down(String),
}

/// Kind of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// `pdreplay worker`.
    Emulated,
    /// SGLang.
    Sglang,
    /// vLLM.
    Vllm,
    /// A PD router, given as a worker.
    Router,
    /// Something else.
    Other,
}

/// A router as it presents itself.
#[derive(Debug, Clone)]
pub struct RouterFacts {
    /// Its base URL.
    pub url: String,
    /// State of `/health`.
    pub health: Health,
    /// Round trip of `/health`.
    pub rtt: Option<Duration>,
    /// Which one; `Auto`: it could not be told.
    pub kind: RouterKind,
    /// Its version; empty when it does not say.
    pub version: String,
    /// What it says that it is, where that is a worker and nothing shows a router; else empty.
    pub worker: String,
    /// URLs of its decode workers, in the order of its own list; empty when it does not say.
    pub decode: Vec<String>,
    /// Its calendar less ours, seconds; see [`super::Reply`].
    pub clock_ahead_s: Option<f64>,
    /// It refused one of the questions with 401 or 403.
    pub unauthorized: bool,
}

impl Engine {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Engine::Emulated => "emulated",
            Engine::Sglang => "SGLang",
            Engine::Vllm => "vLLM",
            Engine::Router => "a router",
            Engine::Other => "unknown server",
        }
    }
}

impl WorkerFacts {
    /// From what it said; `named_by` is the header in which answers say who served them, or empty.
    pub fn of(worker: WorkerId, url: &str, named_by: &str, answers: &Answers) -> WorkerFacts {
        let info = answers.read(Question::ServerInfo).or_else(|| answers.read(Question::GetServerInfo));
        let raw: Option<Value> = answers.read(Question::ServerInfo).or_else(|| answers.read(Question::GetServerInfo));
        let models: ModelList = answers.read(Question::Models).unwrap_or_default();
        let engine = engine_of(info.as_ref(), &models, answers);
        WorkerFacts {
            worker,
            url: url.to_owned(),
            health: health_of(answers),
            rtt: answers.reply(Question::Health).map(|reply| reply.took),
            engine,
            version: version_of(engine, info.as_ref(), answers),
            own_name: own_name(info.as_ref(), named_by, answers),
            models: models.data.into_iter().map(|card| card.id).collect(),
            sessions: sessions_of(answers),
            admission: answers.0.get(&Question::Admission).map(admits),
            loads: [Question::Loads, Question::GetLoad].into_iter().find(|asked| tells_loads(answers, *asked)),
            held_tokens: answers.read(Question::Loads).filter(|_| engine == Engine::Emulated).map(held),
            clock_ahead_s: answers.reply(Question::Health).and_then(|reply| reply.clock_ahead_s()),
            kv_events: raw.as_ref().and_then(kv_events_of),
            generate: answers.0.get(&Question::Generate).map(succeeds),
            keep_alive_s: answers.header("keep-alive").and_then(keep_alive_of),
            unauthorized: answers.is_unauthorized(),
            info,
        }
    }
}

impl RouterFacts {
    /// From what it said.
    pub fn of(url: &str, answers: &Answers) -> RouterFacts {
        let info: Option<ServerInfo> = answers.read(Question::ServerInfo);
        let named = info.as_ref().and_then(|info| info.emulated.as_ref()).map(|emulated| emulated.worker.clone());
        let mode = info.as_ref().map(|info| info.disaggregation_mode.clone());
        let emulated = info.and_then(|info| info.emulated).filter(|emulated| emulated.worker == "router");
        let loads: Value = answers.read(Question::GetLoads).unwrap_or_default();
        let smg = loads["version"].as_str().and_then(|version| version.strip_prefix("smg-")).map(str::to_owned);
        let workers: Value = answers.read(Question::Workers).unwrap_or_default();
        let (kind, version) = match (emulated, smg) {
            (Some(emulated), _) => (RouterKind::Pdreplay, emulated.version),
            (None, Some(version)) => (RouterKind::Smg, version),
            // `smg` names its error codes in a header, also those of paths it does not have.
            (None, None) if answers.header("x-smg-error-code").is_some() => (RouterKind::Smg, String::new()),
            (None, None) if workers["workers"].is_array() => (RouterKind::SglangRouter, String::new()),
            (None, None) => (RouterKind::Auto, String::new()),
        };
        RouterFacts {
            url: url.to_owned(),
            health: health_of(answers),
            rtt: answers.reply(Question::Health).map(|reply| reply.took),
            kind,
            version,
            worker: named.or(mode).filter(|_| kind == RouterKind::Auto).unwrap_or_default(),
            decode: decode_urls(&workers),
            clock_ahead_s: answers.reply(Question::Health).and_then(|reply| reply.clock_ahead_s()),
            unauthorized: answers.is_unauthorized(),
        }
    }
}

/// Decode workers in `GET /workers`, in its order: that of indices for requests without a model.
fn decode_urls(workers: &Value) -> Vec<String> {
    let listed = workers["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let decode = listed.iter().filter(|worker| worker["worker_type"] == "decode");
    decode.filter_map(|worker| worker["url"].as_str().map(str::to_owned)).collect()
}

fn health_of(answers: &Answers) -> Health {
    match answers.0.get(&Question::Health) {
        Some(Ok(reply)) if reply.status == 200 => Health::Up,
        Some(Ok(reply)) if reply.status == 404 => Health::Unknown,
        Some(Ok(reply)) => Health::NotReady(reply.refusal()),
        Some(Err(why)) => Health::Down(why.clone()),
        None => Health::Unknown,
    }
}

fn engine_of(info: Option<&ServerInfo>, models: &ModelList, answers: &Answers) -> Engine {
    let owner = models.data.first().map(|card| card.owned_by.as_str()).unwrap_or_default();
    let named = info.and_then(|info| info.emulated.as_ref());
    let is_router =
        named.is_some_and(|emulated| emulated.worker == "router") || answers.header("x-smg-error-code").is_some();
    let emulated = named.is_some() || answers.header(WORKER_HEADER).is_some();
    let sglang = info.is_some_and(|info| !info.version.is_empty() && info.max_total_num_tokens > 0);
    match owner {
        _ if is_router => Engine::Router,
        _ if emulated => Engine::Emulated,
        "sglang" => Engine::Sglang,
        _ if sglang => Engine::Sglang,
        "vllm" => Engine::Vllm,
        _ => Engine::Other,
    }
}

fn version_of(engine: Engine, info: Option<&ServerInfo>, answers: &Answers) -> String {
    let said: Value = answers.read(Question::Version).unwrap_or_default();
    let own = info.and_then(|info| info.emulated.as_ref()).map(|emulated| emulated.version.clone());
    let served = info.map(|info| info.version.clone()).filter(|version| !version.is_empty());
    let named = said["version"].as_str().map(str::to_owned);
    match engine {
        Engine::Emulated | Engine::Router => own.or(served),
        Engine::Sglang => served,
        Engine::Vllm => named,
        Engine::Other => named.or_else(|| answers.header("server").map(str::to_owned)),
    }
    .unwrap_or_default()
}

/// Its name by its own word: an emulated worker's, or what every answer of it says in one of the headers that tell who
/// served. One that differs from answer to answer names whoever is behind it, not this worker.
fn own_name(info: Option<&ServerInfo>, named_by: &str, answers: &Answers) -> String {
    if let Some(emulated) = info.and_then(|info| info.emulated.as_ref()) {
        return emulated.worker.clone();
    }
    let names = [named_by, WORKER_HEADER].into_iter().filter(|name| !name.is_empty());
    names.filter_map(|name| answers.agreed(name)).next().unwrap_or_default().to_owned()
}

/// The answer has the form of loads, one entry a rank at least.
fn tells_loads(answers: &Answers, asked: Question) -> bool {
    let body: Value = answers.read(asked).unwrap_or_default();
    let ranks = if asked == Question::Loads { &body["loads"] } else { &body };
    ranks.as_array().is_some_and(|ranks| !ranks.is_empty() && ranks.iter().all(Value::is_object))
}

fn held(loads: LoadsReply) -> u64 {
    loads.loads.iter().map(|load| load.num_total_tokens).sum()
}

/// An endpoint that is there, whatever it thinks of the question: 404 and 405 mean that it is not, nor does a 200 without
/// a verdict.
fn admits(looked: &super::reply::Looked) -> Result<(), String> {
    match looked {
        Ok(reply) if matches!(reply.status, 404 | 405 | 501) => Err(reply.refusal()),
        Ok(reply) if reply.status >= 500 => Err(reply.refusal()),
        Ok(reply) if reply.status == 200 && reply.read::<AdmitReply>().is_none() => {
            Err(format!("no answer on admission: {}", reply.refusal()))
        }
        Ok(_) => Ok(()),
        Err(why) => Err(why.clone()),
    }
}

/// One token came.
pub(super) fn succeeds(looked: &super::reply::Looked) -> Result<(), String> {
    let reply = looked.as_ref().map_err(Clone::clone)?;
    if reply.status != 200 {
        return Err(reply.refusal());
    }
    let Some(body) = reply.json() else {
        return Err(format!("200, but no JSON: {}", reply.refusal()));
    };
    let abort = body.pointer("/meta_info/finish_reason").filter(|reason| reason["type"] == "abort");
    match abort {
        Some(reason) => Err(format!("given up with 200: {}", reason["message"].as_str().unwrap_or_default())),
        None if body.get("error").is_some_and(|error| !error.is_null()) => Err(reply.refusal()),
        None if has_token(&body) => Ok(()),
        None => Err(format!("no token in the answer: {}", reply.refusal())),
    }
}

/// The form of an answer with a token: a finish reason or a count of `/generate`, or a choice of an OpenAI endpoint.
fn has_token(body: &Value) -> bool {
    let meta = &body["meta_info"];
    let ended = !meta["finish_reason"].is_null() || meta["completion_tokens"].as_u64().is_some_and(|tokens| tokens > 0);
    ended || body["choices"].as_array().is_some_and(|choices| choices.first().is_some_and(Value::is_object))
}

fn sessions_of(answers: &Answers) -> Option<Result<(), String>> {
    let opened = answers.0.get(&Question::OpenSession)?;
    Some(match opened {
        Ok(reply) if reply.read::<String>().is_some_and(|id| !id.is_empty()) => Ok(()),
        Ok(reply) if reply.status == 200 => Err(format!("no session's id in the answer: {}", reply.refusal())),
        Ok(reply) => Err(reply.refusal()),
        Err(why) => Err(why.clone()),
    })
}

/// SGLang gives its argument `kv_events_config`, null when off; other servers say nothing.
fn kv_events_of(info: &Value) -> Option<bool> {
    let config = info.get("kv_events").or_else(|| info.get("kv_events_config"))?;
    Some(match config {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    })
}

/// `timeout=5, max=100`.
fn keep_alive_of(header: &str) -> Option<f64> {
    header.split(',').find_map(|part| part.trim().strip_prefix("timeout=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::reply::Reply;
    use super::*;
    use crate::base::Role;

    fn answers(of: &[(Question, u16, &str)]) -> Answers {
        Answers(of.iter().map(|(question, status, body)| (*question, Ok(Reply::new(*status, &[], body)))).collect())
    }

    fn worker(of: &[(Question, u16, &str)]) -> WorkerFacts {
        WorkerFacts::of(WorkerId::new(Role::Decode, 0), "http://h:1", "", &answers(of))
    }

    #[test]
    fn servers_are_told_apart() {
        let sglang = "{\"version\":\"0.5.10\",\"max_total_num_tokens\":9}";
        let emulated = "{\"version\":\"0.5.10\",\"max_total_num_tokens\":9,\"emulated\":{\"worker\":\"D0\",\"version\":\"0.1.0\"}}";
        let vllm = "{\"data\":[{\"id\":\"m\",\"owned_by\":\"vllm\"}]}";
        let cases = [
            (worker(&[(Question::ServerInfo, 200, sglang)]), Engine::Sglang, "0.5.10"),
            (
                worker(&[(Question::ServerInfo, 404, ""), (Question::GetServerInfo, 200, sglang)]),
                Engine::Sglang,
                "0.5.10",
            ),
            (worker(&[(Question::ServerInfo, 200, emulated)]), Engine::Emulated, "0.1.0"),
            (
                worker(&[(Question::Models, 200, vllm), (Question::Version, 200, "{\"version\":\"0.9\"}")]),
                Engine::Vllm,
                "0.9",
            ),
            (worker(&[(Question::Models, 200, "<html>")]), Engine::Other, ""),
        ];
        for (facts, engine, version) in cases {
            assert_eq!((facts.engine, facts.version.as_str()), (engine, version));
        }
        assert_eq!(worker(&[(Question::Models, 200, vllm)]).models, ["m"]);
    }

    #[test]
    fn a_missing_endpoint_is_told_from_one_that_says_no() {
        let yes = "{\"can_admit\":true}";
        let admission = |status| worker(&[(Question::Admission, status, yes)]).admission.unwrap().is_ok();
        assert_eq!([200, 400, 404, 405, 500].map(admission), [true, true, false, false, false]);
        assert_eq!(worker(&[]).admission, None);
        let refused = "{\"error\":{\"message\":\"Streaming sessions are disabled.\"}}";
        let facts = worker(&[(Question::OpenSession, 400, refused), (Question::CloseSession, 200, "")]);
        assert_eq!(facts.sessions, Some(Err("400: Streaming sessions are disabled.".into())));
    }

    #[test]
    fn one_token_counts_only_when_it_came() {
        let generate = |status, body: &str| worker(&[(Question::Generate, status, body)]).generate.unwrap();
        assert_eq!(generate(200, "{\"meta_info\":{\"finish_reason\":{\"type\":\"length\",\"length\":1}}}"), Ok(()));
        let abort = "{\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"message\":\"no room id\"}}}";
        assert_eq!(generate(200, abort), Err("given up with 200: no room id".into()));
        assert!(generate(200, "<html>").is_err() && generate(500, "{}").is_err());
        assert!(generate(200, "{\"error\":{\"message\":\"no\"}}").is_err());
    }

    #[test]
    fn a_server_that_says_yes_to_everything_has_said_nothing() {
        for body in ["{}", "<html>", "[]", "null", "{\"ok\":true}"] {
            let asked =
                [Question::Generate, Question::Loads, Question::GetLoad, Question::Admission, Question::OpenSession];
            let facts = worker(&asked.map(|question| (question, 200, body)));
            assert!(facts.generate.unwrap().is_err(), "{body}");
            assert_eq!(facts.loads, None, "{body}");
            assert!(facts.admission.unwrap().is_err() && facts.sessions.unwrap().is_err(), "{body}");
        }
        let chat = "{\"choices\":[{\"message\":{\"content\":\"a\"}}]}";
        assert_eq!(worker(&[(Question::Generate, 200, chat)]).generate, Some(Ok(())));
        assert_eq!(worker(&[(Question::Loads, 200, "{\"loads\":[{}]}")]).loads, Some(Question::Loads));
    }

    #[test]
    fn a_worker_is_called_what_all_its_answers_call_it() {
        let worker = |named_by: &str, of: &[(Question, &str, &str)]| {
            let reply = |(question, header, name): &(Question, &str, &str)| {
                (*question, Ok(Reply::new(200, &[(*header, *name)], "{}")))
            };
            let answers = Answers(of.iter().map(reply).collect());
            WorkerFacts::of(WorkerId::new(Role::Decode, 0), "http://h:1", named_by, &answers).own_name
        };
        let agreed = [(Question::Health, "x-by", "pod-7"), (Question::Models, "x-by", "pod-7")];
        assert_eq!(worker("x-by", &agreed), "pod-7");
        assert_eq!(worker("X-By", &[agreed[0], (Question::Loads, "server", "nginx")]), "pod-7", "where they say it");
        assert_eq!(worker("x-by", &[agreed[0], (Question::Models, "x-by", "pod-8")]), "", "several are behind it");
        assert_eq!(worker("x-other", &agreed), "");
        assert_eq!(worker("", &[(Question::Health, WORKER_HEADER, "D3")]), "D3");
        let info = "{\"emulated\":{\"worker\":\"D5\",\"version\":\"0.1.0\"}}";
        let emulated = Answers([(Question::ServerInfo, Ok(Reply::new(200, &[("x-by", "pod-7")], info)))].into());
        let id = WorkerId::new(Role::Decode, 0);
        assert_eq!(WorkerFacts::of(id, "http://h:1", "x-by", &emulated).own_name, "D5");
    }

    #[test]
    fn routers_are_told_apart() {
        let router = |of: &[(Question, u16, &str)]| RouterFacts::of("http://h:2", &answers(of));
        let workers = "{\"workers\":[{\"url\":\"http://h:1\",\"worker_type\":\"prefill\"},\
                       {\"url\":\"http://h:3\",\"worker_type\":\"decode\"},{\"url\":\"http://h:2\",\"worker_type\":\"decode\"}]}";
        let smg =
            router(&[(Question::GetLoads, 200, "{\"version\":\"smg-1.13.0\"}"), (Question::Workers, 200, workers)]);
        assert_eq!((smg.kind, smg.version.as_str()), (RouterKind::Smg, "1.13.0"));
        assert_eq!(smg.decode, ["http://h:3", "http://h:2"]);
        let own =
            router(&[(Question::ServerInfo, 200, "{\"emulated\":{\"worker\":\"router\",\"version\":\"0.1.0\"}}")]);
        assert_eq!((own.kind, own.version.as_str()), (RouterKind::Pdreplay, "0.1.0"));
        assert_eq!(router(&[(Question::Workers, 200, workers)]).kind, RouterKind::SglangRouter);
        assert_eq!(router(&[(Question::Health, 200, "")]).kind, RouterKind::Auto);
    }

    #[test]
    fn health_is_one_of_four() {
        let health = |status| worker(&[(Question::Health, status, "")]).health;
        assert_eq!(health(200), Health::Up);
        assert_eq!(health(404), Health::Unknown);
        assert_eq!(health(503), Health::NotReady("503".into()));
        let down = Answers([(Question::Health, Err("refused".into()))].into());
        assert_eq!(RouterFacts::of("u", &down).health, Health::Down("refused".into()));
    }

    #[test]
    fn events_and_keep_alive_are_read_where_they_are_said() {
        let events = |info: &str| worker(&[(Question::ServerInfo, 200, info)]).kv_events;
        assert_eq!(events("{\"kv_events_config\":null}"), Some(false));
        assert_eq!(events("{\"kv_events_config\":\"{}\"}"), Some(true));
        assert_eq!(events("{}"), None);
        assert_eq!(keep_alive_of("timeout=5, max=100"), Some(5.0));
        assert_eq!(keep_alive_of("max=100"), None);
    }
}
