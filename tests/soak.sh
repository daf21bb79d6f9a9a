#!/usr/bin/env bash
# Runs the tests that measure time again and again, and reports those that failed in any of the runs.
#
#   tests/soak.sh [RUNS [BUSY [FILTER]]]
#
# RUNS (50) runs, the last BUSY (10) of them beside a busy loop, of the tests whose names contain FILTER (timed::). The
# output of a run that failed is kept; the exit status is 1 if there was one.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-50} busy=${2:-10} filter=${3:-timed::}
logs=$(mktemp -d) loop='' failed=0
trap '[ -z "$loop" ] || kill "$loop"' EXIT

cargo test --quiet --test edge --no-run
for run in $(seq "$runs"); do
    beside=''
    if [ "$run" -gt $((runs - busy)) ]; then
        (while :; do :; done) &
        loop=$! beside=' beside a busy loop'
    fi
    log=$logs/run-$run.log started=$SECONDS result=passed
    cargo test --test edge "$filter" -- --test-threads=2 > "$log" 2>&1 || result=FAILED
    if [ -n "$loop" ]; then
        kill "$loop"
        wait "$loop" 2> /dev/null || true
        loop=''
    fi
    printf 'run %d of %d%s: %s in %d s\n' "$run" "$runs" "$beside" "$result" $((SECONDS - started))
    if [ "$result" = passed ]; then
        rm "$log"
    else
        failed=$((failed + 1))
        sed -n 's/^test \(.*\) \.\.\. FAILED$/    \1/p' "$log"
    fi
done

if [ "$failed" -gt 0 ]; then
    printf '\n%d of %d runs failed; failures by test:\n' "$failed" "$runs"
    sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$logs"/*.log | sort | uniq -c | sort -rn
    printf 'The output is in %s\n' "$logs"
    exit 1
fi
rmdir "$logs"
printf '\nall %d runs passed\n' "$runs"
