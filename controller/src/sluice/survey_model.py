# SPDX-License-Identifier: Apache-2.0
"""Defines the state of a host that `sluice up` reads before it takes over the host's interfaces.

`sources.host_survey` fills a `HostSurvey`; `state.router_plan` decides from it. Depends only on
model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sluice.model import InterfaceAddress, Mac, Prefix

DOT1Q = 0x8100
"""Tag protocol identifier of 802.1Q."""


@dataclass(frozen=True)
class HostLink:
    """Describes a network interface of the host.

    - `kind`: the kernel's name of a virtual device's type (IFLA_INFO_KIND), or "" for a network
      card.
    - `lower`: the interface below this one, if both are in the same network namespace.
    - `master`: the bridge, bond or VRF device that the interface belongs to.
    - `vlan`, `vlan_protocol`: the VLAN of a VLAN device.
    - `is_ethernet`: whether its frames have Ethernet headers. False for loopback.
    - `has_xdp`: whether an XDP program is attached.
    - `takes_frames`: whether the device receives frames to the MAC address of the interface below
      (ipvlan, and macvlan in mode passthru).
    """

    index: int
    name: str
    kind: str
    mac: Mac
    mtu: int
    is_up: bool
    is_ethernet: bool
    lower: int | None = None
    master: int | None = None
    vlan: int = 0
    vlan_protocol: int = 0
    has_xdp: bool = False
    takes_frames: bool = False


class ForwardingSettings(NamedTuple):
    """Holds the kernel's settings of an interface: which families it forwards, and its
    reverse-path filter (0 off, 1 strict, 2 loose)."""

    ipv4: bool
    ipv6: bool
    reverse_path: int


@dataclass(frozen=True)
class HostSurvey:
    """Holds the state of a host's network namespace.

    - `forwarding`: the settings by interface name.
    - `addresses`: by interface index.
    - `local`: the prefixes of the kernel's local table, whose packets are for this host.
    - `rules`: the policy routing rules that the kernel does not have by default, as text.
    - `firewall`: the rules and chains that may drop or change forwarded packets, as text.
    - `policies`: the kernel's IPsec policies that do more than bypass, as text.
    - `routes`: the kinds of routes that only the kernel can apply, as text.
    - `filtered`: the interfaces whose frames pass tc filters or tcx programs of other programs.
    - `route_count`, `neighbor_count`: numbers for the operator.
    """

    links: tuple[HostLink, ...]
    forwarding: dict[str, ForwardingSettings]
    addresses: dict[int, tuple[InterfaceAddress, ...]] = field(default_factory=dict)
    local: frozenset[Prefix] = frozenset()
    rules: tuple[str, ...] = ()
    firewall: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    filtered: frozenset[int] = frozenset()
    route_count: int = 0
    neighbor_count: int = 0
