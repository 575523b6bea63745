//! A generate request comes in: checked, named, hashed, delayed by its intake, handed to the engine.

use crate::base::{Dur, RequestIx, Role};
use crate::cluster::FaultKind;
use crate::engine::{Input, Job};
use crate::kv::BlockPath;
use crate::node::worker::decode::Pulling;
use crate::node::worker::faults::Named;
use crate::node::worker::tokens::{AnswerIds, BlockIds};
use crate::node::worker::{Due, Work, WorkerNode};
use crate::node::{Exchange, GenerateAsk, NodeOutput, Refusal};
use crate::protocol::{ErrorClass, Finish};

/// Nodes and blocks of the tree before the first compaction.
pub(super) const FIRST_COMPACTION: u64 = 1 << 15;

impl WorkerNode {
    pub(super) fn generate(&mut self, exchange: Exchange, ask: GenerateAsk) {
        self.requests += 1;
        self.sweep();
        if let Some(message) = malformed(&ask) {
            self.emit(NodeOutput::Refused { exchange, refusal: Refusal { status: 400, message } });
            return;
        }
        let worker = self.config.id;
        let named = Named { rid: ask.rid.as_deref(), session: ask.session.as_deref() };
        let refused = if worker.role == Role::Decode && ask.bootstrap.is_some() {
            // Of two legs it is P's that a fault strikes which names neither.
            self.faults.strike_named(FaultKind::ErrorResponse, worker, named)
        } else {
            self.faults.strike_request(FaultKind::ErrorResponse, worker, named)
        };
        let hang = match worker.role {
            Role::Decode | Role::Colocated if refused.is_none() => {
                self.faults.strike_request(FaultKind::Hang, worker, named)
            }
            Role::Decode | Role::Colocated | Role::Prefill => None,
        };
        let shipped = ask.input_ids.len() as u32;
        let request = self.take_in(exchange, ask, hang.map(|fault| fault.after_tokens));
        if self.lacks_room(request) {
            return;
        }
        if let Some(fault) = refused {
            let leg = if worker.role == Role::Prefill { "prefill" } else { "request" };
            let message = format!("{leg} failed on {worker}: server answered {}", fault.status);
            let refusal = Refusal { status: fault.status, message };
            self.agenda.schedule(self.now + fault.after, Due::RefuseRequest(request, refusal));
            return;
        }
        let engine = &self.config.engine;
        let micros = engine.ingest_base_ms * 1e3 + engine.ingest_per_token_us * f64::from(shipped);
        let ingest = Dur::from_secs_f64(micros / 1e6).unwrap_or(Dur::ZERO);
        self.agenda.schedule(self.now + ingest, Due::Enter(request));
    }

    /// Its intake is over.
    pub(super) fn enter(&mut self, request: RequestIx) {
        let Some(work) = self.works.get_mut(&request) else { return };
        let Some(mut job) = work.job.take() else { return };
        job.arrived = self.now;
        let from_elsewhere = self.config.id.role == Role::Decode && work.bootstrap.is_some();
        self.feed(if from_elsewhere { Input::Reserve(job) } else { Input::Generate(job) });
    }

    /// Books the request; the engine does not have it yet.
    fn take_in(&mut self, exchange: Exchange, ask: GenerateAsk, hang_after: Option<u32>) -> RequestIx {
        let request = self.free_request();
        let session = ask.session.as_deref().map(|name| self.names.session_ix(name));
        let mut blocks = BlockIds::new(self.config.block_size, self.publishes());
        let input_tokens = ask.input_ids.len() as u32;
        blocks.extend(ask.input_ids.iter().copied());
        let answer = AnswerIds::new(ask.answer_ids, blocks.hash());
        let (prompt, context) = if session.is_none() && self.worker.caches_prompts() {
            self.paths(blocks, &answer, (input_tokens, ask.max_new_tokens))
        } else {
            (BlockPath::EMPTY, BlockPath::EMPTY)
        };
        let job = Job {
            request,
            session,
            prompt,
            context,
            input_tokens,
            shipped_tokens: input_tokens,
            output_tokens: ask.max_new_tokens,
            hang_after,
            arrived: self.now,
        };
        let work = Work {
            exchange,
            session,
            bootstrap: ask.bootstrap,
            answer,
            job: Some(job),
            prompt_tokens: input_tokens,
            cached_tokens: 0,
            told: 0,
            hangs: false,
            pulling: Pulling::No,
            over: None,
        };
        self.names.remember_rid(request, ask.rid);
        self.works.insert(request, work);
        let before = self.generates.insert(exchange, request);
        assert!(before.is_none(), "exchange {} is used once", exchange.0);
        request
    }

    /// Paths of the prompt, and of prompt and answer.
    fn paths(
        &mut self,
        mut blocks: BlockIds,
        answer: &AnswerIds,
        (input, output): (u32, u32),
    ) -> (BlockPath, BlockPath) {
        let prompt = self.tree.insert(&blocks.ids, BlockPath::EMPTY);
        // A prefill worker has no answer, and what is longer than the pool is refused: nobody asks for its path.
        let fits = u64::from(input) + u64::from(output) <= self.config.engine.kv_pool_tokens;
        if self.config.id.role == Role::Prefill || !fits {
            self.keep_tokens(blocks.tokens.unwrap_or_default());
            return (prompt, prompt);
        }
        blocks.extend(answer.range(0, output));
        self.keep_tokens(blocks.tokens.take().unwrap_or_default());
        (prompt, self.tree.insert(&blocks.ids, prompt))
    }

    /// A leg without a room to meet the other in, or in a room that is taken, ends here.
    fn lacks_room(&mut self, request: RequestIx) -> bool {
        let Some(work) = self.works.get(&request) else { return true };
        let room = work.bootstrap.as_ref().map(|bootstrap| bootstrap.room);
        let message = match (self.config.id.role, room) {
            (Role::Colocated, _) | (Role::Decode, Some(_)) => return false,
            (Role::Decode, None) if work.session.is_some() => return false,
            (Role::Decode | Role::Prefill, None) => {
                "Disaggregated request received without bootstrap room id.".to_owned()
            }
            (Role::Prefill, Some(room)) if self.join_leg(room, request) => return false,
            (Role::Prefill, Some(room)) => format!("bootstrap room {room} is in use by another request"),
        };
        self.abort(request, Finish::Abort { class: ErrorClass::BadRequest, message });
        true
    }

    fn free_request(&mut self) -> RequestIx {
        loop {
            let request = RequestIx(self.next_request);
            self.next_request = self.next_request.wrapping_add(1);
            if !self.works.contains_key(&request) {
                return request;
            }
        }
    }

    /// Forgets names and blocks that nobody refers to, now and then.
    fn sweep(&mut self) {
        self.forget_names_if_many();
        if self.tree.node_count() as u64 + self.tree.block_count() > self.tree_limit {
            let mut used = self.worker.nodes_in_use();
            let ahead = self.works.values().filter_map(|work| work.job.as_ref());
            used.extend(ahead.flat_map(|job| [job.prompt.node, job.context.node]));
            let moved = self.tree.compact(&used);
            self.worker.follow(&moved);
            self.follow_events(&moved);
            for job in self.works.values_mut().filter_map(|work| work.job.as_mut()) {
                (job.prompt, job.context) = (moved.path(job.prompt), moved.path(job.context));
            }
            let left = self.tree.node_count() as u64 + self.tree.block_count();
            self.tree_limit = (2 * left).max(FIRST_COMPACTION);
        }
    }
}

/// What SGLang refuses before a request exists.
fn malformed(ask: &GenerateAsk) -> Option<String> {
    match ask {
        GenerateAsk { input_ids, .. } if input_ids.is_empty() => Some("input_ids cannot be empty.".to_owned()),
        GenerateAsk { max_new_tokens: 0, .. } => Some("max_new_tokens must be at least 1, got 0.".to_owned()),
        _ => None,
    }
}
