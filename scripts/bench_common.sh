# What the benchmarks share; sourced, not run. Leaves the shell in the root of the repository.
# environment: PDREPLAY (target/release/pdreplay)
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pdreplay=${PDREPLAY:-target/release/pdreplay}

# Builds the program where it is missing.
need_pdreplay() {
    [ -x "$pdreplay" ] || cargo build --release
}

# Sets MAKE, unless it is set, to what writes long runs: the bench `report`.
need_make() {
    [ -z "${MAKE:-}" ] || return 0
    cargo bench --bench report --no-run 2>/dev/null
    MAKE=$(find target/release/deps -name 'report-*' -type f -perm -u+x -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2)
}

# Sets the variable NAME to a folder that is removed at the end.
temporary_folder() {
    temporary=$(mktemp -d)
    printf -v "$1" %s "$temporary"
    trap 'rm -rf "$temporary"' EXIT
}

# Of numbers, one a line.
median() {
    sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# Median of a column, or of what awk makes of them, over the lines of a file: `column '$1 + $2' FILE`.
column() {
    awk "{ print $1 }" "$2" | median
}
