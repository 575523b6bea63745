#!/usr/bin/env bash
# How time and memory grow with the trace: generated traces on 20 prefill and 60 decode workers, one core.
# usage: scripts/bench_scale.sh [SESSIONS ...]     default: 520 5200 (the larger writes a trace of 1.3 GB to $TMPDIR)
# environment: RUNS (3), CORE (0), PDREPLAY (target/release/pdreplay)
source "$(dirname "$0")/bench_common.sh"
need_pdreplay
temporary_folder out

[ $# -gt 0 ] || set -- 520 5200
printf '%9s %10s %9s %12s\n' sessions 'CPU s' 'peak MiB' 'simulate ms'
for sessions in "$@"; do
    "$pdreplay" trace generate --sessions "$sessions" --output "$out/trace.jsonl" >/dev/null 2>&1
    rm -f "$out/time" "$out/simulate"
    for _ in $(seq "${RUNS:-3}"); do
        /usr/bin/time -f '%U %S %M' -o "$out/time" -a taskset -c "${CORE:-0}" "$pdreplay" replay "$out/trace.jsonl" \
            --set cluster.prefill=20 --set cluster.decode=60 --output-dir "$out" --name run --overwrite --timings \
            2>&1 >/dev/null | awk '$1 == "simulate" { print $2 }' >>"$out/simulate"
    done
    printf '%9d %10.2f %9.0f %12.0f\n' "$sessions" "$(column '$1 + $2' "$out/time")" \
        "$(column '$3 / 1024' "$out/time")" "$(median <"$out/simulate")"
    rm -f "$out/trace.jsonl"
done
