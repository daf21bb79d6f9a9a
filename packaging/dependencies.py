"""The crates that are linked into the program, as cargo resolves them for a target."""

import json
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "sluicegate"


def cargo(*arguments):
    command = ["cargo", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(target):
    """The packages of `cargo metadata` that are linked, by name and version; without macros and what tests need. Each has
    `checksum`, None for a crate of this repository, and `uses`, the ids of the linked packages that it depends on."""
    lines = cargo(
        "tree", "--locked", "--package", PACKAGE, "--target", target, "--edges", "normal,no-proc-macro",
        "--prefix", "none", "--format", "{p}",
    )  # fmt: skip
    names = {(line.split()[0], line.split()[1].removeprefix("v")) for line in lines.splitlines() if line.strip()}
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", target))
    packages = [package for package in metadata["packages"] if (package["name"], package["version"]) in names]
    packages.sort(key=lambda package: (package["name"], package["version"]))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock}
    ids = {package["id"] for package in packages}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    for package in packages:
        package["checksum"] = checksums[package["name"], package["version"]]
        normal = lambda dependency: any(kind["kind"] is None for kind in dependency["dep_kinds"])
        uses = (dependency["pkg"] for dependency in nodes[package["id"]]["deps"] if normal(dependency))
        package["uses"] = sorted(set(uses) & ids)
    return packages


def licence(package):
    """The licence as an SPDX expression; old crates write `/` for OR."""
    return (package["license"] or "").replace("/", " OR ").replace("  ", " ")
