# SPDX-License-Identifier: Apache-2.0
"""Reads the state of the host that `sluice up` needs: links, rules, firewall, IPsec policies.

Reads the network namespace of the calling thread. Depends on wire, and on libnftables for the
firewall's rules.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sluice.model import AddressAdded, InterfaceAddress, NeighborChanged, Prefix
from sluice.sources import bpf
from sluice.sources.ike_ports import Netfilter
from sluice.sources.interface_settings import PROC
from sluice.sources.links import ask
from sluice.sources.netlink_socket import NetlinkSocket
from sluice.sources.xfrm import XfrmMonitor
from sluice.survey_model import ForwardingSettings, HostLink, HostSurvey
from sluice.wire import host_links, rtnetlink, tc
from sluice.wire.firewall import forwarding_chains
from sluice.wire.netlink import NLM_F_DUMP
from sluice.wire.routes import AF_INET, AF_INET6, RTM_GETROUTE, RTMSG
from sluice.xfrm_model import KernelPolicy, PolicyAction

LEGACY = (Path("/proc/net/ip_tables_names"), Path("/proc/net/ip6_tables_names"))
"""Files that name the tables of iptables-legacy that are in use."""
NETLINK_NETFILTER = 12
TCX_HOOKS = (bpf.AttachType.INGRESS, bpf.AttachType.EGRESS)


class SilentState(NamedTuple):
    """Holds the parts of the host's state that change without a kernel notification."""

    legacy: tuple[str, ...]
    programs: tuple[int, ...]
    forwarding: tuple[ForwardingSettings, ...]


def silent_state(interfaces: Iterable[tuple[str, int]]) -> SilentState:
    """Reads the `SilentState` of interfaces, given by name and index.

    Cheaper than `survey`. Raises OSError.
    """
    known = tuple(interfaces)
    return SilentState(
        tuple(_legacy_tables()),
        tuple(bpf.attached(index, hook) for _, index in known for hook in TCX_HOOKS),
        tuple(_settings(name) for name, _ in known),
    )


def survey(own: Collection[int] = ()) -> HostSurvey:
    """Reads the whole state. Raises OSError if a part cannot be read.

    `own`: indexes of the interfaces to which this process has attached programs.
    """
    links = read_links()
    return HostSurvey(
        links,
        {link.name: _settings(link.name) for link in links},
        _addresses(),
        read_local_prefixes(),
        _rules(),
        _firewall(),
        _policies(),
        filtered=_filtered(links, own),
        neighbor_count=_neighbor_count(),
    )


def read_links() -> tuple[HostLink, ...]:
    """Returns all network interfaces."""
    body = rtnetlink.IFINFOMSG.pack(0, 0, 0, 0, 0, 0)
    answers = ask(rtnetlink.RTM_GETLINK, NLM_F_DUMP, body, "links")
    return tuple(host_links.decode_link(one.body) for one in answers)


def read_local_prefixes() -> frozenset[Prefix]:
    """Returns the prefixes whose packets are for this host."""
    found: set[Prefix] = set()
    for family in (AF_INET, AF_INET6):
        body = RTMSG.pack(family, 0, 0, 0, host_links.LOCAL_TABLE, 0, 0, 0, 0)
        for answer in ask(RTM_GETROUTE, NLM_F_DUMP, body, "local addresses"):
            prefix = host_links.decode_local_route(answer.body)
            if prefix is not None:
                found.add(prefix)
    return frozenset(found)


def _settings(name: str) -> ForwardingSettings:
    def number(family: str, where: str, key: str, absent: int = 0) -> int:
        try:
            return int((PROC / family / "conf" / where / key).read_text())
        except FileNotFoundError:  # IPv6 is off, or the kernel is too old
            return absent

    is_ipv6_off = number("ipv6", name, "disable_ipv6", absent=1)
    ipv6 = number("ipv6", "all", "forwarding") or number("ipv6", name, "force_forwarding")
    reverse_path = max(number("ipv4", one, "rp_filter") for one in ("all", name))
    return ForwardingSettings(
        bool(number("ipv4", name, "forwarding")), bool(ipv6 and not is_ipv6_off), reverse_path
    )


def _addresses() -> dict[int, tuple[InterfaceAddress, ...]]:
    body = rtnetlink.IFADDRMSG.pack(0, 0, 0, 0, 0)
    found: dict[int, tuple[InterfaceAddress, ...]] = {}
    for answer in ask(rtnetlink.RTM_GETADDR, NLM_F_DUMP, body, "addresses"):
        event = rtnetlink.decode_kernel_message(rtnetlink.RTM_NEWADDR, answer.body, 0)
        if isinstance(event, AddressAdded):
            found[event.ifindex] = (*found.get(event.ifindex, ()), event.address)
    return found


def _neighbor_count() -> int:
    body = rtnetlink.NDMSG.pack(0, 0, 0, 0, 0, 0, 0)
    answers = ask(rtnetlink.RTM_GETNEIGH, NLM_F_DUMP, body, "neighbours")
    events = (
        rtnetlink.decode_kernel_message(rtnetlink.RTM_NEWNEIGH, one.body, 0) for one in answers
    )
    return sum(isinstance(one, NeighborChanged) and one.mac is not None for one in events)


def _rules() -> tuple[str, ...]:
    found = []
    for family in (AF_INET, AF_INET6):
        body = host_links.RULE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
        try:
            answers = ask(host_links.RTM_GETRULE, NLM_F_DUMP, body, "policy routing rules")
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EAFNOSUPPORT):  # no policy routing
                continue
            raise
        found += [rule for one in answers if (rule := host_links.decode_rule(one.body))]
    return tuple(found)


def _filtered(links: tuple[HostLink, ...], own: Collection[int]) -> frozenset[int]:
    """Returns the interfaces with programs at the ingress hook of tcx, or with an ingress or clsact
    qdisc.

    Leaves out the programs of this process, and a qdisc that a killed `sluice up` left. For a VLAN
    device, programs at the egress hook count too, because the switch's packets would bypass them.
    """
    body = host_links.TCMSG.pack(0, 0, 0, 0, 0, 0, 0)
    answers = ask(host_links.RTM_GETQDISC, NLM_F_DUMP, body, "qdiscs")
    found = {host_links.decode_ingress_qdisc(one.body) for one in answers}
    return frozenset(
        link.index
        for link in links
        if (link.index in found and not has_our_filter(link.index))
        or bpf.attached(link.index, bpf.AttachType.INGRESS) > (link.index in own)
        or (link.kind == "vlan" and bpf.attached(link.index, bpf.AttachType.EGRESS))
    )


def has_our_filter(ifindex: int) -> bool:
    """Returns whether an interface has a filter of `sluice up`."""
    for hook in tc.Hook:
        try:
            body = tc.filters(ifindex, hook)
            answers = ask(tc.RTM_GETTFILTER, NLM_F_DUMP, body, "filters")
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP):  # no such hook
                continue
            raise
        if any(tc.is_ours(one.body) for one in answers):
            return True
    return False


def _policies() -> tuple[str, ...]:
    try:
        monitor = XfrmMonitor()
    except OSError as error:
        if error.errno in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT):  # no XFRM in the kernel
            return ()
        raise
    try:
        monitor.start()
        found = [_policy_text(one) for one in monitor.policies.values() if not _is_bypass(one)]
        found += [
            f"ip xfrm policy default of direction {name} is block"
            for name, action in zip(("in", "fwd", "out"), monitor.defaults, strict=True)
            if action == PolicyAction.BLOCK
        ]
    finally:
        monitor.close()
    return tuple(found)


def _is_bypass(policy: KernelPolicy) -> bool:
    return policy.action == PolicyAction.ALLOW and not policy.templates


def _policy_text(policy: KernelPolicy) -> str:
    selector = policy.selector
    return (
        f"ip xfrm policy dir {policy.direction.name.lower()} from {selector.source}"
        f" to {selector.destination}"
    )


def _firewall() -> tuple[str, ...]:
    return (*_legacy_tables(), *_nftables())


def _legacy_tables() -> Iterator[str]:
    for path in LEGACY:
        try:
            tables = path.read_text().split()
        except FileNotFoundError:
            continue
        if tables:
            name = "iptables" if path is LEGACY[0] else "ip6tables"
            yield (
                f"{name}-legacy tables {' and '.join(sorted(tables))} (remove their rules, then the"
                " kernel's modules)"
            )


def _nftables() -> list[str]:
    try:
        NetlinkSocket(protocol=NETLINK_NETFILTER).close()
    except OSError:  # no nftables in the kernel
        return []
    netfilter = None
    try:
        netfilter = Netfilter(as_json=True)
        return forwarding_chains(netfilter.run("list ruleset"))
    except (OSError, ValueError) as error:
        return [f"nftables rules, which cannot be read ({error}; install libnftables1)"]
    finally:
        if netfilter is not None:
            netfilter.close()
