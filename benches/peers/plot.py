"""Plots, as SVG written by hand."""
import math

COLOURS = {"sluicegate": "#1769aa", "sluicegate-quiet": "#7fb3d9", "nginx": "#2e8b57", "nginx+headers": "#8fcaa8",
           "haproxy": "#c0612b", "envoy": "#8e5aa8"}
STYLE = ('<style>text{font:12px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}.small{font-size:11px;fill:#555}'
         '.end{text-anchor:end}.mid{text-anchor:middle}</style>')


def text(x, y, words, kind=""):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>'


def page(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}">'
            f'{STYLE}<rect width="100%" height="100%" fill="white"/>' + "\n".join(parts) + "</svg>\n")


def bars(title, panels):
    """A panel for each `(heading, {name: (user, system)})`: bars of which the darker part is user time."""
    width, left, bar, parts, y = 760, 150, 16, [text(16, 26, title, "title")], 40
    for heading, values in panels:
        y += 24
        parts.append(text(16, y, heading))
        longest = max((sum(value) for value in values.values()), default=1)
        for name, (user, system) in values.items():
            scale, colour = (width - left - 140) / longest, COLOURS.get(name, "#777")
            y += bar + 4
            parts.append(text(left - 8, y, name, "small end"))
            parts.append(f'<rect x="{left}" y="{y - 12}" width="{user * scale:.1f}" height="{bar}" fill="{colour}"/>')
            parts.append(f'<rect x="{left + user * scale:.1f}" y="{y - 12}" width="{system * scale:.1f}" height="{bar}" '
                         f'fill="{colour}" fill-opacity="0.55"/>')
            parts.append(text(left + (user + system) * scale + 6, y, f"{user + system:.1f}", "small"))
        y += 8
    parts.append(text(16, y + 24, "CPU µs per request, medians; the darker part is user time, the lighter the kernel's", "small"))
    return page(width, y + 40, parts)


def ticks(low, high):
    """Round numbers, five or so, from below `low` to above `high`."""
    step = 10 ** math.floor(math.log10((high - low) or high or 1))
    step = next(step * part for part in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (step * part) <= 6)
    first = math.floor(low / step)
    return [step * at for at in range(first, math.ceil(high / step) + 1)]


def curves(title, panels):
    """A panel for each `(heading, unit, [(x, middle, least, greatest), …])`, two in a row, x on a logarithmic scale."""
    wide, high, parts = 400, 250, [text(16, 26, title, "title")]
    for at, (heading, unit, points) in enumerate(panels):
        left, top = 60 + at % 2 * wide, 76 + at // 2 * high
        across, down = wide - 90, high - 90
        marks = ticks(0, max(point[3] for point in points))
        begin, end = math.log(points[0][0]), math.log(points[-1][0])
        xs = [left + across * ((math.log(point[0]) - begin) / ((end - begin) or 1)) for point in points]

        def height(value):
            return top + down * (1 - value / marks[-1])

        parts.append(text(left - 44, top - 16, f"{heading} ({unit})"))
        for mark in marks:
            parts.append(f'<path d="M{left} {height(mark):.1f}H{left + across}" stroke="#ddd"/>')
            parts.append(text(left - 6, height(mark) + 4, f"{mark:g}", "small end"))
        for x, (value, middle, least, greatest) in zip(xs, points):
            parts.append(f'<path d="M{x:.1f} {height(least):.1f}V{height(greatest):.1f}" stroke="#1769aa" stroke-width="1"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{height(middle):.1f}" r="3" fill="#1769aa"/>')
            parts.append(text(x, top + down + 18, f"{value:,}", "small mid"))
        line = " ".join(f"{x:.1f},{height(point[1]):.1f}" for x, point in zip(xs, points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="#1769aa" stroke-width="1.5"/>')
    return page(2 * wide + 16, 76 + math.ceil(len(panels) / 2) * high, parts)
