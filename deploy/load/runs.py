"""One run of Locust: a shape against one limit. What it found, and what has to hold."""

import json
import subprocess
import time

from figures import breaches, compared, limits, percentile, read_locust, read_log, slots
from processes import HERE, PATIENCE, Failure, cores, pin, stop, usage_of

STOP = 30  # seconds for requests in flight at the end of a run


class Result:
    """One run: a shape against one limit."""

    def __init__(self, shape, name, folder, seconds, limit, rate, sent):
        self.shape, self.name, self.limit, self.begin, self.sent = shape, name, limit, sent["begun"], sent["sent"]
        self.requests = read_log(folder / "requests.csv")
        end = max([one.answered for one in self.requests], default=self.begin + seconds)
        self.locust_share = sent["cpu_seconds"] / (end - self.begin)
        self.admitted = [one for one in self.requests if one.admitted]
        self.refused = [one for one in self.requests if one.refused]
        self.slots = slots(self.requests, self.begin, 1 if seconds >= 8 else 0.25, limit.rate if limit else rate)
        self.comparisons, self.usage, self.checks = [], {}, []

    def times(self, requests, percent):
        seconds = percentile([one.answered - one.sent for one in requests], percent)
        return None if seconds is None else seconds * 1000

    def check(self, holds, text):
        self.checks.append((bool(holds), f"{self.shape}, {self.name}: {text}"))

    def check_answers(self, counts):
        servers = sum(one.status >= 500 for one in self.requests)
        silent = self.sent - sum(one.status > 0 for one in self.requests)
        self.check(self.requests, f"{len(self.requests)} requests were sent")
        self.check(servers == 0, f"{servers} answers were 5xx")
        self.check(silent == 0, f"{silent} requests have no answer")
        others = len(self.requests) - len(self.admitted) - len(self.refused) - servers
        others -= sum(one.status == 0 for one in self.requests)
        self.check(others == 0, f"{others} answers were neither 2xx, 429 nor 5xx")
        logged = {"admitted": len(self.admitted), "refused": len(self.refused)}
        counted = {name: counts[name] for name in logged}
        self.check(counted == logged, f"Locust counts {counted}, and its log has {logged}")

    def check_limit(self):
        found = breaches(self.requests, self.limit)
        keys = len({one.key for one in self.requests})
        self.check(not found, f"{len(found)} of {keys} keys were admitted more often than rate × time + burst")
        for key, seconds, count, allowed in found[:5]:
            self.check(False, f"key {key} was admitted {count} times in {seconds:.3f} s, {allowed} are allowed")

    def check_metrics(self):
        for name, clients, metrics in self.comparisons:
            self.check(clients == metrics, f"{name}: Locust {clients}, /metrics {metrics:.0f}")


class LoadTest:
    """All runs against one gateway."""

    def __init__(self, options, locust, sampler, gateway, api, edge):
        self.options, self.locust, self.sampler = options, locust, sampler
        self.gateway, self.api, self.edge = gateway, api, edge
        self.limits = limits(gateway.get("/limits")) if gateway and not options.target else {}
        self.series = int(time.time()) if options.target else 0  # a gateway that runs already may know earlier keys

    def run(self, shape, name, path, seconds):
        folder = self.options.out / f"{shape}-{name.strip('/').replace('/', '_')}"
        folder.mkdir(parents=True, exist_ok=True)
        limit = self.limits.get(name)
        rate = limit.rate if limit else self.options.rate
        gateways = {key: one for key, one in (("gateway", self.gateway), ("API", self.api)) if one}
        before = {key: one.metrics() for key, one in gateways.items()}
        sent = self.run_locust(shape, path, seconds, rate, folder)
        counts = read_locust(folder / "locust.json", path)
        result = Result(shape, name, folder, seconds, limit, rate, sent)
        served = {"gateway": len(result.requests), "API": len(result.admitted)}
        after = self.settled(gateways, before, served)
        for key in gateways:
            cpu = after[key].total("process_cpu_seconds_total") - before[key].total("process_cpu_seconds_total")
            memory = after[key].total("process_resident_memory_bytes")
            result.usage[key] = (cpu / max(1, served[key]) * 1e6, memory / 2**20)
        result.check_answers(counts)
        if gateways:
            route = name if limit else None
            scrapes = [scrape.get(key) for key in ("gateway", "API") for scrape in (before, after)]
            result.comparisons = compared(counts, route, *scrapes)
        if limit:  # otherwise other clients of the gateway may be counted, too
            result.check_limit()
            result.check_metrics()
        return result

    def run_locust(self, shape, path, seconds, rate, folder):
        self.series += 1
        command = [
            self.locust, "-f", HERE / "locustfile.py", "--headless", "--host", self.edge, "--stop-timeout", STOP,
            "--only-summary", "--exit-code-on-error", 0, "--html", folder / "locust.html", "--json-file", folder / "locust",
            "--log", folder / "requests.csv", "--shape", shape, "--path", path, "--rate", rate, "--seconds", seconds,
            "--keys", self.options.keys, "--key-kind", self.options.key_kind, "--series", self.series,
        ]  # fmt: skip
        with open(folder / "locust.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [str(part) for part in command], stdout=log, stderr=log, preexec_fn=lambda: pin(cores()[1])
            )
            self.sampler.sources["Locust"] = lambda: usage_of(process.pid)
            try:
                code = process.wait(seconds + STOP + 60)
            except subprocess.TimeoutExpired as error:
                raise Failure(f"Locust did not end: {folder / 'locust.log'}") from error
            finally:
                del self.sampler.sources["Locust"]
                stop(process)
        if code:
            raise Failure(f"Locust ended with {code}:\n{(folder / 'locust.log').read_text()}")
        return json.loads((folder / "requests.csv.json").read_text(encoding="utf-8"))

    def settled(self, gateways, before, served):
        """Scrapes once all requests have been counted: a gateway counts a request after its last byte."""
        name, deadline = "sluicegate_requests_total", time.monotonic() + PATIENCE
        while True:
            after = {key: one.metrics() for key, one in gateways.items()}
            complete = all(after[key].total(name) - before[key].total(name) >= served[key] for key in gateways)
            if complete or time.monotonic() > deadline:
                return after
            time.sleep(0.05)
