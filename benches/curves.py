#!/usr/bin/env python3
"""What a request costs sluicegate as there is more of something: one curve each.

One worker on one core (but for the curve of workers), the load and a light upstream on another. All points of a curve run
beside each other and are measured in turns, in alternating order; judge the paired ratio to the first point.

  routes       all under /v1/, the request is for the last
  limits       on the request, all by its API key
  keys         that the gateway remembers, asked in an order that looks random
  connections  that are kept busy; and the memory of idle ones
  headers      of the request
  uploads      KiB of the body of a POST, over 16 connections
  handshakes   full ones of TLS at once, each for one request
  workers      on the machine's first two cores, which are also the load's
"""
import argparse, collections, dataclasses, pathlib, re, resource, shutil, sys, threading, time, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
import load, measure, memory, plot, table
from report import Report
from run import Failed, Programs, built, free_port, note

EXAMPLES = """
examples:
  python3 benches/curves.py                                    all curves, with a build of the dist profile
  python3 benches/curves.py --curves routes,limits --rounds 7  two of them
  python3 benches/curves.py --out found                        and report.md, results.json, curves.svg

needs: wrk, taskset
"""


@dataclasses.dataclass
class Point:
    x: int
    routes: list = dataclasses.field(default_factory=lambda: ["/v1/*"])
    limits: int = 1
    lua: str = dataclasses.field(default_factory=load.script)
    connections: int = 64
    workers: int = 1
    cores: str = ""  # of the gateway, instead of the one that is told
    handshakes: bool = False  # whether each request has a connection with a full TLS handshake
    keys: int = 0  # to be sent before it begins
    settled: bool = False  # whether it is measured only when all connections are open; and the memory of idle ones first


def config(port, admin, upstream, point, certificate):
    limits = [f"limit-{at}" for at in range(point.limits)]
    # So slowly that no counter is forgotten, and with room for all requests of a run.
    tls = f", tls: {{certificates: {{cert: {certificate}/cert.pem, key: {certificate}/key.pem}}}}" if certificate else ""
    lines = [f"listen: [{{address: 127.0.0.1:{port}, max_connections: 100k{tls}}}]", f"admin: {{address: 127.0.0.1:{admin}}}",
             "access_log: off", "max_headers: 256", "limits:"]
    lines += [f"  {name}: {{key: api_key | ip, rate: 1000000/h, burst: 1000000000, max_keys: 2M}}" for name in limits]
    lines += [f"upstreams: {{api: {{servers: [http://127.0.0.1:{upstream}]}}}}", "routes:"]
    lines += [f'  - {{name: route-{at}, match: {{path: "{path}"}}, upstream: api, limits: [{", ".join(limits)}]}}'
              for at, path in enumerate(point.routes)]
    return "\n".join(lines) + "\n"


def fillers(count):
    """Headers that make a request one of so many, Host and X-Api-Key counted."""
    return {f"X-Filler-{at}": f"a value of header {at}" for at in range(count - 2)}


def busy_connections():
    """How many connections are tried: up to 20,000, or what half of the file descriptors that a process may have allows,
    for each needs two in the gateway."""
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2 - 500
    most = min(20_000, room)
    if most < 20_000:
        note(f"no more than {most:,} connections: `ulimit -Hn` is {2 * (room + 500):,}, and 20,000 need 41,000")
    return [count for count in (10, 100, 1_000, 5_000) if count < most] + [most]


CURVES = {
    "routes": lambda: [Point(x, routes=[f"/v1/route-{at}/*" for at in range(x)], lua=load.script(path=f"/v1/route-{x - 1}/items"))
                       for x in (10, 100, 1_000, 10_000)],
    "limits": lambda: [Point(x, limits=x) for x in (1, 2, 5, 10)],
    "keys": lambda: [Point(x, keys=x, lua=load.script(load.SCATTERED, x)) for x in (1_000, 10_000, 100_000, 1_000_000)],
    "connections": lambda: [Point(x, connections=x, settled=x >= 1_000) for x in busy_connections()],
    "headers": lambda: [Point(x, lua=load.script(headers=fillers(x))) for x in (5, 10, 20, 50, 100)],
    "uploads": lambda: [Point(x, connections=16, lua=load.script(upload=x << 10)) for x in (1, 4, 16, 64, 256, 1_024)],
    "handshakes": lambda: [Point(x, connections=x, handshakes=True) for x in (1, 4, 16, 64, 256, 1_024)],
    "workers": lambda: [Point(x, workers=x, cores="0-1") for x in (1, 2)],
}


def served(admin):
    """How many requests the gateway has answered so far with each status, by its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = collections.Counter()
    for code, count in re.findall(r'^sluicegate_requests_total\{.*code="(\w+)".*\} (\d+)', text, re.MULTILINE):
        found[code] += int(count)
    return found


def settled_row(process, admin, connections, drive, seconds):
    """As `measure.row`, begun when all connections are open and have had answers, for opening thousands at once costs more
    than serving them for seconds, and some are opened in vain. What was answered meanwhile is asked of the gateway."""
    opening = 5 + connections // 250
    loading = threading.Thread(target=drive, args=[opening + seconds + 1])
    start = served(admin).total()
    loading.start()
    try:
        deadline = time.monotonic() + opening
        while served(admin).total() - start < 3 * connections:
            if time.monotonic() > deadline:
                raise Failed(f"{connections:,} connections were not served within {opening} s")
            time.sleep(0.2)
        sent, before, began = served(admin), measure.cpu(process.pid), time.monotonic()
        time.sleep(seconds)
        now, after, took = served(admin), measure.cpu(process.pid), time.monotonic() - began
    finally:
        loading.join()
    answers = now - sent
    if answers.keys() != {"200"}:
        raise Failed("the answers were " + ", ".join(f"{count} of {code}" for code, count in answers.items()))
    done = answers["200"]
    user, system = ((late - early) for early, late in zip(before, after))
    return {"user": user / done * 1e6, "system": system / done * 1e6, "cpu": (user + system) / done * 1e6, "rate": done / took,
            "busy": (user + system) / took, "done": done, "other": 0}


def prepare(programs, paths, upstream, curve, point):
    """Starts the gateway of a point and brings it to where it is measured: what measures it for so many seconds, and the
    bytes of an idle connection if they were to be measured."""
    name, port, admin = f"{curve}-{point.x}", free_port(), free_port()
    note(f"{curve}: starting {point.x:,}")
    lua = programs.write(f"{name}.lua", point.lua)
    certificate = programs.certificate() if point.handshakes else None
    requests = programs.write("requests.txt", load.requests(headers={"Connection": "close"})) if point.handshakes else None
    file = programs.write(f"{name}.yaml", config(port, admin, upstream, point, certificate))
    process = programs.start(point.cores or programs.proxy_core, name, [paths["sluicegate"], "run", "--workers", point.workers, "--config", file])
    programs.await_port(process, port, 120)

    def load_for(seconds, arguments=()):
        if point.handshakes:
            return load.handshakes(programs, paths["tls-load"], port, "full", seconds, point.connections, requests)
        return load.wrk(programs, f"http://127.0.0.1:{port}", seconds, point.connections, lua, arguments=arguments)

    def drive(seconds, arguments=()):
        answers = load_for(seconds, arguments)
        if answers.other:
            raise Failed(f"{answers.other} of {answers.done} answers were not 200")
        return answers

    if point.settled:
        idle = memory.connections(process, port, point.x)
        return lambda seconds: settled_row(process, admin, point.connections, load_for, seconds), idle
    sent = 0
    while sent < point.keys:
        sent += drive(2, [str(sent)]).done
    drive(1)
    return lambda seconds: measure.row(process.pid, lambda: drive(seconds)), None


def curve(programs, paths, upstream, name, rounds, seconds):
    """Rows by point, bytes of idle connections by point, and why some points have none."""
    before, take, idle, failed = list(programs.running), {}, {}, {}
    try:
        for point in CURVES[name]():
            try:
                take[point.x], idle[point.x] = prepare(programs, paths, upstream, name, point)
            except Failed as error:
                failed[point.x] = str(error)
                note(f"{name}: {point.x:,}: {error}")
        rows, later = measure.turns(list(take), rounds, name, lambda x: take[x](seconds))
        return rows, {x: size for x, size in idle.items() if size}, failed | later
    finally:
        programs.stop([process for process in programs.running if process not in before])


def lines(name, rows, idle):
    """The table of a curve."""
    first = next(iter(rows.values()), [])
    found = [[name, "CPU µs/request (min–max)", "user", "system", "to the first (min–max)", "requests/s"]]
    for x, mine in rows.items():
        found.append([f"{x:,}", table.spread(table.three(mine, "cpu")), f"{measure.middle(mine, 'user'):.2f}",
                      f"{measure.middle(mine, 'system'):.2f}", table.spread(measure.ratios(mine, first)),
                      f"{measure.middle(mine, 'rate'):,.0f}"])
    if idle:
        found[0].append("idle connection, bytes")
        for line, x in zip(found[1:], rows):
            line.append(f"{idle[x]:,.0f}" if x in idle else "–")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", default=",".join(CURVES), help="of " + ", ".join(CURVES))
    parser.add_argument("--rounds", type=int, default=5, help="how often each point is measured (5)")
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement (3)")
    parser.add_argument("--binary", help="the gateway (what cargo build --profile dist makes)")
    parser.add_argument("--no-build", action="store_true", help="take what was built before")
    parser.add_argument("--cores", default="0,1", help="of the gateway, and of the load (0,1)")
    parser.add_argument("--out", help="a folder for report.md, results.json and curves.svg")
    parser.add_argument("--json", action="store_true", help="print all that was measured, instead of tables")
    args = parser.parse_args()
    names = args.curves.split(",")
    if unknown := [name for name in names if name not in CURVES]:
        parser.error(f"not known: {', '.join(unknown)}")
    report, panels, failures = Report("What a request costs as there is more of something"), [], {}
    try:
        if not shutil.which("wrk"):
            raise Failed("wrk is not installed: apt-get install wrk")
        paths = built(args.binary, not args.no_build)
        with Programs([int(core) for core in args.cores.split(",")]) as programs:
            upstream, = programs.upstream(paths["light-upstream"], 100)
            for name in names:
                rows, idle, failed = curve(programs, paths, upstream, name, args.rounds, args.seconds)
                report.add(f"{name}: {args.rounds} rounds of {args.seconds} s", lines(name, rows, idle), failed,
                           {"rows": rows, "idle": idle}, args.json)
                failures |= failed
                panels.append((name, "CPU µs/request", [(x, *table.three(mine, "cpu")) for x, mine in rows.items()]))
                if idle:
                    panels.append(("idle connections", "KB each", [(x, *[size / 1000] * 3) for x, size in idle.items()]))
        if args.json:
            print(report.json(), end="")
        if args.out:
            report.write(args.out, {"curves": plot.curves("What a request costs as there is more of something", panels)})
            note(f"written to {args.out}")
    except Failed as error:
        sys.exit(str(error))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
