# SPDX-License-Identifier: Apache-2.0
"""Runs a topology. Finds its nodes by name, and starts hosts before routers.

`build` creates nodes in namespaces that are already linked. `build_in_lab` first creates namespaces
and links with the test kit. `mininet_net` does the same with mininet.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.wait import wait_until
from sluice_topo.description import LinkEnd, Router, RouterKind, Topology
from sluice_topo.routers import LINUX, HostNode, LinuxRouter, P4Router, RouterNode, plain_linux

Edit = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass
class Network:
    """Holds the nodes of a running topology."""

    topology: Topology
    hosts: dict[str, HostNode]
    routers: dict[str, RouterNode]

    def start(self) -> None:
        """Starts all nodes. The routers start in parallel, because they mostly wait for other
        programs.
        """
        for host in self.hosts.values():
            host.start()
        with ThreadPoolExecutor(max_workers=len(self.routers)) as pool:
            for done in [pool.submit(router.start) for router in self.routers.values()]:
                done.result()

    def p4_router(self, name: str) -> P4Router:
        """Returns the router of this name. It must be a P4 router."""
        router = self.routers[name]
        assert isinstance(router, P4Router), f"{name} is not a P4 router here"
        return router

    def wait_for_bgp(self, deadline: float = 60.0) -> None:
        """Waits until all configured BGP sessions of all routers are established."""
        for router in self.routers.values():
            wait_until(
                partial(all_established, router),
                deadline,
                f"all BGP sessions of {router.name}",
                interval=0.1,
            )


def all_established(router: RouterNode) -> bool:
    """Returns whether every configured BGP session of a router is established.

    Raises ProcessDied if a program of the router has ended.
    """
    router.check()
    return not unestablished(router)


def unestablished(router: RouterNode) -> list[str]:
    """Returns the peers whose BGP session is not established. Returns ["none"] if FRR lists no peer
    yet.
    """
    summary = router.frr.json("show bgp summary json")
    peers = {
        address: peer["state"]
        for family in summary.values()
        for address, peer in family.get("peers", {}).items()
    }
    return [a for a, state in peers.items() if state != "Established"] if peers else ["none"]


def end_name(topology: Topology, end: LinkEnd, target: str | None) -> str:
    """Returns the name of the interface at one end of a link.

    If the target is `linux`, a P4 router is replaced by a Linux router. Then the interface has the
    name of the P4 router's TAP.
    """
    router = next((r for r in topology.routers if r.name == end.node), None)
    if target == LINUX and router is not None and router.kind is RouterKind.P4:
        for interface in router.sluice_config()["interfaces"]:
            if interface["device"] == end.interface:
                return str(interface["name"])
    return end.interface


def build(
    topology: Topology,
    namespaces: Mapping[str, Namespace],
    lab: Lab,
    target: str | None = None,
    edit: Edit | None = None,
    frr_configs: Mapping[str, str] | None = None,
) -> Network:
    """Creates the nodes in these namespaces. `target` is a target's name or `linux`.

    `edit(router, config)` may change the configuration of a P4 router. `frr_configs` maps a router
    to an FRR configuration that replaces its own.
    """

    def make(router: Router) -> RouterNode:
        place = namespaces[router.name]
        given = (frr_configs or {}).get(router.name)
        if router.kind is RouterKind.LINUX:
            return LinuxRouter(router, place, lab.directory, lab.supervisor, frr_config=given)
        if target == LINUX:
            return plain_linux(router, place, lab.directory, lab.supervisor, given)
        config = router.sluice_config()
        return P4Router(
            router,
            place,
            lab.directory,
            lab.supervisor,
            target=target,
            config=edit(router.name, config) if edit else config,
            frr_config=given,
        )

    return Network(
        topology,
        {host.name: HostNode(host, namespaces[host.name]) for host in topology.hosts},
        {router.name: make(router) for router in topology.routers},
    )


def build_in_lab(
    topology: Topology,
    lab: Lab,
    target: str | None = None,
    edit: Edit | None = None,
    frr_configs: Mapping[str, str] | None = None,
) -> Network:
    """Creates namespaces and links with the test kit, and the nodes in them."""
    names = [host.name for host in topology.hosts] + [r.name for r in topology.routers]
    namespaces = {name: lab.namespace(name) for name in names}
    for one, two in topology.links:
        veth(
            namespaces[one.node],
            end_name(topology, one, target),
            namespaces[two.node],
            end_name(topology, two, target),
        )
    return build(topology, namespaces, lab, target, edit, frr_configs)
