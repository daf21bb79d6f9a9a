"""What a load test writes: lines on standard output, CSV files, and one page."""

import csv
import datetime
import os
import platform
import shlex
import sys
import time
from html import escape

from charts import chart
from processes import HERE, cores

COLUMNS = (
    "shape", "limit", "offered", "admitted", "refused", "refused %", "p50 ms", "p99 ms", "CPU µs/request", "memory MiB",
    "API CPU µs/request", "API memory MiB", "Locust CPU %",
)  # fmt: skip
TRAPS = (
    "The load is a closed loop: a client sends its next request after the answer to the one before. Where answers take long, less is "
    "offered, and the worst times are missing from the percentiles.",
    "Requests per second are those of Python, not the capacity of the gateway. Where Locust's CPU is near 100 %, it was the bottleneck, "
    "and latencies include the time that requests waited in it.",
    "CPU per request includes what the gateway does without requests, which counts more where there are few. Compare "
    "algorithms within one shape of one report only.",
)


def row(result):
    """The values of COLUMNS; None where there is none."""
    (cpu, memory), (api_cpu, api_memory) = (result.usage.get(key, (None, None)) for key in ("gateway", "API"))
    return (
        result.shape, result.name, len(result.requests), len(result.admitted), len(result.refused),
        100 * len(result.refused) / max(1, len(result.requests)), result.times(result.admitted, 50),
        result.times(result.admitted, 99), cpu, memory, api_cpu, api_memory, 100 * result.locust_share,
    )  # fmt: skip


def text(value):
    if value is None:
        return "–"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def print_result(result):
    values = [f"{name} {text(value)}" for name, value in zip(COLUMNS, row(result)) if value is not None][2:]
    print(f"{result.shape}, {result.name}: {', '.join(values)}", flush=True)


def print_end(folder, results):
    """Prints what does not hold, and returns the exit code."""
    checks = [check for result in results for check in result.checks]
    failed = [said for holds, said in checks if not holds]
    for said in failed:
        print(f"DOES NOT HOLD: {said}")
    if any(result.locust_share > 0.9 for result in results):
        print("Locust used all of its core in some runs: what it offered there is what Python can do.")
    print(f"{len(checks) - len(failed)} of {len(checks)} checks hold; {folder / 'report.html'}")
    return 1 if failed else 0


def facts(options, locust, gateway, edge, begun):
    gateways, own = cores()
    pinned = f"gateway and API on core {', '.join(map(str, gateways))}, Locust on core {own[0]}"
    if len(os.sched_getaffinity(0)) == 1:
        pinned = "one core for everything: latencies are those of a busy machine"
    if options.target:
        pinned = f"Locust on core {own[0]} of this machine"
    return (
        ("when", f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, {time.monotonic() - begun:.0f} s"),
        ("command", shlex.join(["deploy/load/run", *sys.argv[1:]])),
        ("gateway", f"sluicegate {gateway.get('/status')['version'] if gateway else ''} at {edge}"),
        ("load", f"{locust}, Python {platform.python_version()}, {options.keys} keys with 8 clients each"),
        ("cores", pinned),
    )


def write(folder, described, results, sampler):
    write_csv(folder / "summary.csv", COLUMNS, map(row, results))
    columns = ("shape", "limit", "second", "offered/s", "admitted/s", "refused/s", "allowed/s", "p50 s", "p99 s")
    write_csv(folder / "per-second.csv", columns, ((one.shape, one.name, *slot) for one in results for slot in one.slots))
    base = min((one.begin for one in results), default=0)
    columns = ("second", "process", "CPU seconds", "bytes")
    write_csv(folder / "samples.csv", columns, ((at - base, *rest) for at, *rest in sampler.samples))
    (folder / "report.html").write_text(page(described, results, sampler), encoding="utf-8")


def write_csv(path, columns, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def page(described, results, sampler):
    shapes = list(dict.fromkeys(one.shape for one in results))
    style = (HERE / "report.css").read_text(encoding="utf-8")
    body = [
        "<h1>Load test of Sluicegate</h1>",
        verdict(results),
        "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in described) + "</dl>",
        "<h2>How to read it</h2><ul>" + "".join(f"<li>{trap}</li>" for trap in TRAPS) + "</ul>",
        "<h2>Shapes and limits</h2>",
        table(COLUMNS, [[text(value) for value in row(one)] for one in results]),
        "<p class='quiet'>p50 and p99 are of admitted requests, as the client saw them. CPU of the API is per admitted request.</p>",
    ]
    for shape in shapes:
        body.append(section(shape, [one for one in results if one.shape == shape], sampler))
    body.append(agreement(results))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>Load test of Sluicegate</title><style>{style}</style></head><body>{''.join(body)}</body></html>\n"
    )


def verdict(results):
    checks = [check for one in results for check in one.checks]
    failed = [said for holds, said in checks if not holds]
    if not failed:
        return f"<p class='good'>All {len(checks)} checks hold.</p>"
    said = "".join(f"<li>{escape(one)}</li>" for one in failed)
    return f"<p class='bad'>{len(failed)} of {len(checks)} checks do not hold:</p><ul class='bad'>{said}</ul>"


def table(columns, rows):
    head = "".join(f"<th>{escape(one)}</th>" for one in columns)
    lines = "".join("<tr>" + "".join(f"<td>{escape(value)}</td>" for value in one) + "</tr>" for one in rows)
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"


def section(shape, results, sampler):
    parts = [f"<h2>{shape}</h2>", legend("offered", "admitted", "refused", "allowed"), "<div class='charts'>"]
    for one in results:
        end = max(one.slots[-1].at, 1) if one.slots else 1
        lines = [(name, name, [(slot.at, getattr(slot, name)) for slot in one.slots]) for name in ("offered", "refused", "admitted")]
        if one.slots and one.slots[0].allowed is not None:
            lines.append(("allowed", "allowed", [(slot.at, slot.allowed) for slot in one.slots]))
        parts.append(chart(one.name, lines, end, "requests/s"))
    parts += ["</div>", legend("p50", "p99"), "<div class='charts'>"]
    for one in results:
        end = max(one.slots[-1].at, 1) if one.slots else 1
        lines = [(name, name, [(slot.at, value(slot, name)) for slot in one.slots]) for name in ("p50", "p99")]
        parts.append(chart(one.name, lines, end, "ms, admitted requests"))
    parts += ["</div>", legend("gateway", "API", "Locust"), "<div class='charts'>"]
    begin = results[0].begin
    end = max([one.answered for one in results[-1].requests], default=results[-1].begin + 1)
    marks = [(one.begin - begin, one.name) for one in results]
    for title, unit, place, factor in (("CPU", "% of a core", 1, 100), ("resident memory", "MiB", 2, 2**-20)):
        lines = []
        for name in ("gateway", "API", "Locust"):
            own = [sample for sample in sampler.shares(name) if begin <= sample[0] <= end]
            points = [(one[0] - begin, None if one[place] is None else one[place] * factor) for one in own]
            lines.append((name, name, points))
        parts.append(chart(title, lines, end - begin, unit, marks=marks, width=505))
    parts.append("</div>")
    if shape == "retry-storm":
        parts.append(behaviours(results))
    return "".join(parts)


def value(slot, name):
    seconds = getattr(slot, name)
    return None if seconds is None else seconds * 1000


def legend(*names):
    return "<p class='legend'>" + "".join(f"<span class='{name}'>{name}</span>" for name in names) + "</p>"


def behaviours(results):
    """The shape `retry-storm`: what its two kinds of clients sent, and what they got."""
    rows = []
    for one in results:
        for kind in ("impatient", "patient"):
            own = [request for request in one.requests if request.client == kind]
            admitted = sum(request.admitted for request in own)
            share = f"{100 * (len(own) - admitted) / max(1, len(own)):.1f}"
            keys = len({request.key for request in own})
            rows.append([one.name, kind, str(keys), str(len(own)), str(admitted), share])
    said = "<p>Impatient clients repeat at once after 429, patient ones wait as long as Retry-After says.</p>"
    return said + table(("limit", "clients", "keys", "offered", "admitted", "refused %"), rows)


def agreement(results):
    """What Locust counted beside /metrics."""
    if not any(one.comparisons for one in results):
        return ""
    names = [name for name, _, _ in next(one.comparisons for one in results if one.comparisons)]
    rows = []
    for one in results:
        cells = [f"{found:.0f}" if found == clients else f"{found:.0f} ≠ {clients}" for _, clients, found in one.comparisons]
        rows.append([one.shape, one.name, *cells])
    said = "<h2>Locust beside /metrics</h2><p>The numbers of /metrics; where Locust counted otherwise, its number follows.</p>"
    return said + table(("shape", "limit", *names), rows)
