//! What every handler of a worker's server shares: the way to the owner of the node, who the worker is, and the door.
//!
//! An exchange whose handler is dropped is told to the owner without waiting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::json;
use tokio::sync::oneshot;

use super::exchange::{Open, Sheet};
use super::inbox::{Closed, ToOwner};
use super::options::WorkerServerOptions;
use super::owner::{Look, Message};
use crate::base::Time;
use crate::live::api::{INCARNATION_HEADER, INGRESS_PATH, PULL_PATH, WORKER_HEADER};
use crate::live::server::http::{self, Refused};
use crate::node::{Exchange, NodeConfig, NodeInput};

/// See the module.
#[derive(Debug)]
pub(super) struct Front {
    to_owner: ToOwner,
    next: AtomicU64,
    next_id: AtomicU64,
    /// The node's own.
    pub config: NodeConfig,
    /// Options of the server.
    pub options: WorkerServerOptions,
    /// Port other workers pull from.
    pub bootstrap_port: u16,
    /// When the model is loaded.
    ready_at: Time,
    name: HeaderValue,
    incarnation: HeaderValue,
}

/// The owner has gone: the server stops.
fn stopping() -> Refused {
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, "the worker is stopping")
}

impl Front {
    pub fn new(to_owner: ToOwner, config: NodeConfig, options: WorkerServerOptions, bootstrap: SocketAddr) -> Front {
        let name = HeaderValue::from_str(&config.id.to_string()).expect("names are letters and digits");
        Front {
            to_owner,
            next: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
            ready_at: options.clock.now() + options.loading,
            name,
            incarnation: HeaderValue::from(options.identity.unwrap_or(config.incarnation)),
            bootstrap_port: bootstrap.port(),
            config,
            options,
        }
    }

    /// Begins an exchange with the input that `input` makes for it.
    pub async fn begin(&self, input: impl FnOnce(Exchange) -> NodeInput) -> Result<Open, Refused> {
        let exchange = Exchange(self.next.fetch_add(1, Ordering::Relaxed));
        let sheet = Arc::new(Sheet::default());
        let input = input(exchange);
        if let (NodeInput::Generate { ask, .. }, Some(triggers)) = (&input, &self.options.triggers) {
            triggers.count(self.options.clock.now(), ask.bootstrap.as_ref().map(|bootstrap| bootstrap.room));
        }
        self.ask(Message::Begin { exchange, input, sheet: Arc::clone(&sheet) }).await?;
        Ok(Open::new(exchange, sheet, self.to_owner.clone()))
    }

    /// Process identity told in answers.
    pub fn identity(&self) -> u32 {
        self.options.identity.unwrap_or(self.config.incarnation)
    }

    /// Tells the node what it does not answer.
    pub async fn tell(&self, input: NodeInput) -> Result<(), Refused> {
        self.ask(Message::Tell(input)).await
    }

    /// Looks at the node.
    pub async fn look(&self) -> Result<Look, Refused> {
        let (asker, look) = oneshot::channel();
        self.ask(Message::Look(asker)).await?;
        look.await.map_err(|_| stopping())
    }

    /// A request id for a client that gave none.
    pub fn make_id(&self) -> String {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        format!("{}-{}-{number}", self.config.id, self.identity())
    }

    /// The model is loaded.
    pub fn is_ready(&self) -> bool {
        self.options.clock.now() >= self.ready_at
    }

    /// Refuses while the model is loading.
    pub fn check_ready(&self) -> Result<(), Refused> {
        if self.is_ready() {
            return Ok(());
        }
        Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, "the model is loading; wait until /health answers 200"))
    }

    /// What there is to say when the owner went before the end.
    pub fn stopped(&self) -> Refused {
        stopping()
    }

    async fn ask(&self, message: Message) -> Result<(), Refused> {
        self.to_owner.ask(message).await.map_err(|Closed| stopping())
    }

    fn admits(&self, request: &Request) -> bool {
        let path = request.uri().path();
        // As in SGLang, whose bootstrap server asks for no key either.
        let open = path.starts_with("/health") || path.starts_with("/metrics");
        let open = open || path == PULL_PATH || path == INGRESS_PATH;
        let key = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        open || self.options.api_key.as_ref().is_none_or(|wanted| wanted.opens(key))
    }
}

/// Around every answer: the key is checked, the worker's name and incarnation are added, a line is logged.
pub(super) async fn door(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    let asked = front.options.log.as_ref().map(|_| format!("{} {}", request.method(), request.uri().path()));
    let began = front.options.clock.now();
    let mut answer = if front.admits(&request) {
        next.run(request).await
    } else {
        http::json_with(StatusCode::UNAUTHORIZED, &json!({ "error": "Unauthorized" }))
    };
    let headers = answer.headers_mut();
    headers.insert(HeaderName::from_static(WORKER_HEADER), front.name.clone());
    headers.insert(HeaderName::from_static(INCARNATION_HEADER), front.incarnation.clone());
    if let (Some(log), Some(asked)) = (&front.options.log, asked) {
        let took = front.options.clock.now().since(began).as_millis_f64();
        log.line(format!("{}: {asked} {} after {took:.1} ms", front.config.id, answer.status().as_u16()));
    }
    answer
}
