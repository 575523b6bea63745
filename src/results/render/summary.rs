//! The text after a run: what happened, how fast, by mode, over sessions, over workers, and why.
//!
//! Integrity comes above the numbers, and a headline that may not be read is not printed.

use super::page::{Page, wrap};
use super::table::{BOLD, Format, GREEN, RED, Style, paint, visible};
use super::tables;
use crate::base::words::{count, fine_time, percent, plural, rate, seconds, tokens};
use crate::record::{HarnessFacts, Outcome};
use crate::results::integrity::{MOST_COMMON, lag_words};
use crate::results::{
    ErrorGroup, Fairness, IndexUse, Integrity, Latency, Metric, Percentile, Percentiles, Pinned, RunSummary, Starved,
    Verdict, is_failure,
};

/// What only the caller knows: never part of `summary.json`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Extras {
    /// Wall-clock time of the run, seconds.
    pub wall_s: Option<f64>,
    /// Where the results are, for the last line; without it there is no such line.
    pub files: Option<String>,
}

/// Workers named with their starved sessions.
const PINNED_SHOWN: usize = 8;

/// The summary as text; every line ends with a line feed.
pub fn summary(summary: &RunSummary, extras: &Extras, style: Style) -> String {
    let mut page = Page::new(style);
    for line in wrap(&visible(&headline(summary, extras)), style.width) {
        page.text += &(paint(&line, BOLD, style) + "\n");
    }
    page.text += "\n";
    let (line, word, color) = outcome(summary);
    page.section_with("outcome", line, word, color);
    page.section("notes", notes(summary));
    latency(summary, &mut page);
    page.section("lengths", lengths(summary));
    page.text += "\n";
    page.text += &tables::modes(summary).render(Format::Table, style);
    page.text += "\n";
    page.section("sessions", sessions(summary));
    page.section("workers", workers(summary));
    page.section("index", summary.index.as_ref().map(index));
    page.section("why", summary.causes.iter().map(|line| line.text.clone()));
    page.section("harness", summary.harness.as_ref().map(|facts| harness(facts, &summary.integrity)));
    page.section("files", extras.files.iter().cloned());
    page.text
}

/// What the KV index was asked and whether it was right.
pub(in crate::results) fn index(index: &IndexUse) -> String {
    let kept = index.kept;
    let blind = index.blind_share.map_or_else(String::new, |share| format!(" ({})", percent(share)));
    let mut parts = vec![plural(index.decisions, "decision"), format!("blind {}{blind}", count(index.blind))];
    if kept.compared > 0 {
        let (device, host) = (kept.promised_device_tokens, kept.promised_host_only_tokens);
        let promised = device + host;
        let tiers = format!(" (device {}, host only {})", tokens(device as f64), tokens(host as f64));
        let tiers = if host > 0 { tiers } else { String::new() };
        parts.push(format!("promised {} tokens{tiers}", tokens(promised as f64)));
        parts.push(format!("found {}", tokens(kept.found_tokens as f64)));
        parts.push(format!("over {}", tokens(kept.over_promised_tokens as f64)));
        parts.push(format!("under {}", tokens(kept.under_promised_tokens as f64)));
    }
    if index.computed_elsewhere > 0 {
        parts.push(format!("{} computed by another worker", count(index.computed_elsewhere)));
    }
    if !index.streams.is_empty() {
        let (known, unknown) = (index.known_streams().count() as u64, index.blindness.unknown_streams.len() as u64);
        parts.push(format!("{} of {} in step", index.in_step(), plural(known, "stream")));
        if unknown > 0 {
            parts.push(format!("{} of no worker", plural(unknown, "stream")));
        }
        parts.push(format!("events {}", count(index.events())));
        let gaps: u64 = index.streams.iter().map(|stream| stream.gaps).sum();
        parts.push(format!("gaps {}", count(gaps)));
    }
    parts.join(" · ")
}

pub(in crate::results) fn headline(summary: &RunSummary, extras: &Extras) -> String {
    let run = &summary.run;
    let setup = [run.topology.as_str(), &format!("{}/{}", run.mechanism, run.policy), run.limits.as_str()];
    let setup = setup.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    let wall = extras.wall_s.map_or_else(String::new, |wall| format!(", {wall:.2} s"));
    [
        run.trace.clone(),
        format!("{}, {}", plural(run.requests, "request"), plural(run.sessions, "session")),
        setup,
        run.time_scale_text.clone(),
        format!("seed {}", run.seed),
        format!("{}{wall}", run.driver),
    ]
    .join(" · ")
}

/// How requests ended, each outcome with its words; cancelled ones only where there are some.
pub(in crate::results) fn outcomes(summary: &RunSummary) -> impl Iterator<Item = (Outcome, String)> {
    let served = summary.outcomes.served();
    let part = move |outcome: &Outcome| {
        let n = summary.outcomes.of(*outcome);
        let is_bad = is_failure(*outcome) && n > 0;
        let shown = if is_bad || (outcome.is_ok() && n < served) {
            format!(" ({})", percent(n as f64 / served as f64))
        } else {
            String::new()
        };
        (*outcome, format!("{outcome} {}{shown}", count(n)))
    };
    let always = |outcome: &&Outcome| **outcome != Outcome::Cancelled || summary.outcomes.cancelled > 0;
    Outcome::ALL.iter().filter(always).map(part)
}

/// [`outcomes`] and the verdict in a line; its word, and the colour of that.
pub(super) fn outcome(summary: &RunSummary) -> (String, &'static str, &'static str) {
    let parts: Vec<String> = outcomes(summary).map(|(_, words)| words).collect();
    let (word, color) = match summary.integrity.verdict {
        Verdict::Valid => ("run valid", GREEN),
        Verdict::Partial => ("PARTIAL", RED),
        Verdict::Withheld => ("headline withheld", RED),
        Verdict::Invalid => ("INVALID", RED),
    };
    (format!("{} · {word}", parts.join(" · ")), word, color)
}

/// Why latencies may not be read, where they may not.
pub(super) fn withheld(summary: &RunSummary) -> Option<(&'static str, String)> {
    let reason = summary.integrity.reason.as_deref().unwrap_or("");
    let word = match summary.integrity.verdict {
        Verdict::Withheld => "withheld",
        Verdict::Invalid => "INVALID",
        Verdict::Partial | Verdict::Valid => return None,
    };
    Some((word, format!("{word}: {reason}")))
}

fn latency(summary: &RunSummary, page: &mut Page) {
    if let Some((word, line)) = withheld(summary) {
        return page.section_with("latency", line, word, RED);
    }
    let is_usual = summary.latencies.percentiles() == Percentiles::default();
    let ladder = |latency: &Latency, with_failures: bool| {
        let is_per_token = matches!(latency.metric, Metric::Tpot | Metric::Itl);
        let shown = |ms: f64| if is_per_token { fine_time(ms) } else { seconds(ms) };
        // Of the usual list the half; of one that was chosen, all.
        let few = [Percentile::P50, Percentile::P90, Percentile::P99];
        let rungs = latency.rungs.iter().filter(|rung| !is_usual || few.contains(&rung.percentile));
        let rung = rungs.map(|rung| match (with_failures, rung.ms, rung.with_failures_ms) {
            (true, _, None) => format!("{} not reached", rung.percentile),
            (true, _, Some(ms)) | (false, Some(ms), _) => format!("{} {}", rung.percentile, shown(ms)),
            (false, None, _) => format!("{} –", rung.percentile),
        });
        rung.collect::<Vec<_>>().join("  ")
    };
    let (ttft, e2e) = (summary.latencies.of(Metric::Ttft), summary.latencies.of(Metric::E2e));
    let mut lines = vec![format!("TTFT {}     E2E {}", ladder(ttft, false), ladder(e2e, false))];
    let (tpot, itl) = (summary.latencies.of(Metric::Tpot), summary.latencies.of(Metric::Itl));
    if tpot.n > 0 {
        let gaps = if itl.n > 0 { format!("     ITL {}", ladder(itl, false)) } else { String::new() };
        lines.push(format!("TPOT {}{gaps}", ladder(tpot, false)));
    }
    let (sched_ttft, sched_e2e) = (summary.latencies.of(Metric::SchedTtft), summary.latencies.of(Metric::SchedE2e));
    if sched_e2e.mean_ms > e2e.mean_ms.map(|mean| mean * 1.01) {
        let (ttft, e2e) = (ladder(sched_ttft, false), ladder(sched_e2e, false));
        lines.push(format!("from the scheduled time: TTFT {ttft}     E2E {e2e}"));
    }
    if summary.failed > 0 {
        lines.push(format!("with failures as +∞: E2E {}", ladder(e2e, true)));
    }
    lines.extend(rates(summary));
    page.section("latency", lines);
}

/// Rates of what was completed, and of what kept the objectives.
pub(in crate::results) fn rates(summary: &RunSummary) -> Vec<String> {
    let (Some(requests), Some(output)) = (summary.request_throughput, summary.output_throughput) else {
        return Vec::new();
    };
    let window = summary.duration.map_or_else(String::new, |duration| seconds(duration * 1e3));
    let (requests, output) = (rate(requests), if output < 10.0 { rate(output) } else { tokens(output) });
    let completed =
        format!("completed: {requests} requests/s, {output} answer tokens/s from first send to last end ({window})");
    let good = summary.goodput.as_ref().zip(summary.request_goodput).map(|(goodput, per_second)| {
        let share = goodput.slo_attainment.map_or_else(|| "–".into(), percent);
        let (good, all) = (count(goodput.good), plural(goodput.requests, "request"));
        format!("goodput: {} requests/s, {good} of {all} ({share}) ok within {}", rate(per_second), goodput.slos())
    });
    [completed].into_iter().chain(good).collect()
}

/// Where answers were shorter than asked for.
pub(in crate::results) fn lengths(summary: &RunSummary) -> Option<String> {
    let lengths = summary.lengths;
    let share = lengths.got_share.filter(|_| lengths.shorter > 0)?;
    let failed = lengths.got_tokens.saturating_sub(summary.total_output_tokens);
    let of_failed = if failed > 0 { format!(", {} of them of failed requests", count(failed)) } else { String::new() };
    Some(format!(
        "wanted {} answer tokens, got {} ({}{of_failed}); {} of {} shorter, {} counted as ok",
        count(lengths.wanted_tokens),
        count(lengths.got_tokens),
        percent(share),
        count(lengths.shorter),
        plural(lengths.requests, "request"),
        count(lengths.shorter_but_ok)
    ))
}

/// Why there is no direct share, of a run that keeps no sessions on D.
pub(in crate::results) const NO_SESSIONS_ON_D: &str = "no sessions are kept on D, so nothing can go direct";

/// Direct shares as bars, then [`fairness`].
pub(super) fn sessions(summary: &RunSummary) -> Vec<String> {
    bars(&summary.fairness).into_iter().chain(fairness(summary)).collect()
}

fn bars(fairness: &Fairness) -> Option<String> {
    fairness.direct_share.filter(|share| *share > 0.0)?;
    let largest = fairness.histogram.iter().copied().max().unwrap_or(0).max(1);
    let names = ["0–20 %", "20–40 %", "40–60 %", "60–80 %", "80–100 %"];
    let bars = names.iter().zip(fairness.histogram).map(|(name, n)| {
        let bar =
            if n == 0 { String::new() } else { format!(" {} {n}", "█".repeat(((n * 8).div_ceil(largest)) as usize)) };
        format!("{name}{bar}")
    });
    Some(format!("direct share   {}", bars.collect::<Vec<_>>().join("   ")))
}

/// How alike sessions were served, and who starves.
pub(in crate::results) fn fairness(summary: &RunSummary) -> Vec<String> {
    let fairness = &summary.fairness;
    if fairness.direct_share.is_none_or(|share| share == 0.0) {
        let jain = fairness.jain_mean_e2e.map(|jain| format!("no direct turns; Jain of mean E2E {jain:.2}"));
        return jain.into_iter().chain(below(summary)).collect();
    }
    let shape = match (fairness.two_peaked, fairness.starved.is_some()) {
        (true, true) => "two-peaked, starvation suspected",
        (true, false) => "two-peaked",
        (false, _) => "not two-peaked",
    };
    let figure = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.2}"));
    let figures = [
        fairness.direct_share.map(|share| format!("run {} of turns after the first", percent(share))),
        Some(shape.into()),
        figure("bimodality", fairness.bimodality.filter(|_| fairness.two_peaked)),
        figure("mean E2E over sessions: Gini", fairness.gini_mean_e2e),
        figure("Jain", fairness.jain_mean_e2e),
    ];
    let figures = figures.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    [figures].into_iter().chain(fairness.starved.as_ref().map(starved)).chain(below(summary)).collect()
}

/// Sessions that gates and sweeps count as starved though none is marked, as none starves beside the others.
fn below(summary: &RunSummary) -> Option<String> {
    let below = summary.starved_sessions().filter(|n| *n > 0 && summary.fairness.starved.is_none())?;
    let are = if below == 1 { "is" } else { "are" };
    let below = plural(below, "session");
    Some(format!("{below} {are} below 20 %; nobody is starved beside the others, as the run itself is not above 20 %"))
}

/// What to know before the numbers; failures by class where no note names the most common one.
pub(in crate::results) fn notes(summary: &RunSummary) -> Vec<String> {
    let is_named = summary.integrity.notes.iter().any(|note| note.starts_with(MOST_COMMON));
    let failures = by_class(&summary.errors).filter(|_| !is_named);
    let failures = failures.map(|classes| format!("failures by class: {classes}"));
    summary.integrity.notes.iter().cloned().chain(failures).collect()
}

/// Failures by class, where there are any: `session-not-found 2 (truncated)`.
pub(super) fn by_class(errors: &[ErrorGroup]) -> Option<String> {
    let class = |group: &ErrorGroup| format!("{} {} ({})", group.class, count(group.count), group.outcome);
    let classes: Vec<String> = errors.iter().map(class).collect();
    (!classes.is_empty()).then(|| classes.join(" · "))
}

fn starved(starved: &Starved) -> String {
    let mut parts = vec![format!("starved {}", starved.count)];
    let reason = starved.main_reason.map(|reason| format!("reason {reason}"));
    let peak = starved.peak_input_tokens;
    let usage = starved.usage_when_asked;
    parts[0] += &match (peak.starved, peak.others) {
        (Some(a), Some(b)) => format!(": peak input {} vs {}", tokens(a), tokens(b)),
        (Some(a), None) => format!(": peak input {}", tokens(a)),
        (None, _) => String::new(),
    };
    parts.extend(reason);
    let rank = starved.arrival_rank;
    parts.extend(match (rank.starved, rank.others) {
        // The lowest rank says something only where none of the early sessions starves.
        (Some(_), Some(b)) if f64::from(starved.first_rank) > b => {
            Some(format!("arrival rank {}{}", if starved.count > 1 { "≥ " } else { "" }, starved.first_rank))
        }
        (Some(a), Some(b)) => Some(format!("mean arrival rank {a:.1} vs {b:.1}")),
        (_, _) => None,
    });
    if let (Some(a), Some(b)) = (usage.starved, usage.others) {
        parts.push(format!("believed use of D when asked {:.0} % vs {:.0} %", a * 100.0, b * 100.0));
    }
    match starved.slot_never_held {
        Some(n) if n == starved.count => parts.push("slot never held".into()),
        Some(n) if n > 0 => parts.push(format!("slot never held by {n}")),
        Some(_) | None => {}
    }
    let pin = |pin: &Pinned| format!("{} {}/{}", pin.worker, pin.starved, pin.sessions);
    let more = if starved.pinned.len() > PINNED_SHOWN { " …" } else { "" };
    let pinned: Vec<String> = starved.pinned.iter().take(PINNED_SHOWN).map(pin).collect();
    parts.push(format!("on {}{more}", pinned.join(" ")));
    parts.join(" · ")
}

/// What the harness cost: figures of the client are worth what these allow.
pub(in crate::results) fn harness(facts: &HarnessFacts, integrity: &Integrity) -> String {
    let late = integrity.schedule_lag_p99_ms;
    let late = late.map(|p99| format!("wall time: {}", lag_words(p99, integrity.max_schedule_lag_p99_ms)));
    let lag = match (facts.loop_lag_p50_ms, facts.loop_lag_p99_ms, facts.loop_lag_max_ms) {
        (Some(p50), Some(p99), Some(max)) => {
            Some(format!("loop lag p50 {p50:.1} ms  p99 {p99:.1} ms  max {max:.1} ms"))
        }
        (_, _, _) => None,
    };
    let rss = facts.rss_peak_bytes.map(|bytes| format!("peak memory of the program {} MB", count(bytes / 1_000_000)));
    let parts = [
        late,
        lag,
        Some(format!("client thread {} of a core", percent(facts.driver_cpu_share))),
        rss,
        Some(format!(
            "{} for {}, control calls and polls included",
            plural(facts.connections, "connection"),
            plural(facts.http_requests, "HTTP request")
        )),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// How requests spread over the workers of each role.
pub(in crate::results) fn workers(summary: &RunSummary) -> Vec<String> {
    let line = |spread: &crate::results::RoleSpread| {
        let rows: Vec<_> = summary.workers.iter().filter(|row| row.role == spread.role).collect();
        let least = rows.iter().map(|row| row.requests).min()?;
        let most = rows.iter().map(|row| row.requests).max()?;
        let skew = match (spread.spread, spread.max_over_mean) {
            // One request more or less cannot be spread any better.
            (Some(share), Some(ratio)) if most > least + 1 && share >= 0.005 => {
                format!(" (± {:.0} %), largest/mean {ratio:.2}", share * 100.0)
            }
            (_, _) => String::new(),
        };
        let usage = |of: fn(&crate::record::WorkerRecord) -> f64| {
            let values = rows.iter().filter_map(|row| row.account.as_ref()).map(of);
            values.max_by(f64::total_cmp)
        };
        let usage =
            usage(|a| a.usage_peak).map_or_else(String::new, |peak| format!(" · peak usage {:.0} %", peak * 100.0));
        let range = if least == most { count(least) } else { format!("{}–{}", count(least), count(most)) };
        let noun = if (least, most) == (1, 1) { "request" } else { "requests" };
        let each = if rows.len() > 1 { " each" } else { "" };
        let hot: Vec<&str> =
            rows.iter().filter(|row| row.hot && most > least + 1).map(|row| row.worker.as_str()).collect();
        let hot = if hot.is_empty() { String::new() } else { format!(" · above 1.5 × mean: {}", hot.join(" ")) };
        Some(format!("{} {}: {range} {noun}{each}{skew}{usage}{hot}", spread.workers, spread.role))
    };
    summary.spread.iter().filter_map(line).collect()
}
