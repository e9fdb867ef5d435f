# SPDX-License-Identifier: Apache-2.0
"""Cables the two-site network where its nodes are containers: `python3 -m sluice_topo.cable`.

A container of a node has SLUICE_NODE=NAME in the environment of its first process and shares its
PID namespace with this program, which finds its network by that. Once all nodes are there it makes
the links between them, gives hosts their addresses, writes the file that it was given the name of,
and waits for its end. A container of a node that ends takes its links along: start all anew.
"""

import argparse
import signal
from pathlib import Path

from sluice_testkit.namespaces import Namespace, veth
from sluice_testkit.wait import wait_until
from sluice_topo.description import two_sites
from sluice_topo.routers import HostNode

VARIABLE = b"SLUICE_NODE="


def nodes() -> dict[str, Namespace]:
    """The network namespaces of the nodes that run here, by name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        for variable in variables:
            if variable.startswith(VARIABLE):
                name = variable.removeprefix(VARIABLE).decode()
                found[name] = Namespace.of_process(name, int(path.parent.name))
    return found


def main() -> None:
    """Cable, say so, wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("done", type=Path, help="the file that is written when all is cabled")
    arguments = parser.parse_args()
    topology = two_sites()
    wanted = {host.name for host in topology.hosts} | {router.name for router in topology.routers}
    wait_until(lambda: wanted <= set(nodes()), 60, f"the nodes {sorted(wanted)}")
    found = nodes()
    for one, two in topology.links:
        veth(found[one.node], one.interface, found[two.node], two.interface)
    for host in topology.hosts:
        HostNode(host, found[host.name]).start()
    arguments.done.touch()
    print("cabled", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
