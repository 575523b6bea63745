//! The one sentence of a [`Cause`]: numbers in the units of the tables, two lines of a terminal at most.

use std::fmt;

use super::cause::{
    Cause, CounterDrift, EndedSlots, HandOff, HotDecoder, NoHits, PaceOf, PartlyBlind, Room, SlotShortage, SlowWorker,
};
use crate::base::words::{count, percent, plural, seconds, tokens};
use crate::results::Concentration;
use crate::results::transfers::not_concentrated;

/// Capacity that costs a smaller share of the turns does not bind yet.
const BINDS_FROM: f64 = 0.02;

impl Cause {
    pub(super) fn sentence(&self) -> String {
        match self {
            Cause::NothingCompleted { failed, class, count: n, .. } => nothing_completed(*failed, class, *n),
            Cause::CountersDiverged(drift) => drift.sentence(),
            Cause::RanAsLoadOnly(index) => index.sentence(),
            Cause::IndexPartlyBlind(index) => index.sentence(),
            Cause::SessionCapStarvation(shortage) => shortage.sentence(),
            Cause::CapShrinks { cap, usable_tokens, mean_turn_tokens, shrunk_cap, fallbacks } => {
                cap_shrinks((*cap, *shrunk_cap), *usable_tokens, *mean_turn_tokens, *fallbacks)
            }
            Cause::SlotsUneven(slots) => slots.uneven_sentence(),
            Cause::CapacityBinds { room, refusals, reseeds_after_trim, share, hot, remedy } => {
                let turns = [(*refusals, "turn", "refused for room"), (*reseeds_after_trim, "reseed", "after a trim")];
                let hot = hot.as_ref().map_or_else(String::new, HotDecoder::sentence);
                format!("{}; {}{hot} ({remedy})", room.binds_sentence(*share), some_of(&turns))
            }
            Cause::PrefillQueue { mean_queue_ms, mean_ttft_ms, workers, busy_share, queue_peak, .. } => format!(
                "turns through P wait {} of {} mean TTFT in its queue: {}",
                seconds(*mean_queue_ms),
                seconds(*mean_ttft_ms),
                prefillers(*workers, *busy_share, *queue_peak)
            ),
            Cause::SlowWorkers { workers } => slow(workers),
            Cause::EndedSessionsHoldSlots(ended) => ended.sentence(),
            Cause::LinkBinds(held) => held.link_sentence(),
            Cause::DecodeRoomBinds(held) => held.room_sentence(),
            Cause::NextBinder { room } => room.next_sentence(),
            Cause::LargeSessionsStarve { starved_tokens, other_tokens, .. } => large(*starved_tokens, *other_tokens),
            Cause::LateSessionsStarve { starved_rank, other_rank, .. } => late(*starved_rank, *other_rank),
            Cause::TimeScaleCompressesGaps { time_scale, short_share, short_share_at_1x } => {
                compressed(*time_scale, *short_share, *short_share_at_1x)
            }
            Cause::OpenFailures { extra_placements, fallbacks, given_up } => {
                open_failures(*extra_placements, *fallbacks, *given_up)
            }
            Cause::AdmissionFails { turns, .. } => admission_fails(*turns),
            Cause::TransferErrorsConcentrated { found, all_errors, timeouts } => {
                concentrated(found, *all_errors, *timeouts)
            }
            Cause::TransferErrors { errors, transfers, timeouts, most_timeouts } => {
                not_concentrated(*errors, *transfers, *timeouts, most_timeouts.as_ref())
            }
            Cause::ContextLimitRefusals { requests, sessions, smallest_tokens } => format!(
                "{} of {} refused for the context limit or pool; the smallest asks {} tokens",
                plural(*requests, "request"),
                plural(*sessions, "session"),
                count(*smallest_tokens)
            ),
            Cause::WorkerRestarts {
                workers,
                restarts,
                reseeds,
                lost_requests,
                lost_sessions,
                first_lost,
                reseeds_after_loss,
            } => format!(
                "{} ({}): {}",
                plural(*restarts, "worker restart"),
                workers.join(", "),
                harm((*lost_requests, *lost_sessions, first_lost), reseeds + reseeds_after_loss)
            ),
            Cause::IdleWorkers { role, idle, workers } => format!("{idle} of {workers} {role} workers got no request"),
            Cause::ContextCompacted { turns, sessions } => format!(
                "{} of {} did not continue the session's context (compaction): closed and reseeded",
                plural(*turns, "turn"),
                plural(*sessions, "session")
            ),
        }
    }
}

fn admission_fails(turns: u64) -> String {
    format!(
        "admission calls failed: {} did not go direct; a D without that endpoint refuses each direct append (use a \
         patched SGLang or pdreplay worker, or --mechanism pd; report --events has the answers)",
        plural(turns, "turn")
    )
}

fn cap_shrinks((cap, shrunk): (u32, u64), usable_tokens: u64, mean_turn_tokens: f64, fallbacks: u64) -> String {
    format!(
        "the soft cap falls from {cap} to {shrunk} as contexts grow: {} usable tokens / {} mean size of the turns \
         refused; {} fell back",
        tokens(usable_tokens as f64),
        tokens(mean_turn_tokens),
        plural(fallbacks, "turn")
    )
}

fn large(starved_tokens: f64, other_tokens: f64) -> String {
    let (starved, others) = (tokens(starved_tokens), tokens(other_tokens));
    format!("large sessions starve: mean peak input {starved} against {others} of the others")
}

fn late(starved_rank: f64, other_rank: f64) -> String {
    format!("late sessions starve: mean arrival rank {starved_rank:.1} against {other_rank:.1} of the others")
}

fn compressed(time_scale: Option<f64>, short_share: f64, short_share_at_1x: Option<f64>) -> String {
    format!(
        "time-scale {} leaves {:.0} % of think gaps shorter than the E2E before them{}",
        time_scale.map_or_else(|| "inf".into(), |scale| scale.to_string()),
        short_share * 100.0,
        short_share_at_1x.map_or_else(String::new, |share| format!(" ({:.0} % at time-scale 1)", share * 100.0))
    )
}

fn nothing_completed(failed: u64, class: &str, of_class: u64) -> String {
    format!("no request completed: {} failed, {} of them {class}", count(failed), count(of_class))
}

fn open_failures(extra_placements: u64, fallbacks: u64, given_up: u64) -> String {
    let placed = (extra_placements, "further placement", "");
    let plain = (fallbacks, "turn", "took the plain path");
    let unanswered = (given_up, "turn", "given up before it was answered");
    format!("open_session failed: {}", some_of(&[placed, plain, unanswered]))
}

fn slow(workers: &[SlowWorker]) -> String {
    let each = workers.iter().map(|slow| {
        let (per, of) = match slow.pace {
            PaceOf::ComputedToken => ("computed token", "prefill"),
            PaceOf::AnswerToken => ("answer token", "answer"),
        };
        let (factor, compared) = (slow.factor, count(slow.compared));
        let of = plural(slow.turns, of);
        // They are among each other's peers.
        let least = if workers.iter().filter(|other| other.pace == slow.pace).count() > 1 { "at least " } else { "" };
        format!(
            "{} takes {least}{factor:.1} times as long as its peers per {per} ({compared} of {of} compared)",
            slow.worker
        )
    });
    format!("slow for like work: {}", each.collect::<Vec<_>>().join("; "))
}

fn prefillers(workers: u64, busy_share: Option<f64>, queue_peak: Option<u64>) -> String {
    let busy = busy_share.map_or_else(String::new, |share| format!(" busy {:.0} %", share * 100.0));
    let peak = queue_peak.map_or_else(String::new, |peak| format!(", up to {} waiting for one", count(peak)));
    format!("{}{busy}{peak}", plural(workers, "prefill worker"))
}

fn harm((requests, sessions, first): (u64, u64, &[String]), reseeds: u64) -> String {
    if requests + reseeds == 0 {
        return "nothing was lost".into();
    }
    let more = if requests > first.len() as u64 { ", …" } else { "" };
    let lost = format!("of {} lost with it ({}{more})", plural(sessions, "session"), first.join(", "));
    some_of(&[(requests, "request", &lost), (reseeds, "reseed", "because of it")])
}

/// The counts that are not zero, in words.
fn some_of(counts: &[(u64, &str, &str)]) -> String {
    let some = counts.iter().filter(|(n, _, _)| *n > 0);
    let words = some.map(|(n, noun, what)| format!("{} {what}", plural(*n, noun)).trim_end().to_owned());
    words.collect::<Vec<_>>().join(", ")
}

impl HotDecoder {
    fn sentence(&self) -> String {
        let (n, all, noun) = match self.all_trims {
            0 => (self.transfers, self.all_transfers, "KV transfer"),
            all => (self.trims, all, "trim"),
        };
        format!("; {} of {} on {}", count(n), plural(all, noun), self.worker)
    }
}

impl NoHits {
    fn sentence(&self) -> String {
        let policy = &self.policy;
        if self.decisions == 0 {
            return format!("ran as load-only: policy {policy} had no KV index to read");
        }
        let decisions = plural(self.decisions, "decision");
        let head = format!("ran as load-only: the hit term of policy {policy} was 0 in all {decisions}");
        let why = self.blindness.sentence();
        if !why.is_empty() {
            return format!("{head}; {why}");
        }
        let events = plural(self.events, "event");
        match self.streams {
            0 => format!("{head}; the index had no stream"),
            all => format!("{head}; {} of {} in step, {events} heard", self.in_step, plural(all, "stream")),
        }
    }
}

impl PartlyBlind {
    fn sentence(&self) -> String {
        let why = self.blindness.sentence();
        let why = if why.is_empty() { why } else { format!(": {why}") };
        let (blind, share) = (count(self.blind), self.share * 100.0);
        format!("{blind} of {} by the KV index ({share:.1} %) were blind{why}", plural(self.decisions, "choice"))
    }
}

impl CounterDrift {
    fn sentence(&self) -> String {
        let harm = match self.sessions_not_found {
            0 => format!("{} served elsewhere than intended", plural(self.mismatches, "request")),
            lost => format!("{} found no session where the router sent them", plural(lost, "request")),
        };
        format!(
            "policy {} with {}: replay and router counters diverged after request {}; {harm}",
            self.policy,
            self.mechanism,
            count(self.after)
        )
    }
}

impl SlotShortage {
    fn uneven_sentence(&self) -> String {
        format!("{} for {}, yet {} fell back: the D chosen had none left", self.slots(), self.asking(), self.lost())
    }

    fn slots(&self) -> String {
        format!("{} ({} D × cap {})", plural(self.slots, "slot"), self.decode_workers, self.cap)
    }

    /// Slots that come back are needed by the sessions live at once only.
    fn asking(&self) -> String {
        let at_once = if self.slot_release == "never" { "" } else { " live at once" };
        format!("{}{at_once}", plural(self.sessions, "session"))
    }

    fn lost(&self) -> String {
        plural(self.fallbacks, "turn")
    }

    fn sentence(&self) -> String {
        let held = self.sessions.saturating_sub(self.never_held.unwrap_or(self.sessions));
        let by_failure = self.slot_release == "never" && held > self.slots;
        let released = match self.slot_release.as_str() {
            "never" if by_failure => "slots are given back by a failed turn only",
            "never" => "slots are never released",
            "session-end" => "slots are released at a session's end",
            _ => "idle sessions give theirs up",
        };
        let holders = match self.never_held {
            Some(0) => "each session held one for a time".into(),
            Some(n) if by_failure => format!("{} held one at some time, {} never", plural(held, "session"), count(n)),
            Some(n) => format!("{} never held one", plural(n, "session")),
            None => "who held one is not known".into(),
        };
        format!("{} < {}, {released}: {holders}, {} fell back", self.slots(), self.asking(), self.lost())
    }
}

impl EndedSlots {
    fn sentence(&self) -> String {
        let starved = if self.starved > 0 { format!(" ({} starved)", count(self.starved)) } else { String::new() };
        format!(
            "sessions that have ended hold slots: {} of all slot time is after a last turn, at least {} of {}{starved} for \
             want of one; {} = \"session-end\" gives them back",
            percent(self.share),
            plural(self.refusals, "refusal"),
            plural(self.sessions, "session"),
            self.remedy
        )
    }
}

impl HandOff {
    fn link_sentence(&self) -> String {
        let busiest = self.busiest.as_ref();
        let busiest = busiest.map_or_else(String::new, |link| {
            format!("; link of {} busy {:.0} %", link.worker, link.busy_share * 100.0)
        });
        let (held, queued) = (self.held(), self.queued("KV on its way"));
        format!("KV transfer holds {held}: {} on the link{queued}{busiest} ({})", self.own(), self.remedy)
    }

    fn room_sentence(&self) -> String {
        let hot = self.hot.as_ref().map_or_else(String::new, HotDecoder::sentence);
        let (held, queued) = (self.held(), self.queued("such KV"));
        format!("KV that waits for room on D holds {held}: {} in D's queue{queued}{hot} ({})", self.own(), self.remedy)
    }

    fn held(&self) -> String {
        format!("turns through P for {} of {} mean TTFT", seconds(self.mean_held_ms), seconds(self.mean_ttft_ms))
    }

    fn own(&self) -> String {
        seconds(self.mean_held_ms - self.mean_queue_ms)
    }

    /// What it made turns wait in P's queue, if it did.
    fn queued(&self, what: &str) -> String {
        let Some(stalled) = self.stalled_share.filter(|_| self.mean_queue_ms > 0.0) else { return String::new() };
        format!(
            ", {} in P's queue while {what} filled its pool ({:.0} % of the run, P idle)",
            seconds(self.mean_queue_ms),
            stalled * 100.0
        )
    }
}

fn concentrated(found: &[Concentration], all_errors: u64, timeouts: u64) -> String {
    let each: Vec<String> = found.iter().map(Concentration::sentence).collect();
    let (on, all) = (each.join("; on "), plural(all_errors, "error"));
    format!("KV transfers fail on {on}; {all} in all{}", timed_out(timeouts))
}

/// KV that waits too long is load, where KV that breaks off is not.
fn timed_out(timeouts: u64) -> String {
    if timeouts > 0 { format!("; KV waited or moved too long for {}", count(timeouts)) } else { String::new() }
}

impl Room {
    fn next_sentence(&self) -> String {
        match self.cap {
            Some(cap) if self.sessions_per_worker < f64::from(cap) + 1.0 => {
                format!("next binder: KV capacity, soon above the cap of {cap}: {self}")
            }
            Some(_) | None => format!("next binder: raising the cap helps until {self}"),
        }
    }

    fn binds_sentence(&self, share: f64) -> String {
        match self.cap {
            Some(_) | None if share < BINDS_FROM => {
                let cap = self.cap.filter(|cap| self.sessions_per_worker < f64::from(*cap));
                let cap = cap.map_or_else(String::new, |cap| format!(" before the cap of {cap}"));
                format!("next binder: KV capacity{cap}: {self}")
            }
            Some(cap) if self.sessions_per_worker < f64::from(cap) => {
                format!("KV capacity binds before the cap of {cap} at any one time: {self}")
            }
            Some(cap) => format!("KV capacity binds at times within the cap of {cap}"),
            None => format!("KV capacity binds: {self}"),
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pool, context) = (tokens(self.kv_pool_tokens as f64), tokens(self.mean_context_tokens));
        write!(f, "{pool} tokens / {context} mean peak context = about {:.1} sessions a D", self.sessions_per_worker)
    }
}
