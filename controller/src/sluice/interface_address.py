# SPDX-License-Identifier: Apache-2.0
"""Checks whether an interface can have an address. Depends on model and scalars."""

from __future__ import annotations

import ipaddress

from sluice import scalars
from sluice.model import InterfaceAddress

_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
_POINT_TO_POINT = {4: 31, 16: 127}
"""Shortest prefix length at which every address of the prefix is a host address (RFC 3021, RFC
6164). The key is the address size in bytes."""


@scalars.takes("`ADDRESS/LENGTH`")
def interface_address(value: object) -> InterfaceAddress:
    """Parses ``10.1.1.1/24``. Raises ValueError. This includes an address that no host can have."""
    found = InterfaceAddress.parse(scalars.text(value))
    why = _why_not(found)
    if why is not None:
        raise ValueError(f"{found} {why}; give the interface a unicast host address")
    return found


def _why_not(found: InterfaceAddress) -> str | None:
    """Returns the reason why no interface can have this address, or None.

    See RFC 1122 (3.2.1.3) and RFC 4291 (2.4 to 2.7).
    """
    address = ipaddress.ip_address(found.address)
    if address.is_unspecified:
        return "is the unspecified address"
    if address.is_loopback:
        return "is a loopback address"
    if address.is_multicast:
        return "is a multicast address"
    if isinstance(address, ipaddress.IPv4Address):
        if address in _THIS_NETWORK or address.is_reserved:
            return "is reserved"
    elif address.ipv4_mapped is not None:
        return "is an IPv4-mapped address"
    if found.length >= _POINT_TO_POINT[len(found.address)]:
        return None
    host = int(address) & (1 << address.max_prefixlen - found.length) - 1
    if host == 0:
        return "is the address of the subnet itself"
    if address.version == 4 and host == (1 << address.max_prefixlen - found.length) - 1:
        return "is the subnet's broadcast address"
    return None
