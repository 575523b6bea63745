#!/usr/bin/env bash
# Speed of KV events: bytes to events (kv_decode), bytes to index, index alone, queries, memory (kv_index), in release; and
# when asked, the index beside the published one of Dynamo, told the same events. Medians, and p99 of queries; `http` asks
# an `index serve` over loopback.
# usage: scripts/bench_kv.sh [decode|bytes|apply|query|http|memory|dynamo]…     without one: all but dynamo
# Only figures of a quiet machine mean something: the load is printed first; throughput is told by processor time, too.
# `cargo bench --bench kv_index -- bytes xllm 128` narrows it. `memory` takes 1 GB; `dynamo` is a Cargo
# project of its own (scripts/bench_dynamo), which takes minutes to build the first time and is not part of the package.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- decode bytes apply query http memory

awk -v cores="$(nproc)" '{ printf "load of the last minute: %s on %d cores%s\n", $1, cores,
    ($1 > 0.5 ? ": not quiet, the figures are too low" : "") }' /proc/loadavg

for what in "$@"; do
    case $what in
        decode) cargo bench --quiet --bench kv_decode --no-run ;;
        bytes | apply | query | memory) cargo bench --quiet --bench kv_index --no-run ;;
        http) cargo build --quiet --release --locked ;;
        dynamo) cargo build --quiet --release --locked --manifest-path scripts/bench_dynamo/Cargo.toml \
            --target-dir target/bench_dynamo ;;
        *) echo "unknown: $what; one of decode, bytes, apply, query, http, memory, dynamo" >&2 && exit 2 ;;
    esac
done

for what in "$@"; do
    echo "== $what"
    case $what in
        decode) cargo bench --quiet --bench kv_decode ;;
        http) python3 scripts/bench_kv_query.py target/release/pdreplay ;;
        dynamo) target/bench_dynamo/release/bench-dynamo ;;
        *) cargo bench --quiet --bench kv_index -- "$what" ;;
    esac
done
