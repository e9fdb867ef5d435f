# SPDX-License-Identifier: Apache-2.0
"""Builds a topology in mininet. mininet creates the nodes and links; the programs in them are ours.

There is no Open vSwitch and no OpenFlow controller. A router is a node of its own, and the only
switches are the P4 switches inside routers.
"""

from typing import Any

from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo

from sluice_testkit.namespaces import Lab, Namespace
from sluice_topo.description import RouterKind, Topology
from sluice_topo.network import Network, build, end_name
from sluice_topo.routers import RouterNode


class PlainNode(Node):  # type: ignore[misc]
    """A node to which mininet assigns no address."""

    def __init__(self, name: str, **parameters: Any):
        super().__init__(name, **(parameters | {"ip": None}))

    def place(self) -> Namespace:
        """Returns the node's namespace, as the test kit's type."""
        return Namespace.of_process(self.name, self.pid)


class RouterPlainNode(PlainNode):
    """A router's node. `router` has its programs, once the network is built."""

    router: RouterNode


class P4RouterNode(RouterPlainNode):
    """A node with a P4 switch. The node's links are the switch's ports."""


class LinuxRouterNode(RouterPlainNode):
    """A node whose kernel forwards."""


class DescribedTopo(Topo):  # type: ignore[misc]
    """Converts a `description.Topology` to mininet's classes."""

    def build(self, topology: Topology, target: str | None) -> None:
        """Adds nodes and links. mininet calls it with the constructor's arguments."""
        for host in topology.hosts:
            self.addHost(host.name, cls=PlainNode)
        for router in topology.routers:
            node = P4RouterNode if router.kind is RouterKind.P4 else LinuxRouterNode
            self.addHost(router.name, cls=node)
        for one, two in topology.links:
            self.addLink(
                one.node,
                two.node,
                intfName1=end_name(topology, one, target),
                intfName2=end_name(topology, two, target),
            )


def build_in_mininet(
    topology: Topology, lab: Lab, target: str | None = None
) -> tuple[Network, Mininet]:
    """Builds the topology in mininet. The caller starts the network and stops mininet."""
    mininet = Mininet(
        topo=DescribedTopo(topology=topology, target=target), switch=None, controller=None
    )
    namespaces = {node.name: node.place() for node in mininet.hosts}
    for one, two in topology.links:
        for end in (one, two):
            namespaces[end.node].offloads_off(end_name(topology, end, target))
            namespaces[end.node].link_up(end_name(topology, end, target))
    network = build(topology, namespaces, lab, target)
    for name, router in network.routers.items():
        mininet.get(name).router = router
    return network, mininet
