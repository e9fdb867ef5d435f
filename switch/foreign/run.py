# SPDX-License-Identifier: Apache-2.0
"""Runs programs and tests of other projects for BMv2, on sluice-switch or BMv2. Prints a table.

    run.py [--target sluice-switch|bmv2] [--only NAME] TREE

TREE holds unmodified copies of one or more public repositories: tutorials (p4lang), p4-guide
(jafingerhut), fabric-tna (stratum). Each item runs in separate network, process and mount
namespaces, so it leaves nothing behind. README.md lists the software that must be installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fabric_tna import FLAGS
from tutorial import CHECKS

HERE = Path(__file__).resolve().parent

# Replacement for simple_switch_grpc, for isolated namespaces only: scripts start the switch with
# P4Runtime on all addresses, and these options permit this.
STAND_IN = """#!/bin/sh
exec '{switch}' "$@" --grpc-insecure-any-address --writes-from-any-connection
"""
# Replacements for two programs that scripts call. `sudo`: the run is root already. `p4c`: only
# p4c-bm2-ss is installed.
SUDO = """#!/bin/sh
while case "$1" in -*|*=*) true ;; *) false ;; esac; do
    case "$1" in *=*) export "$1" ;; esac
    shift
done
exec "$@"
"""
P4C = """#!/bin/sh
for argument; do
    shift
    case "$argument" in
        --target|--arch|--std) skip=1 ;;
        *) [ -n "$skip" ] || set -- "$@" "$argument"; skip= ;;
    esac
done
out= source=
for argument; do
    [ "$last" = -o ] && out="$argument"
    last="$argument" source="$argument"
done
name=$(basename "$source" .p4)
[ -z "$out" ] && set -- "$@" -o "$name.json"
[ -n "$out" ] && [ -d "$out" ] && set -- "$@" -o "$out/$name.json"
exec p4c-bm2-ss "$@"
"""


LOOPBACK = 'ip link set lo up; mount -t tmpfs none /run; exec "$@"'
# The veth pairs that p4-guide's bin/veth_setup.sh creates. Ends with even numbers are for the
# switch, those with odd numbers for ptf.
LINKS = (
    """for n in 0 2 4 6 8 10 12 14; do
    ip link add veth$n mtu 9500 type veth peer name veth$((n + 1)) mtu 9500
    for end in veth$n veth$((n + 1)); do
        sysctl -q -w net.ipv6.conf.$end.disable_ipv6=1
        ip link set $end up
    done
done
"""
    + LOOPBACK
)


@dataclass(frozen=True)
class Item:
    """A program or test to run, with its command."""

    suite: str
    name: str
    command: list[str]
    folder: Path
    needs: str = ""


def tutorials(tree: Path, scratch: Path) -> list[Item]:
    """Returns p4lang's tutorials, each with its solution."""
    root = tree / "tutorials"
    if not (root / "exercises").is_dir():
        return []

    def item(name: str) -> Item:
        command = [sys.executable, str(HERE / "tutorial.py"), str(root), name]
        folder = scratch / f"tutorials-{name}"
        return Item("tutorials", name, [*command, str(folder)], folder)

    return [item(name) for name in sorted(CHECKS)]


def scripts(tree: Path, suite: str, scratch: Path) -> list[Item]:
    """Returns the PTF suites that have a script runptf.sh. It starts a switch and runs ptf."""
    all_scripts = sorted((tree / suite).glob("**/runptf.sh"))
    found = [script for script in all_scripts if "simple_switch_grpc" in script.read_text()]
    items = []
    for script in found:
        name = str(script.parent.relative_to(tree / suite))
        folder = scratch / f"{suite}-{name.replace('/', '-')}"
        items.append(
            Item(f"{suite} ptf", name, ["bash", "./runptf.sh"], folder, str(script.parent))
        )
    return items


def fabric(tree: Path, scratch: Path) -> list[Item]:
    """Returns fabric-tna's PTF suite, once for each profile."""
    root = tree / "fabric-tna"
    if not (root / "ptf").is_dir():
        return []

    def item(profile: str) -> Item:
        command = [sys.executable, str(HERE / "fabric_tna.py"), str(root), profile]
        folder = scratch / f"fabric-tna-{profile}"
        return Item("fabric-tna ptf", profile, [*command, str(folder)], folder)

    return [item(profile) for profile in FLAGS]


def place(item: Item, tree: Path) -> Path:
    """Creates and returns the folder in which an item runs. A script runs in a copy of its
    repository.
    """
    item.folder.mkdir(parents=True)
    if not item.needs:
        return item.folder
    script = Path(item.needs)
    root = tree / script.relative_to(tree).parts[0]
    copy = item.folder / root.name
    shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    folder = copy / script.relative_to(root)
    # `make test` of the tutorials also creates this folder.
    (folder / "logs").mkdir(exist_ok=True)
    return folder


def passed(item: Item, status: int, output: str) -> tuple[bool, str]:
    """Returns whether an item passed, and a detail for the table. For tutorials, the exit status
    decides; for scripts, the output of ptf.
    """
    if item.suite == "tutorials":
        last = [line for line in output.splitlines() if line.startswith(f"{item.name}: ")]
        return status == 0, last[-1].partition(": ")[2] if last else ""
    ran = re.findall(r"^Ran (\d+) tests?", output, re.MULTILINE)
    bad = re.search(
        r"^FAILED.*|^Traceback.*|The following tests (?:failed|errored).*", output, re.MULTILINE
    )
    well = bool(ran) and bad is None and re.search(r"^OK", output, re.MULTILINE) is not None
    skipped = re.search(r"^OK \((.*)\)", output, re.MULTILINE)
    count = f"{sum(map(int, ran))} tests" + (f", {skipped.group(1)}" if skipped else "")
    detail = count if well else (bad.group(0) if bad else "no test ran")
    return well, detail


def run(item: Item, tree: Path, path: str, timeout: float) -> tuple[bool, str]:
    """Runs an item. Writes its output to a log beside its folder."""
    where = place(item, tree)
    environment = os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1", "P4_EXTRA_SUDO_OPTS": ""}
    inside = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = [
        *inside,
        "sh",
        "-ec",
        LOOPBACK if item.suite == "tutorials" else LINKS,
        "sh",
        *item.command,
    ]
    log = item.folder.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=where,
            env=environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False, f"not done in {timeout:.0f} s"
    well, detail = passed(item, status, log.read_text(errors="replace"))
    return well, detail or ("" if well else f"exit status {status}: {log}")


def shims(scratch: Path, target: str) -> str:
    """Creates replacements for programs that scripts call. Returns a PATH that includes them."""
    folder = scratch / "bin"
    folder.mkdir()
    programs = {}
    if target == "sluice-switch":
        switch = os.environ.get("SLUICE_SWITCH", "sluice-switch")
        programs["simple_switch_grpc"] = STAND_IN.format(switch=switch)
    for name, text in (("sudo", SUDO), ("p4c", P4C)):
        if shutil.which(name) is None:
            programs[name] = text
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"


def main() -> int:
    """Runs all items and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--target", choices=["sluice-switch", "bmv2"], default="sluice-switch")
    parser.add_argument("--only", default="", help="items whose name contains this")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for an item")
    arguments = parser.parse_args()
    tree = arguments.tree.resolve()
    scratch = Path(tempfile.mkdtemp(prefix="sluice-foreign-"))
    items = [
        *tutorials(tree, scratch),
        *scripts(tree, "tutorials", scratch),
        *scripts(tree, "p4-guide", scratch),
        *fabric(tree, scratch),
    ]
    items = [item for item in items if arguments.only in f"{item.suite} {item.name}"]
    if not items:
        print(f"{tree} holds nothing to run: see {HERE / 'README.md'}", file=sys.stderr)
        return 2
    path = shims(scratch, arguments.target)
    print(f"| suite | what | {arguments.target} | |\n|---|---|---|---|", flush=True)
    good = 0
    for item in items:
        well, detail = run(item, tree, path, arguments.timeout)
        good += well
        print(
            f"| {item.suite} | {item.name} | {'pass' if well else 'FAIL'} | {detail} |", flush=True
        )
    print(f"\n{good} of {len(items)} pass; logs in {scratch}")
    return 0 if good == len(items) else 1


if __name__ == "__main__":
    sys.exit(main())
