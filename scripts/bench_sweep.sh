#!/usr/bin/env bash
# Cost of the sweep cap-policy: 240 cells of the built-in trace (4,449 requests) on two threads; then of going on when all is done.
# usage: scripts/bench_sweep.sh [more sweep arguments]
# environment: RUNS (3), JOBS (2), PDREPLAY (target/release/pdreplay)
source "$(dirname "$0")/bench_common.sh"
need_pdreplay
temporary_folder out

sweep=("$pdreplay" sweep cap-policy --jobs "${JOBS:-2}" --output-dir "$out" -q "$@")
# Wall, user and system seconds and peak KiB of each run, a line each.
measure() {
    for _ in $(seq "${RUNS:-3}"); do
        /usr/bin/time -f '%e %U %S %M' -a -o "$out/$1" "${sweep[@]}" "${@:2}" >/dev/null
    done
    column '$1' "$out/$1" | sed "s/^/$1: wall s   /"
    column '$2 + $3' "$out/$1" | sed "s/^/$1: CPU s    /"
    column '$4 / 1024' "$out/$1" | sed "s/^/$1: peak MiB /"
}
measure all --fresh
measure done
du -sh "$out/cap-policy" | awk '{ print "on disk: " $1 }'
