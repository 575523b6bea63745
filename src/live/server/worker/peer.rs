//! What a decode worker asks of prefill workers: KV, and that they know how many share its ingress.
//!
//! Owns the calls under way. A pull that is given up closes its connection; a prefill worker that dies breaks it, and the
//! pull fails at once. Ingress counts to one address never overtake each other; only the newest one waits.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::owner::Message;
use crate::base::{Dur, WorkerId};
use crate::live::api::{INGRESS_PATH, IngressBody, PULL_PATH, PullBody, PullReply};
use crate::live::server::upstream::{self, Upstream};
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
    to_owner: mpsc::Sender<Message>,
    pulls: BTreeMap<Exchange, AbortHandle>,
    /// Addresses that are being told, and what they are to be told next.
    tells: BTreeMap<Address, Option<u32>>,
}

impl Peers {
    /// Calls of worker `own`, whose ends are told to its owner.
    pub fn new(own: WorkerId, to_owner: mpsc::Sender<Message>) -> Peers {
        Peers { own, upstream: Upstream::new(CONNECT), to_owner, pulls: BTreeMap::new(), tells: BTreeMap::new() }
    }

    /// Asks for the KV of a room.
    pub fn pull(&mut self, exchange: Exchange, bootstrap: Bootstrap, tokens: u32, ingress_flows: u32) {
        let body = PullBody { room: bootstrap.room, tokens, decode: self.own.to_string(), ingress_flows };
        let (upstream, to_owner) = (self.upstream.clone(), self.to_owner.clone());
        let task = tokio::spawn(async move {
            let result = pull(&upstream, &bootstrap, &body).await;
            // The owner is gone only when the server stops.
            let _ = to_owner.send(Message::HandedOver(exchange, result)).await;
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
            // A prefill worker that cannot be told is dead, which its pulls show.
            let _ = tokio::time::timeout(NOTE, post(&upstream, &address, INGRESS_PATH, &body)).await;
            let _ = to_owner.send(Message::Told(address)).await;
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

async fn pull(upstream: &Upstream, bootstrap: &Bootstrap, body: &PullBody) -> Result<HandedOver, String> {
    let address = (bootstrap.host.clone(), bootstrap.port);
    let (status, bytes) = post(upstream, &address, PULL_PATH, body).await?;
    let (host, port) = address;
    if !status.is_success() {
        let words: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
        let message = words.as_ref().and_then(|words| words.pointer("/error/message")?.as_str());
        return Err(message.map_or_else(|| format!("prefill worker {host}:{port} answered {status}"), str::to_owned));
    }
    let reply: PullReply = serde_json::from_slice(&bytes)
        .map_err(|error| format!("prefill worker {host}:{port} answered no pull reply: {error}"))?;
    Ok(HandedOver {
        worker: reply.prefill,
        cached_tokens: reply.cached_tokens,
        prefill_queue: Dur(reply.prefill_queue_ns),
        prefill: Dur(reply.prefill_ns),
        wait: Dur(reply.wait_ns),
        transfer: Dur(reply.transfer_ns),
    })
}

/// Posts `body`; status and body of the answer.
async fn post(
    upstream: &Upstream,
    (host, port): &Address,
    path: &str,
    body: &impl Serialize,
) -> Result<(StatusCode, Bytes), String> {
    let is_bare_v6 = host.contains(':') && !host.starts_with('[');
    let url = if is_bare_v6 { format!("http://[{host}]:{port}{path}") } else { format!("http://{host}:{port}{path}") };
    let json = Bytes::from(serde_json::to_vec(body).expect("bodies have text keys only"));
    let lost = |error: upstream::NoAnswer| {
        let what = if error.unreached { "cannot be reached" } else { "broke off" };
        format!("prefill worker {host}:{port} {what}: {error}")
    };
    let answer = upstream.post(&url, HeaderMap::new(), json).await.map_err(lost)?;
    let status = answer.status();
    Ok((status, upstream::read(answer.into_body(), ANSWER_LIMIT).await.map_err(lost)?))
}
