//! The keys of an etcd cluster, followed by a watch.
//!
//! All keys are listed at one revision, and watched from the next on. A watch that ends, for whatever reason (server gone,
//! no leader, history compacted away), is begun anew with a listing, and [`KeyMirror`] tells only what is different: an
//! etcd that is out of reach changes nothing about the instances. The only file that names the etcd client.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, EventType, GetOptions, Txn, TxnOp, TxnOpResponse, WatchOptions};
use etcd_client::{WatchResponse, WatchStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::{Login, RegistryError, tell};
use crate::kv::directory::{KeyMirror, News};
use crate::live::kv::io_words::io_words;

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// For a listing, and for the answer to a new watch.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// A server that says nothing is asked for a sign of life so often, and given so long.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3));
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Messages that follow each other so closely are one change, at most so many.
const TOGETHER: Duration = Duration::from_millis(10);
const MOST_TOGETHER: usize = 64;
/// Of one message of etcd: a listing of many instances with their profiles.
const MOST_BYTES: usize = 64 << 20;

/// Why a watch ended.
enum End {
    /// Nobody listens.
    Unheard,
    /// Anything else, in words.
    Broken(String),
}

/// Follows the keys until nobody listens. Errors: endpoints that are none.
pub(super) async fn follow(
    endpoints: &[String],
    namespace: &str,
    login: Option<Login>,
    to: &mpsc::Sender<Vec<News>>,
) -> Result<(), RegistryError> {
    let mut watcher =
        Watcher { mirror: KeyMirror::new(namespace), to, trouble: None, was_listed: false, wait: FIRST_WAIT };
    loop {
        let end = match connect(endpoints, login.as_ref()).await {
            Err(error @ (Error::InvalidArgs(_) | Error::InvalidUri(_))) => {
                return Err(RegistryError::Endpoints(error.to_string()));
            }
            Err(error) => broken(error),
            Ok(client) => watcher.watch(&client).await,
        };
        let told = match end {
            End::Unheard => return Ok(()),
            End::Broken(why) => watcher.broken(&endpoints.join(", "), why).await,
        };
        if !told {
            return Ok(());
        }
    }
}

async fn connect(endpoints: &[String], login: Option<&Login>) -> Result<Client, Error> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(CONNECT_LIMIT)
        .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    if let Some(login) = login {
        options = options.with_user(&login.user, &login.password);
    }
    match timeout(CALL_LIMIT, Client::connect(endpoints, Some(options))).await {
        Ok(connected) => connected,
        Err(_) => Err(Error::WatchError(format!("no connection within {CALL_LIMIT:?}"))),
    }
}

struct Watcher<'a> {
    mirror: KeyMirror,
    to: &'a mpsc::Sender<Vec<News>>,
    /// Why the last watch ended, once that is told.
    trouble: Option<String>,
    was_listed: bool,
    wait: Duration,
}

impl Watcher<'_> {
    /// Says so once, and waits before the next try; `false`: nobody listens.
    async fn broken(&mut self, endpoints: &str, why: String) -> bool {
        if self.trouble.replace(why.clone()).is_none() {
            let notice = format!("etcd {endpoints}: {why}; instances stay as they are until it is back");
            if !tell(vec![News::Notice(notice)], self.to).await {
                return false;
            }
        }
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        tokio::select! {
            () = sleep(wait) => true,
            () = self.to.closed() => false,
        }
    }

    async fn watch(&mut self, client: &Client) -> End {
        match self.try_watch(client).await {
            Ok(end) | Err(end) => end,
        }
    }

    async fn try_watch(&mut self, client: &Client) -> Result<End, End> {
        let prefixes = self.mirror.prefixes();
        let (revision, keys) = within(list(client, &prefixes)).await?;
        let mut news = self.mirror.relist(&keys);
        if self.trouble.take().is_some() {
            news.insert(0, News::Mended("etcd: is back; instances were listed anew".into()));
            news.extend(self.mirror.trouble().map(News::Notice));
        }
        if !std::mem::replace(&mut self.was_listed, true) {
            news.push(News::Listed);
        }
        self.wait = FIRST_WAIT;
        self.tell(news).await?;
        let mut stream = within(begin(client, &prefixes, revision + 1)).await?;
        loop {
            let (news, end) = self.changes(&mut stream).await;
            self.tell(news).await?;
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// What changed at once, and the end of the watch where it came with it. A transaction is a message for each prefix.
    async fn changes(&mut self, stream: &mut WatchStream) -> (Vec<News>, Option<End>) {
        let (mut news, mut messages) = (Vec::new(), 0);
        let mut next = tokio::select! {
            message = stream.message() => message,
            () = self.to.closed() => return (news, Some(End::Unheard)),
        };
        loop {
            match next {
                Ok(Some(message)) if message.canceled() => return (news, Some(End::Broken(cancelled(&message)))),
                Ok(Some(message)) => news.extend(self.news_of(&message)),
                Ok(None) => return (news, Some(End::Broken("the watch ended".into()))),
                Err(error) => return (news, Some(broken(error))),
            }
            messages += 1;
            if messages == MOST_TOGETHER {
                return (news, None);
            }
            let Ok(message) = timeout(TOGETHER, stream.message()).await else { return (news, None) };
            next = message;
        }
    }

    fn news_of(&mut self, message: &WatchResponse) -> Vec<News> {
        let mut news = Vec::new();
        for event in message.events() {
            let Some(kv) = event.kv() else { continue };
            let key = String::from_utf8_lossy(kv.key());
            news.extend(match event.event_type() {
                EventType::Put => self.mirror.put(&key, kv.value()),
                EventType::Delete => self.mirror.delete(&key),
            });
        }
        news
    }

    async fn tell(&self, news: Vec<News>) -> Result<(), End> {
        if tell(news, self.to).await { Ok(()) } else { Err(End::Unheard) }
    }
}

/// All keys under the prefixes, and the revision they are of.
async fn list(client: &Client, prefixes: &[String]) -> Result<(i64, Vec<(String, Vec<u8>)>), Error> {
    let mut kv = client.kv_client().max_decoding_message_size(MOST_BYTES);
    let get = |prefix: &String| TxnOp::get(prefix.as_str(), Some(GetOptions::new().with_prefix()));
    let operations: Vec<TxnOp> = prefixes.iter().map(get).collect();
    let answer = kv.txn(Txn::new().and_then(operations)).await?;
    let revision = answer.header().map(|header| header.revision());
    let revision = revision.ok_or_else(|| Error::WatchError("a listing has no revision".into()))?;
    let mut keys = Vec::new();
    for part in answer.op_responses() {
        if let TxnOpResponse::Get(found) = part {
            let text = |kv: &etcd_client::KeyValue| String::from_utf8_lossy(kv.key()).into_owned();
            keys.extend(found.kvs().iter().map(|kv| (text(kv), kv.value().to_vec())));
        }
    }
    Ok((revision, keys))
}

/// One stream with a watch of each prefix.
async fn begin(client: &Client, prefixes: &[String], revision: i64) -> Result<WatchStream, Error> {
    let mut watches = client.watch_client().max_decoding_message_size(MOST_BYTES);
    let options = || Some(WatchOptions::new().with_prefix().with_start_revision(revision));
    let (first, others) = prefixes.split_first().ok_or_else(|| Error::WatchError("nothing to watch".into()))?;
    let mut stream = watches.watch(first.as_str(), options()).await?;
    for prefix in others {
        stream.watch(prefix.as_str(), options()).await?;
    }
    Ok(stream)
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, End> {
    match timeout(CALL_LIMIT, call).await {
        Ok(answer) => answer.map_err(broken),
        Err(_) => Err(End::Broken(format!("no answer within {CALL_LIMIT:?}"))),
    }
}

fn broken(error: Error) -> End {
    End::Broken(match &error {
        Error::IoError(error) => words(error),
        Error::TransportError(error) => words(error),
        Error::GRpcStatus(status) => io_cause(status).map_or_else(|| plain(status.message()), io_words),
        // The client's name for what is of our own making, or of the watch.
        Error::WatchError(why) => why.clone(),
        error => error.to_string(),
    })
}

/// The words of HTTP/2 for a connection that ended say nothing to a reader.
fn plain(message: &str) -> String {
    let is_of_http = message.starts_with("h2 protocol error") || message.contains("reading a body from connection");
    if is_of_http { "the connection broke".into() } else { message.to_owned() }
}

/// What the system said, if it said something; else the error's own words. The layers between say nothing to a reader.
fn words(error: &(dyn StdError + 'static)) -> String {
    io_cause(error).map_or_else(|| error.to_string(), io_words)
}

fn io_cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let (mut deepest, mut next) = (None, Some(error));
    while let Some(error) = next {
        deepest = error.downcast_ref().or(deepest);
        next = error.source();
    }
    deepest
}

fn cancelled(message: &WatchResponse) -> String {
    match (message.compact_revision(), message.cancel_reason()) {
        (0, "") => "the watch was cancelled".into(),
        (0, reason) => format!("the watch was cancelled: {reason}"),
        (revision, _) => format!("changes before revision {revision} were compacted away"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_is_told_in_a_word() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let end = runtime.block_on(async {
            let endpoints = ["http://127.0.0.1:1".to_owned()];
            match connect(&endpoints, None).await {
                Err(error) => broken(error),
                // The client connects when it is used.
                Ok(client) => within(list(&client, &["p".to_owned()])).await.map(|_| ()).unwrap_err(),
            }
        });
        assert!(
            matches!(&end, End::Broken(why) if why == "connection refused"),
            "{}",
            match end {
                End::Broken(why) => why,
                End::Unheard => "unheard".into(),
            }
        );
    }
}
