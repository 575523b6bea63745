//! [`Turn`]: a request as its spans are drawn from: when each phase began and ended.
//!
//! A record has lengths of phases, not their starts. They are drawn one after the other in the order in which a request goes
//! through them, from the send on; what is left up to the first token (the network, answers of the router) is a phase of its
//! own. Phases that together are longer than the time to the first token are cut there.

use super::super::distribution::ns_of_ms;
use super::super::frame::{Batch, Labels};
use super::super::vocabulary::Vocabulary;

/// Fields that it is made of.
pub(super) const COLUMNS: [&str; 24] = [
    "session_id",
    "turn_id",
    "request_id",
    "execution_mode",
    "mode_reason",
    "outcome",
    "error_class",
    "prefill_worker",
    "decode_worker_intended",
    "decode_worker_actual",
    "scheduled_ns",
    "released_ns",
    "sent_ns",
    "first_token_ns",
    "ended_ns",
    "queue_cap_wait_ms",
    "admission_ms",
    "prefill_queue_ms",
    "prefill_ms",
    "kv_transfer_ms",
    "decode_queue_ms",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
];

/// Start and end, nanoseconds since the start of the run.
pub(super) type Span = (u64, u64);

/// A phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Admission,
    PrefillQueue,
    Prefill,
    KvTransfer,
    DecodeQueue,
    /// Before the first token and told by nobody.
    Other,
    Decode,
}

impl Phase {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Phase::Admission => "admission",
            Phase::PrefillQueue => "prefill queue",
            Phase::Prefill => "prefill",
            Phase::KvTransfer => "kv transfer",
            Phase::DecodeQueue => "decode queue",
            Phase::Other => "other",
            Phase::Decode => "decode",
        }
    }
}

/// One request. Names are codes of their columns, in one list of words.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub session: u32,
    pub turn_id: u32,
    pub request_id: Box<str>,
    pub mode: u32,
    pub reason: u32,
    pub outcome: u32,
    pub error_class: Option<u32>,
    pub prefill_worker: Option<u32>,
    pub decode_worker: Option<u32>,
    pub scheduled_ns: u64,
    pub released_ns: Option<u64>,
    pub sent_ns: Option<u64>,
    pub ended_ns: u64,
    /// Wait for a slot of the replayer, from the release on.
    pub cap_wait_ns: u64,
    /// In order, without gaps from the send on; none is empty.
    pub phases: Vec<(Phase, Span)>,
    pub input_tokens: u32,
    pub output_tokens: u32,
    pub cached_tokens: Option<u32>,
}

impl Turn {
    /// Of a row.
    pub(super) fn of(batch: &Batch, row: usize, words: &mut Vocabulary) -> Turn {
        let mut word = |labels: Labels| labels.get(row).map(|word| words.number(word));
        let [session, mode, reason, outcome] = ["session_id", "execution_mode", "mode_reason", "outcome"]
            .map(|name| word(batch.labels(name)).unwrap_or(0));
        let actual = word(batch.labels("decode_worker_actual"));
        let ms = |name: &str| batch.f64(name).get(row).and_then(ns_of_ms).unwrap_or(0);
        let ended_ns = batch.u64("ended_ns").value(row);
        let sent_ns = batch.u64("sent_ns").get(row);
        let told = [
            (Phase::Admission, ms("admission_ms")),
            (Phase::PrefillQueue, ms("prefill_queue_ms")),
            (Phase::Prefill, ms("prefill_ms")),
            (Phase::KvTransfer, ms("kv_transfer_ms")),
            (Phase::DecodeQueue, ms("decode_queue_ms")),
        ];
        let phases = sent_ns.map_or_else(Vec::new, |sent_ns| {
            let first = batch.u64("first_token_ns").get(row).filter(|first| (sent_ns..=ended_ns).contains(first));
            laid_out(sent_ns, first, ended_ns.max(sent_ns), &told)
        });
        Turn {
            session,
            turn_id: batch.u32("turn_id").value(row),
            request_id: batch.texts("request_id").get(row).unwrap_or_default().into(),
            mode,
            reason,
            outcome,
            error_class: word(batch.labels("error_class")),
            prefill_worker: word(batch.labels("prefill_worker")),
            decode_worker: actual.or_else(|| word(batch.labels("decode_worker_intended"))),
            scheduled_ns: batch.u64("scheduled_ns").value(row),
            released_ns: batch.u64("released_ns").get(row),
            sent_ns,
            ended_ns,
            cap_wait_ns: ms("queue_cap_wait_ms"),
            phases,
            input_tokens: batch.u32("input_tokens").value(row),
            output_tokens: batch.u32("output_tokens").value(row),
            cached_tokens: batch.u32("cached_tokens").get(row),
        }
    }

    /// Release (or send, or schedule) to end: what the session was busy with.
    pub(super) fn busy(&self) -> Span {
        let start = self.released_ns.or(self.sent_ns).unwrap_or(self.scheduled_ns).min(self.ended_ns);
        (start, self.ended_ns)
    }

    /// Schedule to release: the wait for the session's previous turn, or for the end of the run.
    pub(super) fn waited(&self) -> Option<Span> {
        let released = self.busy().0;
        (self.scheduled_ns < released).then_some((self.scheduled_ns, released))
    }

    /// The phase, when it has a length.
    pub(super) fn phase(&self, phase: Phase) -> Option<Span> {
        self.phases.iter().find(|(found, _)| *found == phase).map(|(_, span)| *span)
    }

    /// From the first to the last of these phases.
    pub(super) fn over(&self, phases: &[Phase]) -> Option<Span> {
        let spans = || self.phases.iter().filter(|(phase, _)| phases.contains(phase)).map(|(_, span)| *span);
        Some((spans().map(|span| span.0).min()?, spans().map(|span| span.1).max()?))
    }
}

/// Phases one after the other; see the module.
fn laid_out(sent: u64, first: Option<u64>, ended: u64, told: &[(Phase, u64)]) -> Vec<(Phase, Span)> {
    let limit = first.unwrap_or(ended);
    let mut phases = Vec::new();
    let mut at = sent;
    for (phase, length) in told.iter().filter(|(_, length)| *length > 0) {
        let end = at.saturating_add(*length).min(limit);
        if end > at {
            phases.push((*phase, (at, end)));
        }
        at = end;
    }
    if at < limit {
        phases.push((Phase::Other, (at, limit)));
    }
    if let Some(first) = first.filter(|first| *first < ended) {
        phases.push((Phase::Decode, (first, ended)));
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: [(Phase, u64); 3] = [(Phase::Admission, 10), (Phase::Prefill, 0), (Phase::DecodeQueue, 20)];

    #[test]
    fn phases_fill_the_time_without_gaps() {
        assert_eq!(
            laid_out(100, Some(150), 170, &TOLD),
            [
                (Phase::Admission, (100, 110)),
                (Phase::DecodeQueue, (110, 130)),
                (Phase::Other, (130, 150)),
                (Phase::Decode, (150, 170))
            ]
        );
    }

    #[test]
    fn phases_never_leave_the_request() {
        assert_eq!(
            laid_out(100, Some(115), 115, &TOLD),
            [(Phase::Admission, (100, 110)), (Phase::DecodeQueue, (110, 115))]
        );
        assert_eq!(laid_out(100, None, 100, &TOLD), []);
        assert_eq!(laid_out(u64::MAX - 1, None, u64::MAX, &TOLD), [(Phase::Admission, (u64::MAX - 1, u64::MAX))]);
    }
}
