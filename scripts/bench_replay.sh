#!/usr/bin/env bash
# Whole-process cost of a replay on one core: median CPU seconds and peak memory over RUNS runs, then the stages of one.
# usage: scripts/bench_replay.sh [TRACE] [more replay arguments]     without TRACE: the built-in generated trace
# environment: RUNS (15), CORE (0), PDREPLAY (target/release/pdreplay)
source "$(dirname "$0")/bench_common.sh"
need_pdreplay
temporary_folder out

replay=(taskset -c "${CORE:-0}" "$pdreplay" replay "$@" --output-dir "$out" --name run --overwrite)

"${replay[@]}" >/dev/null 2>&1
TIMEFORMAT='%3U %3S'
for _ in $(seq "${RUNS:-15}"); do
    { time "${replay[@]}" >/dev/null 2>&1; } 2>>"$out/times"
done
/usr/bin/time -f '%M' -o "$out/peak" "${replay[@]}" >/dev/null 2>&1
echo "CPU s      $(column '$1 + $2' "$out/times")"
echo "  user     $(column '$1' "$out/times")"
echo "  system   $(column '$2' "$out/times")"
echo "peak MiB   $(awk '{ print $1 / 1024 }' "$out/peak")"
"${replay[@]}" --timings 2>&1 >/dev/null | sed -n '/^stage/,$p'
