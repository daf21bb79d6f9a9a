"""Tables: of columns for a terminal, and in Markdown."""
from measure import middle, ratios
from peers import OURS


def spread(values, digits=2):
    """`median (least–greatest)`."""
    return "–" if values is None else "{:.{d}f} ({:.{d}f}–{:.{d}f})".format(*values, d=digits)


def costs(rows):
    """A table of one scenario: a heading and a line for each peer."""
    lines = [["", "CPU µs/request (min–max)", "user", "system", "sluicegate to it (min–max)", "requests/s", "core busy"]]
    for name, mine in rows.items():
        each = [row["cpu"] for row in mine]
        ratio = "1" if name == OURS else spread(ratios(rows.get(OURS, []), mine))
        lines.append([name, spread((middle(mine, "cpu"), min(each), max(each))), f"{middle(mine, 'user'):.2f}",
                      f"{middle(mine, 'system'):.2f}", ratio, f"{middle(mine, 'rate'):,.0f}",
                      f"{middle(mine, 'busy') * 100:.0f} %"])
    return lines


def terminal(lines):
    """Columns that stand below each other, numbers to the right."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) if at == 0 else cell.rjust(width)
                               for at, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def markdown(lines):
    rule = ["---"] + ["--:"] * (len(lines[0]) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])
