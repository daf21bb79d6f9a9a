"""What a connection and a key hold in memory: growth of the resident memory of a gateway's processes (Pss), with what its
allocator keeps in reserve and without what the kernel holds for sockets."""
import pathlib, socket, ssl, time

import load, measure, peers
from run import Failed, note

KEYS = 1_000_000
SETTLE = 1.5  # seconds


def connected(port, tls):
    client = socket.create_connection(("127.0.0.1", port), 20)
    return tls.wrap_socket(client, server_hostname="localhost") if tls else client


def ask(client, key):
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": load.HOST, **load.HEADERS}.items())
    client.sendall(f"GET {load.PATH} HTTP/1.1\r\n{lines}X-Api-Key: key-{key}\r\n\r\n".encode())


def answered(client):
    """Reads the answer of 100 bytes."""
    got = b""
    while b"\r\n\r\n" not in got or len(got) < got.index(b"\r\n\r\n") + 4 + 100:
        more = client.recv(65536)
        if not more:
            raise Failed("it closed a connection that it was to keep")
        got += more
    if not got.startswith(b"HTTP/1.1 200"):
        raise Failed(f"it answered {got[:40]!r}")


def to_port(port):
    """How many connections to a port of this machine are established."""
    entries = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(entry[2].endswith(f":{port:04X}") and entry[3] == "01" for entry in entries)


def connections(process, port, count, tls=None, slow=None):
    """Bytes for each of `count` connections that have been served one request; with `slow`, the port of an upstream that
    does not answer for long, for each pair of connections with a request under way."""
    clients = []
    try:
        for _ in range(20 if slow is None else 0):  # what is set up once is set up
            client = connected(port, tls)
            ask(client, 0)
            answered(client)
            client.close()
        time.sleep(SETTLE)
        before = measure.pss(process.pid)
        for key in range(count):
            clients.append(connected(port, tls))
            ask(clients[-1], key % 1000)
            if slow is None:
                answered(clients[-1])
        if slow is not None:
            deadline = time.monotonic() + 15
            while (there := to_port(slow)) < count:
                if time.monotonic() > deadline:
                    raise Failed(f"only {there} of {count} requests reached the upstream")
                time.sleep(0.1)
        time.sleep(SETTLE)
        return (measure.pss(process.pid) - before) / count
    except OSError as error:
        raise Failed(f"after {len(clients)} connections: {error}") from None
    finally:
        for client in clients:
            client.close()


def keys(programs, process, port):
    """Bytes for each of a million keys, each in one request that is admitted and remembered."""
    lua = programs.write("fresh.lua", load.script(load.FRESH))
    load.wrk(programs, f"http://127.0.0.1:{port}", 1, 64, programs.write("load.lua", load.script()))
    before, done = measure.pss(process.pid), 0
    while done < KEYS:
        answers = load.wrk(programs, f"http://127.0.0.1:{port}", 4, 64, lua, arguments=[str(done)])
        if answers.other or not answers.done:
            raise Failed(f"{answers.other} of {answers.done} answers were not 200")
        done += answers.done
    return (measure.pss(process.pid) - before) / done


def measured(programs, upstream, slow, commands, names, count):
    """By peer: bytes for each thing, a text where it could not be had."""
    tls = ssl._create_unverified_context()
    things = {
        "at rest": (peers.Rules(upstream), lambda process, port: float(measure.pss(process.pid))),
        "idle h1": (peers.Rules(upstream), lambda *to: connections(*to, count)),
        "idle TLS": (peers.Rules(upstream, "tls", certificate=programs.certificate()), lambda *to: connections(*to, count, tls)),
        "busy pair": (peers.Rules(slow), lambda *to: connections(*to, count, slow=slow)),
        "key": (peers.Rules(upstream, limit="slow", max_keys=2_000_000), lambda *to: keys(programs, *to)),
    }
    told = {name: {} for name in names}
    for name in names:
        for thing, (rules, take) in things.items():
            before = list(programs.running)
            try:
                told[name][thing] = take(*peers.start(programs, name, commands[name], rules, f"memory-{thing}"))
            except Failed as error:
                told[name][thing] = str(error)
            finally:
                programs.stop([process for process in programs.running if process not in before])
            note(f"memory: {name}, {thing}: {told[name][thing]}")
    return told
