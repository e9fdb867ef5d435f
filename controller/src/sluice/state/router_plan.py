# SPDX-License-Identifier: Apache-2.0
"""Plans how `sluice up` takes over a router's interfaces, or names all reasons not to take them
over.

The switch must forward only packets that the kernel would forward in the same way. So a takeover is
refused if the kernel applies a feature to forwarded packets that the switch lacks: policy routing,
firewall rules for forwarded packets, IPsec policies, strict reverse-path filtering. Otherwise the
switch would silently pass packets that the kernel drops, or send in clear what the kernel encrypts.

The switch forwards a family (IPv4 or IPv6) on an interface only if the kernel does so there.

Pure. Depends on model and survey_model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sluice.model import InterfaceAddress, Mac
from sluice.survey_model import DOT1Q, ForwardingSettings, HostLink, HostSurvey

MOST_PORTS = 509
"""Number of the last port that the pipeline can use."""
LEAST_MTU, LARGEST_MTU = 1280, 9216
STRICT, LOOSE = 1, 2
NO_SETTINGS = ForwardingSettings(ipv4=False, ipv6=False, reverse_path=0)


@dataclass(frozen=True)
class PlannedPort:
    """Describes a port of the switch, for one network card."""

    number: int
    link: HostLink


@dataclass(frozen=True)
class PlannedInterface:
    """Describes a layer-3 interface: a network card, or a VLAN device on it."""

    name: str
    index: int
    port: int
    card: int
    """Index of the network card."""
    vlan: int
    mac: Mac
    mtu: int
    addresses: tuple[InterfaceAddress, ...]
    ipv4: bool
    ipv6: bool


@dataclass(frozen=True)
class RouterPlan:
    """Holds the plan. If `problems` is not empty, the host must not be taken over."""

    ports: tuple[PlannedPort, ...]
    interfaces: tuple[PlannedInterface, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


def plan(survey: HostSurvey, names: Sequence[str]) -> RouterPlan:
    """Plans to take over the interfaces called `names`, with all VLAN devices on them."""
    by_name = {link.name: link for link in survey.links}
    problems = [f"{name}: given twice" for name in sorted({n for n in names if names.count(n) > 1})]
    ports: list[PlannedPort] = []
    interfaces: list[PlannedInterface] = []
    notes: list[str] = []
    for name in dict.fromkeys(names):
        card = by_name.get(name)
        reasons = ["there is no such interface"] if card is None else _reasons(card, survey)
        problems += [f"{name}: {reason}" for reason in reasons]
        if card is None or reasons:
            continue
        port = PlannedPort(len(ports) + 1, card)
        ports.append(port)
        vlans = [one for one in _above(card, survey) if one.kind == "vlan"]
        for link in (card, *vlans):
            reasons = _interface_reasons(link)
            if link.kind == "vlan":  # `_reasons` has checked the card's
                reasons += _use_reasons(link, survey)
            problems += [f"{link.name}: {reason}" for reason in reasons]
            interfaces.append(_interface(link, port, survey))
            others = [one for one in _above(link, survey) if one not in vlans]
            problems += [
                f"{one.name}: gets frames to the MAC address of {link.name} ({one.kind}), which"
                " would go to the switch; delete it"
                for one in others
                if one.takes_frames
            ]
            notes += [
                f"{one.name} ({one.kind} on {link.name}) stays with the kernel: the kernel"
                " forwards its packets"
                for one in others
                if not one.takes_frames
            ]
    problems += _host_reasons(survey, interfaces)
    notes += _notes(survey, interfaces)
    return RouterPlan(tuple(ports), tuple(interfaces), tuple(notes), tuple(problems))


def _above(link: HostLink, survey: HostSurvey) -> list[HostLink]:
    """Returns the devices whose lower device is this interface, such as VLANs."""
    return [one for one in survey.links if one.lower == link.index]


def _interface(link: HostLink, port: PlannedPort, survey: HostSurvey) -> PlannedInterface:
    settings = survey.forwarding.get(link.name, NO_SETTINGS)
    return PlannedInterface(
        link.name,
        link.index,
        port.number,
        port.link.index,
        link.vlan,
        link.mac,
        link.mtu,
        survey.addresses.get(link.index, ()),
        settings.ipv4,
        settings.ipv6,
    )


def _reasons(card: HostLink, survey: HostSurvey) -> list[str]:
    """Returns why the switch cannot have this interface as a port."""
    if card.kind == "vlan":
        lower = next((link.name for link in survey.links if link.index == card.lower), "?")
        return [f"is a VLAN of {lower}; name {lower}, its VLANs are taken over with it"]
    if not card.is_ethernet or card.kind not in ("", "veth"):
        kind = card.kind or "loopback or without Ethernet headers"
        return [f"is not a network card ({kind}); name the cards below it, if they have addresses"]
    return _use_reasons(card, survey)


def _use_reasons(link: HostLink, survey: HostSurvey) -> list[str]:
    """Returns the other uses of an interface that the switch would bypass."""
    reasons = []
    if link.master is not None:
        master = next((one for one in survey.links if one.index == link.master), None)
        what = "another device" if master is None else f"{master.name} ({master.kind})"
        reasons.append(f"belongs to {what}; take it out (`ip link set {link.name} nomaster`)")
    if link.has_xdp:
        reasons.append("has an XDP program, which frames of the switch would not pass")
    if link.index in survey.filtered:
        reasons.append(
            "has an ingress or clsact qdisc, or a tcx program, which frames for the switch would"
            f" not pass; end the takeover that it belongs to (`sluice down`), or remove it (`tc"
            f" qdisc del dev {link.name} clsact`, or `ingress`)"
        )
    return reasons


def _interface_reasons(link: HostLink) -> list[str]:
    reasons = []
    if link.vlan and link.vlan_protocol != DOT1Q:
        reasons.append(f"is a VLAN of protocol {link.vlan_protocol:#06x}; only 802.1Q is supported")
    if not LEAST_MTU <= link.mtu <= LARGEST_MTU:
        reasons.append(
            f"has an MTU of {link.mtu} bytes; the switch supports {LEAST_MTU} to {LARGEST_MTU}"
        )
    return reasons


def _host_reasons(survey: HostSurvey, interfaces: Iterable[PlannedInterface]) -> list[str]:
    """Returns the features of the kernel that would make it forward differently from the switch."""
    planned = list(interfaces)
    reasons = [
        f"{rule}: the switch would not apply this rule of policy routing; delete it"
        for rule in survey.rules
    ]
    reasons += [
        f"{rule}: the switch would not apply it to forwarded packets; delete it, or filter at"
        " another router"
        for rule in survey.firewall
    ]
    reasons += [
        f"{policy}: the switch would forward in clear what this IPsec policy protects or blocks;"
        " use `sluice run` with an SPD of `source: kernel`"
        for policy in survey.policies
    ]
    reasons += [f"{routes}: the switch cannot apply these routes" for routes in survey.routes]
    for one in planned:
        settings = survey.forwarding.get(one.name, NO_SETTINGS)
        if settings.ipv4 and settings.reverse_path == STRICT:
            reasons.append(
                f"{one.name}: has a strict reverse-path filter, which the switch would not apply;"
                f" set net.ipv4.conf.{one.name}.rp_filter and net.ipv4.conf.all.rp_filter to 0"
                " or 2"
            )
    if planned and not any(one.ipv4 or one.ipv6 for one in planned):
        reasons.append(
            "the kernel forwards on none of these interfaces, so this host is not a router:"
            " set net.ipv4.ip_forward=1 or net.ipv6.conf.all.forwarding=1"
        )
    return reasons


def _notes(survey: HostSurvey, interfaces: Iterable[PlannedInterface]) -> list[str]:
    notes = []
    for one in interfaces:
        off = [name for name, on in (("IPv4", one.ipv4), ("IPv6", one.ipv6)) if not on]
        if off:
            notes.append(
                f"{one.name}: the kernel does not forward {' and '.join(off)}, so neither"
                " does the switch"
            )
        if one.ipv4 and survey.forwarding.get(one.name, NO_SETTINGS).reverse_path == LOOSE:
            notes.append(
                f"{one.name}: has a loose reverse-path filter; the switch forwards packets whose"
                " source has no route"
            )
    return notes
