//! A request inside a worker: what was asked ([`Job`]), what it has become ([`Active`]), how it ended ([`Done`]).

use crate::base::{RequestIx, SessionIx, Time};
use crate::engine::message::Tokens;
use crate::kv::BlockPath;
use crate::protocol::{Finish, TokenRun};

/// A request as it reaches a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Which.
    pub request: RequestIx,
    /// Session it carries in `session_params`.
    pub session: Option<SessionIx>,
    /// Full blocks of the prompt.
    pub prompt: BlockPath,
    /// Full blocks of prompt and answer.
    pub context: BlockPath,
    /// Tokens of the whole prompt.
    pub input_tokens: u32,
    /// Tokens in the body: the append, for a request straight to its session.
    pub shipped_tokens: u32,
    /// Answer tokens asked for.
    pub output_tokens: u32,
    /// Fault: the stream goes quiet after this many tokens.
    pub hang_after: Option<u32>,
    /// When it entered the worker's queue.
    pub arrived: Time,
}

/// A request that holds memory in a worker.
#[derive(Debug, Clone)]
pub(super) struct Active {
    pub job: Job,
    /// Prompt tokens found in the cache or held by the session.
    pub cached: u32,
    /// Those of them that are loaded back from host memory.
    pub loaded: u32,
    /// Prompt tokens to compute, and computed so far. A retracted colocated request computes its answer again, too.
    pub todo: u32,
    pub computed: u32,
    /// Answer tokens so far.
    pub generated: u32,
    /// Tokens reserved in the pool.
    pub reserved: u64,
    /// Cached blocks it reads, locked.
    pub lock: BlockPath,
    pub prefill_started: Option<Time>,
    pub prefill_ended: Option<Time>,
    pub first_token: Option<Time>,
    pub last_token: Option<Time>,
    pub runs: Vec<TokenRun>,
    pub retractions: u16,
}

/// How a worker's part in a request ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Which.
    pub request: RequestIx,
    /// Verdict.
    pub finish: Finish,
    /// HTTP status.
    pub http_status: u16,
    /// Tokens of the whole prompt; in a session, of the whole context before the answer.
    pub prompt_tokens: u32,
    /// Those of them found here.
    pub cached_tokens: u32,
    /// Answer tokens sent.
    pub output_tokens: u32,
    /// Entered the worker's queue.
    pub arrived: Time,
    /// Start of its prefill here.
    pub prefill_started: Option<Time>,
    /// End of its prefill here.
    pub prefill_ended: Option<Time>,
    /// First token left.
    pub first_token: Option<Time>,
    /// Last token left.
    pub last_token: Option<Time>,
    /// All tokens, as runs.
    pub runs: Vec<TokenRun>,
    /// Times it was retracted.
    pub retractions: u16,
}

impl Active {
    /// A request that is about to compute `todo` tokens behind `cached` ones.
    pub fn new(job: Job, cached: u32, todo: u32) -> Active {
        Active {
            job,
            cached,
            loaded: 0,
            todo,
            computed: 0,
            generated: 0,
            reserved: 0,
            lock: BlockPath::EMPTY,
            prefill_started: None,
            prefill_ended: None,
            first_token: None,
            last_token: None,
            runs: Vec::new(),
            retractions: 0,
        }
    }

    /// Tokens of prompt and answer so far.
    pub fn context(&self) -> u64 {
        u64::from(self.job.input_tokens) + u64::from(self.generated)
    }

    /// Tokens of the context outside the locked blocks.
    pub fn private(&self, block_size: u32) -> u64 {
        self.context() - u64::from(self.lock.depth) * u64::from(block_size)
    }

    /// Answer tokens after which it stops here: all of them, or where a fault makes it hang.
    pub fn target(&self) -> u32 {
        self.job.hang_after.map_or(self.job.output_tokens, |after| after.min(self.job.output_tokens))
    }

    /// Answer tokens still to come.
    pub fn remaining(&self) -> u32 {
        self.target() - self.generated
    }

    /// Books the tokens of `run`.
    pub fn take(&mut self, run: TokenRun, last: Time) {
        self.generated += run.count;
        self.first_token.get_or_insert(run.first);
        self.last_token = Some(last);
        self.runs.push(run);
    }

    /// How far it is, unless that is its end.
    pub fn progress(&self) -> Option<Tokens> {
        (self.remaining() > 0).then_some(Tokens {
            request: self.job.request,
            prompt_tokens: self.job.input_tokens,
            cached_tokens: self.cached,
            output_tokens: self.generated,
        })
    }

    /// The worker dies at `now`: a first token that was to leave after the control calls under way never left.
    pub fn lose_unsent(&mut self, now: Time) {
        if self.first_token.is_some_and(|first| first > now) {
            (self.generated, self.first_token, self.last_token) = (0, None, None);
            self.runs.clear();
        }
    }

    /// The end, as the client will see it.
    pub fn into_done(self, finish: Finish, http_status: u16) -> Done {
        Done {
            request: self.job.request,
            finish,
            http_status,
            prompt_tokens: self.job.input_tokens,
            cached_tokens: self.cached,
            output_tokens: self.generated,
            arrived: self.job.arrived,
            prefill_started: self.prefill_started,
            prefill_ended: self.prefill_ended,
            first_token: self.first_token,
            last_token: self.last_token,
            runs: self.runs,
            retractions: self.retractions,
        }
    }
}

impl Done {
    /// A request that ended before it held any memory.
    pub(super) fn refused(job: &Job, finish: Finish, http_status: u16) -> Done {
        Active::new(job.clone(), 0, 0).into_done(finish, http_status)
    }
}
