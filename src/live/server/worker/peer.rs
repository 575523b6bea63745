//! What a decode worker asks of prefill workers: KV, and that they know how many share its ingress.
//!
//! Owns the calls under way. A pull that is given up closes its connection; a prefill worker that dies breaks it, and the
//! pull fails at once. Ingress counts to one address never overtake each other; only the newest one waits.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response};
use serde::Serialize;
use serde_json::Value;
use tokio::task::AbortHandle;

use super::inbox::ToOwner;
use super::owner::Message;
use crate::base::{Dur, WorkerId, from_json};
use crate::live::api::{INGRESS_PATH, IngressBody, MOVING_HEADER, PULL_PATH, PullBody, PullReply};
use crate::live::server::upstream::{self, NoAnswer, Upstream};
use crate::node::{Bootstrap, Exchange, HandedOver};

/// Longest time to connect to a bootstrap server.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time a prefill worker may take to note an ingress count.
const NOTE: Duration = Duration::from_secs(5);
/// Longest answer.
const ANSWER_LIMIT: usize = 1 << 16;

/// Host and port of a bootstrap server.
pub(super) type Address = (String, u16);

/// See the module.
#[derive(Debug)]
pub(super) struct Peers {
    own: WorkerId,
    upstream: Upstream,
    to_owner: ToOwner,
    pulls: BTreeMap<Exchange, AbortHandle>,
    /// Addresses that are being told, and what they are to be told next.
    tells: BTreeMap<Address, Option<u32>>,
}

impl Peers {
    /// Calls of worker `own`, whose ends are told to its owner.
    pub fn new(own: WorkerId, to_owner: ToOwner) -> Peers {
        Peers { own, upstream: Upstream::new(CONNECT), to_owner, pulls: BTreeMap::new(), tells: BTreeMap::new() }
    }

    /// Asks for the KV of a room.
    pub fn pull(&mut self, exchange: Exchange, bootstrap: Bootstrap, tokens: u32, ingress_flows: u32) {
        let body = PullBody { room: bootstrap.room, tokens, decode: self.own.to_string(), ingress_flows };
        let (upstream, to_owner) = (self.upstream.clone(), self.to_owner.clone());
        let task = tokio::spawn(async move {
            let moves = || to_owner.say(Message::PullMoves(exchange));
            let result = pull(&upstream, &bootstrap, &body, moves).await;
            to_owner.say(Message::HandedOver(exchange, result));
        });
        self.pulls.insert(exchange, task.abort_handle());
    }

    /// A pull has ended by itself; false when it had been given up before its end was heard of.
    pub fn pull_ended(&mut self, exchange: Exchange) -> bool {
        self.pulls.remove(&exchange).is_some()
    }

    /// Gives a pull up.
    pub fn stop_pull(&mut self, exchange: Exchange) {
        if let Some(task) = self.pulls.remove(&exchange) {
            task.abort();
        }
    }

    /// Tells a prefill worker how many transfers share this worker's ingress.
    pub fn tell(&mut self, bootstrap: &Bootstrap, flows: u32) {
        let address = (bootstrap.host.clone(), bootstrap.port);
        if let Some(next) = self.tells.get_mut(&address) {
            *next = Some(flows);
            return;
        }
        self.tells.insert(address.clone(), None);
        let body = IngressBody { decode: self.own.to_string(), flows };
        let (upstream, to_owner) = (self.upstream.clone(), self.to_owner.clone());
        tokio::spawn(async move {
            let call = async {
                let answer = post(&upstream, &address, INGRESS_PATH, &body).await?;
                upstream::read(answer.into_body(), ANSWER_LIMIT).await
            };
            // A prefill worker that cannot be told is dead, which its pulls show.
            let _ = tokio::time::timeout(NOTE, call).await;
            to_owner.say(Message::Told(address));
        });
    }

    /// One tell has ended: the next one, if anything changed meanwhile.
    pub fn told(&mut self, address: Address) {
        if let Some(Some(flows)) = self.tells.remove(&address) {
            let (host, port) = address;
            self.tell(&Bootstrap { host, port, room: 0 }, flows);
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for task in self.pulls.values() {
            task.abort();
        }
    }
}

/// Asks for KV; `moves` is told when it has begun to move, which P says by the head of its answer.
async fn pull(
    upstream: &Upstream,
    bootstrap: &Bootstrap,
    body: &PullBody,
    moves: impl FnOnce(),
) -> Result<HandedOver, String> {
    let address = (bootstrap.host.clone(), bootstrap.port);
    let answer = post(upstream, &address, PULL_PATH, body).await.map_err(|error| lost(&address, &error))?;
    let status = answer.status();
    if answer.headers().contains_key(MOVING_HEADER) {
        moves();
    }
    let bytes = upstream::read(answer.into_body(), ANSWER_LIMIT).await.map_err(|error| lost(&address, &error))?;
    let reply: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let refusal = reply.pointer("/error/message").and_then(Value::as_str).map(str::to_owned);
    let (host, port) = &address;
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    if !status.is_success() {
        return Err(format!("prefill worker {host}:{port} answered {status}"));
    }
    let reply: PullReply =
        from_json(&bytes).map_err(|fault| format!("prefill worker {host}:{port} answered no pull reply: {fault}"))?;
    Ok(HandedOver {
        worker: reply.prefill,
        cached_tokens: reply.cached_tokens,
        prefill_queue: Dur(reply.prefill_queue_ns),
        prefill: Dur(reply.prefill_ns),
        wait: Dur(reply.wait_ns),
        transfer: Dur(reply.transfer_ns),
    })
}

fn lost((host, port): &Address, error: &NoAnswer) -> String {
    let what = if error.unreached { "cannot be reached" } else { "broke off" };
    format!("prefill worker {host}:{port} {what}: {error}")
}

async fn post(
    upstream: &Upstream,
    (host, port): &Address,
    path: &str,
    body: &impl Serialize,
) -> Result<Response<Body>, NoAnswer> {
    let is_bare_v6 = host.contains(':') && !host.starts_with('[');
    let url = if is_bare_v6 { format!("http://[{host}]:{port}{path}") } else { format!("http://{host}:{port}{path}") };
    let json = Bytes::from(serde_json::to_vec(body).expect("bodies have text keys only"));
    upstream.post(&url, HeaderMap::new(), json).await
}
