#!/usr/bin/env bash
# Runs every published row, at time-scale 10 and 1, on the generated trace and on a real one, five seeds each, then
# one changed option at a time, and writes docs/reproduction.md from the summaries.
#
#   scripts/reproduce.sh [TRACE]      default: ../shared/traces/mini-swe-agent/verified-top52.jsonl.zst, when it is there
#   SEEDS=3 JOBS=1 scripts/reproduce.sh
#   PDREPLAY=path/to/pdreplay scripts/reproduce.sh          that program; nothing is built
#
# On the generated trace a seed (trace.seed 1 to 5) makes another trace, and each row also runs with 42, the seed that
# ships; on the real one it jitters each session's arrival by up to 1 ms.
# Run folders go to outputs/reproduction/ (replaced by each call); of each, only the summary and the worker table stay.
set -euo pipefail

main() {
    local seeds=${SEEDS:-5} given="" real
    case "${1:-}" in -h | --help) usage; return ;; esac
    if [ $# -gt 1 ] || ! [[ $seeds =~ ^[1-9][0-9]*$ ]]; then
        usage >&2
        return 2
    fi
    [ $# -eq 0 ] || given=$(realpath -e -- "$1")
    cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
    real=${given:-../shared/traces/mini-swe-agent/verified-top52.jsonl.zst}
    if [ ! -f "$real" ]; then
        echo "no $real: the generated trace alone" >&2
        real=""
    fi

    [ -n "${PDREPLAY:-}" ] || cargo build --release
    export BIN=${PDREPLAY:-target/release/pdreplay} OUT=outputs/reproduction REAL=$real
    export -f run_one
    rm -rf -- "$OUT"
    mkdir -p -- "$OUT"

    plan "$seeds" "$real" > "$OUT/plan.txt"
    xargs -P "${JOBS:-$(nproc)}" -d '\n' -I{} bash -c 'run_one "$1"' _ {} < "$OUT/plan.txt" |
        progress "$(wc -l < "$OUT/plan.txt")"
    python3 scripts/reproduce.py "$OUT" scripts/reproduction.template.md > "$OUT/reproduction.md"
    cp -- "$OUT/reproduction.md" docs/reproduction.md
    echo "wrote docs/reproduction.md" >&2
}

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

# One line a run: trace, scenario, options joined by `+` (or `shipped`), seed.
plan() {
    local seeds=$1 trace row option
    local -a traces=(generated)
    [ -z "$2" ] || traces+=(real)
    local -a rows=(v2-1p7d v2-2p6d v3-1p7d v3-2p6d v4-1p7d dp8 v5-2p6d)
    for trace in "${traces[@]}"; do
        for row in "${rows[@]}"; do
            seeded "$seeds" "$trace" "$row" shipped
            seeded "$seeds" "$trace" "$row-x1" shipped
        done
        for option in replay.time_scale={2,3,5,7}; do
            seeded "$seeds" "$trace" dp8 "$option"
            seeded "$seeds" "$trace" v5-2p6d "$option"
        done
        for option in engine.kv_pool_tokens={60000,125000} engine.ingest_per_token_us=0 \
            engine.timing.preset=flat-50k cluster.link.preset=rdma engine.session_trim=admission; do
            seeded "$seeds" "$trace" dp8-x1 "$option"
            seeded "$seeds" "$trace" v5-2p6d-x1 "$option"
        done
    done
    for row in "${rows[@]}"; do
        echo "shipped-seed $row shipped 42"
    done
    seeded "$seeds" generated v3-2p6d replay.arrival_scale=1
    seeded "$seeds" generated v4-1p7d engine.kv_pool_tokens=125000
    while read -r option; do
        for row in v3-1p7d v5-2p6d dp8; do
            seeded "$seeds" generated "$row" "$option"
        done
    done <<'OPTIONS'
engine.kv_pool_tokens=60000
engine.kv_pool_tokens=125000
engine.kv_pool_tokens=332000
engine.timing.preset=flat-50k
cluster.link.preset=rdma
cluster.link.preset=nvlink
cluster.link.preset=rdma+engine.kv_pool_tokens=332000
cluster.link.preset=rdma+engine.timing.preset=flat-50k
cluster.link.preset=rdma+engine.timing.preset=flat-50k+engine.kv_pool_tokens=125000
engine.session_trim=admission
admission.close_at_end=false
engine.session_trim=admission+admission.close_at_end=false
cluster.transfer_timeout_s=8
admission.footprint=incremental
admission.capacity_known=true
admission.capacity_known=true+admission.footprint=incremental
admission.slot_release=session-end
replay.first_turn=seed
replay.concurrency=8
replay.concurrency=0
replay.schedule=think
replay.arrival_scale=1
replay.think_scale=1
trace.arrival=pool
trace.arrival=burst
engine.admission_cost_us=20000
engine.ingest_per_token_us=0
engine.decode_radix_cache=true
engine.chunk_tokens=2048
OPTIONS
}

seeded() {
    local seed
    for ((seed = 1; seed <= $1; seed++)); do
        echo "$2 $3 $4 $seed"
    done
}

# A run that breaks a budget exits with 1 and has a summary; anything else without a summary is our failure.
run_one() {
    set -euo pipefail
    local trace row options seed folder option log
    read -r trace row options seed <<< "$1"
    folder=$OUT/$trace/$row/$options
    local -a inputs=(--scenario "$row")
    if [ "$trace" = real ]; then
        inputs+=(--seed "$seed" --set replay.arrival_jitter_ms=1)
    else
        inputs+=(--set "trace.seed=$seed")
    fi
    if [ "$options" != shipped ]; then
        while read -r option; do inputs+=(--set "$option"); done <<< "${options//+/$'\n'}"
    fi
    [ "$trace" != real ] || inputs+=(-- "$REAL")
    local -a args=(replay --allow-conflict --no-preflight --quiet --json
        --output-dir "$folder" --name "s$seed" "${inputs[@]}")
    if ! log=$("$BIN" "${args[@]}" 2>&1 > /dev/null) && [ ! -s "$folder/s$seed/summary.json" ]; then
        printf 'failed: %s %s\n%s\n' "$BIN" "${args[*]}" "$log" >&2
        exit 255 # xargs starts no further run
    fi
    if [ "$options" = shipped ]; then # a conflict, which v2 has, exits with 1
        "$BIN" preflight --quiet --json "${inputs[@]}" > "$folder/s$seed/preflight.json" || [ "${row:0:2}" = v2 ]
    fi
    rm -f -- "$folder/s$seed"/{requests.jsonl,requests.parquet,events.jsonl,sessions.jsonl}
    echo "$trace $row $options"
}

progress() {
    local total=$1 count=0 what
    while read -r what; do
        count=$((count + 1))
        if [ -t 2 ]; then
            printf '\r\033[K%d of %d  %s' "$count" "$total" "$what" >&2
        elif [ $((count % 50)) -eq 0 ] || [ "$count" -eq "$total" ]; then
            echo "$count of $total runs" >&2
        fi
    done
    [ ! -t 2 ] || echo >&2
}

main "$@"
