#!/usr/bin/env bash
# Time and memory of `report` on long runs: a run of 5,200 sessions, repeated to as many records as wanted.
# usage: scripts/bench_report.sh [RECORDS ...]     default: 1000000 10000000 (the larger takes 15 GB of $TMPDIR)
# environment: RUNS (3), FOLDER (where the runs are made and kept; default: a temporary one), PDREPLAY
#   (target/release/pdreplay), MAKE (what writes the runs; default: the bench `report`)
source "$(dirname "$0")/bench_common.sh"
need_pdreplay
need_make
[ -n "${FOLDER:-}" ] || temporary_folder FOLDER

# The run that is repeated: short sessions, so that there are many of them.
if [ ! -d "$FOLDER/base" ]; then
    "$pdreplay" trace generate --sessions 5200 --requests 104000 --output "$FOLDER/trace.jsonl" >/dev/null 2>&1
    "$pdreplay" replay "$FOLDER/trace.jsonl" --set cluster.prefill=20 --set cluster.decode=60 \
        --output-dir "$FOLDER" --name base -q >/dev/null
fi
[ $# -gt 0 ] || set -- 1000000 10000000
printf '%9s %8s %8s %8s %9s\n' records 'wall s' 'user s' 'sys s' 'peak MiB'
for records in "$@"; do
    [ -d "$FOLDER/$records" ] || "$MAKE" "$FOLDER/base" "$FOLDER/$records" "$records" >/dev/null
    rm -f "$FOLDER/time"
    for _ in $(seq "${RUNS:-3}"); do
        /usr/bin/time -f '%e %U %S %M' -o "$FOLDER/time" -a "$pdreplay" report "$FOLDER/$records" >/dev/null
    done
    printf '%9d %8.2f %8.2f %8.2f %9.0f\n' "$records" "$(column '$1' "$FOLDER/time")" "$(column '$2' "$FOLDER/time")" \
        "$(column '$3' "$FOLDER/time")" "$(column '$4 / 1024' "$FOLDER/time")"
done
