#!/usr/bin/env python3
"""What a store costs: CPU per request of sluicegate with counters in Redis, exact and leased, beside the same with local ones,
in one run.

    python3 benches/store.py [--rounds 5] [--seconds 4]

One worker on core 0; wrk, the upstream and redis-server share core 1. Rounds are interleaved and their order
alternates. Judge the paired ratios. Needs Debian's wrk and redis-server.

Scenarios: forwarded with 1,000 and with 10 keys taking turns, forwarded with one hot key, two limits on one request, refused.
"""
import argparse, pathlib, subprocess, sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
import load, measure, table
from run import Failed, Programs, built, free_port

TWO = "  everyone: {{key: global, rate: 1000000000/s, {sync}}}\n"


def conf(port, upstream, store, sync, rate, burst, two):
    return f"""
listen: [127.0.0.1:{port}]
access_log: off
{store}
limits:
  per-key: {{key: api_key | ip, rate: {rate}, burst: {burst}, {sync}}}
{TWO.format(sync=sync) if two else ""}
upstreams:
  api: {{servers: [http://127.0.0.1:{upstream}]}}
routes:
  - {{name: api, match: {{path: /v1/*}}, upstream: api, limits: [per-key{", everyone" if two else ""}]}}
"""


def calls(redis):
    """Script calls and their microseconds so far, and all CPU seconds of the server."""
    ask = ["redis-cli", "-p", str(redis), "info", "commandstats"]
    for line in subprocess.run(ask, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("cmdstat_evalsha:"):
            fields = dict(part.split("=") for part in line.split(":", 1)[1].split(","))
            return int(fields["calls"]), int(fields["usec"])
    return 0, 0


def scenario(programs, binary, upstream, server, redis, args, title, keys, refuse, two):
    """Measures all three in one scenario and prints what they cost."""
    store = f"store: {{redis: {{url: 'redis://127.0.0.1:{redis}/0', timeout: 500ms}}}}"
    script = programs.write("load.lua", load.script(keys=keys))
    rate, burst, status = ("1/d", 1, 429) if refuse else ("1000000000/s", 1000000000, 200)
    running = {}
    for name in ("local", "exact", "leased"):
        port, sync = free_port(), f"sync: {name}" if name != "local" else ""
        file = programs.write(f"{name}.yaml", conf(port, upstream, store if sync else "", sync, rate, burst, two))
        process = programs.start(programs.proxy_core, name, [binary, "run", "--workers", "1", "--config", file])
        programs.await_port(process, port)
        running[name] = (process, f"http://127.0.0.1:{port}")
        load.wrk(programs, running[name][1], 1, args.connections, script, status)

    def take(name):
        process, url = running[name]
        before, asked = sum(measure.cpu(server.pid)), calls(redis)
        taken = measure.row(process.pid, lambda: load.wrk(programs, url, args.seconds, args.connections, script, status))
        if taken["other"] > (taken["done"] * 0.01 if refuse else 0):
            raise Failed(f"{taken['other']} of {taken['done']} answers were not {status}")
        count, took = (after - earlier for earlier, after in zip(asked, calls(redis)))
        there = sum(measure.cpu(server.pid)) - before
        return taken | {"calls": count / taken["done"], "call": took / max(count, 1), "there": there / taken["done"] * 1e6}

    rows, failed = measure.turns(list(running), args.rounds, title, take)
    lines = [["", "CPU µs/request", "to local", "requests/s", "calls/request", "µs/call", "Redis' CPU µs/request"]]
    for name, mine in rows.items():
        numbers = [measure.middle(mine, field) for field in ("cpu", "rate", "calls", "call", "there")]
        lines.append([name, f"{numbers[0]:.2f}", table.spread(measure.ratios(mine, rows.get("local", []))), f"{numbers[1]:,.0f}",
                      f"{numbers[2]:.4f}", f"{numbers[3]:.1f}", f"{numbers[4]:.2f}"])
    print(f"\n{title}, {args.connections} connections, {args.rounds} rounds of {args.seconds} s\n{table.terminal(lines)}")
    programs.stop([process for process, _ in running.values()])
    if failed:
        raise Failed(f"{title}: {failed}")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--seconds", type=int, default=4)
    args.add_argument("--connections", type=int, default=64)
    args.add_argument("--binary", help="the gateway (what cargo build --profile dist makes)")
    args.add_argument("--no-build", action="store_true", help="take what was built before")
    args = args.parse_args()
    try:
        paths = built(args.binary, not args.no_build)
        with Programs() as programs:
            upstream, = programs.upstream(paths["light-upstream"], 100)
            redis = free_port()
            server = programs.start(programs.load_core, "redis", ["redis-server", "--port", redis, "--save", "", "--dir", programs.folder])
            programs.await_port(server, redis)
            for title, keys, refuse, two in (("forwarded, 1,000 keys", 1000, False, False),
                                             ("forwarded, 10 keys", 10, False, False),
                                             ("forwarded, one hot key", 1, False, False),
                                             ("forwarded, two limits, 1,000 keys", 1000, False, True),
                                             ("refused, 1,000 keys", 1000, True, False)):
                scenario(programs, paths["sluicegate"], upstream, server, redis, args, title, keys, refuse, two)
    except Failed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
