"""Clients of a rate-limited API, for Locust. `run` starts it once for each shape and algorithm; by hand:

  locust -f locustfile.py --headless --stop-timeout 30 --host http://127.0.0.1:8080 --path /token_bucket --shape burst

A 429 is an answer, not a failure: Locust lists it under a name of its own.
"""

import csv
import itertools
import json
import random
import time

from locust import FastHttpUser, LoadTestShape, constant_throughput, events, task
from locust.exception import StopUser

CLIENTS_PER_KEY = 8  # one client alone never has two requests in flight, so it could not fill a queue
BURSTS = 3  # of a run of the shape `burst`
PATIENCE = 30  # seconds for an answer
REPEATS = 10  # of a request after 429, before a client of the shape `retry-storm` gives up
SHAPES = ("steady", "burst", "many-tenants", "retry-storm")


class Run:
    """What all clients of this process share."""

    numbers = itertools.count()
    log = []  # (sent, answered, key, client, status), on the machine's monotonic clock
    sent = 0
    begun = cpu_begun = cpu_seconds = 0.0


@events.init_command_line_parser.add_listener
def options(parser):
    group = parser.add_argument_group("Load of Sluicegate")
    group.add_argument("--shape", choices=SHAPES, default="steady")
    group.add_argument("--path", default="/", help="the path that is requested")
    group.add_argument("--rate", type=float, default=20, help="requests a second that the limit admits for a key")
    group.add_argument("--keys", type=int, default=20, help="how many keys there are; many-tenants has 25 times as many")
    group.add_argument("--key-kind", choices=("api_key", "address"), default="api_key")
    group.add_argument("--series", type=int, default=0, help="keys of another series are other keys")
    group.add_argument("--seconds", type=int, default=20, help="the length of the run")
    group.add_argument("--log", help="the file for one line per request")


@events.test_start.add_listener
def test_start(**_):
    Run.begun, Run.cpu_begun = time.monotonic(), time.process_time()


@events.test_stopping.add_listener
def test_stopping(**_):
    Run.cpu_seconds = time.process_time() - Run.cpu_begun


@events.quitting.add_listener
def quitting(environment, **_):
    options = environment.parsed_options
    if not options.log:
        return
    with open(options.log, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("sent", "answered", "key", "client", "status"))
        writer.writerows(Run.log)
    with open(f"{options.log}.json", "w", encoding="utf-8") as file:
        json.dump({"sent": Run.sent, "begun": Run.begun, "cpu_seconds": Run.cpu_seconds}, file)


class Length(LoadTestShape):
    """All clients at once. The run is over when all of them have stopped by themselves: Locust would end some of them while
    they wait for an answer, and with `--run-time` it writes its reports before the last answers."""

    def tick(self):
        options = self.runner.environment.parsed_options
        users = options.keys * CLIENTS_PER_KEY
        late = self.get_run_time() - options.seconds
        return None if late > PATIENCE or (late > 0 and self.runner.user_count == 0) else (users, users)


class Client(FastHttpUser):
    """One client. Its number says which key it has and how it behaves."""

    connection_timeout = network_timeout = PATIENCE

    def on_start(self):
        options = self.environment.parsed_options
        number = next(Run.numbers)
        self.key = number % options.keys
        self.kind = options.shape
        if options.shape == "retry-storm":
            self.kind = "impatient" if self.key % 2 == 0 else "patient"
        if options.shape == "many-tenants":  # Zipf's law: the tenth most frequent tenant has a tenth of the first one's requests
            self.tenants = range(options.keys * 25)
            self.weights = list(itertools.accumulate(1 / (rank + 1) for rank in self.tenants))
        own = options.rate / CLIENTS_PER_KEY
        self.pace = constant_throughput(1.5 * own)
        self.quiet, self.loud = constant_throughput(0.5 * own), constant_throughput(3 * own)
        time.sleep(random.random() / (1.5 * own))  # or all clients would send at the same moments
        self._cp_last_run = time.perf_counter()  # from where constant_throughput counts

    def wait_time(self):
        options = self.environment.parsed_options
        if options.shape != "burst":
            return self.pace(self)
        part = (time.monotonic() - Run.begun) / options.seconds * BURSTS % 1
        return (self.quiet if part < 0.5 else self.loud)(self)

    @task
    def turn(self):
        if self.over():
            raise StopUser
        key = self.key
        if self.kind == "many-tenants":
            key = random.choices(self.tenants, cum_weights=self.weights)[0]
        wait = self.ask(key)
        if self.kind not in ("impatient", "patient"):
            return
        for _ in range(REPEATS):
            if wait is not None and self.kind == "patient":
                time.sleep(wait)
            if wait is None or self.over():
                return
            wait = self.ask(key)

    def over(self):
        return time.monotonic() - Run.begun > self.environment.parsed_options.seconds

    def ask(self, key):
        """Sends one request. After 429 returns the seconds of Retry-After."""
        options = self.environment.parsed_options
        name, headers = key_headers(options, key)
        Run.sent += 1
        sent = time.monotonic()
        with self.client.get(
            options.path, headers=headers, name=options.path, catch_response=True, allow_redirects=False
        ) as answer:
            status = answer.status_code
            Run.log.append((f"{sent:.6f}", f"{time.monotonic():.6f}", name, self.kind, status))
            if status == 429:
                answer.request_meta["name"] = f"{options.path} 429"
                answer.success()
                return float(answer.headers.get("retry-after") or 1)
            if status < 200 or status > 299:
                answer.failure(f"status {status}" if status else "no answer")
            else:
                answer.success()
        return None


def key_headers(options, key):
    if options.key_kind == "address":
        name = f"10.{options.series % 256}.{key >> 8 & 255}.{key & 255}"
        return name, {"X-Forwarded-For": name}
    name = f"load-{options.series}-{key}"
    return name, {"X-Api-Key": name}
