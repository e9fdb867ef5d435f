# SPDX-License-Identifier: Apache-2.0
"""Applies kernel settings to a host interface, so that it neither forwards packets nor learns
routes.

The settings are written before the interface is up, so it never works with other settings. Depends
on /proc/sys of the process's network namespace.
"""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc/sys/net")

REQUIRED = (
    # The switch forwards, not the kernel.
    ("ipv4", "forwarding", "0"),
    ("ipv4", "proxy_arp", "0"),
    # Only routing daemons install routes.
    ("ipv4", "accept_redirects", "0"),
    ("ipv4", "secure_redirects", "0"),
    ("ipv4", "send_redirects", "0"),
    ("ipv4", "accept_source_route", "0"),
    ("ipv6", "accept_ra", "0"),
    ("ipv6", "autoconf", "0"),
    ("ipv6", "accept_redirects", "0"),
    ("ipv6", "accept_source_route", "0"),
    # An interface answers ARP only for its own addresses, and uses one of these as the source of
    # its requests.
    ("ipv4", "arp_ignore", "1"),
    ("ipv4", "arp_announce", "2"),
    # Makes this host act as a router towards its neighbours: sets the R flag in neighbour
    # advertisements (RFC 4861 section 7.2.4) and stops router solicitations. Forwarding itself
    # depends on `all.forwarding` and, since Linux 6.17, on `force_forwarding`.
    ("ipv6", "forwarding", "1"),
    # Duplicate address detection runs (RFC 4862, section 5.4). A duplicate address is disabled.
    ("ipv6", "accept_dad", "1"),
    # The router's policy protects the packets that the host sends, and checks those that the host
    # receives. The kernel must not apply its own IPsec policies: they are only input for the
    # router's policy. IPv6 has no `disable_xfrm`.
    ("ipv4", "disable_xfrm", "1"),
    ("ipv4", "disable_policy", "1"),
    # IPv6 addresses stay while the port is down, so routing daemons find them when the port is up
    # again.
    ("ipv6", "keep_addr_on_down", "1"),
)
# Settings that some kernels lack. They are applied where they exist.
OPTIONAL = (
    ("ipv6", "force_forwarding", "0"),
    ("ipv6", "router_solicitations", "0"),
    ("ipv6", "disable_policy", "1"),
)


def configure_interface(interface: str) -> None:
    """Applies the settings to a network interface. Raises OSError that names the failed setting."""
    for family, name, value in REQUIRED:
        _write(family, name, interface, value)
    for family, name, value in OPTIONAL:
        if _path(family, name, interface).exists():
            _write(family, name, interface, value)
    _write("ipv4", "rp_filter", interface, _reverse_path_filter())


def restore(interface: str) -> list[str]:
    """Writes settings again that another program has changed.

    Returns a description of each restored setting. Raises OSError.
    """
    changed = []
    optional = [one for one in OPTIONAL if _path(*one[:2], interface).exists()]
    wanted = (*REQUIRED, *optional, ("ipv4", "rp_filter", _reverse_path_filter()))
    for family, name, value in wanted:
        if _path(family, name, interface).read_text().strip() != value:
            _write(family, name, interface, value)
            changed.append(f"net.{family}.conf.{interface}.{name} was not {value}")
    return changed


def _reverse_path_filter() -> str:
    """Returns "0" (off), so that packets for the router may arrive on any interface from any
    source.

    The kernel uses the larger of this value and the value of `all`. If `all` is strict (1), returns
    "2" (loose), which is the weakest check that can still be set.
    """
    return "2" if _path("ipv4", "rp_filter", "all").read_text().strip() == "1" else "0"


def _path(family: str, name: str, interface: str) -> Path:
    return PROC / family / "conf" / interface / name


def _write(family: str, name: str, interface: str, value: str) -> None:
    path = _path(family, name, interface)
    try:
        path.write_text(value)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot set {name} of interface {interface} to {value} ({error.strerror}); "
            "the controller needs CAP_NET_ADMIN and a writable /proc/sys/net",
            str(path),
        ) from error
