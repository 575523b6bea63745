#!/usr/bin/env bash
# Time and memory of `diff` on two long runs of many sessions: without intervals, and with 2,000 resamples by session.
# usage: scripts/bench_diff.sh [RECORDS]     default: 1000000 (3 GB of $TMPDIR)
# environment: RUNS (3), FOLDER (where the runs are made and kept; default: a temporary one), PDREPLAY
#   (target/release/pdreplay), MAKE (what writes the runs; default: the bench `report`)
source "$(dirname "$0")/bench_common.sh"
records=${1:-1000000}
need_pdreplay
need_make
[ -n "${FOLDER:-}" ] || temporary_folder FOLDER

# The runs that are repeated: short sessions, so that there are many of them, with two caps.
[ -f "$FOLDER/trace.jsonl" ] || "$pdreplay" trace generate --sessions 5200 --requests 104000 --output "$FOLDER/trace.jsonl" >/dev/null 2>&1
for cap in 4 16; do
    if [ ! -d "$FOLDER/cap$cap-$records" ]; then
        "$pdreplay" replay "$FOLDER/trace.jsonl" --set cluster.prefill=20 --set cluster.decode=60 --set "admission.cap_max=$cap" \
            --output-dir "$FOLDER" --name "base$cap" --overwrite -q >/dev/null || [ $? = 1 ]
        "$MAKE" "$FOLDER/base$cap" "$FOLDER/cap$cap-$records" "$records" >/dev/null
    fi
done
printf '%9s %10s %8s %8s %8s %9s\n' records resamples 'wall s' 'user s' 'sys s' 'peak MiB'
for resamples in 0 2000; do
    rm -f "$FOLDER/time"
    for _ in $(seq "${RUNS:-3}"); do
        /usr/bin/time -f '%e %U %S %M' -o "$FOLDER/time" -a \
            "$pdreplay" diff "$FOLDER/cap4-$records" "$FOLDER/cap16-$records" --resamples "$resamples" --no-replicas --json >/dev/null
    done
    printf '%9d %10d %8.2f %8.2f %8.2f %9.0f\n' "$records" "$resamples" "$(column '$1' "$FOLDER/time")" \
        "$(column '$2' "$FOLDER/time")" "$(column '$3' "$FOLDER/time")" "$(column '$4 / 1024' "$FOLDER/time")"
done
