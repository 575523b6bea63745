//! The PD router's server: HTTP around a [`RouterNode`].
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
use axum::serve::ListenerExt;
use tokio::net::TcpListener;

use self::front::Front;
pub use self::options::RouterServerOptions;

/// Serves the router until `stop` is ready, then lets answers that are under way end within the options' grace. Each
/// worker is asked for its health once before the first request is let in.
/// Dropping the runtime is a `kill -9`. Errors: the listener fails.
pub async fn serve_router(
    listener: TcpListener,
    options: RouterServerOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let grace = options.grace;
    let front = Arc::new(Front::new(options));
    let listener = listener.tap_io(|stream| {
        // Without it small events wait for the acknowledgement of the one before; a socket that refuses is slow, not wrong.
        let _ = stream.set_nodelay(true);
    });
    tokio::pin!(stop);
    tokio::select! {
        () = front.look_once() => {}
        () = &mut stop => return Ok(()),
    }
    let (ended, wait) = tokio::sync::oneshot::channel::<()>();
    let serving = axum::serve(listener, app(Arc::clone(&front))).with_graceful_shutdown(async move {
        // A sender that is gone is a stop, too.
        let _ = wait.await;
    });
    let stopping = async {
        stop.await;
        drop(ended);
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        served = serving.into_future() => served,
        () = stopping => Ok(()),
        () = front.watch() => Ok(()),
    }
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
