"""What a run found, as it is printed and as files: sections of a heading, a table, and what is not in it and why."""
import datetime, json, pathlib, platform

import table


def machine():
    """Date, processor and kernel, in a line."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    cores = sum(line.startswith("processor") for line in lines)
    today = datetime.date.today()
    return f"{today.day} {today:%B %Y}, {cores} cores of {model}, Linux {platform.release()}"


class Report:
    def __init__(self, title, versions=None):
        about = ", ".join(f"{name} {number}" for name, number in (versions or {}).items())
        self.title, self.about, self.sections = title, f"{machine()}{'; ' + about if about else ''}.", []
        self.raw = {"title": title, "machine": machine(), "versions": versions or {}}

    def add(self, heading, lines, left_out, raw, quiet=False):
        """Adds a section, and prints it unless `quiet`. `raw` is what it was computed from."""
        self.sections.append((heading, lines, left_out))
        self.raw[heading] = {"rows": raw, "left out": left_out}
        if not quiet:
            print(f"\n{heading}\n{table.terminal(lines)}", *(f"{name} is left out: {why}" for name, why in left_out.items()),
                  sep="\n", flush=True)

    def write(self, folder, plots):
        """Writes report.md, results.json and the plots, `{name: svg}`, into a folder that is made if need be."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        parts = [f"# {self.title}", self.about, *(f"![{name}]({name}.svg)" for name in plots)]
        for heading, lines, left_out in self.sections:
            parts += [f"## {heading}", table.markdown(lines)]
            parts += [f"Left out: {name}: {why}." for name, why in left_out.items()]
        (folder / "report.md").write_text("\n\n".join(parts) + "\n")
        (folder / "results.json").write_text(self.json())
        for name, svg in plots.items():
            (folder / f"{name}.svg").write_text(svg)

    def json(self):
        return json.dumps(self.raw, indent=1) + "\n"
