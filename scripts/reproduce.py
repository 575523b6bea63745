"""Writes docs/reproduction.md to stdout from the summaries that reproduce.sh made.

    reproduce.py RUNS TEMPLATE

The published figures and their tolerances are data here; the explanations are the template's. In the template
`{{overview}}` and the other names of TABLES become tables, `{{generated ROW [OPTIONS] FIGURE}}` and `{{real …}}` the
median of a figure over the seeds, so that no number of ours in the text is typed by hand. `{{shipped …}}` is that of the
seed that ships. A figure that is missing stops the script, but for those of a real trace that is not there or has none.
"""

import json
import re
import statistics
import sys
from pathlib import Path

ROWS = ["v2-1p7d", "v2-2p6d", "v3-1p7d", "v3-2p6d", "v4-1p7d", "dp8", "v5-2p6d"]
SETS = ["generated", "real"]
SHIPPED = "shipped-seed"
DIRECT = "kvcache-direct-to-d-session"
RESEED = "kvcache-reseed"
CAP = "pd-router-fallback-large-append-session-cap"


# ---- figures of one summary -------------------------------------------------------------------------------------

def mode(summary, name, field):
    return next((m[field] for m in summary["modes"] if m["mode"] == name), 0 if field == "share" else None)


def seconds(field):
    def read(summary):
        return None if summary[field] is None else summary[field] / 1000
    return read


def mode_seconds(name, field):
    def read(summary):
        value = mode(summary, name, field)
        return None if value is None else value / 1000
    return read


def fallback_share(summary):
    return sum(m["share"] for m in summary["modes"] if "fallback" in m["mode"])


def outcome_share(*names):
    return lambda s: sum(s["outcomes"][n] for n in names) / s["run"]["requests"]


def later_truncated(summary):
    """Truncated share of the turns after the first."""
    later = [m for m in summary["modes"] if m["mode"] != "pd-router-turn1"]
    return sum(m["outcomes"]["truncated"] for m in later) / max(1, sum(m["n"] for m in later))


def first_truncated(summary):
    return sum(m["outcomes"]["truncated"] for m in summary["modes"] if m["mode"] == "pd-router-turn1")


def has_cause(name):
    return lambda s: any(cause["cause"] == name for cause in s["causes"])


def sessions_at(test):
    return lambda s: sum(test(x["direct_share"]) for x in s["sessions"] if x["direct_share"] is not None)


def spread(role):
    return lambda s: next(x["spread"] for x in s["spread"] if x["role"] == role)


def peak_of(side):
    return lambda s: ((s["fairness"]["starved"] or {}).get("peak_input_tokens") or {}).get(side)


def starved_larger(summary):
    starved, others = peak_of("starved")(summary), peak_of("others")(summary)
    return starved is not None and others is not None and starved > others


def separation(what):
    """Chance that a starved session has more of it than another."""
    return lambda s: ((s["fairness"]["starved"] or {}).get(what) or {}).get("separation")


def prefix_hits_on_p(summary):
    accounts = [w["account"] for w in summary["workers"] if w["role"] == "prefill"]
    cached = sum(account["cached_tokens"] for account in accounts)
    return cached / max(1, cached + sum(account["prefilled_tokens"] for account in accounts))


def mean_of_workers(role, field):
    return lambda s: statistics.mean([w["account"][field] for w in s["workers"] if w["role"] == role] or [0])


FIGURES = {  # name: (label, reader, unit)
    "truncated": ("truncated", outcome_share("truncated"), "%"),
    "later_truncated": ("truncated, from turn 2 on", later_truncated, "%"),
    "first_truncated": ("turn 1 truncated", first_truncated, "n"),
    "withheld": ("headline withheld", lambda s: s["integrity"]["verdict"] == "withheld", "yes"),
    "counters": ("a cause line names the two counters", has_cause("counters-diverged"), "yes"),
    "capacity": ("a cause line says that capacity binds", has_cause("capacity-binds"), "yes"),
    "errors": ("errors", outcome_share("error", "timeout", "aborted"), "%"),
    "direct": ("direct-to-D", lambda s: mode(s, DIRECT, "share"), "%"),
    "reseed": ("reseeds", lambda s: mode(s, RESEED, "share"), "%"),
    "reseed_ttft": ("reseeds, TTFT P50", mode_seconds(RESEED, "p50_ttft_ms"), "s"),
    "cap": ("fallback, session cap", lambda s: mode(s, CAP, "share"), "%"),
    "fallback": ("fallback, all reasons", fallback_share, "%"),
    "direct_p50": ("direct-to-D, E2E P50", mode_seconds(DIRECT, "p50_e2e_ms"), "s"),
    "direct_ttft": ("direct-to-D, TTFT P50", mode_seconds(DIRECT, "p50_ttft_ms"), "s"),
    "cap_p50": ("fallback, session cap, E2E P50", mode_seconds(CAP, "p50_e2e_ms"), "s"),
    "cap_ttft": ("fallback, session cap, TTFT P50", mode_seconds(CAP, "p50_ttft_ms"), "s"),
    "mean": ("E2E mean", seconds("mean_e2e_ms"), "s"),
    "p50": ("E2E P50", seconds("p50_e2e_ms"), "s"),
    "p90": ("E2E P90", seconds("p90_e2e_ms"), "s"),
    "p99": ("E2E P99", seconds("p99_e2e_ms"), "s"),
    "ttft": ("TTFT P50", seconds("p50_ttft_ms"), "s"),
    "ttft_mean": ("TTFT mean", seconds("mean_ttft_ms"), "s"),
    "ttft_p90": ("TTFT P90", seconds("p90_ttft_ms"), "s"),
    "lucky": ("sessions ≥ 95 % direct", sessions_at(lambda share: share >= 0.95), "n"),
    "starving": ("sessions ≤ 1 % direct", sessions_at(lambda share: share <= 0.01), "n"),
    "two_peaked": ("two-peaked", lambda s: s["fairness"]["two_peaked"], "yes"),
    "histogram": ("direct-share histogram", lambda s: s["fairness"]["histogram"], "bins"),
    "larger": ("starved sessions are the larger", starved_larger, "yes"),
    "starved_peak": ("starved, mean peak input", peak_of("starved"), "n"),
    "others_peak": ("others, mean peak input", peak_of("others"), "n"),
    "decode_spread": ("requests a D, ±", spread("decode"), "%"),
    "worker_spread": ("requests a worker, ±", spread("colocated"), "%"),
    "visited": ("D a session", lambda s: statistics.mean(len(x["workers"]) for x in s["sessions"]), "x"),
    "size_separation": ("starved is larger than another, chance", separation("peak_input_tokens"), "%"),
    "rank_separation": ("starved is later than another, chance", separation("arrival_rank"), "%"),
    "p_hits": ("prompt tokens found in P's cache", prefix_hits_on_p, "%"),
    "transfer_errors": ("transfer errors", lambda s: s["transfers"]["errors"], "n"),
    "trims": ("idle sessions trimmed a D", mean_of_workers("decode", "session_trims"), "n"),
    "p_busy": ("P computes", mean_of_workers("prefill", "busy_share"), "%"),
    "live": ("live sessions at most, by preflight", lambda s: s["preflight"]["peak_live_sessions"], "n"),
}

AGAINST_DP = {  # name: (label, field that is above that of DP on the same trace and seed)
    "slower": ("mean E2E above that of DP", "mean_e2e_ms"),
    "slower_p50": ("E2E P50 above that of DP", "p50_e2e_ms"),
}


# ---- what was published, and how near is near (a tolerance of None: none was set, the ratio is shown) ------------

def points(value):
    return ("points", value)


def ratio(value):
    return ("ratio", value)


PUBLISHED = {
    "v2-1p7d": [
        ("later_truncated", 0.568, ("above", 0.5)), ("first_truncated", 0, ("equals", 0)),
        ("withheld", None, ("yes",)), ("counters", None, ("yes",)),
    ],
    "v2-2p6d": [
        ("later_truncated", 0.614, ("above", 0.5)), ("first_truncated", 0, ("equals", 0)),
        ("withheld", None, ("yes",)), ("counters", None, ("yes",)),
    ],
    "v3-1p7d": [
        ("truncated", 0.009, points(0.1)), ("direct", 0.420, points(0.1)), ("cap", 0.526, points(0.1)),
        ("direct_p50", 0.495, ratio(0.25)), ("direct_ttft", 0.043, ratio(0.25)),
        ("lucky", None, ("above", 2)), ("starving", None, ("above", 2)),
        ("errors", 0.082, None), ("cap_p50", 5.6, None), ("cap_ttft", 3.7, None),
        ("mean", 4.88, None), ("p50", 1.75, None), ("p90", 12.67, None), ("ttft", 0.36, None),
    ],
    "v3-2p6d": [
        ("truncated", 0.009, points(0.1)), ("cap", 0.654, points(0.1)), ("p50", 1.52, ratio(0.25)),
        ("ttft", 0.33, ratio(0.25)), ("lucky", None, ("above", 2)), ("starving", None, ("above", 2)),
        ("errors", 0.002, None), ("mean", 3.58, None), ("p90", 9.23, None),
    ],
    "v4-1p7d": [
        ("capacity", None, ("yes",)), ("fallback", None, ("below", 0.1)), ("reseed", None, None),
        ("direct", None, None), ("p50", None, None),
    ],
    "dp8": [
        ("p50", 0.65, ratio(0.25)), ("ttft", 0.09, ratio(0.25)), ("ttft_mean", 0.12, ratio(0.25)),
        ("worker_spread", 0.10, ("below", 0.15)), ("errors", 0.0, ("equals", 0)),
        ("mean", 1.43, None), ("p90", 3.61, None), ("p99", 8.37, None), ("ttft_p90", 0.26, None),
    ],
    "v5-2p6d": [
        ("slower", None, ("yes",)), ("two_peaked", None, ("yes",)), ("larger", None, ("yes",)),
        ("histogram", "15/7/11/5/14", None), ("starved_peak", 56011, None), ("others_peak", 31344, None),
        ("errors", 0.084, None), ("mean", 3.50, None), ("p50", 1.11, None), ("p99", 20.37, None),
        ("ttft_mean", 2.13, None), ("decode_spread", 0.26, None), ("visited", 1.0, None),
    ],
}


# ---- reading and formatting -------------------------------------------------------------------------------------

class Runs:
    """Summaries by (trace, row, options), in the order of their seeds."""

    def __init__(self, root):
        self.summaries = {}
        for path in sorted(root.glob("*/*/*/s*/summary.json")):
            trace, row, options = path.parts[-5:-2]
            summary = json.loads(path.read_text())
            preflight = path.with_name("preflight.json")
            if preflight.exists():
                summary["preflight"] = json.loads(preflight.read_text())
            self.summaries.setdefault((trace, row, options), []).append(summary)

    def traces(self):
        return [t for t in SETS if any(key[0] == t for key in self.summaries)]

    def values(self, trace, row, name, options="shipped"):
        runs = self.summaries.get((trace, row, options), [])
        if name in AGAINST_DP:
            field = AGAINST_DP[name][1]
            base = self.summaries.get((trace, "dp8" + ("-x1" if row.endswith("-x1") else ""), options), [])
            return [ours[field] > dp[field] for ours, dp in zip(runs, base)]
        return [v for v in map(FIGURES[name][1], runs) if v is not None]


def unit_of(name):
    return "yes" if name in AGAINST_DP else FIGURES[name][2]


def label_of(name):
    return (AGAINST_DP if name in AGAINST_DP else FIGURES)[name][0]


def shown(value, unit):
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if unit == "%":
        return f"{100 * value:.2f} %" if 0 < value < 0.001 else f"{100 * value:.1f} %"
    if unit == "x":
        return f"{value:.2f}"
    if unit == "s":
        return f"{value:.3f} s" if value < 0.995 else f"{value:.2f} s" if value < 9.95 else f"{value:.1f} s"
    return f"{value:,.0f}"


def needed(runs, trace, row, name, *options):
    """The values of a figure. The generated traces have every figure that is asked for."""
    values = runs.values(trace, row, name, *options)
    if not values and trace != "real":
        sys.exit(f"no value of {name!r} in {trace} {row} {' '.join(options)}: a summary lacks what reproduce.py reads")
    return values


def median(values, unit):
    if not values:
        return None
    if unit == "yes":
        return f"{sum(values)} of {len(values)}"
    if unit == "bins":
        return "/".join(f"{statistics.median(column):.0f}" for column in zip(*values))
    return statistics.median(values)


def with_range(values, unit):
    middle = shown(median(values, unit), unit)
    if unit in ("yes", "bins") or len(values) < 2 or min(values) == max(values):
        return middle
    low, high = (shown(edge, unit).removesuffix(f" {unit}") for edge in (min(values), max(values)))
    return f"{middle} ({low}–{high})"


def judged(values, unit, published, tolerance):
    """`hit`, `MISS`, or how far off where no tolerance was set."""
    if not values:
        return "–"
    if unit == "yes":  # a majority of the seeds, as the median of a figure is
        return "hit" if 2 * sum(values) > len(values) else "MISS"
    if unit == "bins":
        return ""
    middle = statistics.median(values)
    if tolerance is None:
        return f"{middle / published:.1f}×" if published else ""
    kind, bound = tolerance
    near = {
        "points": lambda: abs(middle - published) <= bound,
        "ratio": lambda: abs(middle / published - 1) <= bound,
        "above": lambda: middle > bound,
        "below": lambda: middle <= bound,
        "equals": lambda: middle == bound,
    }[kind]()
    return "hit" if near else "MISS"


def wanted(published, unit, tolerance):
    text = "" if published is None else shown(published, unit)
    if tolerance is None:
        return text or "–", ""
    kind = tolerance[0]
    bound = {
        "points": lambda: "± 10 points", "ratio": lambda: "± 25 %", "yes": lambda: "yes", "equals": lambda: "equal",
        "above": lambda: f"> {shown(tolerance[1], unit)}", "below": lambda: f"≤ {shown(tolerance[1], unit)}",
    }[kind]()
    return text or "–", bound


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in rows])


# ---- tables -----------------------------------------------------------------------------------------------------

def overview(runs):
    rows = []
    for row in ROWS:
        cells = [row]
        for trace in runs.traces():
            verdicts = [(name, judged(needed(runs, trace, row, name), unit_of(name), published, tolerance))
                        for name, published, tolerance in PUBLISHED[row] if tolerance is not None]
            missed = [label_of(name) for name, verdict in verdicts if verdict == "MISS"]
            split = [f"{label_of(name)} ({median(runs.values(trace, row, name), 'yes')} seeds)"
                     for name, verdict in verdicts
                     if verdict == "hit" and unit_of(name) == "yes" and not all(runs.values(trace, row, name))]
            hits = sum(verdict == "hit" for _, verdict in verdicts)
            cells.append(f"{hits} of {len(verdicts)}" + (f"; missed: {', '.join(missed)}" if missed else "")
                         + (f"; by a majority only: {', '.join(split)}" if split else ""))
        rows.append(cells)
    return table(["run", *(f"{trace} trace: hits" for trace in runs.traces())], rows)


def figures(runs):
    traces, rows = runs.traces(), []
    for row in ROWS:
        for at, (name, published, tolerance) in enumerate(PUBLISHED[row]):
            unit = unit_of(name)
            cells = [f"**{row}**" if at == 0 else "", label_of(name), *wanted(published, unit, tolerance)]
            for trace in traces:
                values = needed(runs, trace, row, name)
                cells += [with_range(values, unit), judged(values, unit, published, tolerance)]
            shipped = needed(runs, SHIPPED, row, name)
            cells.append(("yes" if shipped[0] else "no") if unit == "yes" else shown(median(shipped, unit), unit))
            rows.append(cells)
    heads = [head for trace in traces for head in (trace, "")]
    return table(["run", "figure", "published", "tolerance", *heads, "generated, seed 42"], rows)


def verdict(runs):
    names = ["direct", "ttft", "p50", "mean", "p99"]
    rows = []
    for trace in runs.traces():
        for row in ["dp8", "v3-1p7d", "v3-2p6d", "v4-1p7d", "v5-2p6d"]:
            for suffix, scale in (("", "10"), ("-x1", "1")):
                cells = [trace, row, scale]
                for name in names:
                    middle = median(runs.values(trace, row + suffix, name), unit_of(name))
                    cells.append("–" if row == "dp8" and name == "direct" else shown(middle, unit_of(name)))
                for name in ("p50", "mean"):
                    ours, dp = (median(runs.values(trace, r + suffix, name), "s") for r in (row, "dp8"))
                    cells.append(f"{ours / dp:.2f}×" if ours and dp and row != "dp8" else "")
                rows.append(cells)
    heads = ["trace", "run", "time-scale", *(label_of(name) for name in names), "P50 / DP", "mean / DP"]
    return table(heads, rows)


def scales(runs):
    rows = []
    for trace in runs.traces():
        for scale in (1, 2, 3, 5, 7, 10):
            cells = [trace, str(scale)]
            for name in ("p50", "mean", "ttft_mean"):
                pair = []
                for row in ("dp8", "v5-2p6d"):
                    suffix, options = {1: ("-x1", "shipped"), 10: ("", "shipped")}.get(
                        scale, ("", f"replay.time_scale={scale}"))
                    pair.append(median(runs.values(trace, row + suffix, name, options), "s"))
                cells.append(" : ".join(shown(value, "s").removesuffix(" s") for value in pair))
            rows.append(cells)
    return table(["trace", "time-scale", *(f"{n}, DP : v5, s" for n in ("E2E P50", "E2E mean", "TTFT mean"))], rows)


def control(runs):
    rows = []
    for options in ["shipped", *dict.fromkeys(o for _, row, o in runs.summaries if row == "v5-2p6d-x1" and o != "shipped")]:
        cells = [named(options)]
        for trace in runs.traces():
            for name in ("p50", "mean", "ttft"):
                dp, ours = (median(runs.values(trace, row, name, options), "s") for row in ("dp8-x1", "v5-2p6d-x1"))
                cells.append(f"{shown(dp, 's')} : {shown(ours, 's')}".replace(" s", ""))
        rows.append(cells)
    heads = [f"{trace}: {label_of(name)}" for trace in runs.traces() for name in ("p50", "mean", "ttft")]
    return table(["changed, at time-scale 1 (DP : v5, s)", *heads], rows)


def pressure(runs):
    rows = []
    for row, names in (("v3-1p7d", ["p50", "mean", "cap_p50", "cap_ttft"]), ("v3-2p6d", ["p50", "mean", "p90", "ttft"]),
                       ("dp8", ["p50", "mean", "p99", "ttft"]), ("v5-2p6d", ["p50", "mean", "p99", "ttft_mean"])):
        for name in names:
            published = next(value for key, value, _ in PUBLISHED[row] if key == name)
            ours = [runs.values("generated", r, name, o) for r, o in
                    ((row, "shipped"), (row, "replay.arrival_scale=1"), (row + "-x1", "shipped"))]
            rows.append([row, label_of(name), shown(published, "s"), *(shown(median(v, "s"), "s") for v in ours)])
    return table(["run", "figure", "published", "time-scale 10", "arrivals at 1, gaps at 10", "time-scale 1"], rows)


def sensitivity(runs):
    columns = [("v3-1p7d", ["direct", "cap_ttft", "p50", "errors"]),
               ("v5-2p6d", ["direct", "histogram", "p50", "mean", "transfer_errors"]), ("dp8", ["p50", "mean"])]
    rows, without_effect = [], []
    for options in ["shipped", *(o for o in PLAN if o != "shipped")]:
        cells = [shown(median(runs.values("generated", row, name, options), unit_of(name)), unit_of(name))
                 for row, names in columns for name in names]
        if rows and cells == rows[0][1:]:
            without_effect.append(named(options))
        else:
            rows.append([named(options), *cells])
    heads = [f"{row}: {label_of(name)}" if at == 0 else label_of(name)
             for row, names in columns for at, name in enumerate(names)]
    return table(["changed", *heads], rows) + f"\n\nWithout any effect on these figures: {', '.join(without_effect)}."


def named(options):
    return "as shipped" if options == "shipped" else ", ".join(f"`{option}`" for option in options.split("+"))


TABLES = {"overview": overview, "figures": figures, "verdict": verdict, "scales": scales, "control": control,
          "pressure": pressure, "sensitivity": sensitivity}
PLAN = []


def fill(template, runs):
    def replace(found):
        words = found.group(1).split()
        if words[0] in TABLES:
            return TABLES[words[0]](runs)
        if words[0] == "seeds":
            return str(len(runs.summaries[("generated", "dp8", "shipped")]))
        if words[0] == "real_trace":
            found = runs.summaries.get(("real", "dp8", "shipped"))
            run = found and found[0]["run"]
            return f"`{run['trace']}`, {run['requests']:,} requests in {run['sessions']} sessions" if run else "absent"
        trace, row, *options, name = words
        unit, trace = unit_of(name), SHIPPED if trace == "shipped" else trace
        return shown(median(needed(runs, trace, row, name, *options), unit), unit)
    return re.sub(r"\{\{(.+?)\}\}", replace, template)


def main():
    root, template = Path(sys.argv[1]), Path(sys.argv[2])
    planned = [line.split() for line in (root / "plan.txt").read_text().splitlines()]
    PLAN.extend(dict.fromkeys(options for _, row, options, _ in planned if row == "v3-1p7d"))
    sys.stdout.write(fill(template.read_text(), Runs(root)))


if __name__ == "__main__":
    main()
