//! Bodies of `/generate`: events of the stream, the whole answer, and the engine's verdict as SGLang words it.
//!
//! SGLang's default is cumulative: each event repeats all before it. What repeats is kept as text, so an event costs one
//! copy of its bytes and nothing is formatted twice.

use axum::body::Bytes;

use super::frames::{self, Form};
use super::front::Front;
use super::options::SglangVersion;
use super::words;
use crate::base::{Dur, Time};
use crate::live::api::{Emulated, FinishReason, GenerateEvent, MetaInfo};
use crate::node::{NodeOutput, Progress};
use crate::protocol::{ErrorClass, Finish};

/// Writes one answer.
#[derive(Debug)]
pub(super) struct Writer {
    worker: String,
    incarnation: u32,
    version: SglangVersion,
    incremental: bool,
    began: Time,
    meta: MetaInfo,
    text: String,
    /// Inside of the JSON array.
    ids: String,
}

impl Writer {
    /// For the request `rid`, which arrives now.
    pub fn new(rid: String, front: &Front) -> Writer {
        Writer {
            worker: front.config.id.to_string(),
            incarnation: front.identity(),
            version: front.options.version,
            incremental: front.options.incremental_output,
            began: front.options.clock.now(),
            meta: MetaInfo { id: rid, ..MetaInfo::default() },
            text: String::new(),
            ids: String::new(),
        }
    }

    /// An event with more tokens.
    pub fn tokens(&mut self, progress: &Progress) -> Bytes {
        self.take(progress);
        let mut event = Vec::with_capacity(self.text.len() + self.ids.len() + 256);
        self.write(&mut event);
        event.into()
    }

    /// The last event and the end mark. `output` is what ended a stream that had begun.
    pub fn last(&mut self, now: Time, output: &NodeOutput) -> Bytes {
        let mut event = Vec::new();
        match output {
            NodeOutput::Finished { finish: Finish::Error { class, message }, .. } => {
                frames::write_error(&mut event, Form::Sglang, status(*class).unwrap_or(500), message);
            }
            NodeOutput::Finished { finish, last, .. } => {
                self.take(last);
                self.conclude(now, output, finish);
                self.write(&mut event);
            }
            NodeOutput::Refused { refusal, .. } => {
                frames::write_error(&mut event, Form::Sglang, refusal.status, &refusal.message)
            }
            other => unreachable!("not the end of a generate request: {other:?}"),
        }
        frames::end(event)
    }

    /// The only event of a request that never reached the node, and the end mark.
    pub fn aborted(&mut self, now: Time, class: ErrorClass, message: String) -> Bytes {
        self.meta.finish_reason = Some(finish_reason(&Finish::Abort { class, message }, 0));
        self.meta.e2e_latency = Some(now.since(self.began).as_secs_f64());
        let mut event = Vec::new();
        self.write(&mut event);
        frames::end(event)
    }

    /// The whole answer at once.
    pub fn whole(mut self, now: Time, output: &NodeOutput) -> Option<GenerateEvent> {
        let NodeOutput::Finished { finish, last, .. } = output else { return None };
        self.take(last);
        self.conclude(now, output, finish);
        Some(GenerateEvent {
            text: self.text,
            output_ids: last.new_ids.clone(),
            meta_info: Some(self.meta),
            error: None,
        })
    }

    fn take(&mut self, progress: &Progress) {
        if self.incremental {
            self.text.clear();
            self.ids.clear();
        }
        words::append_text(&mut self.text, &progress.new_ids);
        words::append_list(&mut self.ids, &progress.new_ids);
        self.meta.prompt_tokens = progress.prompt_tokens;
        self.meta.completion_tokens = progress.completion_tokens;
        self.meta.cached_tokens = progress.cached_tokens;
    }

    fn conclude(&mut self, now: Time, output: &NodeOutput, finish: &Finish) {
        let NodeOutput::Finished { phases, prefill_worker, retractions, .. } = output else { return };
        self.meta.finish_reason = Some(finish_reason(finish, self.meta.completion_tokens));
        self.meta.e2e_latency = Some(now.since(self.began).as_secs_f64());
        match self.version {
            SglangVersion::V0_5_10 => self.meta.total_retractions = Some(u32::from(*retractions)),
            SglangVersion::V0_5_23 => self.meta.num_retractions = Some(u32::from(*retractions)),
        }
        self.meta.emulated = Some(Emulated {
            worker: self.worker.clone(),
            incarnation: self.incarnation,
            prefill_worker: prefill_worker.clone(),
            prefill_queue_ns: phases.prefill_queue.map(Dur::ns),
            prefill_ns: phases.prefill.map(Dur::ns),
            kv_transfer_ns: phases.kv_transfer.map(Dur::ns),
            decode_queue_ns: phases.decode_queue.map(Dur::ns),
        });
    }

    fn write(&self, event: &mut Vec<u8>) {
        for part in ["data: {\"text\":\"", &self.text, "\",\"output_ids\":[", &self.ids, "],\"meta_info\":"] {
            event.extend_from_slice(part.as_bytes());
        }
        serde_json::to_writer(&mut *event, &self.meta).expect("a Vec takes all, and keys are text");
        event.extend_from_slice(b"}\n\n");
    }
}

/// The verdict in SGLang's form.
pub(super) fn finish_reason(finish: &Finish, tokens: u32) -> FinishReason {
    match finish {
        Finish::Length => FinishReason::Length { length: u64::from(tokens) },
        Finish::Stop => FinishReason::Stop { matched: None },
        Finish::Abort { class, message } | Finish::Error { class, message } => {
            let status_code = status(*class);
            let err_type = status_code.map(|status| {
                let name = match status {
                    400 => "BadRequestError",
                    503 => "ServiceUnavailableError",
                    _ => "InternalServerError",
                };
                name.to_owned()
            });
            FinishReason::Abort { message: message.clone(), status_code, err_type }
        }
    }
}

/// The status SGLang gives an abort of this class; none where it only has words.
pub(super) fn status(class: ErrorClass) -> Option<u16> {
    match class {
        ErrorClass::SessionNotFound | ErrorClass::SessionBusy | ErrorClass::ContextLimit | ErrorClass::BadRequest => {
            Some(400)
        }
        ErrorClass::KvTransferTimeout | ErrorClass::KvTransferFailed | ErrorClass::PrefillFailed => Some(500),
        ErrorClass::Overloaded | ErrorClass::NoWorker => Some(503),
        ErrorClass::Unauthorized => Some(401),
        ErrorClass::WorkerLost
        | ErrorClass::ServerError
        | ErrorClass::Stalled
        | ErrorClass::TotalTimeout
        | ErrorClass::ShortOutput
        | ErrorClass::ExcessOutput
        | ErrorClass::NoOutput
        | ErrorClass::ConnectTimeout
        | ErrorClass::FirstTokenTimeout
        | ErrorClass::ConnectionClosed
        | ErrorClass::BadAnswer => None,
    }
}
