"""How long requests take at a rate that is the same for all peers, far below what they can."""
import load, measure, peers
from run import Failed

CONNECTIONS = 32


def requests(keys=1000):
    """The requests that wrk sends, as a text."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": load.HOST, **load.HEADERS}.items())
    return "".join(f"GET {load.PATH} HTTP/1.1\r\n{lines}X-Api-Key: key-{key}\r\n\r\n" for key in range(1, keys + 1))


def measured(programs, paced, upstream, commands, names, rate, rounds, seconds):
    """Rows of all peers: percentiles in microseconds, processor time for each request; and why some have none."""
    text = programs.write("requests.txt", requests())

    def drive(port, seconds):
        out = programs.on_load_core([paced, f"127.0.0.1:{port}", rate, CONNECTIONS, seconds], seconds, stdin=text).split()
        told = dict(zip(out[::2], map(float, out[1::2])))
        if told["other"]:
            raise Failed(f"{told['other']:.0f} of {told['done']:.0f} answers were not 200")
        return told

    def take(name):
        process, port = running[name]
        before = measure.cpu(process.pid)
        told = drive(port, seconds)
        return told | {"cpu": (sum(measure.cpu(process.pid)) - sum(before)) / told["done"] * 1e6}

    before = list(programs.running)
    try:
        running, failed = measure.started(programs, commands, names, peers.Rules(upstream), "latency",
                                          lambda _, port: drive(port, 1))
        rows, later = measure.turns(list(running), rounds, f"latency at {rate:,}/s", take)
        return rows, failed | later
    finally:
        programs.stop([process for process in programs.running if process not in before])
