"""Tests of the arithmetic, without Locust: python3 -m unittest discover deploy/load"""

import json
import pathlib
import tempfile
import unittest

from charts import lines, scale
from figures import Limit, Metrics, Request, breaches, compared, limits, percentile, rate, read_locust, read_log, slots
from processes import Sampler

BUCKET = Limit("token_bucket", rate=10.0, capacity=5)


def admitted(sent, answered, key="k"):
    return Request(sent, answered, key, "steady", 200)


class Allowed(unittest.TestCase):
    def test_rate_times_time_plus_burst(self):
        self.assertEqual([BUCKET.allows(seconds) for seconds in (0, 0.05, 0.1, 1, 2.5)], [5, 5, 6, 15, 30])
        self.assertEqual(Limit("leaky_bucket", 10.0, 5).allows(1), 15)
        self.assertEqual(Limit("sliding_log", 10.0, 10).allows(1), 20)

    def test_aligned_windows_may_be_used_at_both_ends_of_an_interval(self):
        for algorithm in ("fixed_window", "sliding_window"):
            self.assertEqual(Limit(algorithm, 10.0, 10).allows(0), 20)
            self.assertEqual(Limit(algorithm, 10.0, 10).allows(1), 30)

    def test_limits_of_the_admin_api(self):
        described = [
            {"name": "a", "algorithm": "token_bucket", "rate": "20/1s", "capacity": 40},
            {"name": "b", "algorithm": "concurrency", "rate": None, "capacity": 8},
        ]
        self.assertEqual(limits(described), {"a": Limit("token_bucket", 20.0, 40)})

    def test_rates(self):
        self.assertEqual([rate(text) for text in ("20/1s", "30/1min", "1000/15s", "5/100ms")], [20, 0.5, 1000 / 15, 50])
        for text in ("20", "20/s", "20/1month", "x/1s"):
            self.assertRaises(ValueError, rate, text)


class Breaches(unittest.TestCase):
    def test_what_a_bucket_admits_is_no_breach(self):
        at_once = [admitted(0, 0.001) for _ in range(5)]
        refilled = [admitted(0.1 * n, 0.1 * n + 0.001) for n in range(1, 50)]
        self.assertEqual(breaches(at_once + refilled, BUCKET), [])

    def test_one_request_too_many_is_a_breach(self):
        self.assertEqual(breaches([admitted(0, 0.001) for _ in range(6)], BUCKET), [("k", 0.001, 6, 5)])

    def test_a_burst_in_the_middle_of_a_long_run_is_seen(self):
        slow = [admitted(float(n), n + 0.001) for n in range(100)]
        burst = [admitted(50.5, 50.502) for _ in range(7)]
        self.assertEqual(len(breaches(slow + burst, BUCKET)), 1)

    def test_slow_answers_are_judged_by_when_the_decision_may_have_been_made(self):
        # All are answered at the same time, but their decisions may lie anywhere in the second before.
        self.assertEqual(breaches([admitted(0, 1) for _ in range(15)], BUCKET), [])
        self.assertEqual(len(breaches([admitted(0, 1) for _ in range(16)], BUCKET)), 1)

    def test_keys_are_judged_apart_and_refusals_do_not_count(self):
        keys = [admitted(0, 0.001, key) for key in "ab" for _ in range(5)]
        refused = [Request(0, 0.001, "a", "steady", 429)] * 20
        self.assertEqual(breaches(keys + refused, BUCKET), [])


class Percentiles(unittest.TestCase):
    def test_nearest_rank(self):
        values = list(range(100, 0, -1))
        self.assertEqual([percentile(values, percent) for percent in (0, 50, 99, 100)], [1, 50, 99, 100])
        self.assertEqual([percentile([7], percent) for percent in (50, 99)], [7, 7])
        self.assertEqual(percentile([1, 2], 50), 1)
        self.assertIsNone(percentile([], 50))


class Slots(unittest.TestCase):
    def test_counts_are_per_second_and_by_the_time_of_sending(self):
        requests = [admitted(10.1, 10.6), admitted(10.2, 10.3, "other"), Request(11.7, 11.8, "k", "steady", 429)]
        found = slots(requests, 10, 0.5, rate_per_key=1.5)
        self.assertEqual([slot.at for slot in found], [0, 0.5, 1, 1.5])
        self.assertEqual([slot.offered for slot in found], [4, 0, 0, 2])
        self.assertEqual([slot.admitted for slot in found], [4, 0, 0, 0])
        self.assertEqual([slot.refused for slot in found], [0, 0, 0, 2])
        self.assertEqual([slot.allowed for slot in found], [3, 0, 0, 1.5])
        self.assertEqual(found[1].p50, None)
        self.assertAlmostEqual(found[0].p99, 0.5)

    def test_a_run_without_requests(self):
        self.assertEqual(slots([], 0, 1, 20), [])


class Files(unittest.TestCase):
    def test_the_log_and_the_counts_of_locust(self):
        with tempfile.TemporaryDirectory() as folder:
            log, counts = pathlib.Path(folder, "requests.csv"), pathlib.Path(folder, "locust.json")
            log.write_text("sent,answered,key,client,status\n1.5,1.75,k,patient,429\n")
            self.assertEqual(read_log(log), [Request(1.5, 1.75, "k", "patient", 429)])
            entry = {"name": "/a", "num_requests": 5, "num_failures": 2}
            others = [{"name": "/a 429", "num_requests": 7, "num_failures": 0}, {"name": "/b", "num_requests": 9, "num_failures": 0}]
            counts.write_text(json.dumps([entry, *others]))
            self.assertEqual(read_locust(counts, "/a"), {"admitted": 3, "refused": 7, "failed": 2})


TEXT = """# HELP sluicegate_requests_total Requests that have ended.
# TYPE sluicegate_requests_total counter
sluicegate_requests_total{route="a",code="200"} %d
sluicegate_requests_total{route="a",code="429"} %d
sluicegate_requests_total{route="",code="404"} %d
sluicegate_limit_decisions_total{limit="a",outcome="admitted"} %d
sluicegate_limit_decisions_total{limit="a",outcome="refused"} %d
sluicegate_refusals_total{route="a",reason="limit"} %d
sluicegate_upstream_requests_total{upstream="api",outcome="answered"} %d
process_cpu_seconds_total 1.5e-2
"""


class Counts(unittest.TestCase):
    def test_the_text_of_prometheus(self):
        metrics = Metrics(TEXT % (5, 3, 1, 5, 3, 3, 5) + 'x{path="a\\"b,}c"} 2\ny +Inf\n')
        self.assertEqual(metrics.total("sluicegate_requests_total"), 9)
        self.assertEqual(metrics.total("sluicegate_requests_total", route="a"), 8)
        self.assertEqual(metrics.total("sluicegate_requests_total", route="a", code="429"), 3)
        self.assertEqual(metrics.total("process_cpu_seconds_total"), 0.015)
        self.assertEqual(metrics.total("x", path='a\\"b,}c'), 2)
        self.assertEqual(metrics.total("missing"), 0)

    def test_growth_between_two_scrapes_is_compared(self):
        before, after = Metrics(TEXT % (5, 3, 1, 5, 3, 3, 5)), Metrics(TEXT % (15, 7, 1, 15, 7, 7, 15))
        counts = {"admitted": 10, "refused": 4, "failed": 0}
        rows = compared(counts, "a", before, after, before, after)
        self.assertEqual([name for name, clients, metrics in rows if clients != metrics], ["received by the API"])
        self.assertEqual(rows[-1], ("received by the API", 10, 14))
        wrong = compared(counts | {"refused": 5}, "a", before, after)
        self.assertEqual([(clients, metrics) for _, clients, metrics in wrong if clients != metrics], [(5, 4)] * 3)
        self.assertEqual(len(compared(counts, None, before, after)), 3)


class Samples(unittest.TestCase):
    def test_cpu_is_a_share_of_a_core_and_a_new_process_breaks_the_line(self):
        sampler = Sampler()
        sampler.samples = [(1.0, "a", 0.5, 10), (2.0, "a", 1.0, 20), (2.0, "b", 9.0, 9), (3.0, "a", 0.25, 30)]
        self.assertEqual(sampler.shares("a"), [(2.0, 0.5, 20), (3.0, None, None)])


class Charts(unittest.TestCase):
    def test_axes_end_above_the_highest_value(self):
        for most in (0.004, 0.9, 1, 4, 7, 10, 99, 101, 1234):
            top, step = scale(most)
            self.assertTrue(most <= top * (1 + 1e-9) and 1 <= round(top / step) <= 5, (most, top, step))
        self.assertEqual(scale(0), (1, 1))

    def test_a_missing_value_breaks_the_line(self):
        parts = lines([(0, 1), (1, 2), (2, None), (3, 4)], float, float)
        self.assertEqual(parts, ["0.0,1.0 1.0,2.0", "3.0,4.0 5.0,4.0"])


if __name__ == "__main__":
    unittest.main()
