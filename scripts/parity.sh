#!/usr/bin/env bash
# The same scenarios in virtual time and over loopback sockets: same modes, reasons, workers and cached tokens for every
# request, latencies within the bands of tests/it/live/parity.rs. With arguments: one trace and scenario side by side,
# for example scripts/parity.sh traces/sample-6.jsonl -s v3-1p7d --set replay.time_scale=10
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -eq 0 ]; then
    exec cargo test --release --test it live::parity
fi

cargo build --release --quiet
outputs=$(mktemp -d)
trap 'rm -r "$outputs"' EXIT
speed=${PDREPLAY_SPEED:-10}
bin=target/release/pdreplay
"$bin" replay "$@" -q --output-dir "$outputs" --name virtual > "$outputs/virtual.txt" || true
"$bin" replay "$@" -q --output-dir "$outputs" --name live --target live --emulation-speed "$speed" \
    --set integrity.max_schedule_lag_p99_ms=1e6 --set integrity.max_harness_pause_ms=1e9 > "$outputs/live.txt" || true
python3 - "$outputs" << 'PY'
import json, sys

FIELDS = ["execution_mode", "mode_reason", "decode_worker_actual", "prefill_worker", "cached_tokens", "outcome"]


def records(name):
    with open(f"{sys.argv[1]}/{name}/requests.jsonl") as lines:
        return {record["request_id"]: record for record in map(json.loads, lines)}


def quantile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


virtual, live = records("virtual"), records("live")
print(f"{len(virtual)} requests in virtual time, {len(live)} live")
for field in FIELDS:
    same = sum(live[key][field] == record[field] for key, record in virtual.items())
    print(f"{field:<22} the same in {same} of {len(virtual)} ({same / len(virtual):.1%})")
for field in ["ttft_ms", "e2e_ms"]:
    for share in [0.5, 0.9, 0.99]:
        at = [quantile(sorted(r[field] for r in rs.values() if r[field] is not None), share) for rs in (virtual, live)]
        print(f"{field:<8} p{share * 100:g}: virtual {at[0]:.1f} ms, live {at[1]:.1f} ms")
PY
