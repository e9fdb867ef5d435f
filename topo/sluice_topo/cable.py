# SPDX-License-Identifier: Apache-2.0
"""Connects the nodes of the two-site network by links, if the nodes are containers.

    python3 -m sluice_topo.cable DONE

The first process of a node's container has SLUICE_NODE=NAME in its environment. The node's
container shares its PID namespace with this program, which finds the node's network namespace by
that variable. When all nodes are running, the program creates the links between them, sets the
hosts' addresses and writes the file DONE. Then it waits for a signal. If a node's container ends,
its links are lost. Then all containers must be restarted.
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
    """Returns the network namespace of each node whose container runs, by the node's name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # the process has ended
            continue
        for variable in variables:
            if variable.startswith(VARIABLE):
                name = variable.removeprefix(VARIABLE).decode()
                found[name] = Namespace.of_process(name, int(path.parent.name))
    return found


def main() -> None:
    """Creates the links, writes the file DONE, and waits for a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("done", type=Path, help="file that the program writes when all links exist")
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
