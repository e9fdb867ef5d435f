# SPDX-License-Identifier: Apache-2.0
"""Runs p4runtime-shell on a running switch: `make shell`.

By default, the switch is the one of the demo's first P4 router. `--router` selects another router
of the demo, and `--address` any switch. The shell uses a low election id, so the controller stays
primary. The shell can read everything but change nothing.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from sluice_testkit import owner, where
from sluice_topo.demo import RUNNING

# By default, gRPC's C core sends the path of a Unix socket as the `:authority` header. HTTP/2 does
# not allow this, and sluice-switch refuses it. p4runtime-shell has no option for another authority.
LAUNCH = """
import functools, runpy, grpc
options = [("grpc.default_authority", "localhost")]
grpc.insecure_channel = functools.partial(grpc.insecure_channel, options=options)
runpy.run_module("p4runtime_sh", run_name="__main__", alter_sys=True)
"""
ELECTION_ID = "0,0"  # below every controller's, so the controller stays primary


def main() -> None:
    """Replaces this process by p4runtime-shell. For a switch of the demo, the shell runs in the
    switch's namespace.
    """
    parser = argparse.ArgumentParser(prog="make shell", description=__doc__)
    parser.add_argument("--address", help="HOST:PORT or unix:PATH of a P4Runtime server")
    parser.add_argument("--device-id", type=int, default=1)
    parser.add_argument("--router", help="a P4 router of the demo (default: the first by name)")
    arguments, rest = parser.parse_known_args()
    enter: list[str] = []
    address, device = arguments.address, arguments.device_id
    if address is None:
        switch = demo_switch(arguments.router)
        if switch is None:
            print(
                "make shell: no demo is running here. Start one and keep it with "
                "`make demo ARGS=--cli`, or name a switch: make shell ADDR=HOST:PORT or unix:PATH",
                file=sys.stderr,
            )
            sys.exit(3)
        enter = ["nsenter", f"--net=/proc/{switch['pid']}/ns/net"]
        address, device = str(switch["grpc"]), int(str(switch["device"]))
    argv = [*enter, *shell_argv(address, device), "--election-id", ELECTION_ID]
    os.execvp(argv[0], [*argv, *rest])


def shell_argv(address: str, device: int) -> list[str]:
    """Returns the command line of p4runtime-shell for a switch at `address`: HOST:PORT or
    unix:PATH.
    """
    argv = [str(where.p4runtime_shell_python()), "-c", LAUNCH, "--no-ssl"]
    return [*argv, "--grpc-addr", address, "--device-id", str(device)]


def demo_switch(router: str | None) -> dict[str, object] | None:
    """Returns a router's switch in the newest demo that is running, or None. By default, the first
    P4 router by name.
    """
    for path in newest_first(owner.temporary_root().glob(f"{owner.PREFIX}-*/{RUNNING}")):
        if owner.owner_is_gone(path.parent.name):
            continue
        switches = json.loads(path.read_text(encoding="utf-8"))
        name = router or min(switches, default="")
        if name in switches:
            found = switches[name]
            assert isinstance(found, dict)
            return found
    return None


def newest_first(paths: Iterable[Path]) -> list[Path]:
    """Sorts files by modification time, the newest first.

    A file that is deleted meanwhile sorts as the oldest.
    """

    def age(path: Path) -> float:
        return -path.stat().st_mtime if path.exists() else 0.0

    return sorted(paths, key=age)


if __name__ == "__main__":
    main()
