#!/usr/bin/env python3
"""What a store costs: CPU per request of sluicegate with counters in Redis beside the same with local ones, in one run.

    cargo build --release && python3 benches/store.py [--rounds 5] [--seconds 4]

One worker on core 0; wrk, the upstream and redis-server share core 1. Rounds are interleaved and their order
alternates. Judge the paired ratios. Needs Debian's wrk, nginx-light and redis-server.

Scenarios: forwarded with 1,000 keys taking turns, forwarded with one hot key, two limits on one request, refused.
"""
import argparse, os, pathlib, shutil, statistics, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from compare import LUA, ROOT, cpu, free_port, load, upstream_conf, wait_for

TWO = "  everyone: {key: global, rate: 1000000000/s}\n"


def conf(port, upstream, store, rate, burst, two):
    return f"""
listen: [127.0.0.1:{port}]
{store}
limits:
  per-key: {{key: api_key | ip, rate: {rate}, burst: {burst}}}
{TWO if two else ""}
upstreams:
  api: {{servers: [http://127.0.0.1:{upstream}]}}
routes:
  - {{name: api, match: {{path: /v1/*}}, upstream: api, limits: [per-key{", everyone" if two else ""}]}}
"""


def calls(redis):
    """Script calls and their microseconds so far, and all CPU seconds of the server."""
    ask = ["redis-cli", "-p", str(redis), "info", "commandstats"]
    for line in subprocess.run(ask, capture_output=True, text=True).stdout.splitlines():
        if line.startswith("cmdstat_evalsha:"):
            fields = dict(part.split("=") for part in line.split(":", 1)[1].split(","))
            return int(fields["calls"]), int(fields["usec"])
    return 0, 0


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--seconds", type=int, default=4)
    args.add_argument("--connections", type=int, default=64)
    args.add_argument("--binary", default=str(ROOT / "target/release/sluicegate"))
    args = args.parse_args()
    folder = tempfile.mkdtemp(prefix="sluicegate-bench-")
    upstream, redis, running = free_port(), free_port(), []

    def start(core, *command):
        process = subprocess.Popen(["taskset", "-c", str(core), *command], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        running.append(process)
        return process

    def write(name, text):
        path = f"{folder}/{name}"
        pathlib.Path(path).write_text(text)
        return path

    try:
        start(1, "nginx", "-p", folder, "-c", write("up.conf", upstream_conf(folder, upstream)))
        server = start(1, "redis-server", "--port", str(redis), "--save", "", "--dir", folder)
        wait_for(upstream), wait_for(redis)
        store = f"store: {{redis: {{url: 'redis://127.0.0.1:{redis}/0', timeout: 500ms}}}}"
        for scenario, keys, refuse, two in (("forwarded, 1,000 keys", 1000, False, False),
                                            ("forwarded, one hot key", 1, False, False),
                                            ("forwarded, two limits, 1,000 keys", 1000, False, True),
                                            ("refused, 1,000 keys", 1000, True, False)):
            script = write("load.lua", LUA.replace("%KEYS%", str(keys)))
            rate, burst = ("1/d", 1) if refuse else ("1000000000/s", 1000000000)
            peers = {}
            for name in ("local", "redis"):
                port = free_port()
                text = conf(port, upstream, store if name == "redis" else "", rate, burst, two)
                process = start(0, args.binary, "run", "--workers", "1", "--config", write(f"{name}.yaml", text))
                wait_for(port)
                peers[name] = (port, process.pid)
                load(port, 1, args.connections, script)
            results = {name: [] for name in peers}
            for turn in range(args.rounds):
                for name in (list(peers) if turn % 2 == 0 else list(reversed(peers))):
                    port, pid = peers[name]
                    before, redis_before, asked = cpu(pid), cpu(server.pid), calls(redis)
                    done, refused, p99 = load(port, args.seconds, args.connections, script)
                    if (refused < done * 0.99) if refuse else refused:
                        sys.exit(f"{name}: {refused} of {done} answers were not 2xx in scenario {scenario}")
                    cost = sum(b - a for a, b in zip(before, cpu(pid))) / done * 1e6
                    there = sum(b - a for a, b in zip(redis_before, cpu(server.pid))) / done * 1e6
                    count, took = (b - a for a, b in zip(asked, calls(redis)))
                    results[name].append((cost, done / args.seconds, p99, count / done, took / max(count, 1), there))
            print(f"\n{scenario}, {args.connections} connections, {args.rounds} rounds of {args.seconds} s")
            print(f"{'':8} {'CPU us/req':>10} {'/local':>7} {'req/s':>8} {'p99':>8} {'calls/req':>9} {'us/call':>8} {'redis us/req':>12}")
            for name, rows in results.items():
                ratio = statistics.median(own[0] / other[0] for own, other in zip(rows, results["local"]))
                mid = [statistics.median(row[at] for row in rows) for at in (0, 1, 3, 4, 5)]
                print(f"{name:8} {mid[0]:10.2f} {ratio:7.2f} {mid[1]:8.0f} {rows[-1][2]:>8} {mid[2]:9.4f} {mid[3]:8.1f} {mid[4]:12.2f}")
            for process in running[2:]:
                process.terminate()
                process.wait()
            del running[2:]
    finally:
        for process in running:
            process.terminate()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
