//! [`Feed`]: the directory of one process, from its start to its end.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::board::{Board, UNREAD};
use super::follower::Follower;
use super::log::Log;
use crate::kv::directory::{KvEventsConfig, Source};
use crate::live::clock::Clock;
use crate::live::kv::registry::{self, Login, RegistryError};

/// What a directory is started with.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// What is followed, and the limits.
    pub config: KvEventsConfig,
    /// User of etcd.
    pub login: Option<Login>,
    /// Real time; not emulated.
    pub clock: Clock,
    /// Gets a line for each change.
    pub log: Log,
}

/// A directory that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// Discovery from nowhere.
    #[error(
        "discovery has no registry of instances; write `discovery.registry` in the configuration, or name one beside it"
    )]
    NoRegistry,
    /// The registry cannot be followed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// No thread or runtime.
    #[error("the KV directory cannot be started: {0}; raise the limits on processes and open files")]
    Start(io::Error),
}

/// See the module. Dropping it ends every thread of it.
#[derive(Debug)]
pub struct Feed {
    board: Arc<Board>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Starts it. Streams that are listed are in the index soon after, discovered ones once their registry was read.
    pub fn start(options: FeedOptions) -> Result<Feed, FeedError> {
        let unready = match &options.config.source {
            Source::Discovery(discovery) => {
                registry::check(discovery.registry.as_ref().ok_or(FeedError::NoRegistry)?)?;
                UNREAD
            }
            Source::Streams(_) => "the listed streams are not followed yet",
        };
        let board = Arc::new(Board::new(options.clock, unready));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(FeedError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let mut follower = Follower::new(options, Arc::clone(&board));
        let thread = thread::Builder::new().name("kv-directory".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = follower.run() => {}
                    _ = stopped => {}
                }
                follower.stop().await;
            });
        });
        Ok(Feed { board, stop: Some(stop), thread: Some(thread.map_err(FeedError::Start)?) })
    }

    /// What it knows.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
