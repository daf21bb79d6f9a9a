"""Tables: of columns for a terminal, and in Markdown."""
from measure import middle, ratios
from peers import OURS


def spread(values, digits=2):
    """`median (least–greatest)`."""
    return "–" if values is None else "{:.{d}f} ({:.{d}f}–{:.{d}f})".format(*values, d=digits)


def three(rows, field):
    each = [row[field] for row in rows]
    return middle(rows, field), min(each), max(each)


def costs(rows):
    """Of one scenario: a heading and a line for each peer."""
    lines = [["", "CPU µs/request (min–max)", "user", "system", "sluicegate to it (min–max)", "requests/s", "core busy"]]
    for name, mine in rows.items():
        ratio = "1" if name == OURS else spread(ratios(rows.get(OURS, []), mine))
        lines.append([name, spread(three(mine, "cpu")), f"{middle(mine, 'user'):.2f}", f"{middle(mine, 'system'):.2f}", ratio,
                      f"{middle(mine, 'rate'):,.0f}", f"{middle(mine, 'busy') * 100:.0f} %"])
    return lines


def latencies(rows):
    """Of the run at a fixed rate."""
    lines = [["", "p50 µs (min–max)", "sluicegate to it", "p99 µs (min–max)", "sluicegate to it", "p99.9 µs", "CPU µs/request"]]
    for name, mine in rows.items():
        own = rows.get(OURS, [])
        to = ["1", "1"] if name == OURS else [spread(ratios(own, mine, field)) for field in ("p50", "p99")]
        lines.append([name, spread(three(mine, "p50"), 0), to[0], spread(three(mine, "p99"), 0), to[1],
                      f"{middle(mine, 'p999'):.0f}", f"{middle(mine, 'cpu'):.1f}"])
    return lines


def beside(rows):
    """Of requests on kept connections, alone and beside handshakes."""
    lines = [["", "p50 µs alone", "beside", "p99 µs alone (min–max)", "beside (min–max)", "beside to alone",
              "sluicegate to it, beside", "p99.9 µs alone", "beside", "core busy, beside"]]
    for name, mine in rows.items():
        alone = [{"p99 beside": row["p99"]} for row in mine]
        ratio = "1" if name == OURS else spread(ratios(rows.get(OURS, []), mine, "p99 beside"))
        lines.append([name, f"{middle(mine, 'p50'):.0f}", f"{middle(mine, 'p50 beside'):.0f}", spread(three(mine, "p99"), 0),
                      spread(three(mine, "p99 beside"), 0), spread(ratios(mine, alone, "p99 beside")), ratio,
                      f"{middle(mine, 'p999'):.0f}", f"{middle(mine, 'p999 beside'):.0f}", f"{middle(mine, 'busy') * 100:.0f} %"])
    return lines


def memory(told):
    """Of the memory, in MB and bytes."""
    lines = [["", "at rest, MB", "idle HTTP/1.1 connection, bytes", "idle TLS connection", "busy pair", "key"]]
    for name, each in told.items():
        cells = [each[thing] for thing in ("at rest", "idle h1", "idle TLS", "busy pair", "key")]
        cells[0] = cells[0] / 1e6 if isinstance(cells[0], float) else cells[0]
        lines.append([name, *("–" if isinstance(cell, str) else f"{cell:,.{1 if at == 0 else 0}f}" for at, cell in enumerate(cells))])
    return lines


def terminal(lines):
    """Columns that stand below each other, numbers to the right."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) if at == 0 else cell.rjust(width)
                               for at, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def markdown(lines):
    rule = ["---"] + ["--:"] * (len(lines[0]) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])
