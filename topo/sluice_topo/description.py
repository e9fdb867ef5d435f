# SPDX-License-Identifier: Apache-2.0
"""Describes a topology: its hosts, routers and links. Pure data.

A router's files are in a directory with the router's name: `frr.conf`, and for a P4 router also
`sluice.yaml`. The files are written as an operator would write them, and used unchanged.
"""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

FILES = Path(__file__).resolve().parent.parent


class RouterKind(Enum):
    """Forwarding plane of a router: a P4 switch or the kernel."""

    P4 = "P4 switch"
    LINUX = "Linux kernel"


@dataclass(frozen=True)
class Host:
    """Describes a host with one interface, `eth0`, and a default route for each IP version."""

    name: str
    addresses: tuple[str, ...]
    gateways: tuple[str, ...]

    def address(self, version: int) -> str:
        """Returns the host's address of this IP version, without prefix length."""
        return next(a for a in self.addresses if (":" in a) == (version == 6)).partition("/")[0]


@dataclass(frozen=True)
class Router:
    """Describes a router, with the directory of its files."""

    name: str
    kind: RouterKind
    files: Path

    def frr_config(self) -> str:
        """Returns FRR's configuration (frr.conf)."""
        return (self.files / "frr.conf").read_text(encoding="utf-8")

    def sluice_config(self) -> dict[str, Any]:
        """Returns the controller's configuration, as a mapping."""
        loaded = yaml.safe_load((self.files / "sluice.yaml").read_text(encoding="utf-8"))
        assert isinstance(loaded, dict)
        return loaded


@dataclass(frozen=True)
class LinkEnd:
    """Names one end of a link: a node and its interface. On a P4 router, the interface is a switch
    port, `portN`.
    """

    node: str
    interface: str


@dataclass(frozen=True)
class Topology:
    """Describes hosts, routers and the links between them."""

    hosts: tuple[Host, ...]
    routers: tuple[Router, ...]
    links: tuple[tuple[LinkEnd, LinkEnd], ...]

    def router(self, name: str) -> Router:
        """Returns the router of this name."""
        return next(router for router in self.routers if router.name == name)


def two_sites() -> Topology:
    """Returns the topology of two sites with two transit networks of equal cost, for IPv4 and IPv6.

                       port2 +----+
                  .----------| t1 |----------.
    +----+  port1 |          +----+          | port1  +----+
    | h1 |------[ r1 ]                     [ r2 ]-----| h2 |
    +----+        |          +----+          |        +----+
                  '----------| t2 |----------'
                       port3 +----+

    r1 (AS 65001) and r2 (AS 65002) are P4 routers, t1 (AS 65101) and t2 (AS 65102) plain Linux
    routers. All four run FRR.
    """
    files = FILES / "two_sites"
    return Topology(
        hosts=(
            Host("h1", ("10.1.0.2/24", "2001:db8:1::2/64"), ("10.1.0.1", "2001:db8:1::1")),
            Host("h2", ("10.2.0.2/24", "2001:db8:2::2/64"), ("10.2.0.1", "2001:db8:2::1")),
        ),
        routers=(
            Router("r1", RouterKind.P4, files / "r1"),
            Router("r2", RouterKind.P4, files / "r2"),
            Router("t1", RouterKind.LINUX, files / "t1"),
            Router("t2", RouterKind.LINUX, files / "t2"),
        ),
        links=(
            (LinkEnd("h1", "eth0"), LinkEnd("r1", "port1")),
            (LinkEnd("r1", "port2"), LinkEnd("t1", "eth1")),
            (LinkEnd("r1", "port3"), LinkEnd("t2", "eth1")),
            (LinkEnd("r2", "port2"), LinkEnd("t1", "eth2")),
            (LinkEnd("r2", "port3"), LinkEnd("t2", "eth2")),
            (LinkEnd("h2", "eth0"), LinkEnd("r2", "port1")),
        ),
    )
