//! The task of a [`Directory`]: its clock, its health probes, its news.
//!
//! Invariant: every output of the directory is told once, in order; a listener that is slow holds up the registry, not the
//! other way round.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::base::Time;
use crate::kv::directory::{Directory, DirectoryOutput, Endpoint, News, PROBE_LIMIT, TableInput};
use crate::live::client::{ClientError, Http};
use crate::live::clock::Clock;

/// What the task tells.
#[derive(Debug, Clone, PartialEq)]
pub enum DirectoryWord {
    /// Of the directory; never a probe, the task makes those itself.
    Output(DirectoryOutput),
    /// What is wrong with the registry, for people.
    Notice(String),
    /// What was wrong with it is over, for people.
    Mended(String),
    /// The registry was read, and every stream of it that is to be followed has been told.
    Listed,
}

/// Runs `directory` on `clock` until nobody listens at `to`. The registry, and whoever else hears of instances
/// (heartbeats), speaks at `news`; when all of them have gone, time still passes. Errors: no HTTP client can be made.
pub async fn run(
    mut directory: Directory,
    clock: Clock,
    mut news: mpsc::Receiver<Vec<News>>,
    to: mpsc::Sender<DirectoryWord>,
) -> Result<(), ClientError> {
    let http = Arc::new(Http::plain(clock.wall(PROBE_LIMIT))?);
    // Room for an answer of each probe that can be under way: more would be probes nobody waits for any longer.
    let (answer, mut answers) = mpsc::channel(64);
    let mut is_fed = true;
    let mut is_listed = false;
    loop {
        directory.advance(clock.now());
        while let Some(output) = directory.poll_output() {
            match output {
                DirectoryOutput::Probe { probe, address, .. } => {
                    tokio::spawn(ask(http.clone(), probe, address, answer.clone()));
                }
                output => {
                    if to.send(DirectoryWord::Output(output)).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
        if std::mem::take(&mut is_listed) && to.send(DirectoryWord::Listed).await.is_err() {
            return Ok(());
        }
        let wake = directory.poll_timeout();
        tokio::select! {
            heard = news.recv(), if is_fed => match heard {
                Some(news) => {
                    let Some(listed) = take(&mut directory, clock, news, &to).await else { return Ok(()) };
                    is_listed = listed;
                }
                None => is_fed = false,
            },
            Some((probe, healthy)) = answers.recv() => {
                directory.handle_input(clock.now(), TableInput::Probed { probe, healthy });
            }
            () = until(clock, wake) => {}
            () = to.closed() => return Ok(()),
        }
    }
}

/// Takes one state of the registry; whether it is the first whole one. `None`: nobody listens any more.
async fn take(
    directory: &mut Directory,
    clock: Clock,
    news: Vec<News>,
    to: &mpsc::Sender<DirectoryWord>,
) -> Option<bool> {
    let (mut inputs, mut is_listed) = (Vec::new(), false);
    for one in news {
        let word = match one {
            News::Table(input) => {
                inputs.push(input);
                continue;
            }
            News::Listed => {
                is_listed = true;
                continue;
            }
            News::Notice(text) => DirectoryWord::Notice(text),
            News::Mended(text) => DirectoryWord::Mended(text),
        };
        to.send(word).await.ok()?;
    }
    directory.handle_inputs(clock.now(), inputs);
    if is_listed {
        directory.refresh(clock.now());
    }
    Some(is_listed)
}

async fn until(clock: Clock, wake: Option<Time>) {
    match wake {
        Some(at) => sleep(clock.until(at)).await,
        None => std::future::pending().await,
    }
}

/// GET `/health`; only a 200 is healthy.
async fn ask(http: Arc<Http>, probe: u64, address: Endpoint, answer: mpsc::Sender<(u64, bool)>) {
    let reply = http.get(&format!("http://{}/health", address.authority())).await;
    let healthy = reply.is_ok_and(|reply| reply.status == 200);
    // Nobody waits for it when the task has ended.
    let _ = answer.send((probe, healthy)).await;
}
