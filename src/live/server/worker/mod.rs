//! The server of one emulated worker: HTTP of SGLang around a [`WorkerNode`].
//!
//! One task owns the node (`owner`); handlers send it messages and read their exchange's sheet (`exchange`). Reading order:
//! `options`, `inbox`, `exchange`, `owner`, `front`, then the handlers (`generate` with `event`, `openai`, both with `frames`, `control`, `info`
//! with `metrics`), and `peer`, the calls a decode worker makes itself. Decides nothing about requests: the node does.
//! Invariants: a slow reader delays only itself; an exchange whose client leaves is told to the node at once; nothing a
//! client sends ends the server.

mod control;
mod event;
mod exchange;
mod frames;
mod front;
mod generate;
mod inbox;
mod info;
mod kv;
mod metrics;
mod openai;
mod options;
mod owner;
mod peer;
#[cfg(test)]
mod tests;
mod triggers;
mod words;

pub use kv::KvPublishing;
pub use options::{ApiKey, Listeners, RequestLog, SglangVersion, WorkerServerOptions};
pub use triggers::Triggers;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokio::sync::watch;

use crate::live::api::{ADMIT_PATH, INGRESS_PATH, PULL_PATH, STATS_PATH};
use crate::live::server::listen::{Bounds, listen};
use crate::node::{NodeConfig, WorkerNode};
use front::Front;
use kv::KvSockets;
use owner::Owner;
use peer::Peers;

/// Messages that ask the owner for something and may wait for it.
const INBOX: usize = 1 << 16;

/// Serves one worker until `stop` is ready, then lets answers that are under way end within the options' grace.
/// Dropping the runtime is a `kill -9`: connections break, nothing is answered.
/// Errors: the listeners' addresses cannot be read, an address for KV events cannot be had, or the kernel gives no timer.
pub async fn serve_worker(
    listeners: impl Into<Listeners>,
    config: NodeConfig,
    options: WorkerServerOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let Listeners { http, bootstrap } = listeners.into();
    let bootstrap_address = bootstrap.as_ref().unwrap_or(&http).local_addr()?;
    let (to_owner, inbox) = inbox::inbox(INBOX);
    let triggers = options.triggers.clone().unwrap_or_else(|| Arc::new(Triggers::of(&config.faults)));
    let options = WorkerServerOptions { triggers: Some(Arc::clone(&triggers)), ..options };
    let peers = Peers::new(config.id, to_owner.clone());
    let mut node = WorkerNode::new(config.clone());
    let mut publishing = None;
    if let Some(kv) = &options.kv {
        node.publish_events(&kv.publisher, kv::calendar(&options.clock));
        if node.publishes() {
            publishing = Some(KvSockets::bind(kv.clone(), to_owner.clone()).await?);
        }
    }
    let mut owner = Owner::new(node, options.clock, peers, triggers);
    let sockets = publishing.map(|(tell, sockets)| {
        owner.publish_to(tell);
        sockets.run()
    });
    let sockets = async {
        match sockets {
            Some(run) => run.await,
            None => std::future::pending().await,
        }
    };
    let grace = options.grace;
    let front = Arc::new(Front::new(to_owner, config, options, bootstrap_address));
    let (stopping, stopped) = watch::channel(false);
    let listen = |listener| listen(listener, routes(Arc::clone(&front)), Bounds::NODE, stopped.clone());
    let servers = futures_util::future::join_all([Some(http), bootstrap].into_iter().flatten().map(listen));
    let over = async {
        stop.await;
        // Both servers listen to it, or have ended.
        let _ = stopping.send(true);
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        failed = owner.run(inbox) => failed,
        _ = servers => Ok(()),
        () = sockets => Ok(()),
        () = over => Ok(()),
    }
}

fn routes(front: Arc<Front>) -> Router {
    Router::new()
        .route("/generate", post(generate::generate))
        .route("/v1/completions", post(openai::completions))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/open_session", post(control::open).get(control::open))
        .route("/close_session", post(control::close).get(control::close))
        .route("/abort_request", post(control::abort))
        .route("/flush_cache", post(control::flush).get(control::flush))
        .route(ADMIT_PATH, post(control::admit))
        .route(PULL_PATH, post(control::pull))
        .route(INGRESS_PATH, post(control::ingress))
        .route("/health", get(info::health))
        .route("/health_generate", get(info::health))
        .route("/ready", get(info::ready))
        .route("/v1/models", get(info::models))
        .route("/model_info", get(info::model_info))
        .route("/get_model_info", get(info::model_info))
        .route("/server_info", get(info::server_info))
        .route("/get_server_info", get(info::server_info))
        .route("/v1/loads", get(info::loads))
        .route("/get_load", get(info::load))
        .route("/metrics", get(info::metrics))
        .route(STATS_PATH, get(info::stats))
        .fallback(control::unknown)
        .method_not_allowed_fallback(control::wrong_method)
        .layer(from_fn_with_state(Arc::clone(&front), front::door))
        .with_state(front)
}
