//! The driver in real time: one task owns the replayer and hears from sockets, timers and the observer, one at a time.
//!
//! The calling thread holds replayer and client in a current-thread runtime; a thread of its own hands records, ledger
//! and progress from a channel to the observer, so that a slow disk delays no send. That way around, what the run gave
//! back serves its summary: the C library's allocator keeps memory to the threads it was for. Decides nothing about
//! sessions, policies or caps.
//! Invariant: every planned request has been handed out as one record, whatever the target did, before [`drive`] ends
//! without an error.

mod descriptors;
mod end;
mod harness;
mod health;
mod relay;
mod teller;
mod turn;

#[cfg(test)]
mod tests;

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::live::client::{Client, ClientError};
use crate::live::clock::Clock;
use crate::live::driver::harness::Sampler;
use crate::live::driver::relay::{Halt, Told, relay};
use crate::live::driver::turn::Turning;
use crate::live::kv::RunIndex;
use crate::live::probe::route_map;
use crate::live::{Heard, Notices, Target};
use crate::replay::{NoIndex, Observer, Replayer, ReplayerConfig, RunEnd};
use crate::scenario::Setup;
use crate::trace::{Trace, ideal_hits};

pub use descriptors::{Connections, Descriptors, Shortage};

/// Messages to the observer that may wait: only a disk that stands still for long delays sends, and the schedule lag
/// shows it.
const TOLD: usize = 16_384;
/// Messages from sockets that may wait.
const HEARD: usize = 4096;

/// Tasks that may run before sockets, timers and the loop are looked at again: each may build a body.
const TASKS_AT_ONCE: u32 = 16;

/// Wall time for what is made between the start of the driver and that of the run: client, replayer.
const PREPARE: Duration = Duration::from_millis(20);
/// Wall time for the workers' first loads, where the policy reads loads: its first choice should not be blind.
const FIRST_LOADS: Duration = Duration::from_secs(1);

/// Longest wait for what had arrived of a request that was given up: a client tells as soon as it gets to run.
const LAST_WORD: Duration = Duration::from_secs(2);

/// What a driver is told beside machines and target.
#[derive(Debug, Clone, Copy)]
pub struct DriveOptions {
    /// The clock of the run goes so many times faster than the wall's; 1 with real targets.
    pub speed: f64,
    /// After a break: longest wait for requests in flight, wall time.
    pub drain: Duration,
    /// Time between two looks at each worker's health, wall time; `None`: no looks.
    pub health_poll: Option<Duration>,
    /// Descriptors as found before the run.
    pub descriptors: Descriptors,
    /// The clock of the run, still to start; without it, or when it has started already, one that starts now.
    pub clock: Option<Clock>,
}

/// What goes on beside a run.
#[derive(Debug, Default)]
pub struct Beside {
    /// Words for the ledger.
    pub notices: Option<Notices>,
    /// The KV index, where there is one.
    pub index: Option<RunIndex>,
}

/// Why a live run could not go to its end.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The observer could not take something.
    #[error(transparent)]
    Observer(io::Error),
    /// The client cannot be made from this target.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The policy needs the KV index, and it saw nothing.
    #[error(transparent)]
    NoIndex(NoIndex),
    /// No thread, runtime or timer.
    #[error("cannot start the live driver: {0}; check the limits on processes and open files")]
    Start(io::Error),
}

/// Replays `trace` against `target` in real time; what goes on `beside` it is told in the ledger. The observer is called
/// from one thread, which is not the calling one.
///
/// # Errors
/// When the observer fails, or the driver cannot start; a target that misbehaves is a record.
pub fn drive(
    trace: &Arc<Trace>,
    setup: Setup,
    target: Target,
    options: DriveOptions,
    beside: Beside,
    observer: &mut (dyn Observer + Send),
) -> Result<RunEnd, LiveError> {
    let ideal_hits = ideal_hits(trace);
    let ahead = options.clock.filter(|clock| !clock.until_start().is_zero());
    let reads_loads = setup.replayer.policy.reads_loads();
    let prepare = if reads_loads { PREPARE + FIRST_LOADS } else { PREPARE };
    let clock = ahead.unwrap_or_else(|| Clock::start_in(prepare, options.speed));
    let (told, tells) = sync_channel(TOLD);
    let (halt, halted) = oneshot::channel();
    thread::scope(|scope| {
        let observe = move || relay(tells, clock, halt, observer);
        let recorder = thread::Builder::new().name("recorder".into());
        let recorder = recorder.spawn_scoped(scope, observe).map_err(LiveError::Start)?;
        let work = Work { trace, setup, ideal_hits: &ideal_hits, target, options, beside };
        let ended = run(work, Ends { clock, told, halted });
        recorder.join().unwrap_or_else(|panic| resume_unwind(panic)).map_err(LiveError::Observer)?;
        ended
    })
}

/// The driver's ends of what joins it to the recorder.
struct Ends {
    clock: Clock,
    told: SyncSender<Told>,
    halted: oneshot::Receiver<Halt>,
}

/// What probes found before the run, and how to find it anew.
fn find_routes(client: &Client, target: &Arc<Target>) {
    let Some(map) = &target.route_map else { return };
    client.set_route_map(map.clone());
    let (target, looker) = (Arc::clone(target), client.looker());
    client.set_prober(Arc::new(move || {
        let (target, looker) = (Arc::clone(&target), looker.clone());
        Box::pin(async move { route_map(&target, looker.http()).await })
    }));
}

/// What a run is made of.
struct Work<'t> {
    trace: &'t Arc<Trace>,
    setup: Setup,
    ideal_hits: &'t [u32],
    target: Target,
    options: DriveOptions,
    beside: Beside,
}

fn run(work: Work, ends: Ends) -> Result<RunEnd, LiveError> {
    let Work { trace, setup, ideal_hits, target, options, beside } = work;
    let Beside { notices, mut index } = beside;
    let runtime =
        Builder::new_current_thread().event_interval(TASKS_AT_ONCE).enable_all().build().map_err(LiveError::Start)?;
    let ended = runtime.block_on(async {
        let target = Arc::new(target);
        let (heard, hears) = mpsc::channel(HEARD);
        let client = Client::new(trace, Arc::clone(&target), ends.clock, heard.clone())?;
        find_routes(&client, &target);
        if let Some(every) = options.health_poll {
            let workers = target.addresses.workers().map(|(worker, _)| worker).collect();
            health::watch(&client.looker(), workers, every, &heard);
        }
        for notices in notices.into_iter().chain(index.as_mut().and_then(RunIndex::notices)) {
            tokio::spawn(pass_on(notices, heard.clone()));
        }
        drop(heard);
        let initial_loads =
            if setup.replayer.policy.reads_loads() { client.loads(FIRST_LOADS).await } else { Vec::new() };
        let config = ReplayerConfig { initial_loads, ..setup.replayer };
        let replayer = Replayer::new(trace, config, ideal_hits);
        let mut replayer = replayer.with_told_sends(ends.clock.of_wall(LAST_WORD));
        if let Some(index) = &index {
            replayer = replayer.with_index(Box::new(index.lookup()));
        }
        // What is built before the run holds up none of it.
        let sampler = Sampler::start();
        let mut turning = Turning::new(replayer, client, ends, hears, options.drain);
        turning.absent.clone_from(&target.absent);
        let ended = turning.run().await.map_err(LiveError::Start)?;
        if let Some(no_index) = ended.replayer.no_index() {
            return Err(LiveError::NoIndex(no_index.clone()));
        }
        // Before sessions are closed, which takes time of no request.
        let streams = index.as_ref().map(RunIndex::facts).unwrap_or_default();
        let mut end = end::settle(ended, &target, &options, sampler).await;
        end.facts.streams = streams;
        Ok::<_, LiveError>(end)
    })?;
    // Tasks that still wait for a socket have nothing more to say.
    runtime.shutdown_background();
    Ok(ended)
}

async fn pass_on(mut notices: Notices, heard: mpsc::Sender<Heard>) {
    while let Some(notice) = notices.recv().await {
        if heard.send(notice).await.is_err() {
            return;
        }
    }
}
