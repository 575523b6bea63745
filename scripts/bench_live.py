"""Figures of one run of scripts/bench_live.sh: rates, CPU, and lag and error against the server's own stamps."""

import json
import sys


def requests(run):
    with open(f"{run}/requests.jsonl") as lines:
        return [json.loads(line) for line in lines]


def cost(path):
    """Wall seconds, CPU seconds, peak MiB."""
    wall, user, system, peak = open(path).read().split()[-4:]
    return float(wall), float(user) + float(system), float(peak) / 1024


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def span(rows):
    return (max(row["ended_ns"] for row in rows) - min(row["sent_ns"] for row in rows)) / 1e9


def all_ok(rows):
    bad = sum(row["outcome"] != "ok" for row in rows)
    assert bad == 0, f"{bad} of {len(rows)} requests are not ok"


def closed(run, time):
    rows, (_, cpu, peak) = requests(run), cost(time)
    all_ok(rows)
    print(f"{len(rows) / span(rows):.0f} {cpu / len(rows) * 1e3:.3f} {peak:.0f}")


def opened(run, time, stamps, began):
    rows, (wall, cpu, peak) = requests(run), cost(time)
    all_ok(rows)
    seen = dict(line.rstrip("\n").split("\t", 1) for line in open(stamps))
    server = {rid: [int(value) for value in rest.split("\t")] for rid, rest in seen.items()}
    assert len(server) == len(rows), f"{len(server)} stamps for {len(rows)} requests"
    first_s = (min(received for received, _, _ in server.values()) - int(open(began).read())) / 1e9
    # The clock of the run has another origin: the least difference is taken for none.
    offsets = [server[row["request_id"]][0] - row["scheduled_ns"] for row in rows]
    lag = [(offset - min(offsets)) / 1e6 for offset in offsets]
    error = []
    for row in rows:
        received, first, _ = server[row["request_id"]]
        error.append(abs(row["ttft_ms"] - (first - received) / 1e6))
    own = [row["schedule_lag_ms"] for row in rows]
    print(f"open loop     {len(rows) / span(rows):.0f} requests/s   CPU {cpu / len(rows) * 1e3:.3f} ms   peak {peak:.0f} MiB")
    print(f"  send lag    p50 {quantile(lag, 0.5):.2f}  p99 {quantile(lag, 0.99):.2f}  max {max(lag):.2f} ms (server's stamps)")
    print(f"  send lag    p50 {quantile(own, 0.5):.2f}  p99 {quantile(own, 0.99):.2f}  max {max(own):.2f} ms (own)")
    print(f"  TTFT error  p50 {quantile(error, 0.5):.2f}  p99 {quantile(error, 0.99):.2f}  max {max(error):.2f} ms")
    print(f"  wall        {wall:.2f} s: {first_s:.2f} s until the first request reaches the server, {span(rows):.2f} s of requests,"
          f" {wall - first_s - span(rows):.2f} s after the last")


def bodies(run, time):
    rows, (_, cpu, peak) = requests(run), cost(time)
    all_ok(rows)
    tokens = sum(row["input_tokens"] for row in rows)
    print(
        f"bodies        {len(rows) / span(rows):.0f} requests/s, {len(rows) / cpu:.0f} a CPU second, mean prompt "
        f"{tokens / len(rows):,.0f} tokens, peak {peak:.0f} MiB"
    )


def sessions(run, time):
    rows, (_, cpu, peak) = requests(run), cost(time)
    all_ok(rows)
    print(f"sessions      {len({row['session_id'] for row in rows})} open, peak {peak:.0f} MiB, CPU {cpu:.2f} s")


if __name__ == "__main__":
    {"closed": closed, "open": opened, "bodies": bodies, "sessions": sessions}[sys.argv[1]](*sys.argv[2:])
