//! The PD router's server: HTTP around a [`crate::node::RouterNode`].
//!
//! Owns addresses and connections; who gets a request is the node's choice. Reading order: `options`, `front` (what
//! handlers share), `body` (what a request becomes on its way), `prefill` (P's verdict), `relay` (both legs and the
//! answer), `failure` (the form of errors), `fleet` (health, and what concerns all workers), `metrics`.

mod body;
mod failure;
mod fleet;
mod front;
mod metrics;
mod options;
mod prefill;
mod relay;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::front::Front;
pub use self::options::RouterServerOptions;
use crate::live::server::listen::{Bounds, listen};

/// Serves the router until `stop` is ready, then lets answers that are under way end within the options' grace. Each
/// worker is asked for its health once before the first request is let in.
/// Dropping the runtime is a `kill -9`. Errors: none as yet; a failed accept is tried again.
pub async fn serve_router(
    listener: TcpListener,
    options: RouterServerOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let grace = options.grace;
    let front = Arc::new(Front::new(options));
    tokio::pin!(stop);
    tokio::select! {
        () = front.look_once() => {}
        () = &mut stop => return Ok(()),
    }
    let (stopping, stopped) = watch::channel(false);
    let over = async {
        stop.await;
        // The server listens to it, or has ended.
        let _ = stopping.send(true);
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        () = listen(listener, app(Arc::clone(&front)), Bounds::NODE, stopped) => {}
        () = over => {}
        () = front.watch() => {}
    }
    Ok(())
}

fn app(front: Arc<Front>) -> Router {
    Router::new()
        .route("/generate", post(relay::generate))
        .route("/v1/completions", post(relay::generate))
        .route("/v1/chat/completions", post(relay::generate))
        .route("/health", get(fleet::alive))
        .route("/health_generate", get(fleet::alive))
        .route("/liveness", get(fleet::alive))
        .route("/readiness", get(fleet::readiness))
        .route("/workers", get(fleet::workers))
        .route("/v1/models", get(fleet::first_worker))
        .route("/get_server_info", get(fleet::first_worker))
        .route("/get_model_info", get(fleet::first_worker))
        .route("/model_info", get(fleet::first_worker))
        .route("/server_info", get(fleet::server_info))
        .route("/flush_cache", any(fleet::flush_cache))
        .route("/get_loads", get(fleet::loads))
        .route("/metrics", get(metrics::metrics))
        .fallback(fleet::unknown)
        .method_not_allowed_fallback(fleet::wrong_method)
        .with_state(front)
}
