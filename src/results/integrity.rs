//! The integrity gate: may the headline be read at all, and what must be known before the numbers.
//!
//! Invariant: a run over a budget never shows its latencies as a headline; what is found is listed, never averaged away.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::outcomes::{ErrorGroup, Outcomes};
use super::{RunInfo, RunState};
use crate::base::words::{count, plural, seconds};
use crate::record::{AnswerFacts, CacheFacts, HarnessFacts, Outcome, PromptFacts};

/// Decimals of a per cent at most.
const MOST_DIGITS: usize = 6;
/// A run has fallen behind when it takes so many times the planned time …
const BEHIND_FROM: f64 = 1.5;
/// … and so many seconds more.
const BEHIND_FROM_S: f64 = 10.0;
/// How the note on the most common failure begins.
pub(super) const MOST_COMMON: &str = "most common failure";
/// Where the budget for a pause of the harness is set.
const PAUSE_KEY: &str = "integrity.max_harness_pause_ms";
/// Share of a core from which the driver has nothing to spare.
const BUSY_FROM: f64 = 0.9;
/// … and up to which its own work cannot be what delays it.
const IDLE_UP_TO: f64 = 0.3;

/// Verdict on a run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Integrity {
    /// May the headline be read?
    pub verdict: Verdict,
    /// Why not, in a few words: `56.8 % truncated (budget 1 %: …)`; null for a valid run.
    pub reason: Option<String>,
    /// How the run ended.
    pub state: RunState,
    /// Requests planned.
    pub planned: u64,
    /// Requests recorded; all of the planned ones unless the run did not come to its end.
    pub recorded: u64,
    /// Truncated, aborted, error and timeout over those that ran to an end, 0 to 1.
    pub bad_share: Option<f64>,
    /// Budget for it.
    pub max_bad_share: f64,
    /// p99 of the schedule lag, ms of wall time.
    pub schedule_lag_p99_ms: Option<f64>,
    /// Budget for it.
    pub max_schedule_lag_p99_ms: f64,
    /// Longest time the harness of a live run stood still in one piece, ms of wall time; null in virtual time.
    pub harness_pause_ms: Option<f64>,
    /// Budget for it; null in runs before it was judged.
    pub max_harness_pause_ms: Option<f64>,
    /// Requests served by another worker than the intended one.
    pub route_mismatches: u64,
    /// Requests sent more than once.
    pub retried_requests: u64,
    /// Beliefs of the replayer that a worker's word corrected.
    pub beliefs_corrected: u64,
    /// Sessions of the run without a record.
    pub sessions_without_records: u64,
    /// Sessions with records that are not in the run.
    pub unknown_sessions: u64,
    /// Everything found, one sentence each, worst first.
    pub notes: Vec<String>,
}

/// May the headline be read? Worse ones come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Yes.
    Valid,
    /// Yes, for the part of the run that was done.
    Partial,
    /// No: too many requests were not served as asked.
    Withheld,
    /// No: the harness itself was too slow.
    Invalid,
}

/// What the gate looks at.
pub(super) struct Evidence<'a> {
    pub info: &'a RunInfo,
    pub outcomes: &'a Outcomes,
    pub errors: &'a [ErrorGroup],
    pub planned: u64,
    /// Of wall time, as the budget is.
    pub schedule_lag_p99_ms: Option<f64>,
    /// First send to last end, seconds.
    pub duration_s: Option<f64>,
    pub route_mismatches: u64,
    pub retried_requests: u64,
    pub beliefs_corrected: u64,
    /// The harness of a run in real time.
    pub harness: Option<&'a HarnessFacts>,
    /// At least one worker told its own counters.
    pub some_account: bool,
    /// Sessions of the run without a record, and sessions with records that are not in the run.
    pub unmatched_sessions: (u64, u64),
}

impl Evidence<'_> {
    /// Longest time the harness stood still: how late its loop woke at most, ms of wall time.
    fn pause(&self) -> Option<f64> {
        self.harness?.loop_lag_max_ms
    }
}

impl Verdict {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::Partial => "partial",
            Verdict::Withheld => "withheld",
            Verdict::Invalid => "invalid",
        }
    }

    /// The headline latencies may be printed.
    pub fn shows_headline(self) -> bool {
        match self {
            Verdict::Valid | Verdict::Partial => true,
            Verdict::Withheld | Verdict::Invalid => false,
        }
    }
}

/// Judges a run.
pub(super) fn judge(evidence: &Evidence) -> Integrity {
    let Evidence { info, outcomes, planned, .. } = evidence;
    let lag_over = evidence.schedule_lag_p99_ms.filter(|lag| *lag > info.budgets.max_schedule_lag_p99_ms);
    let pause_over = evidence.pause().zip(info.budgets.max_harness_pause_ms).filter(|(pause, budget)| pause > budget);
    let bad_over = outcomes.bad_share().is_some_and(|share| share > info.budgets.max_bad_share);
    let recorded = outcomes.total();
    let (verdict, reason) = if outcomes.ok == 0 {
        (Verdict::Withheld, Some("no completed request".to_string()))
    } else if let Some(lag) = lag_over {
        let budget = info.budgets.max_schedule_lag_p99_ms;
        (Verdict::Invalid, Some(lag_words(lag, budget)))
    } else if let Some((pause, budget)) = pause_over {
        let words = format!("the harness stood still for {pause:.0} ms (budget {budget} ms: {PAUSE_KEY})");
        (Verdict::Invalid, Some(words))
    } else if bad_over {
        (Verdict::Withheld, Some(bad_words(outcomes, info.budgets.max_bad_share)))
    } else if info.state != RunState::Completed {
        let done =
            format!("{}: {} of {} requests done", info.state.as_str(), count(outcomes.served()), count(*planned));
        (Verdict::Partial, Some(done))
    } else {
        (Verdict::Valid, None)
    };
    Integrity {
        verdict,
        reason,
        state: info.state,
        planned: *planned,
        recorded,
        bad_share: outcomes.bad_share(),
        max_bad_share: info.budgets.max_bad_share,
        schedule_lag_p99_ms: evidence.schedule_lag_p99_ms,
        max_schedule_lag_p99_ms: info.budgets.max_schedule_lag_p99_ms,
        harness_pause_ms: evidence.pause(),
        max_harness_pause_ms: info.budgets.max_harness_pause_ms,
        route_mismatches: evidence.route_mismatches,
        retried_requests: evidence.retried_requests,
        beliefs_corrected: evidence.beliefs_corrected,
        sessions_without_records: evidence.unmatched_sessions.0,
        unknown_sessions: evidence.unmatched_sessions.1,
        notes: notes(evidence, lag_over, pause_over),
    }
}

/// `schedule lag p99 8.1 ms (budget 5 ms: …)`: a budget is told in the same way wherever it is.
pub(super) fn lag_words(lag_ms: f64, budget_ms: f64) -> String {
    format!("schedule lag p99 {lag_ms:.1} ms (budget {budget_ms} ms: integrity.max_schedule_lag_p99_ms)")
}

/// `56.8 % truncated, 1.2 % aborted (budget 1 %: …)` over the requests that ran to an end, in digits enough to be seen
/// to be over the budget.
fn bad_words(outcomes: &Outcomes, budget: f64) -> String {
    let served = outcomes.served() as f64;
    let in_percent = |n: u64, digits: usize| format!("{:.digits$}", n as f64 / served * 100.0);
    let is_over =
        |digits: &usize| in_percent(outcomes.bad(), *digits).parse().is_ok_and(|shown: f64| shown > budget * 100.0);
    let digits = (1..MOST_DIGITS).find(is_over).unwrap_or(MOST_DIGITS);
    let bad = Outcome::ALL.iter().filter(|outcome| super::is_failure(**outcome));
    let shares = bad.map(|outcome| (outcome, in_percent(outcomes.of(*outcome), digits)));
    let seen = shares.filter(|(_, share)| share.contains(|c: char| c.is_ascii_digit() && c != '0'));
    let words: Vec<String> = seen.map(|(outcome, share)| format!("{share} % {outcome}")).collect();
    let budget = format!("{:.*}", MOST_DIGITS, budget * 100.0);
    let budget = budget.trim_end_matches('0').trim_end_matches('.');
    format!("{} (budget {budget} %: integrity.max_bad_share)", words.join(", "))
}

/// A run that took clearly longer than its schedule asks for: the last answer alone is no delay.
fn behind(info: &RunInfo, duration_s: Option<f64>) -> Option<String> {
    let (planned_s, took_s) = (info.planned_s?, duration_s?);
    let is_behind = took_s > BEHIND_FROM * planned_s && took_s > planned_s + BEHIND_FROM_S;
    let (took, planned) = (seconds(took_s * 1e3), seconds(planned_s * 1e3));
    is_behind.then(|| format!("took {took} for a planned {planned}: the run fell behind its schedule"))
}

/// What helps against late sends: less work for a harness that has too much; one that hardly worked did not get the processor.
fn lag_advice(harness: Option<&HarnessFacts>) -> String {
    let idle = harness.map(|harness| harness.driver_cpu_share).filter(|share| *share <= IDLE_UP_TO);
    idle.map_or_else(
        || "a lower --emulation-speed (emulated workers), --concurrency or --time-scale asks less of it".to_owned(),
        |share| {
            format!(
                "its thread used {:.1} % of a core: the machine was busy with other work, emulated workers on it included; \
                 repeat the run on a quieter one",
                share * 100.0
            )
        },
    )
}

/// Where the harness itself may show in its figures, and whose own word is missing.
fn harness_notes(harness: &HarnessFacts, info: &RunInfo, some_account: bool) -> Vec<String> {
    let budget = info.budgets.max_schedule_lag_p99_ms;
    let busy = (harness.driver_cpu_share > BUSY_FROM).then(|| {
        let share = harness.driver_cpu_share * 100.0;
        format!(
            "the driver kept {share:.0} % of a core busy: its latencies may include its own delay; send fewer requests"
        )
    });
    let late = harness.loop_lag_p99_ms.filter(|lag| *lag > budget).map(|lag| {
        format!("the driver's loop woke late: p99 {lag:.1} ms of wall time; its latencies may include its own delay")
    });
    let absent = (!harness.never_answered.is_empty()).then(|| {
        let workers = harness.never_answered.join(" ");
        format!("never answered, before the run or in it: {workers}; its figures are those of a cluster without them")
    });
    let silent = (some_account && !harness.without_account.is_empty())
        .then(|| format!("without their own counters, since they are gone: {}", harness.without_account.join(" ")));
    let older = (!harness.older_peaks.is_empty()).then(|| {
        let workers = harness.older_peaks.join(" ");
        format!("peaks of {workers} may be older than the run: a worker's peaks count from the start of its process")
    });
    // Counted by the client: a repeat that worked leaves no error in the records.
    let throttled = (harness.throttled > 0).then(|| {
        let repeats =
            if harness.retries > 0 { format!("; {} sent", plural(harness.retries, "repeat")) } else { String::new() };
        format!("{} with status 429 or 503: the target refused for load{repeats}", plural(harness.throttled, "answer"))
    });
    let (prompts, warm) = (prompts_note(&harness.prompts), warm_note(&harness.warm_caches));
    let unlisted = unlisted_note(&harness.unlisted_workers);
    let caches = cache_notes(&harness.caches);
    let answers = answer_notes(&harness.answers);
    let first = [busy, late, absent, prompts].into_iter().chain(answers).chain(caches);
    first.chain([warm, unlisted, throttled, silent, older]).flatten().collect()
}

/// Prompts of another length than the trace's are other prompts: what depends on them is void.
fn prompts_note(prompts: &PromptFacts) -> Option<String> {
    let PromptFacts { compared, differing, sent_tokens, counted_tokens, untold } = *prompts;
    if compared == 0 && untold > 0 {
        return Some(
            "no answer told the length of its prompt: that the prompts sent were served is not known".to_owned(),
        );
    }
    (differing > 0).then(|| {
        format!(
            "the server counted another length in {} of {}: {} for {} sent; other prompts than the trace's were served, so \
             figures on caches, starvation and prefill are void",
            count(differing),
            plural(compared, "prompt"),
            plural(counted_tokens, "token"),
            count(sent_tokens),
        )
    })
}

/// Text of no tokens, or of fewer than its chunks, is impossible; so is a count of text that has not come.
fn answer_notes(answers: &AnswerFacts) -> [Option<String>; 2] {
    let AnswerFacts { told, uncounted, chunks, led } = *answers;
    let too_few = (uncounted > 0).then(|| {
        format!(
            "the server counted 0 tokens, or far fewer than chunks with text, in {} of {}: taken as one for each of {}; figures \
             per token are not to be trusted",
            count(uncounted),
            plural(told, "answer"),
            plural(chunks, "chunk"),
        )
    });
    let led = (led > 0).then(|| {
        format!(
            "the server's count of tokens ran ahead of the text, or fell, in {} of {}: what it had counted before is spread over \
             the chunks that followed; gaps between tokens are not to be trusted",
            count(led),
            plural(told, "answer"),
        )
    });
    [too_few, led]
}

/// What of the caches is impossible, and what nobody told.
fn cache_notes(caches: &CacheFacts) -> [Option<String>; 2] {
    let CacheFacts { told, beyond, prompt_tokens, cached_tokens, untold } = *caches;
    let beyond = (beyond > 0).then(|| {
        format!(
            "the server told more cached than the prompt has in {} of {}: {} for prompts of {}; taken as the whole prompt, \
             and figures on caches are not to be trusted",
            count(beyond),
            plural(told, "answer"),
            plural(cached_tokens, "token"),
            count(prompt_tokens),
        )
    });
    let untold = (told == 0 && untold > 0)
        .then(|| "no answer told what the server found cached: figures on caches are missing, not 0".to_owned());
    [beyond, untold]
}

/// Prompts that an earlier run left in the caches are found there.
fn warm_note(held: &BTreeMap<String, u64>) -> Option<String> {
    (!held.is_empty()).then(|| {
        format!(
            "caches were warm: {} held {} before the run; first-token times and cached tokens are not those of a cold start",
            some_of(held.keys().cloned()),
            plural(held.values().sum(), "token"),
        )
    })
}

/// Those that served most, by name.
fn unlisted_note(workers: &BTreeMap<String, u64>) -> Option<String> {
    let mut by_requests: Vec<(&String, u64)> = workers.iter().map(|(name, requests)| (name, *requests)).collect();
    by_requests.sort_by_key(|(_, requests)| std::cmp::Reverse(*requests));
    let names = by_requests.iter().map(|(name, requests)| format!("{name} ({})", plural(*requests, "request")));
    (!workers.is_empty()).then(|| {
        format!(
            "served by workers that are none of this run's: {}; these records name no decode worker, and no table counts \
             them for one",
            some_of(names)
        )
    })
}

/// The first of them, and how many more there are.
fn some_of(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 4;
    let more = names.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.take(SHOWN).collect::<Vec<_>>().join(", ") + &more
}

fn notes(evidence: &Evidence, lag_over: Option<f64>, pause_over: Option<(f64, f64)>) -> Vec<String> {
    let Evidence { info, outcomes, planned, .. } = evidence;
    let mut notes = Vec::new();
    if let (true, Some(top)) = (outcomes.bad_share() > Some(info.budgets.max_bad_share), evidence.errors.first()) {
        let words = top.example.as_deref().map_or_else(String::new, |example| format!(": {example}"));
        notes.push(format!("{MOST_COMMON}: {} ×{} ({}){words}", top.class, count(top.count), top.outcome));
    }
    if let Some(lag) = lag_over {
        let advice = lag_advice(evidence.harness);
        notes.push(format!(
            "the harness sent late: schedule lag p99 {lag:.1} ms; its latencies include its own delay; {advice}"
        ));
    }
    if let Some((pause, _)) = pause_over {
        notes.push(format!(
            "the harness stood still for {pause:.0} ms of wall time in one piece (stopped, or without a processor): turns due \
             then were sent late, tokens that came then are stamped late, and what followed was shifted"
        ));
    }
    match info.state {
        RunState::Completed => {}
        RunState::Interrupted | RunState::Stopped => notes.push(format!(
            "the run was {}: {} of {} requests ran to an end, {} cancelled, {} never sent",
            info.state.as_str(),
            count(outcomes.served()),
            count(*planned),
            count(outcomes.cancelled),
            count(outcomes.skipped)
        )),
        RunState::Unfinished if outcomes.total() == *planned => notes.push(format!(
            "the run has not come to its end, though each of its {} has a record",
            plural(*planned, "request")
        )),
        RunState::Unfinished => notes.push(format!(
            "the run has not come to its end: {} of {} requests have a record, the rest is unaccounted for",
            count(outcomes.total()),
            count(*planned)
        )),
    }
    notes.extend(info.caches.as_ref().filter(|caches| !caches.left.is_empty()).map(|caches| {
        format!(
            "caches were not emptied before this cell: {}; first-token times and cached tokens may not be those of a cold start",
            some_of(caches.left.iter().cloned())
        )
    }));
    notes.extend(behind(info, evidence.duration_s));
    notes.extend(
        evidence.harness.map(|harness| harness_notes(harness, info, evidence.some_account)).unwrap_or_default(),
    );
    if info.rebuilt {
        notes.push("rebuilt from requests.jsonl: token gaps (ITL) are not in it, nor the workers' own figures of a run that did not end".into());
    }
    let (silent, unknown) = evidence.unmatched_sessions;
    let counted = [
        (silent, "session", "of the run left no record"),
        (unknown, "session", "with records unknown to the run: are its files of one run?"),
        (evidence.route_mismatches, "request", "served by another worker than the intended one"),
        (evidence.retried_requests, "request", "sent more than once"),
        (evidence.beliefs_corrected, "belief", "about where sessions live corrected by a worker's word"),
    ];
    let found = counted.into_iter().filter(|(n, _, _)| *n > 0);
    notes.extend(found.map(|(n, noun, text)| format!("{} {text}", plural(n, noun))));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_sends_of_a_harness_that_hardly_worked_are_laid_to_the_machine() {
        let advice = |share| lag_advice(Some(&HarnessFacts { driver_cpu_share: share, ..HarnessFacts::default() }));
        assert!(
            advice(0.015).starts_with("its thread used 1.5 % of a core: the machine was busy"),
            "{}",
            advice(0.015)
        );
        assert!(advice(0.8).contains("asks less of it") && lag_advice(None).contains("asks less of it"));
    }
}
