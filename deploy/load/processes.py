"""The processes of the load test: the gateway, its API, and what they use of the machine."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from figures import Metrics

HERE = pathlib.Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 10  # seconds for a process to start or to stop


class Failure(Exception):
    """The load test cannot run: not a result of it."""


def free_ports(count):
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.read().decode()
    except OSError as error:
        raise OSError(f"{url}: {error}") from error


class Gateway:
    """A gateway whose admin API can be reached: one of ours, or one that runs already."""

    def __init__(self, admin, process=None):
        self.admin, self.process = admin.rstrip("/"), process

    @classmethod
    def start(cls, binary, config, ports, log, cores):
        environment = dict(os.environ, **{f"LOAD_{name}": str(port) for name, port in ports.items()})
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [binary, "run", config], env=environment, stdout=output, stderr=output, preexec_fn=lambda: pin(cores)
            )
        gateway = cls(f"http://127.0.0.1:{ports['ADMIN']}", process)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fetch(f"{gateway.admin}/readyz")
                return gateway
            except OSError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    gateway.stop()
                    said = open(log, encoding="utf-8", errors="replace").read()
                    raise Failure(f"{binary} did not start: {error}\n{said}") from error
                time.sleep(0.05)

    def metrics(self):
        return Metrics(fetch(f"{self.admin}/metrics"))

    def get(self, path):
        return json.loads(fetch(f"{self.admin}{path}"))

    def usage(self):
        """CPU seconds since the start, and bytes of resident memory."""
        if self.process:
            return usage_of(self.process.pid)
        metrics = self.metrics()
        return metrics.total("process_cpu_seconds_total"), metrics.total("process_resident_memory_bytes")

    def stop(self):
        if self.process:
            stop(self.process)


def stop(process):
    """Ends a process, by force if it does not end by itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def cores():
    """The cores of the gateways, and those of Locust. The same ones if there is only one."""
    available = sorted(os.sched_getaffinity(0))
    return (available[:-1], available[-1:]) if len(available) > 1 else (available, available)


def pin(to):
    os.sched_setaffinity(0, to)


def usage_of(pid):
    """CPU seconds and bytes of resident memory of a process of this machine."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Looks once a second at what processes use. `sources` are functions by the name of the process."""

    def __init__(self):
        self.sources, self.samples = {}, []  # samples: (time, name, CPU seconds since its start, bytes)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()

    def _run(self):
        due = time.monotonic()
        while True:
            self.look()
            due += 1
            if self._stopped.wait(max(0, due - time.monotonic())):
                return

    def look(self):
        for name, usage in list(self.sources.items()):
            try:
                self.samples.append((time.monotonic(), name, *usage()))
            except (OSError, ValueError):
                pass  # the process has ended, or does not answer: there is no sample of this second

    def shares(self, name):
        """(time, share of a core since the sample before, bytes); without values where another process has the name."""
        own = [(at, cpu, rss) for at, found, cpu, rss in self.samples if found == name]
        rows = []
        for last, now in zip(own, own[1:]):
            same = now[1] >= last[1] and now[0] > last[0]
            rows.append((now[0], (now[1] - last[1]) / (now[0] - last[0]), now[2]) if same else (now[0], None, None))
        return rows
