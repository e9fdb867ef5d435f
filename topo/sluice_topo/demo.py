# SPDX-License-Identifier: Apache-2.0
"""Runs the demo on the two-site network, on mininet: `make demo`.

Exit status 0: every step has passed. Exit status 1: a step has failed. Exit status 2: wrong usage.
"""

import argparse
import io
import json
import os
import sys

from sluice_testkit import where
from sluice_testkit.namespaces import Lab
from sluice_testkit.owner import kill_inside
from sluice_testkit.target import NAMES, TargetUnavailable, binary, target_name
from sluice_testkit.wait import Stopwatch
from sluice_topo.demo_printer import DemoPrinter
from sluice_topo.description import two_sites
from sluice_topo.esp_sites import attach_engines
from sluice_topo.network import Network
from sluice_topo.routers import LINUX, P4Router
from sluice_topo.routing_demo import now, run

RUNNING = "switches.json"  # in the run directory; `make shell` reads it

PICTURE = """
              .------- t1 -------.
  h1 ----- [ r1 ]              [ r2 ] ----- h2
              '------- t2 -------'
  r1, r2: P4 routers (FRR, sluice, {target}); t1, t2: Linux routers (FRR, kernel)"""


def main() -> int:
    """Parses the command line, runs the demo, cleans up."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--target",
        default=target_name(None) if os.environ.get("TARGET") != LINUX else LINUX,
        help=f"{', '.join(NAMES)}, or {LINUX}: the kernels forward instead, for comparison",
    )
    parser.add_argument(
        "--cli", action="store_true", help="start mininet's command line after the demo"
    )
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("make demo: run it as root, which network namespaces need", file=sys.stderr)
        return 2
    try:
        if arguments.target != LINUX:
            binary(target_name(arguments.target))
            where.sluice()
    except (TargetUnavailable, FileNotFoundError) as missing:
        print(f"make demo: {missing}", file=sys.stderr)
        return 2
    return perform(arguments.target, arguments.cli)


def perform(target: str, stay: bool) -> int:
    """Builds the network, runs the demo, and removes the network. Returns the exit status."""
    from mininet.cli import CLI  # not needed for the usage text

    from sluice_topo.mininet_net import build_in_mininet

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the terminal's encoding may lack the bars and µ
    print(f"Sluice demo, {now()}, target {target}{PICTURE.format(target=target)}", flush=True)
    has_engine = is_engine_available()
    watch = Stopwatch()
    printer = DemoPrinter(lambda text: print(text, flush=True), colours=sys.stdout.isatty())
    with Lab() as lab:
        network, mininet = build_in_mininet(two_sites(), lab, target)
        try:
            sites = attach_engines(network, lab) if has_engine else None
            network.start()
            announce(network, lab)
            run(network, printer, watch, sites)
            printer.table()
            if stay:
                CLI(mininet)
        except Exception as error:  # the reader gets the step's message, without a traceback
            told = "\n".join([str(error), *getattr(error, "__notes__", ())])
            print(f"   FAILED: {told}", flush=True)
            ended = [text for text in lab.supervisor.ended() if text not in told]
            print("\n".join(ended), f"\nAll logs: {lab.keep_logs('demo')}", flush=True)
            return 1
        finally:
            lab.supervisor.stop()
            for node in mininet.hosts:
                kill_inside(node.place().path, except_pid=node.pid)
            mininet.stop()
    print(f"\n{watch.seconds():.0f} s from start to end")
    print("demo passed")
    return 0


def is_engine_available() -> bool:
    """Returns whether an ESP engine is installed. If not, prints that the demo leaves out the part
    about ESP.
    """
    try:
        where.sluice_esp()
    except FileNotFoundError as missing:
        print(f"{missing}; the demo leaves out the part about ESP")
        return False
    return True


def announce(network: Network, lab: Lab) -> None:
    """Writes the file by which `make shell` finds the demo's switches."""
    switches = {
        name: {"pid": router.target.pid, "grpc": router.target.grpc, "device": 1}
        for name, router in network.routers.items()
        if isinstance(router, P4Router)
    }
    (lab.directory / RUNNING).write_text(json.dumps(switches), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
