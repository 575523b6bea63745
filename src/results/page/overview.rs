//! The words of a run's page: verdict, outcome, latency, causes, the starved, failures, facts. No charts.

use super::html::Html;
use super::tables::plain;
use crate::base::words::{count, fine_time, percent, plural, tokens};
use crate::record::Outcome;
use crate::results::render::Table;
use crate::results::render::summary::{NO_SESSIONS_ON_D, fairness, harness, index, lengths, notes, outcomes, rates};
use crate::results::{Contrast, ITL_NOTE, Latency, Metric, RunSummary, Starved, Verdict, is_failure};

/// Ids of starved sessions named.
const NAMED: usize = 100;

/// Verdict and what to know before the numbers.
pub(super) fn verdict(summary: &RunSummary, gaps: &[String]) -> Html {
    let integrity = &summary.integrity;
    let (class, word) = verdict_words(integrity.verdict);
    let mut html = Html::new();
    html.element("p", &[("class", class)], |html| {
        html.line("strong", word);
        if let Some(reason) = &integrity.reason {
            html.text(": ").text(reason);
        }
    });
    let notes = notes(summary);
    if notes.is_empty() && gaps.is_empty() {
        html.line("p", "Nothing stands out: all requests are accounted for, and the budgets were kept.");
    } else {
        list(&mut html, notes.iter().chain(gaps));
    }
    html
}

fn verdict_words(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Valid => ("verdict good", "Run valid"),
        Verdict::Partial => ("verdict part", "Partial run"),
        Verdict::Withheld => ("verdict bad", "Headline withheld"),
        Verdict::Invalid => ("verdict bad", "Run invalid"),
    }
}

/// How requests ended: a bar, and the counts; then what is known of lengths.
pub(super) fn outcome(summary: &RunSummary) -> Html {
    let parts: Vec<(Outcome, u64, String)> =
        outcomes(summary).map(|(outcome, words)| (outcome, summary.outcomes.of(outcome), words)).collect();
    let some = || parts.iter().filter(|(_, n, _)| *n > 0);
    let says = some().map(|(.., words)| words.as_str()).collect::<Vec<_>>().join(", ");
    let mut html = Html::new();
    if says.is_empty() {
        html.line("p", "No request has a record.");
    } else {
        html.element("div", &[("class", "bar"), ("role", "img"), ("aria-label", &says)], |html| {
            for (outcome, n, words) in some() {
                let style = format!("flex:{n} 1 0;background:var(--o-{outcome})");
                html.element("span", &[("style", &style), ("title", words)], |_| {});
            }
        });
    }
    html.element("ul", &[("class", "legend")], |html| {
        for (outcome, n, words) in &parts {
            html.element("li", &[("class", if is_failure(*outcome) && *n > 0 { "mark" } else { "" })], |html| {
                let style = format!("background:var(--o-{outcome})");
                html.element("span", &[("class", "swatch"), ("style", &style)], |_| {});
                html.text(words);
            });
        }
    });
    lines(&mut html, lengths(summary));
    html
}

/// Latencies, or why they are withheld; then the rates.
pub(super) fn latency(summary: &RunSummary) -> Html {
    let mut html = Html::new();
    if !summary.integrity.verdict.shows_headline() {
        let (_, word) = verdict_words(summary.integrity.verdict);
        let reason = summary.integrity.reason.as_deref().unwrap_or("see the notes");
        html.line_with(
            "p",
            &[("class", "verdict bad")],
            &format!("{word}: {reason}. No latency is shown as a headline."),
        );
        return html;
    }
    let shown = Metric::ALL.iter().map(|metric| summary.latencies.of(*metric)).filter(|latency| latency.n > 0);
    let rows: Vec<&Latency> = shown.collect();
    let Some(first) = rows.first() else { return Html::of("p", "No latency was measured.") };
    let percentiles: Vec<String> = first.rungs.iter().map(|rung| rung.percentile.to_string()).collect();
    let mut head = vec!["of ok requests", "n", "left out", "mean"];
    head.extend(percentiles.iter().map(String::as_str));
    head.push("max");
    let row = |latency: &&Latency| {
        let time = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), fine_time);
        let counts = [latency.metric.title().to_owned(), count(latency.n), count(latency.n_excluded)];
        let ladder = latency.rungs.iter().map(|rung| time(rung.ms));
        counts.into_iter().chain([time(latency.mean_ms)]).chain(ladder).chain([time(latency.max_ms)]).collect()
    };
    scroll(&mut html, "Latencies of ok requests", &plain(&head, rows.iter().map(row)));
    if summary.failed > 0 {
        let mut head = vec!["with failures as endless"];
        head.extend(percentiles.iter().map(String::as_str));
        let with = rows.iter().filter(|latency| latency.metric.has_failures_form());
        let row = |latency: &&Latency| {
            let reached = |ms: Option<f64>| ms.map_or_else(|| "not reached".to_owned(), fine_time);
            let ladder = latency.rungs.iter().map(|rung| reached(rung.with_failures_ms));
            [latency.metric.title().to_owned()].into_iter().chain(ladder).collect()
        };
        scroll(&mut html, "Latencies with failures as endless", &plain(&head, with.map(row)));
    }
    if summary.latencies.of(Metric::Itl).n > 0 {
        html.line_with("p", &[("class", "hint")], ITL_NOTE);
    }
    lines(&mut html, rates(summary));
    html
}

/// The cause lines.
pub(super) fn why(summary: &RunSummary) -> Html {
    let mut html = Html::new();
    if summary.causes.is_empty() {
        html.line("p", "Nothing in the data stands out as a cause.");
    } else {
        list(&mut html, summary.causes.iter().map(|line| &line.text));
    }
    lines(&mut html, summary.index.as_ref().map(|found| format!("KV index: {}", index(found))));
    html
}

/// Who starved, and what sets them apart.
pub(super) fn starved(summary: &RunSummary) -> Html {
    let mut html = Html::new();
    let Some(starved) = &summary.fairness.starved else {
        let none =
            "No session is starved by others: below 20 % of its later turns direct, in a run above that.".to_owned();
        let kept = summary.starved_sessions().is_some();
        html.line("p", &if kept { none } else { format!("No session can starve: {NO_SESSIONS_ON_D}.") });
        lines(&mut html, fairness(summary));
        return html;
    };
    lines(&mut html, fairness(summary));
    let contrast = |name: &str, contrast: Contrast, show: fn(f64) -> String| {
        let show = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), show);
        let apart = contrast.separation.map_or_else(|| "–".to_owned(), percent);
        vec![name.to_owned(), show(contrast.starved), show(contrast.others), apart]
    };
    let rows = [
        contrast("mean peak input, tokens", starved.peak_input_tokens, tokens),
        contrast("mean arrival rank", starved.arrival_rank, |rank| format!("{rank:.1}")),
        contrast("believed use of D when they asked", starved.usage_when_asked, percent),
    ];
    let head = ["what sets them apart", "starved", "others", "chance that a starved one has more"];
    scroll(&mut html, "Starved sessions against the others", &plain(&head, rows));
    html.element("details", &[], |html| {
        html.line("summary", &format!("The {}", plural(starved.count, "starved session")));
        html.line_with("p", &[("class", "mono")], &names(starved));
    });
    html
}

fn names(starved: &Starved) -> String {
    let more = starved.sessions.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
    starved.sessions.iter().take(NAMED).cloned().collect::<Vec<_>>().join(" · ") + &more
}

/// What the harness cost, for a run in real time.
pub(super) fn harness_line(summary: &RunSummary) -> Html {
    let facts = summary.harness.as_ref();
    facts.map(|facts| Html::of("p", &harness(facts, &summary.integrity))).unwrap_or_default()
}

/// Failures by class.
pub(super) fn errors(summary: &RunSummary) -> Html {
    if summary.errors.is_empty() {
        return Html::of("p", "No request failed.");
    }
    let row = |group: &crate::results::ErrorGroup| {
        let example = group.example.clone().unwrap_or_default();
        let counts = [count(group.count), count(group.sessions)];
        let [n, sessions] = counts;
        vec![group.class.clone(), group.outcome.to_string(), n, sessions, group.example_request.clone(), example]
    };
    let titles = ["class", "outcome", "count", "sessions", "first request", "its words"];
    let table = Table::plain(&titles, summary.errors.iter().map(row).collect());
    let setting = super::tables::Setting { id: "table-errors", caption: "Failures by class", ..Default::default() };
    super::tables::sortable(&table, setting)
}

/// The run in a list.
pub(super) fn facts(summary: &RunSummary, wall_s: Option<f64>) -> Html {
    let run = &summary.run;
    let budget = |share: f64| {
        format!("{} bad requests, schedule lag p99 {} ms", percent(share), run.budgets.max_schedule_lag_p99_ms)
    };
    let slots = run.slots.as_ref().map(|slots| {
        let cap = slots.cap_max.map_or_else(|| "no soft cap".to_owned(), |cap| format!("soft cap {cap}"));
        format!(
            "{} D, {cap}, pool of {} tokens each, slots released: {}",
            slots.decode_workers,
            tokens(slots.kv_pool_tokens as f64),
            slots.slot_release
        )
    });
    let facts = [
        ("Run", Some(run.name.clone())),
        (
            "Trace",
            Some(format!("{}: {} in {}", run.trace, plural(run.requests, "request"), plural(run.sessions, "session"))),
        ),
        ("Topology", Some(run.topology.clone())),
        ("Mechanism and policy", Some(format!("{}, {}", run.mechanism, run.policy))),
        ("Router's decode policy", Some(run.router_policy.clone())),
        ("Limits", Some(run.limits.clone())),
        ("Slots", slots),
        ("Time scale", Some(run.time_scale_text.clone())),
        ("Seed", Some(run.seed.to_string())),
        ("Driver", Some(run.driver.clone())),
        ("Ended", Some(run.state.as_str().to_owned())),
        ("Wall time", wall_s.map(|wall_s| format!("{wall_s:.2} s"))),
        ("Budgets", Some(budget(run.budgets.max_bad_share))),
        ("Objectives", Some(run.slos.to_string())),
        ("Percentiles", Some("nearest rank, of histograms that keep three significant digits".to_owned())),
    ];
    let mut html = Html::new();
    html.element("dl", &[], |html| {
        for (name, value) in facts {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                html.line("dt", name).line("dd", &value);
            }
        }
    });
    html
}

/// Lines that stand in the summary on a terminal too, a paragraph each.
pub(super) fn lines(html: &mut Html, lines: impl IntoIterator<Item = String>) {
    lines.into_iter().for_each(|line| {
        html.line("p", &line);
    });
}

/// A list of sentences.
pub(super) fn list<'a>(html: &mut Html, lines: impl Iterator<Item = &'a String>) {
    html.element("ul", &[], |html| {
        lines.for_each(|line| {
            html.line("li", line);
        });
    });
}

/// A table that scrolls by itself where it is too wide.
pub(super) fn scroll(html: &mut Html, name: &str, table: &Html) {
    if table.is_empty() {
        return;
    }
    html.element("div", &[("class", "scroll"), ("tabindex", "0"), ("role", "group"), ("aria-label", name)], |html| {
        html.add(table);
    });
}
