# SPDX-License-Identifier: Apache-2.0
"""Keeps the source ports of IKE for the users who may run it.

The generated rules bypass what this router sends from UDP ports 500 and 4500, to any address. Port
4500 is not privileged on Linux, so without this every local user could send past the SPD. A
netfilter rule looks at the user of the socket while a packet leaves: to ask for the port's owner
later would be too late, since SO_REUSEADDR lets two users hold one port, and a socket may be closed
again by then. The rule is for all interfaces of the network namespace but loopback, since others
may stand above a host interface (macvlan, ipvlan). It comes before the host interfaces and goes
with this process: its table has an owner (NFT_TABLE_F_OWNER, Linux 5.12), so that `nft flush
ruleset` leaves it alone.

Calls libnftables (libnftables(3)), which has no Python package of its own.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from sluice.sources.peer import user_number

IKE_PORTS = (500, 4500)
LIBRARY = "libnftables.so.1"
UNPRIVILEGED_PORT_START = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
ROOT = 0
# Behind source NAT (100): the port is the one that the packet leaves with.
RULES = """\
table inet {table} {{
  flags owner
  counter refused {{ }}
  chain leaving {{
    type filter hook postrouting priority 300; policy accept;
    oifname != "lo" meta l4proto udp th sport {{ {ports} }} jump ike
  }}
  chain ike {{
    {allowed}
    counter name refused drop
  }}
}}
"""
_PACKETS = re.compile(r"packets (\d+)")


class IkePorts:
    """The rule; `close` takes it away.

    Raises OSError, with what to do, where neither the rule nor the kernel keeps the ports.
    """

    def __init__(
        self,
        users: Iterable[str],
        *,
        unprivileged_from: Path = UNPRIVILEGED_PORT_START,
    ) -> None:
        self._table = f"sluice-ike-{os.getpid()}"
        self._netfilter: Netfilter | None = None
        numbers = {number for user in users if (number := user_number(user)) is not None}
        try:
            self._netfilter = Netfilter()
            self._netfilter.run(_rules(self._table, numbers))
        except OSError as error:
            self.close()
            if not numbers <= {ROOT} or int(unprivileged_from.read_text()) <= max(IKE_PORTS):
                raise OSError(
                    "UDP ports 500 and 4500, which policy bypasses for IKE, cannot be kept for"
                    f" the users of `ike.users`: {error}; install libnftables1 and load nf_tables,"
                    " or leave `ike.users` at root and set"
                    f" net.ipv4.ip_unprivileged_port_start={max(IKE_PORTS) + 1}"
                ) from error

    @property
    def counters(self) -> Mapping[str, int]:
        """Packets dropped because another user sent them."""
        if self._netfilter is None:
            return {}
        listing = self._netfilter.run(f"list counter inet {self._table} refused")
        found = _PACKETS.search(listing)
        return {} if found is None else {"dropped: ike_port_of_another_user": int(found[1])}

    def close(self) -> None:
        """Takes the rule away."""
        if self._netfilter is not None:
            self._netfilter.close()
            self._netfilter = None


def _rules(table: str, users: Iterable[int]) -> str:
    allowed = ", ".join(str(user) for user in sorted(users))
    return RULES.format(
        table=table,
        ports=", ".join(str(port) for port in IKE_PORTS),
        # Where no user may, or the packet has no socket, the chain goes on to the drop.
        allowed=f"meta skuid {{ {allowed} }} accept" if allowed else "",
    )


class Netfilter:
    """A context of libnftables: one netlink socket, which owns the tables that it makes."""

    def __init__(self) -> None:
        """Raises OSError where the library is not there."""
        self._library = ctypes.CDLL(LIBRARY)
        self._library.nft_ctx_new.restype = ctypes.c_void_p
        self._library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
        self._library.nft_ctx_get_output_buffer.restype = ctypes.c_char_p
        context = self._library.nft_ctx_new(0)
        if not context:
            raise OSError("libnftables gives no context")
        self._context = ctypes.c_void_p(context)
        self._library.nft_ctx_buffer_error(self._context)
        self._library.nft_ctx_buffer_output(self._context)

    def run(self, commands: str) -> str:
        """Runs commands as nft(8) knows them, all or none; what they print. Raises OSError."""
        if self._library.nft_run_cmd_from_buffer(self._context, commands.encode()) != 0:
            problem = self._library.nft_ctx_get_error_buffer(self._context).decode()
            raise OSError(f"nftables: {problem.strip().splitlines()[0] if problem else 'refused'}")
        return str(self._library.nft_ctx_get_output_buffer(self._context).decode())

    def close(self) -> None:
        """Closes the socket; its tables go with it."""
        self._library.nft_ctx_free(self._context)
