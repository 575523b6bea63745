#!/usr/bin/env bash
# What a build costs from nothing: release as README's first command builds it, and the development build with its
# tests; then one edit of a source file and its test build. Uses a target directory of its own.
# usage: scripts/bench_build.sh
set -euo pipefail
cd "$(dirname "$0")/.."
CARGO_TARGET_DIR=$(mktemp -d)
export CARGO_TARGET_DIR
trap 'rm -rf "$CARGO_TARGET_DIR"' EXIT

timed() {
    local label=$1
    shift
    /usr/bin/time -f "$label: %e s wall, %U + %S CPU s, peak %M KiB" "$@"
}

cargo fetch --quiet
timed 'release build' cargo build --quiet --release
timed 'development build with tests' cargo test --quiet --no-run
touch src/replay/path.rs
timed 'tests after an edit' cargo test --quiet --no-run
