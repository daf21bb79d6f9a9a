#!/usr/bin/env bash
# The whole suite. Installs the packages of Debian that the tests need, and names what else is missing.
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

# package PACKAGE FILE WHY: installs a package of Debian unless one of its files exists.
package() {
    local name=$1 files=$2 why=$3 root=()
    compgen -G "$files" > /dev/null && return
    [ "$(id -u)" -eq 0 ] || root=(sudo)
    if command -v apt-get > /dev/null && command -v "${root[@]:-env}" > /dev/null; then
        echo "tests/run.sh: installing $name"
        "${root[@]}" apt-get install -y --no-install-recommends "$name" > /dev/null ||
            { "${root[@]}" apt-get update > /dev/null &&
                "${root[@]}" apt-get install -y --no-install-recommends "$name" > /dev/null; } || true
    fi
    compgen -G "$files" > /dev/null && return
    echo "tests/run.sh: the package $name is missing: $why" >&2
    exit 1
}
command -v redis-server > /dev/null ||
    package redis-server /usr/bin/redis-server "the tests of shared counters run against real servers"
need git "tests look at the files of the repository"
command -v redis-cli > /dev/null ||
    package redis-tools /usr/bin/redis-cli "recipes of shared limits ask the server with it"
package openssl /usr/bin/openssl "recipes of tokens and certificates make their keys with it"
package curl /usr/bin/curl "the tour of the README asks with it"
package libfaketime '/usr/lib/*/faketime/libfaketimeMT.so.1' "the tests of shared counters put clocks wrong"
package valgrind /usr/bin/valgrind "it counts the instructions of a request"

# optional PROGRAM WHAT: says what is not tested without a program.
skipped=()
optional() {
    command -v "$1" > /dev/null || skipped+=("tests/run.sh: SKIPPED, because $1 is not installed: $2")
}
optional chromium "the admin page and the report of replay are not looked at in a browser"
optional nginx "the results of imports are not compared with it"
optional haproxy "the results of imports are not compared with it"
optional locust "the load test is not run"
optional promtool "the rules for Prometheus are not evaluated (package prometheus)"
[ "${#skipped[@]}" -eq 0 ] || printf '%s\n' "${skipped[@]}"

step() {
    printf '\n==> %s\n' "$*"
    "$@"
}

# Most tests wait for programs, so more of them run at once than there are cores; the fuzz targets and the test of
# mutated configurations run more mutations than by default.
threads=$((4 * $(nproc)))
export SLUICEGATE_FUZZ=2000 SLUICEGATE_MUTATIONS=20000
# Upper bounds on wall time are three times as long as for one test alone (tests/harness/time.rs).
export SLUICEGATE_PATIENCE=${SLUICEGATE_PATIENCE:-3}
if command -v cargo-nextest > /dev/null; then
    step cargo nextest run --workspace --test-threads "$threads"
else
    # Tests that measure time come after the others, so that no test waits for one of their permits.
    step cargo test --workspace -- --skip timed:: --test-threads="$threads"
    step cargo test --test edge timed:: -- --test-threads=2
fi
# How threads meet in the table of counters: every order that they can run in, explored by loom.
step cargo test -p sluicegate-counters --features model --lib model
# The examples in the documentation of the crates for others.
step cargo test --doc -p sluicegate-limiter -p sluicegate-counters
# The instructions of a request, which may not grow unseen.
step cargo test --bench instructions

[ "${#skipped[@]}" -eq 0 ] || printf '\n%s\n' "${skipped[@]}"
printf '\ntests/run.sh: all tests passed in %d s\n' "$SECONDS"
