#!/usr/bin/env bash
# Half an hour of emulated time with 500 live sessions and a random fault every ten seconds, faster than real time: every
# planned request has one outcome, memory grows by no more than docs/performance.md names. Needs cores to itself; takes
# minutes. Arguments: [SEED] [SPEED].
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PDREPLAY_SOAK_SESSIONS=${PDREPLAY_SOAK_SESSIONS:-500}
export PDREPLAY_SOAK_SECONDS=${PDREPLAY_SOAK_SECONDS:-1800}
export PDREPLAY_SOAK_GAP=${PDREPLAY_SOAK_GAP:-60}
export PDREPLAY_SOAK_SEED=${1:-7}
export PDREPLAY_SOAK_SPEED=${2:-20}

cargo test --release --test it -- --nocapture --test-threads 1 live::soak
