//! Discovery: a task a worker that looks at its health now and then, and says when it changes.
//!
//! Invariant: a change is told once, at the first look that shows it; a worker is taken as up until a look says
//! otherwise, as the replayer does at the start.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::base::WorkerId;
use crate::live::Heard;
use crate::live::client::Looker;
use crate::protocol::{Event, WorkerState};

/// Starts to watch these workers, for as long as the runtime lives.
pub(super) fn watch(looker: &Looker, workers: Vec<WorkerId>, every: Duration, heard: &mpsc::Sender<Heard>) {
    for worker in workers {
        tokio::spawn(watch_one(looker.clone(), worker, every, heard.clone()));
    }
}

async fn watch_one(looker: Looker, worker: WorkerId, every: Duration, heard: mpsc::Sender<Heard>) {
    let mut known = None;
    loop {
        let seen = looker.look(worker).await;
        if is_news(known, seen) {
            let event = Event::WorkerChanged { worker, state: seen };
            if heard.send(Heard::Event(event)).await.is_err() {
                return;
            }
        }
        known = Some(seen);
        sleep(every).await;
    }
}

/// Whether the replayer must hear of what was seen.
fn is_news(known: Option<WorkerState>, seen: WorkerState) -> bool {
    match (known, seen) {
        (None, WorkerState::Up { .. }) => false,
        (None, WorkerState::Down | WorkerState::Gone) => true,
        (Some(known), seen) => known != seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once() {
        let up = |incarnation| WorkerState::Up { incarnation };
        let looks = [up(0), up(0), WorkerState::Down, WorkerState::Down, up(1), up(1), up(2)];
        let mut known = None;
        let told: Vec<WorkerState> = looks
            .into_iter()
            .filter(|seen| {
                let news = is_news(known, *seen);
                known = Some(*seen);
                news
            })
            .collect();
        assert_eq!(told, [WorkerState::Down, up(1), up(2)]);
        assert!(is_news(None, WorkerState::Down), "down from the start");
    }
}
