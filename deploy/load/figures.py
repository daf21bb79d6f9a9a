"""The arithmetic of the load test: what a limit allows, percentiles, Prometheus' text, and Locust's files. No I/O but files."""

import csv
import json
import math
import re
from collections import defaultdict
from typing import NamedTuple

PERIODS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
STARTS = 100  # how many requests of a key are tried as the begin of an interval
ROUNDING = 1e-6  # seconds; the log of Locust has six digits


class Request(NamedTuple):
    """One request as the client saw it. Times are seconds of the machine's monotonic clock."""

    sent: float
    answered: float
    key: str
    client: str
    status: int

    @property
    def admitted(self):
        return 200 <= self.status <= 299

    @property
    def refused(self):
        return self.status == 429


class Limit(NamedTuple):
    """A limit as `GET /limits` of the admin API describes it."""

    algorithm: str
    rate: float  # requests a second
    capacity: float  # of a bucket or a queue, or the count of a window

    @property
    def burst(self):
        """How many requests may be admitted above rate × time, in any interval.

        Aligned windows: an interval touches at most time / W + 2 of them. A log: it has at most time / W + 1 windows.
        """
        return self.capacity * (2 if self.algorithm in ("fixed_window", "sliding_window") else 1)

    def allows(self, seconds):
        """The most requests of one key that are admitted within an interval of this length."""
        return math.floor(self.rate * (seconds + ROUNDING) + self.burst)


def limits(described):
    """The limits that have a rate, by name, from the JSON of `GET /limits`."""
    found = {}
    for one in described:
        if one.get("rate"):
            found[one["name"]] = Limit(one["algorithm"], rate(one["rate"]), one["capacity"])
    return found


def rate(text):
    """`20/1s` -> 20.0 requests a second."""
    found = re.fullmatch(r"(\d+)/(\d+)(\D+)", text)
    if not found or found[3] not in PERIODS:
        raise ValueError(f"expected a rate such as 20/1s, found {text!r}")
    return int(found[1]) / (int(found[2]) * PERIODS[found[3]])


def breaches(requests, limit):
    """The keys of which more was admitted than the limit allows, with the interval and the numbers.

    The gateway decides after a request was sent and before its answer came. So of requests that were sent after A and
    answered before B, at most rate × (B − A) + burst can be admitted, whatever the network and the clients did. A is the time
    of each of up to 100 requests of the key, the first one included; B is the time of each answer.
    """
    found = []
    for key, admitted in sorted(by_key(one for one in requests if one.admitted).items()):
        starts = sorted(one.sent for one in admitted)
        ended = sorted(admitted, key=lambda one: one.answered)
        for start in starts[:: math.ceil(len(starts) / STARTS)]:
            count = 0
            for one in ended:
                if one.sent < start:
                    continue
                count += 1
                if count > limit.allows(one.answered - start):
                    found.append((key, one.answered - start, count, limit.allows(one.answered - start)))
                    break
            else:
                continue
            break
    return found


def by_key(requests):
    found = defaultdict(list)
    for one in requests:
        found[one.key].append(one)
    return found


def percentile(values, percent):
    """The nearest-rank percentile: the smallest value that at least so many per cent of the values do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


class Slot(NamedTuple):
    """What happened in a part of a run, by the time at which requests were sent. Counts are per second."""

    at: float
    offered: float
    admitted: float
    refused: float
    allowed: float
    p50: float
    p99: float


def slots(requests, begin, width, rate_per_key):
    """The parts of a run. `allowed` is the sum over the keys of what they offered, at most their rate."""
    found = defaultdict(list)
    for one in requests:
        found[max(0, int((one.sent - begin) / width))].append(one)
    rows = []
    for slot in range(max(found, default=-1) + 1):
        here = found[slot]
        offered = [len(of_key) / width for of_key in by_key(here).values()]
        times = [one.answered - one.sent for one in here if one.admitted]
        rows.append(
            Slot(
                at=slot * width,
                offered=len(here) / width,
                admitted=sum(one.admitted for one in here) / width,
                refused=sum(one.refused for one in here) / width,
                allowed=sum(min(one, rate_per_key) for one in offered) if rate_per_key else None,
                p50=percentile(times, 50),
                p99=percentile(times, 99),
            )
        )
    return rows


def read_log(path):
    """The requests of a run, from the file that locustfile.py wrote."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return [
            Request(float(row["sent"]), float(row["answered"]), row["key"], row["client"], int(row["status"]))
            for row in rows
        ]


def read_locust(path, target):
    """What Locust counted of a path: requests with 2xx, with 429, and failures. From its `--json-file`."""
    counts = {"admitted": 0, "refused": 0, "failed": 0}
    with open(path, encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        requests, failures = entry["num_requests"], entry["num_failures"]
        if entry["name"] == target:
            counts["admitted"] += requests - failures
            counts["failed"] += failures
        elif entry["name"] == f"{target} 429":
            counts["refused"] += requests
    return counts


SAMPLE = re.compile(r"(?m)^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """One answer of `GET /metrics`."""

    def __init__(self, text):
        self.samples = [
            (name, dict(LABEL.findall(labels or "")), float(value)) for name, labels, value in SAMPLE.findall(text)
        ]

    def total(self, name, **labels):
        """The sum of the samples of this name that have all these labels."""
        return sum(
            value
            for found, has, value in self.samples
            if found == name and all(has.get(label) == wanted for label, wanted in labels.items())
        )


def compared(counts, route, before, after, api_before=None, api_after=None):
    """What the clients counted beside what /metrics counted between two scrapes: (name, clients, metrics) each.

    Without a route all routes are counted, and the decisions of limits are not.
    """

    def grown(name, **labels):
        return after.total(name, **labels) - before.total(name, **labels)

    answers, decided = "sluicegate_requests_total", "sluicegate_limit_decisions_total"
    of = {"route": route} if route else {}
    ok, refused = grown(answers, code="200", **of), grown(answers, code="429", **of)
    rows = [
        ("answers with 200", counts["admitted"], ok),
        ("answers with 429", counts["refused"], refused),
        ("other answers", counts["failed"], grown(answers) - ok - refused),
    ]
    if route:
        reason = {"route": route, "reason": "limit"}
        rows += [
            ("admitted by the limit", counts["admitted"], grown(decided, limit=route, outcome="admitted")),
            ("refused by the limit", counts["refused"], grown(decided, limit=route, outcome="refused")),
            ("refusals because of a limit", counts["refused"], grown("sluicegate_refusals_total", **reason)),
            ("forwarded to the API", counts["admitted"], grown("sluicegate_upstream_requests_total", outcome="answered")),
        ]
    if api_after:
        rows.append(("received by the API", counts["admitted"], api_after.total(answers) - api_before.total(answers)))
    return rows
