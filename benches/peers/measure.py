"""What is measured: processor time and memory of a gateway's processes, and ratios within rounds."""
import os, pathlib, statistics, time

import load, peers
from run import Failed, note

TICK = os.sysconf("SC_CLK_TCK")


def tree(pid):
    """A process and all that descend from it."""
    found, at = [pid], 0
    while at < len(found):
        for task in pathlib.Path(f"/proc/{found[at]}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
        at += 1
    return found


def cpu(pid):
    """User and system seconds of a process and all that descend from it."""
    user, system = 0, 0
    for process in tree(pid):
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        user += int(fields[11])
        system += int(fields[12])
    return user / TICK, system / TICK


def pss(pid):
    """Bytes of memory of a process and all that descend from it, pages that several share counted once."""
    lines = (line for process in tree(pid) for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines())
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def row(pid, drive):
    """Drives a load: what each answer cost the gateway in microseconds of processor time, and how fast they came."""
    before, began = cpu(pid), time.monotonic()
    answers = drive()
    took = time.monotonic() - began
    if answers.done == 0:
        raise Failed("nothing was answered")
    user, system = (after - earlier for earlier, after in zip(before, cpu(pid)))
    return {"user": user / answers.done * 1e6, "system": system / answers.done * 1e6, "cpu": (user + system) / answers.done * 1e6,
            "rate": answers.done / took, "busy": (user + system) / took, "done": answers.done, "other": answers.other}


def started(programs, commands, names, rules, label, warm):
    """Starts peers and has `warm(name, port)` drive each a little: what runs (process, port), and why others do not."""
    running, failed = {}, {}
    for name in names:
        note(f"{label}: starting {name}")
        try:
            running[name] = peers.start(programs, name, commands[name], rules, label)
            warm(name, running[name][1])
        except Failed as error:
            failed[name] = str(error)
            note(f"{label}: {name}: {error}")
    return {name: peer for name, peer in running.items() if name not in failed}, failed


def turns(names, rounds, what, take):
    """Rows by name: `take(name)` for each name in each round, in alternating order, so that what else the machine does
    falls on all alike. Who fails is left out of what follows; the second answer says why."""
    rows, failed = {name: [] for name in names}, {}
    for turn in range(rounds):
        note(f"{what}: round {turn + 1} of {rounds}")
        for name in names if turn % 2 == 0 else reversed(names):
            if name in failed:
                continue
            try:
                rows[name].append(take(name))
            except Failed as error:
                failed[name] = str(error)
                del rows[name]
    return rows, failed


def ratios(mine, theirs, field="cpu"):
    """The median, least and greatest ratio within a round."""
    each = [a[field] / b[field] for a, b in zip(mine, theirs)]
    return (statistics.median(each), min(each), max(each)) if each else None


def middle(rows, field):
    return statistics.median(row[field] for row in rows)


def scenario(programs, paths, upstreams, commands, names, this, rounds, seconds):
    """Rows of all peers in one scenario, and why some have none."""
    protocol = "tls" if this.tls else "h2c" if this.streams else "h1"
    rules = peers.Rules(upstreams["websocket" if this.message else this.body], protocol,
                        "refuse" if this.status == 429 else "admit", websocket=this.message > 0,
                        certificate=programs.certificate() if this.tls else None)
    lua = programs.write("load.lua", load.script(close=this.close, upload=this.upload, chunked=this.chunked))
    body = programs.write("body", "x" * this.upload) if this.upload and this.streams else None
    requests = programs.write("requests.txt", load.requests(headers=load.UPGRADE if this.message else {"Connection": "close"}))

    def drive(port, seconds):
        if this.message:
            return load.websocket(programs, paths["websocket-load"], port, seconds, this.connections, this.message, requests)
        if this.handshake:
            return load.handshakes(programs, paths["tls-load"], port, this.handshake, seconds, this.connections, requests)
        url = f"http{'s' if this.tls else ''}://127.0.0.1:{port}"
        if this.streams:
            return load.h2load(programs, url, seconds, this.connections, this.streams, body=body)
        return load.wrk(programs, url, seconds, this.connections, lua, this.status, close=this.close)

    def warm(_, port):
        drive(port, 1)  # this also spends every key's first request
        if not this.message:
            load.probe(port, protocol, this.status, this.body, programs)

    def take(name):
        process, port = running[name]
        taken = row(process.pid, lambda: drive(port, seconds))
        # A limiter that is filled up with time admits a few of those that it is to refuse.
        if taken["other"] > (taken["done"] * 0.01 if this.status == 429 else 0):
            raise Failed(f"{taken['other']} of {taken['done']} answers were not {this.status}")
        return taken

    before = list(programs.running)
    try:
        running, failed = started(programs, commands, names, rules, this.letter, warm)
        rows, later = turns(list(running), rounds, f"{this.letter} {this.title}", take)
        return rows, failed | later
    finally:
        programs.stop([process for process in programs.running if process not in before])
