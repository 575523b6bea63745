//! [`Place`]: where requests go, and the connections that are kept for the next ones.
//!
//! Last kept, first used. One that has been idle for too long, or that the other end has closed, is not used: it is closed
//! when a request meets it, or by a task that looks now and then for as long as any are kept.

use std::sync::{Arc, Mutex, Weak};

use reqwest::Url;
use tokio::time::sleep;

use super::Limits;
use super::connection::Connection;
use crate::base::Time;
use crate::live::client::line::locked;

/// See the module.
#[derive(Debug)]
pub(in crate::live::client) struct Place {
    /// Scheme, host and port lead there; the rest is not looked at.
    pub(super) url: Url,
    pub(super) limits: Limits,
    kept: Mutex<Kept>,
    this: Weak<Place>,
}

#[derive(Debug, Default)]
struct Kept {
    idle: Vec<(Connection, Time)>,
    /// A task looks after them.
    is_swept: bool,
}

impl Place {
    pub fn new(url: Url, limits: Limits) -> Arc<Place> {
        Arc::new_cyclic(|this| Place { url, limits, kept: Mutex::default(), this: Weak::clone(this) })
    }

    /// A connection that is free, if there is one.
    pub(super) fn take(&self) -> Option<Connection> {
        let mut kept = locked(&self.kept);
        while let Some((connection, since)) = kept.idle.pop() {
            if self.is_good(&connection, since) {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for the next request. Needs a running runtime.
    pub(super) fn keep(&self, mut connection: Connection) {
        let mut kept = locked(&self.kept);
        if kept.idle.len() >= self.limits.most_idle || !connection.unused().is_empty() {
            return;
        }
        connection.shrink();
        kept.idle.push((connection, self.limits.clock.now()));
        if !std::mem::replace(&mut kept.is_swept, true) {
            tokio::spawn(sweep(Weak::clone(&self.this), self.limits));
        }
    }

    fn is_good(&self, connection: &Connection, since: Time) -> bool {
        let idle = self.limits.clock.wall(self.limits.clock.now().since(since));
        idle < self.limits.idle && connection.is_silent()
    }

    /// Closes what is of no more use; whether anything is left.
    fn close_old(&self) -> bool {
        let mut kept = locked(&self.kept);
        kept.idle.retain(|(connection, since)| self.is_good(connection, *since));
        kept.is_swept = !kept.idle.is_empty();
        kept.is_swept
    }
}

async fn sweep(place: Weak<Place>, limits: Limits) {
    loop {
        sleep(limits.idle / 2).await;
        if !place.upgrade().is_some_and(|place| place.close_old()) {
            return;
        }
    }
}
