"""How long requests take at a rate that is the same for all peers, below what they can."""
import dataclasses, subprocess, time

import load, measure, peers
from run import Failed

CONNECTIONS = 32
BRIEF = 2  # seconds in which it is found how much a peer can


@dataclasses.dataclass
class Kind:
    title: str
    upload: int = 0  # bytes of the body of a request; 0: GET
    handshakes: bool = False  # a connection with a full TLS handshake for each


GETS = Kind("GETs")
POSTS = Kind("POSTs of 1 KiB", upload=1 << 10)
HANDSHAKES = Kind("TLS handshakes with a GET each", handshakes=True)


def answered(told):
    """What a program found, if all answers were 200."""
    if told["other"]:
        raise Failed(f"{told['other']:.0f} of {told['done']:.0f} answers were not 200")
    return told


class Drivers:
    """What drives requests of a kind: at a rate, or as fast as they are answered."""

    def __init__(self, programs, paths, kind):
        self.programs, self.paths, self.kind = programs, paths, kind
        headers = {"Connection": "close"} if kind.handshakes else {"Content-Length": kind.upload} if kind.upload else {}
        self.text = programs.write(f"{kind.title}.txt", load.requests("POST" if kind.upload else "GET", headers=headers))
        self.lua = programs.write("load.lua", load.script(upload=kind.upload))

    def tls(self, port, how, rate, seconds):
        return [self.paths["tls-load"], f"127.0.0.1:{port}", how, rate, CONNECTIONS, seconds]

    def at(self, port, rate, seconds):
        command = (self.tls(port, "full", rate, seconds) if self.kind.handshakes else
                   [self.paths["paced-load"], f"127.0.0.1:{port}", rate, CONNECTIONS, seconds, self.kind.upload])
        return answered(load.told(self.programs.on_load_core(command, seconds, stdin=self.text)))

    def most(self, port):
        """How many requests a second a peer can answer, the load on the other core being what it is."""
        if self.kind.handshakes:
            return self.at(port, 0, BRIEF)["done"] / BRIEF
        return load.wrk(self.programs, f"http://127.0.0.1:{port}", BRIEF, 2 * CONNECTIONS, self.lua).done / BRIEF


def rules(programs, upstream, tls):
    return peers.Rules(upstream, "tls" if tls else "h1", certificate=programs.certificate() if tls else None)


def measured(programs, paths, upstream, commands, names, kind, rate, rounds, seconds):
    """Rows of all peers: percentiles in microseconds, processor time for each request; why some have none; and the rate,
    which is half of what the slowest peer can if it is not given."""
    drivers, most = Drivers(programs, paths, kind), {}

    def warm(name, port):
        if rate:
            drivers.at(port, rate, 1)
        else:
            most[name] = drivers.most(port)

    def take(name):
        process, port = running[name]
        before = measure.cpu(process.pid)
        told = drivers.at(port, rate, seconds)
        return told | {"cpu": (sum(measure.cpu(process.pid)) - sum(before)) / told["done"] * 1e6}

    before = list(programs.running)
    try:
        running, failed = measure.started(programs, commands, names, rules(programs, upstream, kind.handshakes),
                                          f"latency of {kind.title}", warm)
        rate = rate or int(min(most.values(), default=0) / 2)
        rows, later = measure.turns(list(running), rounds, f"latency at {rate:,} {kind.title}/s", take)
        return rows, failed | later, rate
    finally:
        programs.stop([process for process in programs.running if process not in before])


def beside(programs, paths, upstream, commands, names, rate, handshakes, rounds, seconds):
    """Rows of all peers: percentiles of GETs on kept TLS connections, alone and beside so many handshakes a second on the same
    listener; and why some have none."""
    gets, others = Drivers(programs, paths, GETS), Drivers(programs, paths, HANDSHAKES)

    def drive(port, seconds):
        command = gets.tls(port, "kept", rate, seconds)
        return answered(load.told(programs.on_load_core(command, seconds, stdin=gets.text)))

    def take(name):
        process, port = running[name]
        alone = drive(port, seconds)
        # On the core that it shares with what is measured, it gets the time that nothing else wants.
        command = ["chrt", "--idle", "0", *others.tls(port, "full", handshakes, seconds + 1)]
        shaking = programs.start(programs.load_core, "handshakes", command, stdin=others.text)
        try:
            time.sleep(0.5)
            before, began = measure.cpu(process.pid), time.monotonic()
            told = drive(port, seconds)
            took, spent = time.monotonic() - began, sum(measure.cpu(process.pid)) - sum(before)
            shaking.wait(10)
        except subprocess.TimeoutExpired:
            raise Failed(f"it did not keep up with {handshakes:,} handshakes a second") from None
        finally:
            programs.stop([shaking])
        said = shaking.log.read_text()
        if shaking.returncode:
            raise Failed(f"the handshakes ended with {shaking.returncode}: {said.strip()[-300:]}")
        answered(load.told(said))
        return alone | {f"{field} beside": value for field, value in told.items()} | {"busy": spent / took}

    before = list(programs.running)
    try:
        running, failed = measure.started(programs, commands, names, rules(programs, upstream, True), "beside handshakes",
                                          lambda _, port: drive(port, 1))
        rows, later = measure.turns(list(running), rounds, f"latency beside {handshakes:,} handshakes/s", take)
        return rows, failed | later
    finally:
        programs.stop([process for process in programs.running if process not in before])
