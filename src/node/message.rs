//! What reaches a worker node and what leaves it.

use crate::base::{Dur, Time, WorkerId};
use crate::cluster::{ClusterConfig, FaultConfig, Strikes};
use crate::engine::EngineConfig;
use crate::kv::publish::Message;
use crate::protocol::{AdmitKind, AdmitReason, Finish, Phases};

/// One HTTP exchange at this node; the server gives each a new number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exchange(pub u64);

/// What a worker node is built from.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Which worker it is.
    pub id: WorkerId,
    /// Process identity; grows with each restart.
    pub incarnation: u32,
    /// The engine.
    pub engine: EngineConfig,
    /// Links, transfer time-out and worker counts of the whole cluster.
    pub cluster: ClusterConfig,
    /// Tokens a block of the prefix cache.
    pub block_size: u32,
    /// What goes wrong; faults that start, stop or replace whole processes (kill, restart, leave, join, router-restart)
    /// are the supervisor's and are ignored here.
    pub faults: Vec<FaultConfig>,
    /// How often they may still strike, where other processes play them too; `None`: this one is alone.
    pub strikes: Option<Strikes>,
}

/// `/generate` or an OpenAI endpoint, as the node sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GenerateAsk {
    /// Request id of the client, if it gave one; faults limited to a session or turn match `<session>/<turn>`.
    pub rid: Option<String>,
    /// The prompt, or the append of a session.
    pub input_ids: Vec<u32>,
    /// Session to append to.
    pub session: Option<String>,
    /// Answer tokens asked for, at least 1.
    pub max_new_tokens: u32,
    /// The answer's first token ids; the rest is made up from the prompt.
    pub answer_ids: Vec<u32>,
    /// The other leg: for P where D will ask, for D whom to ask. Without it a decode worker serves its own sessions only.
    pub bootstrap: Option<Bootstrap>,
}

/// Where the legs of a request meet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bootstrap {
    /// Host of P's bootstrap server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The room.
    pub room: u64,
}

/// What reaches a worker node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeInput {
    /// A generate request. Answered by [`NodeOutput::Progress`]s and one [`NodeOutput::Finished`], or by
    /// [`NodeOutput::Refused`].
    Generate {
        /// Its exchange.
        exchange: Exchange,
        /// What is asked.
        ask: Box<GenerateAsk>,
    },
    /// The client closed the connection of an exchange: drop what it holds.
    Gone(Exchange),
    /// `/open_session`. Answered by [`NodeOutput::Opened`] or [`NodeOutput::Refused`].
    Open {
        /// Its exchange.
        exchange: Exchange,
        /// Id; the node makes one when absent.
        session: Option<String>,
        /// Idle time-out of this session alone, seconds.
        timeout: Option<f64>,
    },
    /// `/close_session`; not answered.
    Close(String),
    /// Admission. Answered by [`NodeOutput::Admission`] or [`NodeOutput::Refused`].
    Admit {
        /// Its exchange.
        exchange: Exchange,
        /// Session it is about.
        session: String,
        /// Append or seed.
        kind: AdmitKind,
        /// Prompt tokens to add.
        append_tokens: u32,
        /// Answer tokens to add.
        output_tokens: u32,
    },
    /// `/abort_request`: requests whose rid begins with this; every one when `None`.
    Abort(Option<String>),
    /// `/flush_cache`. Answered by [`NodeOutput::Flushed`].
    Flush(Exchange),
    /// Prefill: a D asks for the KV of a room. Answered by [`NodeOutput::Pulled`] or [`NodeOutput::Refused`].
    Pull {
        /// Its exchange.
        exchange: Exchange,
        /// The room.
        room: u64,
        /// Prompt tokens to send.
        tokens: u32,
        /// The D.
        decode: WorkerId,
        /// Transfers that move into D now; this one is not among them yet.
        ingress_flows: u32,
    },
    /// Prefill: a D's ingress is shared by so many transfers from now on.
    Ingress {
        /// The D.
        decode: WorkerId,
        /// Transfers.
        flows: u32,
    },
    /// The count of requests that a fault waits for has been reached. Who counts whose requests is the server's.
    FaultBegins {
        /// Its number in [`NodeConfig::faults`].
        fault: usize,
        /// When; in the past where this process started later.
        at: Time,
    },
    /// Decode: P has begun to send what [`NodeOutput::StartPull`] asked for. Without it the last word alone counts, and
    /// other P do not learn that this worker's ingress is shared.
    PullMoves(Exchange),
    /// Decode: the answer to [`NodeOutput::StartPull`].
    HandedOver {
        /// The exchange that waits for KV.
        exchange: Exchange,
        /// What P says, or why there is no KV.
        result: Result<HandedOver, String>,
    },
}

/// P's word on KV it has sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandedOver {
    /// Name of P.
    pub worker: String,
    /// Prompt tokens P found in its cache.
    pub cached_tokens: u32,
    /// Arrival at P to the start of the prefill.
    pub prefill_queue: Dur,
    /// Start to end of the prefill.
    pub prefill: Dur,
    /// End of the prefill to the start of the transfer.
    pub wait: Dur,
    /// The transfer, its set-up included.
    pub transfer: Dur,
}

/// What leaves a worker node, now.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeOutput {
    /// Tokens of an exchange.
    Progress(Progress),
    /// The end of a generate exchange.
    Finished {
        /// Which.
        exchange: Exchange,
        /// Verdict: `Length`, `Stop` or `Abort` inside a 200 answer.
        finish: Finish,
        /// Counts at the end; `new_ids` holds what no [`NodeOutput::Progress`] brought.
        last: Progress,
        /// Where the time went.
        phases: Phases,
        /// The prefill worker that sent the KV.
        prefill_worker: Option<String>,
        /// Times the engine threw it out.
        retractions: u16,
    },
    /// A stream that a fault made quiet: no further output follows; the connection stays open.
    Hangs(Exchange),
    /// An exchange is refused by a status.
    Refused {
        /// Which.
        exchange: Exchange,
        /// Why.
        refusal: Refusal,
    },
    /// Answer to [`NodeInput::Open`]: the id.
    Opened {
        /// Which.
        exchange: Exchange,
        /// The session's id.
        session: String,
    },
    /// Answer to [`NodeInput::Admit`].
    Admission {
        /// Which.
        exchange: Exchange,
        /// Reason of the answer; it can admit when it is a `Fits…`.
        reason: AdmitReason,
        /// Free and evictable tokens.
        available_tokens: u64,
        /// Tokens of the pool.
        capacity_tokens: u64,
        /// Sessions dropped to make room.
        evicted: Vec<String>,
    },
    /// Answer to [`NodeInput::Flush`]: done, or requests are in the way.
    Flushed {
        /// Which.
        exchange: Exchange,
        /// The cache is empty.
        done: bool,
    },
    /// Decode: ask P for KV; answered by [`NodeInput::HandedOver`].
    StartPull {
        /// The exchange that waits for it.
        exchange: Exchange,
        /// Where and which room.
        bootstrap: Bootstrap,
        /// Prompt tokens to send.
        tokens: u32,
        /// Transfers that move into this worker now; this one is not among them yet.
        ingress_flows: u32,
    },
    /// Decode: close the connection of a pull.
    StopPull(Exchange),
    /// Decode: tell the P at this address how many transfers share this worker's ingress.
    TellIngress {
        /// Where.
        bootstrap: Bootstrap,
        /// Transfers.
        flows: u32,
    },
    /// Prefill: the KV of a pull has begun to move; D wants to know (the head of the answer may say so).
    /// [`NodeOutput::Pulled`] or [`NodeOutput::Refused`] follows.
    PullMoves(Exchange),
    /// Prefill: the KV of a pull has arrived at D.
    Pulled {
        /// Exchange of the pull.
        exchange: Exchange,
        /// What to tell D.
        over: HandedOver,
    },
    /// A message of KV events to all who subscribe.
    KvEvents(Message),
    /// A fault hides where KV events are published, or they are to be found again.
    KvReachable(bool),
}

/// How far an answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Which.
    pub exchange: Exchange,
    /// Token ids since the last one.
    pub new_ids: Vec<u32>,
    /// Answer tokens so far.
    pub completion_tokens: u32,
    /// Prompt tokens; in a session the whole context.
    pub prompt_tokens: u32,
    /// Prompt tokens found in cache or session.
    pub cached_tokens: u32,
}

/// A refusal by HTTP status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Status.
    pub status: u16,
    /// The engine's words.
    pub message: String,
}
