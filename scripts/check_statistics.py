#!/usr/bin/env python3
"""Recomputes the statistics of `pdreplay diff` and `report` with numpy and scipy, from the same records.

usage: scripts/check_statistics.py REPORT.json A[,A…] B[,B…] [OBJECTIVES]

REPORT.json is what `pdreplay diff A B --json` printed; A and B are run folders, several of a side joined by commas; OBJECTIVES
are what --goodput was given, such as ttft:2000,e2el:60000, where it was. Checked:
means and percentiles (nearest rank), with failures as endless; shares; goodput; Kitagawa's split and its identity; transitions;
the noise of given repeats; the bootstrap intervals against resamples of its own; and of each summary.json goodput, Gini, Jain,
bimodality and Mann-Whitney's separation. Ends with 1 at the first thing that differs, and names it.
Needs the numpy and scipy of scripts/test_tools.sh.
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from scipy import stats

LATENCIES = ["ttft", "tpot", "e2e", "sched_ttft", "sched_e2e"]
BAD = {"truncated", "aborted", "error", "timeout"}
DIRECT = "kvcache-direct-to-d-session"
NO_OBJECTIVES = {"ttft": None, "tpot": None, "e2e": None}
checked = Counter()


def same(what, found, expected, relative=1e-9, absolute=1e-9):
    """Both missing, or equal up to rounding."""
    checked[what.split(":")[0]] += 1
    if found is None or expected is None or not np.isfinite(expected):
        missing = expected is None or not np.isfinite(expected)
        assert found is None and missing, f"{what}: {found} instead of {expected}"
        return
    assert abs(found - expected) <= relative * abs(expected) + absolute, f"{what}: {found} instead of {expected}"


def records(folder):
    """Requests of a run in the order of session and turn."""
    with open(Path(folder) / "requests.jsonl", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return sorted(rows, key=lambda row: (row["session_id"], row["turn_id"], row["trace_line"]))


def of_ok(rows, latency):
    return np.array([row[f"{latency}_ms"] for row in rows if row["outcome"] == "ok" and row[f"{latency}_ms"] is not None])


def nearest_rank(values, percent):
    """The ⌈p·n/100⌉-th smallest, which numpy calls the inverted CDF."""
    return float(np.quantile(values, percent / 100, method="inverted_cdf")) if len(values) else None


def later(rows):
    """Turns sent after the first one present of each session."""
    seen = set()
    for row in rows:
        if row["session_id"] in seen and row["outcome"] != "skipped":
            yield row
        seen.add(row["session_id"])


def objectives(words):
    """Of `ttft:2000,e2el:60000`, ms by latency."""
    given = dict(part.split(":") for part in words.split(","))
    return {**NO_OBJECTIVES, **{name.replace("e2el", "e2e"): float(ms) for name, ms in given.items()}}


def of_run(summary):
    """The objectives of a run, ms by latency."""
    slos = summary["run"].get("slos", {})
    return {name: slos.get(f"{name}_ms") for name in NO_OBJECTIVES}


def is_good(row, most):
    """Ended ok within every objective, to the nanosecond; an answer of one token has no TPOT and keeps any."""
    if row["outcome"] != "ok":
        return False
    values = {name: row[f"{name}_ms"] for name, ms in most.items() if ms is not None}
    return all(name == "tpot" if ms is None else round(ms * 1e6) <= most[name] * 1e6 for name, ms in values.items())


def served(rows):
    """Those that ran to an end, ok or not."""
    return [row for row in rows if row["outcome"] in BAD or row["outcome"] == "ok"]


def goodput(rows, most):
    """Good requests a second, first send to last end."""
    sent = [row["sent_ns"] for row in rows if row["sent_ns"] is not None]
    ended = [row["ended_ns"] for row in rows if row["sent_ns"] is not None]
    return sum(is_good(row, most) for row in rows) / ((max(ended) - min(sent)) / 1e9) if sent else np.nan


def figure(rows, metric, most):
    """A figure of the comparison over records; NaN where there is none."""
    stat, name = metric["stat"], metric["metric"]
    if name == "direct_share":
        turns = [row["execution_mode"] == DIRECT and row["outcome"] == "ok" for run in rows for row in later(run)]
        return np.mean(turns) if turns else np.nan
    if name == "request_goodput":
        return np.mean([goodput(run, most) for run in rows])
    rows = [row for run in rows for row in run]
    if name == "bad_share":
        bad = [row["outcome"] in BAD for row in served(rows)]
        return np.mean(bad) if bad else np.nan
    if name == "slo_attainment":
        good = [is_good(row, most) for row in served(rows)]
        return np.mean(good) if good else np.nan
    values = of_ok(rows, name)
    if metric["key"].endswith("_with_failures"):
        values = np.concatenate([values, np.full(sum(row["outcome"] in BAD for row in rows), np.inf)])
    if not len(values):
        return np.nan
    return float(np.mean(values)) if stat == "mean" else nearest_rank(values, float(stat[1:]))


def is_of_records(metric):
    return metric["metric"] in LATENCIES or metric["metric"] in ("direct_share", "bad_share", "slo_attainment", "request_goodput")


def check_figures(report, a, b, most):
    for metric in filter(is_of_records, report["metrics"]):
        found = [figure(side, metric, most) for side in (a, b)]
        for side, value in zip("ab", found):
            same(f"figure: {metric['key']} of {side.upper()}", metric[side], value, absolute=1e-6)
        if metric["delta"] is not None:
            same(f"delta: {metric['key']}", metric["delta"], found[1] - found[0], absolute=1e-6)
            if found[0]:
                same(f"relative: {metric['key']}", metric["relative"], (found[1] - found[0]) / found[0], absolute=1e-9)


def check_split(split, a, b):
    """Kitagawa's two components, mode by mode."""
    groups = []
    for side in (a, b):
        modes = defaultdict(list)
        for row in (row for run in side for row in run):
            if row["outcome"] == "ok" and row[f"{split['metric']}_ms"] is not None:
                modes[row["execution_mode"]].append(row[f"{split['metric']}_ms"])
        groups.append(modes)
    totals = [sum(len(values) for values in modes.values()) for modes in groups]
    mix = within = 0.0
    for mode in set(groups[0]) | set(groups[1]):
        share = [len(modes.get(mode, ())) / total for modes, total in zip(groups, totals)]
        mean = [np.mean(modes[mode]) if mode in modes else None for modes in groups]
        mean = [mean[0] if mean[0] is not None else mean[1], mean[1] if mean[1] is not None else mean[0]]
        mix += (share[1] - share[0]) * (mean[0] + mean[1]) / 2
        within += (mean[1] - mean[0]) * (share[0] + share[1]) / 2
    same(f"split: mix of {split['metric']}", split["mix_ms"], mix, absolute=1e-6)
    same(f"split: within of {split['metric']}", split["within_ms"], within, absolute=1e-6)
    scale = split["mean_a_ms"] + split["mean_b_ms"]
    same("identity: of the split", split["mix_ms"] + split["within_ms"], split["delta_ms"], 0.0, 1e-12 * scale)
    for part in ("mix_ms", "within_ms"):
        same(f"identity: of {part}", sum(mode[part] for mode in split["by_mode"]), split[part], 0.0, 1e-12 * scale)


def check_transitions(report, a, b):
    moves, deltas = Counter(), defaultdict(list)
    for run_a, run_b in zip(a, b):
        assert [(x["session_id"], x["turn_id"]) for x in run_a] == [(x["session_id"], x["turn_id"]) for x in run_b]
        for x, y in zip(run_a, run_b):
            move = (x["execution_mode"], y["execution_mode"])
            moves[move] += 1
            if x["outcome"] == y["outcome"] == "ok":
                deltas[move].append(y["e2e_ms"] - x["e2e_ms"])
    found = {(row["from"], row["to"]): row for row in report["transitions"]}
    assert set(found) == set(moves), "other transitions"
    for move, count in moves.items():
        same(f"transition: {move}", found[move]["count"], count)
        mean = float(np.mean(deltas[move])) if deltas[move] else None
        same(f"transition: mean of {move}", found[move]["mean_e2e_delta_ms"], mean, absolute=1e-6)


def check_intervals(report, a, b, most):
    """Ends of the intervals against resamples of our own: other draws, so near and not equal."""
    facts = report["bootstrap"]
    if facts is None:
        return
    names = sorted({row["session_id"] for run in a + b for row in run})
    by_session = [[{name: [r for r in run if r["session_id"] == name] for name in names} for run in side] for side in (a, b)]
    n, rng = len(names), np.random.default_rng(1)
    spread = stats.t.ppf((1 + facts["confidence"]) / 2, n - 1) * np.sqrt(n / (n - 1))
    tail = stats.norm.cdf(-spread)
    metrics = [m for m in report["metrics"] if is_of_records(m) and m["interval"] and m["stat"] in ("mean", "p50", "value")]
    draws = [[] for _ in metrics]
    for _ in range(400):
        drawn = rng.integers(0, n, n)
        # A session drawn twice is two sessions.
        sides = [
            [[{**row, "session_id": f"{at}"} for at, ix in enumerate(drawn) for row in run[names[ix]]] for run in side]
            for side in by_session
        ]
        for metric, values in zip(metrics, draws):
            values.append(figure(sides[1], metric, most) - figure(sides[0], metric, most))
    for metric, values in zip(metrics, draws):
        known = np.array([value for value in values if np.isfinite(value)])
        # As many of our draws lie beyond each end as should, give or take the chance of both sets of draws.
        slack = 4 * np.sqrt(tail * (1 - tail) * (1 / len(known) + 1 / facts["resamples"])) + 0.005
        lo, hi = metric["interval"]["lo"] + 1e-6, metric["interval"]["hi"] - 1e-6
        for end, beyond, reached in (
            ("lo", np.mean(known < lo - 2e-6), np.mean(known <= lo)),
            ("hi", np.mean(known > hi + 2e-6), np.mean(known >= hi)),
        ):
            checked["interval"] += 1
            assert beyond <= tail + slack and reached >= tail - slack, f"interval: {end} of {metric['key']}: {beyond} {reached}"


def check_noise(report, summaries):
    facts = report["noise"]
    if facts is None or facts["source"] != "given":
        return
    confidence = report["bootstrap"]["confidence"] if report["bootstrap"] else 0.95
    for metric in report["metrics"]:
        values = [[s[metric["key"]] for s in side if s.get(metric["key"]) is not None] for side in summaries]
        freedom = sum(max(len(side) - 1, 0) for side in values)
        if metric["stat"] != "mean" or metric["noise"] is None or freedom == 0:
            continue
        squares = sum(float(np.var(side) * len(side)) for side in values)
        width = stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(squares / freedom)
        width *= np.sqrt(sum(1 / len(side) for side in summaries))
        # Nothing but a count is told apart more finely than a percentile of a summary.
        if metric["unit"] not in ("requests", "sessions"):
            width = max(width, 0.0005 * max(abs(value) for side in values for value in side))
        same(f"noise: {metric['key']}", metric["noise"], width, 1e-6, 1e-9)


def check_goodput(summary, rows):
    most, found = of_run(summary), summary["goodput"]
    if most == NO_OBJECTIVES:
        assert found is None and summary["request_goodput"] is None, "summary: goodput without objectives"
        return
    good, ended = sum(is_good(row, most) for row in rows), len(served(rows))
    same("summary: good requests", found["good"], good)
    same("summary: slo_attainment", found["slo_attainment"], good / ended if ended else None)
    same("summary: request_goodput", summary["request_goodput"], goodput(rows, most))


def check_summary(summary):
    fairness, sessions = summary["fairness"], summary["sessions"]
    means = np.array([row["mean_e2e_ms"] for row in sessions if row["mean_e2e_ms"] is not None])
    if len(means):
        gini = np.abs(means[:, None] - means[None, :]).mean() / (2 * means.mean())
        same("summary: gini", fairness["gini_mean_e2e"], gini)
        same("summary: jain", fairness["jain_mean_e2e"], means.sum() ** 2 / (len(means) * (means**2).sum()))
    shares = np.array([row["direct_share"] for row in sessions if row["direct_share"] is not None])
    if len(shares) and np.ptp(shares) > 1e-9:
        sarle = (stats.skew(shares) ** 2 + 1) / stats.kurtosis(shares, fisher=False)
        same("summary: bimodality", fairness["bimodality"], sarle, 1e-6)
    if fairness["starved"]:
        with_share = [row for row in sessions if row["direct_share"] is not None]
        starved, others = ([row for row in with_share if row["starved"] == is_starved] for is_starved in (True, False))
        for key, field in (("peak_input_tokens", "peak_input_tokens"), ("arrival_rank", "arrival_rank")):
            x, y = ([row[field] for row in group] for group in (starved, others))
            u = stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)) if x and y else None
            same(f"summary: separation by {key}", fairness["starved"][key]["separation"], u)


def main():
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folders = [side.split(",") for side in sys.argv[2:4]]
    a, b = ([records(folder) for folder in side] for side in folders)
    summaries = [[json.loads((Path(f) / "summary.json").read_text(encoding="utf-8")) for f in side] for side in folders]
    most = objectives(sys.argv[4]) if len(sys.argv) > 4 else of_run(summaries[0][0])
    check_figures(report, a, b, most)
    for split in report["splits"]:
        check_split(split, a, b)
    check_transitions(report, a, b)
    check_intervals(report, a, b, most)
    check_noise(report, summaries)
    for side, runs in zip(summaries, (a, b)):
        for summary, rows in zip(side, runs):
            check_summary(summary)
            check_goodput(summary, rows)
    print(", ".join(f"{count} {what}" for what, count in sorted(checked.items())) + " agree with numpy and scipy")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"differs: {error}")
