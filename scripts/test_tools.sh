#!/usr/bin/env bash
# Installs what a few tests run against and cargo cannot bring, pinned, into a virtual environment under the target
# directory: the real router smg; libzmq (in pyzmq) and msgpack for KV events; the KV event publishers of vLLM and SGLang
# (some 400 MB are downloaded for two files). Does nothing when all is there. Needs python3 and a package index; never touches the system but for python3-venv and protobuf-compiler, where those are missing
# and we are root. protoc is what the client of etcd is generated with (cargo's feature `etcd`); a real etcd for its tests is
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
venv=${CARGO_TARGET_DIR:-target}/test-tools
python=$venv/bin/python
publishers=${CARGO_TARGET_DIR:-target}/test-tools-publishers

etcd=${CARGO_TARGET_DIR:-target}/test-tools-etcd

# apt_get PACKAGE...: as root of a Debian, or an error that names them.
apt_get() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        printf 'error: install %s, or build and test without the feature etcd\n' "$*" >&2
        exit 1
    fi
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@"
}

if ! command -v protoc >/dev/null; then
    apt_get protobuf-compiler libprotobuf-dev
fi
if ! command -v etcd >/dev/null && [ ! -x "$etcd/usr/bin/etcd" ]; then
    rm -rf "$etcd"
    mkdir -p "$etcd"
    apt-cache show etcd-server >/dev/null 2>&1 || apt-get update -qq
    (cd "$etcd" && apt-get -o APT::Sandbox::User=root download -qq etcd-server && dpkg-deb -x etcd-server_*.deb . && rm etcd-server_*.deb)
    printf 'etcd is in %s\n' "$etcd"
fi

installed() {
    "$python" - "${tools[@]}" 2>/dev/null <<'CHECK'
import sys
from importlib.metadata import version
sys.exit(any(version(name) != pin for name, pin in (tool.split("==") for tool in sys.argv[1:])))
CHECK
}

# fetch_publishers: one file out of each engine's wheel, as PUBLISHERS/vllm-0.33.0.py.
fetch_publishers() {
    local engine pin module file wheels
    mkdir -p "$publishers"
    for engine in "${engines[@]}"; do
        pin=${engine%%:*} module=${engine#*:}
        file=$publishers/${pin/==/-}.py
        [ -s "$file" ] && continue
        wheels=$(mktemp -d)
        "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: -d "$wheels" "$pin"
        "$python" -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' \
            "$wheels"/*.whl "$module" >"$file.part"
        mv "$file.part" "$file"
        rm -r "$wheels"
        printf '%s of %s is in %s\n' "$module" "$pin" "$publishers"
    done
}

if installed; then
    fetch_publishers
    printf '%s: in %s\n' "${tools[*]}" "$venv"
    exit 0
fi
if ! command -v python3 >/dev/null; then
    printf 'error: python3 is missing; install it, or run the tests without these tools (they say that they skip)\n' >&2
    exit 1
fi
# A half-made environment of an earlier try is made anew.
if ! python3 -m venv --clear "$venv" 2>/dev/null; then
    apt_get python3-venv
    python3 -m venv --clear "$venv"
fi
"$python" -m pip install --quiet --disable-pip-version-check "${tools[@]}"
installed || { printf 'error: not all of %s were installed into %s\n' "${tools[*]}" "$venv" >&2; exit 1; }
fetch_publishers
printf '%s: installed into %s\n' "${tools[*]}" "$venv"
