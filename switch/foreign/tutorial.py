# SPDX-License-Identifier: Apache-2.0
"""Runs one exercise of p4lang/tutorials, and checks the results that its README describes.

    tutorial.py TUTORIALS EXERCISE DIRECTORY

Uses the tutorials' own runner (utils/run_exercise.py), in a copy of the exercise with the solution
filled in. Where the runner would start mininet's command line, the check runs instead. Exits with 0
if the check passes. Needs root, mininet, p4c-bm2-ss and simple_switch_grpc on PATH, and a separate
network namespace.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE = 60.0


class Failed(Exception):
    """A result that the README describes did not occur."""


def until(what: str, condition: Callable[[], object], deadline: float = DEADLINE) -> None:
    """Waits until the condition holds. Raises Failed after the deadline."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise Failed(what)
        time.sleep(0.2)  # between two looks at the condition


class Network:
    """A running exercise."""

    def __init__(self, net: Any, directory: Path) -> None:
        self.net = net
        self.directory = directory
        self.started: list[subprocess.Popen[bytes]] = []

    def ip(self, host: str) -> str:
        """Returns a host's address."""
        return str(self.net.get(host).IP())

    def start(self, host: str | None, command: str) -> Callable[[], str]:
        """Starts a command, on a host or outside of all hosts. Returns a reader of its output."""
        log = self.directory / f"{host or 'controller'}-{len(self.started)}.log"
        both = subprocess.STDOUT
        with log.open("wb") as output:
            if host is None:
                arguments = command.split()
                where = self.directory
                process = subprocess.Popen(arguments, stdout=output, stderr=both, cwd=where)
            else:
                node = self.net.get(host)
                process = node.popen(
                    command, shell=True, stdout=output, stderr=both, cwd=self.directory
                )
        self.started.append(process)
        return lambda: log.read_text(errors="replace")

    def run(self, host: str, command: str) -> str:
        """Runs a command on a host. Returns its output."""
        return str(self.net.get(host).cmd(command))

    def stop(self) -> None:
        """Ends all started commands."""
        for process in self.started:
            process.kill()
            process.wait()


def pings(network: Network) -> None:
    """Checks that every host reaches every other host."""
    until("pingall loses packets", lambda: network.net.pingAll(timeout=2) == 0)


def sent_until(
    network: Network, host: str, command: str, what: str, seen: Callable[[], object]
) -> None:
    """Sends the packet again and again until it is received, because a receiver takes time to
    start.
    """

    def attempt() -> object:
        network.run(host, command)
        return seen()

    until(what, attempt)


def basic_tunnel(network: Network) -> None:
    """Checks that packets are forwarded by address, and tunneled packets by the tunnel's id."""
    received = network.start("h2", "./receive.py")
    until("no receiver", lambda: "sniffing" in received())
    plain = f"./send.py {network.ip('h2')} plainly"
    sent_until(network, "h1", plain, "no plain packet", lambda: "plainly" in received())
    # The address is that of h3. The packet must reach h2, because the tunnel's id selects the path.
    tunnel = f"./send.py {network.ip('h3')} tunneled --dst_id 2"
    sent_until(network, "h1", tunnel, "no tunneled packet", lambda: "tunneled" in received())


def calc(network: Network) -> None:
    """Checks the results that the switch calculates."""
    asked = "printf '1+1\\n7-3\\n6&3\\n6|1\\n6^3\\nquit\\n' | python3 calc.py"
    answers = ["2", "4", "2", "7", "5"]
    output = ""

    def attempt() -> bool:
        nonlocal output
        output = network.run("h1", asked)
        return re.findall(r"^(\d+)\s*$", output, re.MULTILINE) == answers

    until("wrong results", attempt)


def marks(pattern: str) -> Callable[[Network], None]:
    """Returns a check that packets from h1 to h2 report the full queue of a rate-limited link.
    `pattern` matches the report.
    """

    def check(network: Network) -> None:
        received = network.start("h2", "./receive.py")
        network.start("h22", "iperf -s -u")
        until("no receiver", lambda: "sniffing" in received())
        network.start("h11", f"iperf -c {network.ip('h22')} -t 40 -u")
        network.start("h1", f"./send.py {network.ip('h2')} 'P4 is cool' 40")
        until("no packet arrives", lambda: "got a packet" in received())
        until("the queue is never seen", lambda: re.search(pattern, received()))

    return check


def firewall(network: Network) -> None:
    """Checks that a connection can be opened from inside, but not from outside."""
    pings(network)
    network.start("h3", "iperf -s")
    network.start("h1", "iperf -s")
    outward = f"timeout 20 iperf -c {network.ip('h3')} -t 2"
    until("no connection outward", lambda: "bits/sec" in network.run("h1", outward))
    if "bits/sec" in network.run("h3", f"timeout 10 iperf -c {network.ip('h1')} -t 2"):
        raise Failed("a connection inward")


def controlled(network: Network) -> None:
    """Checks that hosts reach each other with the exercise's controller."""
    network.start(None, f"{sys.executable} ./mycontroller.py")
    reached = f"ping -c 1 -W 2 {network.ip('h2')}"
    until("h1 does not reach h2", lambda: " 0% packet loss" in network.run("h1", reached))


def link_monitor(network: Network) -> None:
    """Checks that probes report the load of the links."""
    seen = network.start("h1", "./receive.py")
    network.start("h1", "./send.py")
    until("no probe comes back", lambda: "Switch 1 - Port" in seen())
    network.start("h4", "iperf -s")
    network.start("h1", f"iperf -c {network.ip('h4')} -t 40")
    until("no load is seen", lambda: re.search(r"Port \d: (0\.[1-9]|[1-9])\d*", seen()))


def load_balance(network: Network) -> None:
    """Checks that flows go to both servers."""
    logs = [network.start(host, "./receive.py") for host in ("h2", "h3")]
    until("no receiver", lambda: all("sniffing" in log() for log in logs))
    both = lambda: all("got a packet" in log() for log in logs)  # noqa: E731
    sent_until(network, "h1", "./send.py 10.0.0.1 'P4 is cool'", "one side gets nothing", both)


def qos(network: Network) -> None:
    """Checks that packets are marked by their protocol."""
    received = network.start("h2", "./receive.py")
    until("no receiver", lambda: "sniffing" in received())
    for protocol, tos in (("UDP", "0xb9"), ("TCP", "0xb1")):
        command = f"./send.py --p={protocol} --des={network.ip('h2')} --m=hello --dur=1"
        marked = lambda tos=tos: re.search(rf"tos\s*= {tos}", received())  # noqa: E731
        sent_until(network, "h1", command, f"{protocol} is not marked {tos}", marked)


def source_routing(network: Network) -> None:
    """Checks that packets take the path in their header."""
    received = network.start("h2", "./receive.py")
    until("no receiver", lambda: "sniffing" in received())
    command = f"printf '2 3 2 2 1\\nq\\n' | ./send.py {network.ip('h2')}"
    # The path has five hops, and each decrements the TTL, which starts at 64.
    arrived = lambda: re.search(r"ttl\s*= 59", received())  # noqa: E731
    sent_until(network, "h1", command, "nothing arrives", arrived)


CHECKS: dict[str, Callable[[Network], None]] = {
    "basic": pings,
    "basic_tunnel": basic_tunnel,
    "calc": calc,
    "ecn": marks(r"tos\s*= 0x3"),
    "firewall": firewall,
    "flowcache": controlled,
    "link_monitor": link_monitor,
    "load_balance": load_balance,
    "mri": marks(r"qdepth\s*= [1-9]"),
    "multicast": pings,
    "p4runtime": controlled,
    "qos": qos,
    "source_routing": source_routing,
}


def prepare(tutorials: Path, exercise: str, directory: Path) -> tuple[Path, Path]:
    """Copies the exercise with its solution, and compiles it. Returns its topology and JSON."""
    work = directory / "exercises" / exercise
    shutil.copytree(tutorials / "exercises" / exercise, work, symlinks=True)
    (directory / "utils").symlink_to(tutorials / "utils")
    for solution in (work / "solution").iterdir():
        shutil.copy(solution, work / solution.name)
    for file in (work / "sig-topo").glob("*.json"):
        if (work / "solution" / file.name).exists():
            shutil.copy(work / "solution" / file.name, file)
    os.chdir(work)
    (work / "build").mkdir(exist_ok=True)
    # Prefers the program with the exercise's name, as utils/Makefile does: the folder of `firewall`
    # has a second program.
    named = [work / f"{exercise}.p4", *sorted(work.glob("*.p4"))]
    programs = sorted(work.glob("*.p4"))
    for program in programs:
        info, json = f"build/{program.name}.p4info.txtpb", f"build/{program.stem}.json"
        command = ["p4c-bm2-ss", "--p4v", "16", "--p4runtime-files", info, "-o", json, program.name]
        subprocess.run(command, check=True)
    found = next(path for path in named if path.exists())
    topology = next(iter([*work.glob("*-topo/topology.json"), work / "topology.json"]))
    if (work / "pod-topo").exists():
        topology = work / "pod-topo" / "topology.json"
    return topology.relative_to(work), Path("build") / f"{found.stem}.json"


def main(tutorials: Path, exercise: str, directory: Path) -> int:
    """Runs the exercise."""
    topology, json = prepare(tutorials.resolve(), exercise, directory.resolve())
    sys.path.insert(0, str(tutorials.resolve() / "utils"))
    import run_exercise  # type: ignore[import-not-found]

    failure: Exception | None = None

    class Checked(run_exercise.ExerciseRunner):  # type: ignore[misc]
        def do_net_cli(self) -> None:
            nonlocal failure
            network = Network(self.net, Path.cwd())
            try:
                CHECKS[exercise](network)
            except Failed as error:
                failure = error
            finally:
                network.stop()

    Checked(str(topology), "logs", "pcaps", str(json), "simple_switch_grpc", True).run_exercise()
    if failure is not None:
        print(f"{exercise}: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
