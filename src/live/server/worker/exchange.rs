//! One exchange between a handler and the task that owns the node.
//!
//! A [`Sheet`] is what the owner writes and the handler reads. A reader that is slow finds all that came meanwhile in one
//! step: nothing queues up behind it and nobody waits for it. Bound: 4 bytes a token not yet read, and below it what hyper
//! and the socket buffer. Invariant: an exchange that is dropped before its end is told to the node, without waiting.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::inbox::ToOwner;
use super::owner::Message;
use crate::node::{Exchange, NodeOutput, Progress};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Not yet read.
    progress: Option<Progress>,
    /// Not yet read.
    end: Option<Box<NodeOutput>>,
    /// The stream is quiet from now on; not yet read.
    hangs: bool,
    /// The KV of a pull moves; not yet read.
    moves: bool,
    /// The owner is gone: there will be no end.
    lost: bool,
}

/// What a handler reads.
#[derive(Debug)]
pub(super) enum Step {
    /// Tokens since the last step.
    Tokens(Progress),
    /// Nothing more will come, and no end.
    Hangs,
    /// The KV of a pull has begun to move.
    Moves,
    /// The output that ends the exchange; `Finished` holds all tokens since the last step.
    End(Box<NodeOutput>),
    /// The server is stopping.
    Lost,
}

impl Sheet {
    /// More tokens.
    pub fn progress(&self, new: Progress) {
        let mut state = self.state();
        match &mut state.progress {
            Some(waiting) => {
                waiting.new_ids.extend(new.new_ids);
                waiting.completion_tokens = new.completion_tokens;
                waiting.prompt_tokens = new.prompt_tokens;
                waiting.cached_tokens = new.cached_tokens;
            }
            None => state.progress = Some(new),
        }
        drop(state);
        self.changed.notify_one();
    }

    /// No more tokens, no end.
    pub fn hangs(&self) {
        self.state().hangs = true;
        self.changed.notify_one();
    }

    /// The KV of a pull has begun to move.
    pub fn moves(&self) {
        self.state().moves = true;
        self.changed.notify_one();
    }

    /// The end.
    pub fn end(&self, output: NodeOutput) {
        self.state().end = Some(Box::new(output));
        self.changed.notify_one();
    }

    /// There will be no end.
    pub fn lose(&self) {
        self.state().lost = true;
        self.changed.notify_one();
    }

    fn take(&self) -> Option<Step> {
        let mut state = self.state();
        if let Some(mut end) = state.end.take() {
            if let (NodeOutput::Finished { last, .. }, Some(waiting)) = (&mut *end, state.progress.take()) {
                last.new_ids.splice(..0, waiting.new_ids);
            }
            return Some(Step::End(end));
        }
        if let Some(progress) = state.progress.take() {
            return Some(Step::Tokens(progress));
        }
        if std::mem::take(&mut state.hangs) {
            return Some(Step::Hangs);
        }
        if std::mem::take(&mut state.moves) {
            return Some(Step::Moves);
        }
        state.lost.then_some(Step::Lost)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with a sheet in hand")
    }
}

/// A handler's side of an exchange.
#[derive(Debug)]
pub(super) struct Open {
    exchange: Exchange,
    sheet: Arc<Sheet>,
    /// For the word that its client has left; `None` after the end.
    gone: Option<ToOwner>,
}

impl Open {
    pub(super) fn new(exchange: Exchange, sheet: Arc<Sheet>, gone: ToOwner) -> Open {
        Open { exchange, sheet, gone: Some(gone) }
    }

    /// The next step, once there is one. Cancel-safe.
    pub async fn next(&mut self) -> Step {
        loop {
            if let Some(step) = self.sheet.take() {
                if matches!(step, Step::End(_) | Step::Lost) {
                    self.gone = None;
                }
                return step;
            }
            self.sheet.changed.notified().await;
        }
    }

    /// The end, whatever comes before it; `None` when there will be none.
    pub async fn end(mut self) -> Option<NodeOutput> {
        let mut ids = Vec::new();
        loop {
            match self.next().await {
                Step::Tokens(progress) => ids.extend(progress.new_ids),
                Step::Hangs | Step::Moves => {}
                Step::End(mut output) => {
                    if let NodeOutput::Finished { last, .. } = &mut *output {
                        last.new_ids.splice(..0, ids);
                    }
                    return Some(*output);
                }
                Step::Lost => return None,
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(to_owner) = self.gone.take() {
            to_owner.say(Message::Gone(self.exchange));
        }
    }
}
