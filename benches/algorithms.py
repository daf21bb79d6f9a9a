#!/usr/bin/env python3
"""Draws the pictures of docs/algorithms.md, from what `sluicegate replay --compare-algorithms` says of generated traffic.

  cargo build --release && python3 benches/algorithms.py

Traffic of one client with a limit of 100 requests a minute, in four shapes; the same numbers come out each time.
"""

import json, pathlib, random, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/release/sluicegate"
BEGIN = 1_795_000_020  # a full minute
WINDOW = 60
LIMIT = 100
COLORS = {
    "exact sliding log": "#999", "token bucket": "#0b7285", "fixed window": "#c92a2a", "sliding window, 1 slice": "#e67700",
    "sliding window, 10 slices": "#5f3dc4", "sliding window, 10 slices, strict": "#2b8a3e",
}


def smooth(_):
    """Independent requests, 130 a minute: more than the limit, evenly."""
    time = 0.0
    while time < 360:
        time += random.expovariate(130 / 60)
        yield time


def bursty(_):
    """Fifteen seconds of 8 a second, then half a minute of nearly nothing."""
    for begin in range(0, 360, 45):
        time = float(begin)
        while time < begin + 15:
            time += random.expovariate(8)
            yield time
        for _ in range(4):
            yield begin + 15 + random.random() * 30


def aligned(_):
    """All of a minute's requests in the last two seconds of every second minute, and again in the first two of the next."""
    for minute in range(1, 6, 2):
        for at in range(LIMIT):
            yield minute * 60 - 2 + at / 51
        for at in range(LIMIT):
            yield minute * 60 + at / 51


def worst(_):
    """A burst at the end of a sub-window of one second (the worst moment for any number of them), then a client that asks all the time."""
    for round_begin in (60, 240):
        for at in range(LIMIT):
            yield round_begin - 0.002 + at * 1e-5
        time = round_begin + 50
        while time < round_begin + 70:
            time += 0.005
            yield time


def replayed(times, limit=LIMIT, window="min"):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "gateway.yaml").write_text(
            f"listen: [127.0.0.1:8080]\nlimits: {{l: {{key: ip, rate: {limit}/{window}}}}}\nroutes: [{{respond: {{status: 200}}, limits: [l]}}]\n")
        (folder / "log").write_text("".join(
            '{"time": %.6f, "client_ip": "192.0.2.1", "path": "/"}\n' % (BEGIN + time) for time in sorted(times)))
        done = subprocess.run([PROGRAM, "replay", folder / "log", "--config", folder / "gateway.yaml", "--compare-algorithms", "--json"],
                              check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


class Picture:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, text, kind=""):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{text}</text>')

    def write(self, path):
        style = "text{font:12px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}.small{font-size:11px;fill:#555}.end{text-anchor:end}.mid{text-anchor:middle}"
        path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}">'
                        f'<style>{style}</style><rect width="100%" height="100%" fill="white"/>' + "\n".join(self.parts) + "</svg>\n")


def axes(picture, box, most, ticks, seconds, lasts):
    left, top, width, height = box
    for value in ticks:
        y = top + height * (1 - value / most)
        picture.add(f'<path d="M{left} {y:.1f}H{left + width}" stroke="#ddd"/>')
        picture.text(left - 6, y + 4, f"{value:g}", "small end")
    for second in seconds:
        x = left + width * second / lasts
        picture.text(x, top + height + 16, f"{second // 60} min", "small mid")


def line(picture, box, most, values, color, wide):
    left, top, width, height = box
    points = " ".join(f"{left + width * at / (len(values) - 1):.1f},{top + height * (1 - value / most):.1f}" for at, value in enumerate(values))
    picture.add(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{wide}"/>')


def trailing(counts, step):
    size = WINDOW // step
    return [sum(counts[max(0, at - size + 1):at + 1]) for at in range(len(counts))]


def curves(shapes, path):
    """What each algorithm has admitted within the trailing minute."""
    picture = Picture(816, 60 + 210 * len(shapes))
    picture.text(16, 26, "Requests admitted within the last minute, with a limit of 100/min", "title")
    for at, (name, label) in enumerate(COLORS.items()):
        x, y = 16 + (at % 3) * 262, 46 + (at // 3) * 16
        picture.add(f'<path d="M{x} {y - 4}h18" stroke="{label}" stroke-width="{5 if name.startswith("exact") else 2}"/>')
        picture.text(x + 24, y, name + (" (a perfect window)" if name.startswith("exact") else ""), "small")
    rows = []
    for at, (name, told) in enumerate(shapes):
        algorithms = told["algorithms"][0]
        sums = {one["label"]: trailing(one["counts"], told["step"]) for one in algorithms["curves"]}
        most = max(220, *(max(values) for label, values in sums.items() if label in COLORS))
        box = (52, 96 + at * 205, 748, 150)
        picture.text(16, box[1] - 8, name, "title")
        lasts = len(sums["fixed window"]) * told["step"]
        axes(picture, box, most, [0, 100, 200], range(0, lasts + 1, 60), lasts)
        for label, color in COLORS.items():
            line(picture, box, most, sums[label], color, 5 if label.startswith("exact") else 1.6)
        for row in algorithms["rows"]:
            rows.append((name, row))
    picture.write(path)
    return rows


def windows(shapes, path):
    """Mean error of sub-windows by their number, and the most that a trailing window had."""
    picture = Picture(816, 300)
    colors = ["#0b7285", "#e67700", "#c92a2a", "#5f3dc4"]
    for at, (title, field, most, ticks) in enumerate([
            ("Mean error of the count, in parts of the limit", "mean_error", 0.16, [0, 0.05, 0.1, 0.15]),
            ("The most within one minute, in parts of the limit", "worst", 2.2, [0, 0.5, 1, 1.5, 2])]):
        box = (60 + at * 400, 70, 330, 170)
        picture.text(box[0] - 40, 26, title, "title")
        for value in ticks:
            y = box[1] + box[3] * (1 - value / most)
            picture.add(f'<path d="M{box[0]} {y:.1f}h{box[2]}" stroke="#ddd"/>')
            picture.text(box[0] - 6, y + 4, f"{value:g}", "small end")
        numbers = [one["n"] for one in shapes[0][1]["algorithms"][0]["windows"]]
        for index, number in enumerate(numbers):
            picture.text(box[0] + box[2] * index / (len(numbers) - 1), box[1] + box[3] + 16, str(number), "small mid")
        picture.text(box[0] + box[2] / 2, box[1] + box[3] + 34, "sub-windows", "small mid")
        for (name, told), color in zip(shapes, colors):
            line(picture, box, most, [min(one[field], most) for one in told["algorithms"][0]["windows"]], color, 2)
    for index, ((name, _), color) in enumerate(zip(shapes, colors)):
        picture.add(f'<path d="M{20 + index * 190} 50h18" stroke="{color}" stroke-width="2"/>')
        picture.text(44 + index * 190, 54, name, "small")
    picture.write(path)


def poisson():
    """The mean error of two counters for independent requests, by how many of them are within a window."""
    found = []
    for count in (10, 27, 100, 300, 1000):
        random.seed(count)
        time, times = 0.0, []
        while time < 400 * 60:
            time += random.expovariate(count / 60)
            times.append(time)
        told = replayed(times, limit=count)
        found.append((count, told["algorithms"][0]["windows"][0]["mean_error"]))
    return found


def main():
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM} is missing: cargo build --release")
    shapes = []
    for name, shape in [("smooth", smooth), ("bursty", bursty), ("aligned with the minute", aligned), ("worst case", worst)]:
        random.seed(7)
        shapes.append((name, replayed(shape(None))))
    docs = ROOT / "docs"
    print("| traffic | algorithm | refused | wrongly admitted | wrongly refused | most in a window |\n| --- | --- | --- | --- | --- | --- |")
    for name, row in curves(shapes, docs / "algorithms.svg"):
        print(f"| {name} | {row['label']} | {row['refused']:,} | {row['wrongly_admitted']:.1%} | {row['wrongly_refused']:.1%} | {row['worst']:.2f} |")
    windows(shapes, docs / "sub-windows.svg")
    print("\n| requests in a window | mean error | 0.313/√n |\n| --- | --- | --- |")
    for count, error in poisson():
        print(f"| {count:,} | {error:.2%} | {0.313 / count ** 0.5:.2%} |")


main()
