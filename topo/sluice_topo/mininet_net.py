# SPDX-License-Identifier: Apache-2.0
"""Builds a topology in mininet. mininet creates the nodes and links. The programs that run in the
nodes are those of this project.

There is no Open vSwitch and no OpenFlow controller. Each router is a node, and the only switches
are the P4 switches inside routers.
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
    """A mininet node to which mininet assigns no IP address."""

    def __init__(self, name: str, **parameters: Any):
        super().__init__(name, **(parameters | {"ip": None}))

    def place(self) -> Namespace:
        """Returns the node's network namespace, as an object of the test kit."""
        return Namespace.of_process(self.name, self.pid)


class RouterPlainNode(PlainNode):
    """A router's mininet node. When the network is built, `router` is set to the object that runs
    the router's programs.
    """

    router: RouterNode


class P4RouterNode(RouterPlainNode):
    """A router's node with a P4 switch. The ends of its links are the switch's ports."""


class LinuxRouterNode(RouterPlainNode):
    """A router's node whose kernel forwards."""


class DescribedTopo(Topo):  # type: ignore[misc]
    """Converts a `description.Topology` to mininet's classes."""

    def build(self, topology: Topology, target: str | None) -> None:
        """Adds nodes and links. mininet calls this method with the arguments of the constructor."""
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
    """Builds the topology in mininet. The caller must start the network, and stop mininet at the
    end.
    """
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
