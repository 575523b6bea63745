#!/usr/bin/env bash
# The live client against a thin server: throughput and CPU in a closed loop (beside wrk), lag and error in an open one,
# large bodies, many sessions, many results. The server has one core, the client the other.
# usage: scripts/bench_live.sh [closed|open|bodies|sessions|results]…     without one: all
# environment: RUNS (3), SERVER_CORE (0), CLIENT_CORE (1), PORT (9931), PDREPLAY (target/release/pdreplay),
#              LIVE_SERVER (built when missing)
# needs: python3; wrk for the comparison (left out with a word when it is missing)
source "$(dirname "$0")/bench_common.sh"
runs=${RUNS:-3}
port=${PORT:-9931}
server_core=${SERVER_CORE:-0}
client_core=${CLIENT_CORE:-1}
[ -n "${PDREPLAY:-}" ] || cargo build --release --quiet
server=${LIVE_SERVER:-$(cargo bench --no-run --bench live_server --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*live_server[^"]*\)".*/\1/p' | tail -1)}
out=$(mktemp -d)
server_pid=
cleanup() {
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
    rm -rf "$out"
}
trap cleanup EXIT

start_server() {
    : >"$out/server.log"
    taskset -c "$server_core" "$server" --port "$port" "$@" >>"$out/server.log" &
    server_pid=$!
    until grep -q listening "$out/server.log"; do sleep 0.05; done
}
stop_server() {
    kill "$server_pid"
    wait "$server_pid" 2>/dev/null || true
    server_pid=
}
# N one-turn sessions, GAP seconds apart, INPUT prompt tokens, OUTPUT answer tokens
trace() {
    awk -v n="$1" -v gap="$2" -v input="$3" -v output="$4" 'BEGIN { for (i = 0; i < n; i++)
        printf "{\"session_id\":\"s%d\",\"turn_id\":1,\"timestamp\":%.6f,\"input_length\":%d,\"output_length\":%d}\n",
            i, i * gap, input, output }'
}
# Runs a replay on the client's core; leaves wall, CPU and memory in $out/time, and when it began, by the machine's
# monotonic clock, in $out/began
replay() {
    python3 -c 'import time; print(time.monotonic_ns())' >"$out/began"
    /usr/bin/time -f '%e %U %S %M' -o "$out/time" taskset -c "$client_core" "$pdreplay" -q replay "$@" \
        --target live --set live.target=sglang --set live.colocated="[\"http://127.0.0.1:$port\"]" --mechanism dp \
        --policy default --no-preflight --output-dir "$out" --name run --overwrite >"$out/summary.txt" ||
        { cat "$out/summary.txt"; return 1; }
}

closed() {
    local n=30000
    trace "$n" 0 512 20 >"$out/closed.jsonl"
    start_server
    if command -v wrk >/dev/null; then
        cat >"$out/post.lua" <<'LUA'
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
local ids = {}
for i = 1, 512 do ids[i] = 1000 + i end
wrk.body = '{"rid":"wrk","input_ids":[' .. table.concat(ids, ",") .. '],"sampling_params":{"max_new_tokens":20,"ignore_eos":true},"stream":true}'
LUA
        for _ in $(seq "$runs"); do
            taskset -c "$client_core" wrk -t1 -c64 -d6s -s "$out/post.lua" "http://127.0.0.1:$port/generate" |
                awk '/Requests\/sec/ { print $2 }'
        done | median >"$out/wrk"
        echo "closed loop   wrk           $(cat "$out/wrk") requests/s"
    else
        echo "closed loop   wrk is missing: no comparison"
    fi
    curl -s "http://127.0.0.1:$port/stamps" >/dev/null
    : >"$out/closed"
    for _ in $(seq "$runs"); do
        replay "$out/closed.jsonl" --concurrency 64 --set integrity.max_schedule_lag_p99_ms=1e9
        python3 scripts/bench_live.py closed "$out/run" "$out/time" >>"$out/closed"
    done
    stop_server
    column '$1' "$out/closed" | sed 's/^/closed loop   pdreplay      /; s/$/ requests\/s/'
    column '$2' "$out/closed" | sed 's/^/              CPU           /; s/$/ ms a request/'
    column '$3' "$out/closed" | sed 's/^/              peak          /; s/$/ MiB/'
}

open() {
    trace 30000 0.001 512 20 >"$out/open.jsonl"
    start_server --ttft-ms 20 --gap-ms 2
    for _ in $(seq "$runs"); do
        curl -s "http://127.0.0.1:$port/stamps" >/dev/null
        replay "$out/open.jsonl" --concurrency 4000
        curl -s "http://127.0.0.1:$port/stamps" >"$out/stamps"
        python3 scripts/bench_live.py open "$out/run" "$out/time" "$out/stamps" "$out/began"
    done
    stop_server
}

bodies() {
    # The prompts of the built-in trace, answers of 20 tokens: what the server gives.
    "$pdreplay" -q trace generate --output "$out/full.jsonl" >/dev/null
    sed 's/"output_length":[0-9]*/"output_length":20/' "$out/full.jsonl" >"$out/bodies.jsonl"
    start_server
    for _ in $(seq "$runs"); do
        replay "$out/bodies.jsonl" --time-scale inf --concurrency 8 --set integrity.max_schedule_lag_p99_ms=1e9
        python3 scripts/bench_live.py bodies "$out/run" "$out/time"
    done
    stop_server
}

sessions() {
    awk 'BEGIN { for (turn = 1; turn <= 2; turn++) for (i = 0; i < 10000; i++)
        printf "{\"session_id\":\"s%d\",\"turn_id\":%d,\"timestamp\":%.6f,\"input_length\":%d,\"output_length\":20}\n",
            i, turn, (turn - 1) * 12 + i * 0.001, 500 * turn }' >"$out/sessions.jsonl"
    start_server --ttft-ms 20 --gap-ms 2
    replay "$out/sessions.jsonl" --concurrency 12000
    python3 scripts/bench_live.py sessions "$out/run" "$out/time"
    stop_server
}

# Recording is the same in virtual time, where nothing else takes long: the stages after the simulation.
results() {
    awk 'BEGIN { for (turn = 1; turn <= 100; turn++) for (i = 0; i < 10000; i++)
        printf "{\"session_id\":\"s%d\",\"turn_id\":%d,\"timestamp\":%.3f,\"input_length\":%d,\"output_length\":20}\n",
            i, turn, turn * 100 + i * 0.01, 400 + 50 * turn }' >"$out/results.jsonl"
    for n in 20000 1000000; do
        head -n "$n" "$out/results.jsonl" >"$out/part.jsonl"
        for _ in $(seq "$runs"); do
            taskset -c "$client_core" "$pdreplay" replay "$out/part.jsonl" --mechanism dp --set cluster.colocated=64 \
                --policy default --no-preflight --output-dir "$out" --name run --overwrite --timings 2>&1 >/dev/null |
                awk '/^(requests\.|summary|other)/ { ms += $NF } END { print ms }'
        done | median | sed "s/^/results       $n: /; s/\$/ ms to write and summarise/"
    done
}

for what in ${*:-closed open bodies sessions results}; do "$what"; done
