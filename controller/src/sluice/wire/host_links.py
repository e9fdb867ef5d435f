# SPDX-License-Identifier: Apache-2.0
"""Decodes what `sluice up` reads from a host by rtnetlink: links, policy routing rules, qdiscs, and
the routes of the local table. Encodes the dump requests.

Depends on survey_model and other modules of `wire`.
"""

from __future__ import annotations

from struct import Struct

from sluice.model import Prefix
from sluice.survey_model import HostLink
from sluice.wire.errors import WireError
from sluice.wire.netlink import NLM_F_DUMP, NLM_F_REQUEST, U8, U16, U32, attributes, fixed, message
from sluice.wire.routes import (
    ADDRESS_SIZE,
    AF_INET,
    AF_INET6,
    RTA_DST,
    RTA_TABLE,
    RTM_F_CLONED,
    RTMSG,
    RTN_LOCAL,
)
from sluice.wire.rtnetlink import (
    IFF_UP,
    IFINFOMSG,
    IFLA_ADDRESS,
    IFLA_IFNAME,
    IFLA_INFO_DATA,
    IFLA_INFO_KIND,
    IFLA_LINK,
    IFLA_LINK_NETNSID,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IFLA_MTU,
    MAC_SIZE,
    NO_MAC,
)

RTM_NEWRULE, RTM_GETRULE = 32, 34
RTM_NEWQDISC, RTM_GETQDISC = 36, 38
LOCAL_TABLE, MAIN_TABLE, DEFAULT_TABLE = 255, 254, 253
RTN_BROADCAST, RTN_ANYCAST = 3, 4
FOR_THIS_HOST = frozenset({RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST})

COMPATIBLE_TABLE = 252
"""Table in the header of a route in a table above 255."""
MISPLACED = {
    "route_in_table_default": "routes of table default",
    "route_in_table_local": "routes of table local that are not for this host",
    "local_route_in_main": "local, broadcast and anycast routes of table main",
}
"""Routes outside of the main table that decide about forwarded packets, and routes in it for this
host."""

ARPHRD_ETHER = 1
IFF_LOOPBACK = 0x8
IFLA_XDP, IFLA_XDP_ATTACHED = 43, 2
IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL = 1, 5
IFLA_MACVLAN_MODE, MACVLAN_MODE_PASSTHRU = 1, 8
MACVLAN_KINDS, IPVLAN_KINDS = ("macvlan", "macvtap"), ("ipvlan", "ipvtap")
KINDS_WITH_DATA = ("vlan", *MACVLAN_KINDS)

# struct fib_rule_hdr: family, dst_len, src_len, tos, table, reserved, reserved, action, flags
RULE = Struct("=8BI")
FRA_PRIORITY, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, FRA_PROTOCOL = 6, 14, 15, 21
TO_TABLE = 1
PLAIN_RULE = frozenset({FRA_PRIORITY, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, FRA_PROTOCOL})
"""Attributes of a rule that matches every packet."""
DEFAULT_RULES = frozenset({(0, LOCAL_TABLE), (32766, MAIN_TABLE), (32767, DEFAULT_TABLE)})
"""Priority and table of the rules that the kernel itself adds."""
NO_SUPPRESSION = 0xFFFFFFFF

TCMSG = Struct("=BBHiIII")
TC_H_INGRESS = 0xFFFFFFF1
TCA_KIND = 1


def decode_link(body: bytes) -> HostLink:
    """Decodes the body of an RTM_NEWLINK. Raises WireError."""
    if len(body) < IFINFOMSG.size:
        raise WireError("link_truncated", 0, f"{len(body)} bytes of {IFINFOMSG.size}")
    _, _, form, index, flags, _ = IFINFOMSG.unpack_from(body)
    found = attributes(body, IFINFOMSG.size)
    info = attributes(found.get(IFLA_LINKINFO, b""), 0)
    kind = info.get(IFLA_INFO_KIND, b"").rstrip(b"\0").decode("utf-8", "backslashreplace")
    data = attributes(info.get(IFLA_INFO_DATA, b""), 0) if kind in KINDS_WITH_DATA else {}
    vlan = data if kind == "vlan" else {}
    mode = _number(data, IFLA_MACVLAN_MODE, U32) if kind in MACVLAN_KINDS else 0
    mac = found.get(IFLA_ADDRESS, NO_MAC)
    # For a veth, IFLA_LINK is the other end of the pair; for a VLAN device it is the card below.
    is_above = kind != "veth" and IFLA_LINK in found and IFLA_LINK_NETNSID not in found
    xdp = attributes(found.get(IFLA_XDP, b""), 0)
    return HostLink(
        index,
        found.get(IFLA_IFNAME, b"").rstrip(b"\0").decode("utf-8", "backslashreplace"),
        kind,
        mac if len(mac) == MAC_SIZE else NO_MAC,
        _number(found, IFLA_MTU, U32),
        bool(flags & IFF_UP),
        form & 0xFFFF == ARPHRD_ETHER and not flags & IFF_LOOPBACK,
        _number(found, IFLA_LINK, U32) if is_above else None,
        _number(found, IFLA_MASTER, U32) if IFLA_MASTER in found else None,
        _number(vlan, IFLA_VLAN_ID, U16),
        int.from_bytes(vlan.get(IFLA_VLAN_PROTOCOL, b""), "big"),
        bool(_number(xdp, IFLA_XDP_ATTACHED, U8)),
        kind in IPVLAN_KINDS or mode == MACVLAN_MODE_PASSTHRU,
    )


def _number(found: dict[int, bytes], kind: int, form: Struct) -> int:
    return fixed(found[kind], f"attribute {kind}", form, 0) if kind in found else 0


def decode_rule(body: bytes) -> str | None:
    """Returns a policy routing rule as text. Returns None for a rule that the kernel has by
    default."""
    if len(body) < RULE.size:
        raise WireError("rule_truncated", 0, f"{len(body)} bytes of {RULE.size}")
    family, destination, source, tos, table, _, _, action, flags = RULE.unpack_from(body)
    found = attributes(body, RULE.size)
    priority = _number(found, FRA_PRIORITY, U32)
    table = _number(found, FRA_TABLE, U32) or table
    suppressed = FRA_SUPPRESS_PREFIXLEN in found and (
        _number(found, FRA_SUPPRESS_PREFIXLEN, U32) != NO_SUPPRESSION
    )
    is_plain = not (destination or source or tos or flags or suppressed)
    if is_plain and action == TO_TABLE and PLAIN_RULE.issuperset(found):
        if (priority, table) in DEFAULT_RULES:
            return None
        return f"ip {_option(family)}rule {priority} to table {table}"
    return f"ip {_option(family)}rule {priority}"


def _option(family: int) -> str:
    return "-6 " if family == AF_INET6 else ""


def decode_local_route(body: bytes) -> Prefix | None:
    """Returns the prefix of a route whose packets are for this host, or None for other routes."""
    if len(body) < RTMSG.size:
        raise WireError("route_truncated", 0, f"{len(body)} bytes, rtmsg has {RTMSG.size}")
    family, length, _, _, table, _, _, form, _ = RTMSG.unpack_from(body)
    found = attributes(body, RTMSG.size)
    table = _number(found, RTA_TABLE, U32) or table
    if table != LOCAL_TABLE or form not in FOR_THIS_HOST or family not in ADDRESS_SIZE:
        return None
    return Prefix.of(found.get(RTA_DST, bytes(ADDRESS_SIZE[family])), length)


def misplaced(body: bytes) -> str | None:
    """Returns the reason, as a name of `MISPLACED`, if a route is treated by other rules than the
    usual routes of its table. Returns None for usual routes.

    `body` is the body of an RTM_NEWROUTE. Raises WireError.
    """
    if len(body) < RTMSG.size:
        raise WireError("route_truncated", 0, f"{len(body)} bytes, rtmsg has {RTMSG.size}")
    family, length, _, _, table, _, _, form, flags = RTMSG.unpack_from(body)
    if flags & RTM_F_CLONED or family not in ADDRESS_SIZE or table == COMPATIBLE_TABLE:
        return None
    if table == DEFAULT_TABLE:
        return "route_in_table_default"
    if table not in (LOCAL_TABLE, MAIN_TABLE) or _is_multicast(family, length, body):
        return None
    if table == LOCAL_TABLE:
        return None if form in FOR_THIS_HOST else "route_in_table_local"
    return "local_route_in_main" if form in FOR_THIS_HOST else None


def _is_multicast(family: int, length: int, body: bytes) -> bool:
    """Returns whether all addresses in a route's prefix are multicast groups."""
    first = attributes(body, RTMSG.size).get(RTA_DST, b"\0")[:1]
    return (
        (length >= 4 and first >= b"\xe0")
        if family == AF_INET
        else (length >= 8 and first == b"\xff")
    )


def decode_ingress_qdisc(body: bytes) -> int | None:
    """Returns the interface of an ingress or clsact qdisc, or None for other qdiscs."""
    if len(body) < TCMSG.size:
        raise WireError("qdisc_truncated", 0, f"{len(body)} bytes of {TCMSG.size}")
    _, _, _, index, _, parent, _ = TCMSG.unpack_from(body)
    return int(index) if parent == TC_H_INGRESS else None


def dump_rules(sequence: int, family: int) -> bytes:
    """Encodes a dump request for the policy routing rules of a family."""
    body = RULE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
    return message(RTM_GETRULE, NLM_F_REQUEST | NLM_F_DUMP, sequence, body)
