"""Compares directives from standard input with those that crossplane reads from the same files.

Standard input is a list of {path, directives}; a directive is {name, args, line, block}. Exit code: 0 if they agree, 1 if not,
77 if crossplane is not installed.
"""

import json
import re
import sys

try:
    import crossplane
except ImportError:
    sys.exit(77)


def ours(directives):
    return [(d["name"], d["args"], d["line"], None if d["block"] is None else ours(d["block"])) for d in directives]


def unescaped(arg):
    """What nginx makes of the escapes that crossplane leaves as they are."""
    characters = {"t": "\t", "r": "\r", "n": "\n"}
    return re.sub(r"\\([\"'\\trn])", lambda match: characters.get(match[1], match[1]), arg)


def theirs(directives):
    found = []
    for d in directives:
        args = [unescaped(arg) for arg in d["args"]]
        if d["directive"] == "if":  # crossplane takes the parentheses off
            last = [args[-1] + ")"] if args[-1] else ["", ")"]  # behind quotes the parenthesis is a word
            args = ["(" + args[0], *args[1:-1], *last] if len(args) > 1 else ["(" + args[0] + ")"]
        found.append((d["directive"], args, d["line"], theirs(d["block"]) if "block" in d else None))
    return found


files = json.load(sys.stdin)
wrong = 0
for file in files:
    parsed = crossplane.parse(file["path"], single=True, strict=False, check_ctx=False, check_args=False)
    problems = [problem for one in parsed["config"] for problem in one["errors"]]
    expected, found = theirs(parsed["config"][0]["parsed"]), ours(file["directives"])
    if problems or expected != found:
        wrong += 1
        print(file["path"], problems)
        print("  crossplane:", expected)
        print("  sluicegate:", found)
print(len(files), "files,", wrong, "differ")
sys.exit(1 if wrong else 0)
