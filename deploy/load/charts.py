"""Line charts as inline SVG."""

import html
import math

WIDTH, HEIGHT = 330, 170
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 24


def chart(title, series, end, unit="", begin=0.0, marks=(), width=WIDTH):
    """A chart of `series`: (name, CSS class, points) each; a point without a value breaks the line.

    `marks` are (time, text): vertical lines with a label.
    """
    values = [value for _, _, points in series for _, value in points if value is not None]
    if not values:
        return f"<figure><figcaption>{html.escape(title)}</figcaption><p class='quiet'>no answers</p></figure>"
    top, step = scale(max(values))
    right = width - RIGHT
    across = (right - LEFT) / max(end - begin, 1e-9)
    down = (HEIGHT - TOP - BOTTOM) / top

    def x(at):
        return LEFT + (min(at, end) - begin) * across

    def y(value):
        return HEIGHT - BOTTOM - value * down

    drawn = []
    for number in range(round(top / step) + 1):
        value = number * step
        drawn.append(f"<line class='grid' x1='{LEFT}' x2='{right}' y1='{y(value):.1f}' y2='{y(value):.1f}'/>")
        drawn.append(f"<text x='{LEFT - 5}' y='{y(value) + 4:.1f}' text-anchor='end'>{number_text(value)}</text>")
    for share in (0, 0.5, 1):
        at = begin + (end - begin) * share
        anchor = ("start", "middle", "end")[int(share * 2)]
        drawn.append(f"<text x='{x(at):.1f}' y='{HEIGHT - 7}' text-anchor='{anchor}'>{number_text(at)} s</text>")
    for at, text in marks:
        drawn.append(f"<line class='mark' x1='{x(at):.1f}' x2='{x(at):.1f}' y1='{TOP}' y2='{HEIGHT - BOTTOM}'/>")
        drawn.append(f"<text class='name' x='{x(at) + 3:.1f}' y='{TOP + 9}'>{html.escape(text)}</text>")
    for name, style, points in series:
        drawn += [
            f"<polyline class='{style}' points='{part}'><title>{html.escape(name)}</title></polyline>"
            for part in lines(points, x, y)
        ]
    label = html.escape(f"{title}{', ' + unit if unit else ''}")
    return (
        f"<figure><figcaption>{label}</figcaption><svg viewBox='0 0 {width} {HEIGHT}' width='{width}' height='{HEIGHT}' "
        f"role='img' aria-label='{label}'>{''.join(drawn)}</svg></figure>"
    )


def lines(points, x, y):
    """The points of polylines, one for each run of points that have values."""
    parts, part = [], []
    for at, value in [*points, (0, None)]:
        if value is not None:
            part.append(f"{x(at):.1f},{y(value):.1f}")
        elif part:
            if len(part) == 1:  # a line of one point is not visible
                place, height = part[0].split(",")
                part.append(f"{float(place) + 2:.1f},{height}")
            parts.append(" ".join(part))
            part = []
    return parts


def scale(most):
    """The end of an axis, and the distance of its marks: at most five, at 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return 1, 1
    step = 10 ** math.floor(math.log10(most / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if most / 4 <= factor * step * (1 + 1e-9))
    return step * math.ceil(most / step - 1e-9), step


def number_text(value):
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"
