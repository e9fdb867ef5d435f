# SPDX-License-Identifier: Apache-2.0
"""Tests the statements in docs/how-to/frr.md about `no zebra nexthop kernel enable`, with a real
zebra.

One FRR has a static route with two next hops. There is no switch. A listener counts zebra's FPM
messages.
"""

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from sluice_testkit.frr import Frr
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.wait import wait_until

PREFIX = "203.0.113.0/24"
NEWROUTE, NEWNEXTHOP = 24, 104
NETLINK_HEADER, ROUTE_HEADER, FPM_HEADER = 16, 12, 4
NEXTHOP_ID = 30  # RTA_NH_ID
ROUTES = f"ip route {PREFIX} 10.0.0.2\nip route {PREFIX} 10.0.1.2\n"
FPM = "fpm address 127.0.0.1 port 2620\n"


class FpmCounter:
    """Listens for zebra's FPM connection. Counts next-hop objects, routes that refer to a next-hop
    object, and all other routes.
    """

    def __init__(self, namespace: Namespace) -> None:
        self.seen: Counter[str] = Counter()
        self._listener = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 2620))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Closes the listener."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        with connection, connection.makefile("rb") as stream:
            while len(header := stream.read(FPM_HEADER)) == FPM_HEADER:
                (length,) = struct.unpack_from("!H", header, 2)
                self._count(stream.read(length - FPM_HEADER))

    def _count(self, messages: bytes) -> None:
        while len(messages) >= NETLINK_HEADER:
            length, kind = struct.unpack_from("=IH", messages)
            if kind == NEWNEXTHOP:
                self.seen["objects"] += 1
            elif kind == NEWROUTE:
                attributes = messages[NETLINK_HEADER + ROUTE_HEADER : length]
                self.seen["by object" if has_nexthop_id(attributes) else "whole"] += 1
            messages = messages[(length + 3) & ~3 :]


def has_nexthop_id(attributes: bytes) -> bool:
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind & 0x3FFF == NEXTHOP_ID:
            return True
        attributes = attributes[max(4, (length + 3) & ~3) :]
    return False


class Router:
    """Runs FRR in a namespace that has two links to a neighbour."""

    def __init__(self, lab: Lab, name: str, config: str) -> None:
        self.namespace, self.far = lab.namespace(name), lab.namespace(f"{name}-far")
        for number, leg in enumerate(("a", "b")):
            veth(self.namespace, leg, self.far, f"far-{leg}")
            self.namespace.add_address(leg, f"10.0.{number}.1/24")
            self.far.add_address(f"far-{leg}", f"10.0.{number}.2/24")
        self.fpm = FpmCounter(self.namespace)
        self.frr = Frr(
            name, self.namespace, config + ROUTES, lab.directory, lab.supervisor, fpm=True
        )
        self.frr.start()

    def kernel_legs(self) -> int:
        """Returns the number of next hops that the kernel has for the route."""
        return self.namespace.run("ip", "route", "show", PREFIX).stdout.count("via ")


@pytest.fixture
def routers(lab: Lab) -> Iterator[list[Router]]:
    made: list[Router] = []
    yield made
    for router in made:
        router.frr.stop()
        router.fpm.close()


def test_with_both_lines_a_leg_comes_back_and_routes_say_where_they_lead(
    lab: Lab, routers: list[Router]
) -> None:
    router = Router(lab, "r", "no zebra nexthop kernel enable\nno fpm use-next-hop-groups\n" + FPM)
    routers.append(router)
    wait_until(lambda: router.kernel_legs() == 2, 20, "both legs in the kernel's route")
    wait_until(lambda: router.fpm.seen["whole"], 20, "routes over FPM")
    router.far.link_up("far-b", False)
    wait_until(lambda: router.kernel_legs() == 1, 20, "the kernel to remove one leg")
    router.far.link_up("far-b")
    wait_until(lambda: router.kernel_legs() == 2, 20, "the leg to be back")
    assert "nhid" not in router.namespace.run("ip", "route", "show", PREFIX).stdout
    assert (router.fpm.seen["by object"], router.fpm.seen["objects"]) == (0, 0)


def test_with_the_kernels_line_alone_fpms_routes_name_objects_that_never_come(
    lab: Lab, routers: list[Router]
) -> None:
    router = Router(lab, "r", "no zebra nexthop kernel enable\n" + FPM)
    routers.append(router)
    if "8.4" not in router.frr.vtysh("show version"):
        pytest.skip("said of FRR 8.4")
    wait_until(lambda: router.fpm.seen["by object"] >= 2, 20, "routes over FPM")
    router.far.link_up("far-b", False)
    before = router.fpm.seen["by object"]
    wait_until(lambda: router.fpm.seen["by object"] > before, 20, "the route with one leg")
    assert router.fpm.seen["objects"] == 0
