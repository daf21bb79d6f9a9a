#!/usr/bin/env bash
# The whole suite. It installs nothing; it says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# need PROGRAM WHY
need() {
    command -v "$1" > /dev/null && return
    echo "tests/run.sh: $1 is missing: $2" >&2
    exit 1
}
need cargo "it builds and runs the tests; see https://rustup.rs"
need cc "a C compiler; some dependencies are written in C, and Rust links with it"

step() {
    printf '\n==> %s\n' "$*"
    "$@"
}

step cargo test --workspace
# How threads meet in the table of counters: every order that they can run in, explored by loom.
step cargo test --features model --lib limit::model

printf '\ntests/run.sh: all tests passed\n'
