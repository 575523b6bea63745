"""Latency of the query endpoint over loopback: POST of a whole prompt on one kept connection, and on a new one each time.

usage: bench_kv_query.py PDREPLAY [TOKENS] [QUERIES]

Starts emulated workers that publish their caches, an `index serve` that follows them, lets every worker cache the prompt,
and asks. Beside the client's clock it prints what the server says of its own part (from the body's last byte on).
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

WORKERS = 4
QUERY = "/v1/internal/kv-cache/query"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def start(program, *args):
    child = subprocess.Popen([program, *args, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return child, json.loads(child.stdout.readline())["url"].removeprefix("http://")


def post(connection, path, body):
    connection.request("POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, (answer.status, text[:200])
    return text


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measured(name, queries, ask):
    times = []
    for _ in range(queries):
        began = time.perf_counter()
        ask()
        times.append((time.perf_counter() - began) * 1e3)
    print(f"{name}: p50 {quantile(times, 0.5):.2f} ms, p99 {quantile(times, 0.99):.2f} ms, of {queries}")


def own_part(url):
    """Mean of the server's own times, ms."""
    connection = http.client.HTTPConnection(url)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    told = {line.split()[0]: float(line.split()[1]) for line in page.splitlines() if line.startswith("pdreplay_kv_query_seconds_")
            and "{" not in line}
    return told["pdreplay_kv_query_seconds_sum"] / told["pdreplay_kv_query_seconds_count"] * 1e3


def processor(pid):
    """User and system time of a process so far, ms."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e3


def run(program, tokens, queries, block_size, children, folder):
    streams = []
    for number in range(WORKERS):
        events, replay = free_port(), free_port()
        child, url = start(program, "worker", "--name", f"W{number}", "--port", "0", "--set", f"cluster.colocated={WORKERS}",
                           "--block-size", str(block_size), "--kv-events-port", str(events), "--kv-replay-port", str(replay),
                           "--emulation-speed", "1000", "--set", "engine.kv_pool_tokens=1000000",
                           "--set", "engine.context_limit_tokens=200000")
        children.append(child)
        streams.append((url, {"instance_name": f"w{number}", "block_size": block_size,
                              "endpoint": f"tcp://127.0.0.1:{events}", "replay_endpoint": f"tcp://127.0.0.1:{replay}"}))
    config = os.path.join(folder, "kv.json")
    json.dump({"streams": [stream for _, stream in streams]}, open(config, "w"))
    child, index = start(program, "index", "serve", "--config", config, "--listen", "127.0.0.1:0")
    children.append(child)
    ids = [1000 + number * 7 % 150_000 for number in range(tokens)]
    for url, _ in streams:
        body = json.dumps({"input_ids": ids, "sampling_params": {"max_new_tokens": 1}})
        post(http.client.HTTPConnection(url), "/generate", body)
    body = json.dumps({"token_ids": ids})
    kept = http.client.HTTPConnection(index)
    held = lambda: [match["device_hit_tokens"] for match in json.loads(post(kept, QUERY, body))["matches"]]
    wanted, until = [tokens // block_size * block_size] * WORKERS, time.monotonic() + 60
    while held() != wanted:
        assert time.monotonic() < until, f"the index has {held()}, not {wanted}"
        time.sleep(0.05)
    before = processor(child.pid)
    measured(f"{tokens} tokens ({len(body)} bytes), {WORKERS} streams, blocks of {block_size}, kept connection", queries,
             lambda: post(kept, QUERY, body))
    print(f"  of the server: {(processor(child.pid) - before) / queries:.2f} ms of its processor time a query, mean; "
          f"{own_part(index):.2f} ms from the last byte in to the answer, mean")
    measured("  a connection each", queries, lambda: post(http.client.HTTPConnection(index), QUERY, body))


def main(program, tokens=100_000, queries=1000):
    for block_size in (16, 128):
        children = []
        try:
            with tempfile.TemporaryDirectory() as folder:
                run(program, int(tokens), int(queries), block_size, children, folder)
        finally:
            for child in children:
                child.send_signal(signal.SIGTERM)
            for child in children:
                child.wait()


main(*sys.argv[1:])
