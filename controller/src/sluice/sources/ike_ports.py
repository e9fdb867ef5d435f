# SPDX-License-Identifier: Apache-2.0
"""Reserves the source ports of IKE for the users who may run an IKE daemon.

The generated rules bypass packets that this router sends from UDP ports 500 and 4500 to any
address. Port 4500 is not privileged on Linux. So without a further check, every local user could
bypass the SPD. For this reason a netfilter rule checks the socket's user when a packet leaves. To
look up the port's owner later would be too late: SO_REUSEADDR lets two users bind one port, and the
socket may be closed by then.

The rule covers all interfaces of the network namespace but loopback, because a host interface may
have other devices on top (macvlan, ipvlan). It is installed before the host interfaces exist. Each
host interface has the rule once more at its egress hook (`guard`, netdev egress, Linux 5.16). There
it catches two more kinds of packets:

- packets of a device that was moved to another namespace;
- packets that passed the first hook before the rule was installed, and then waited for neighbour
  resolution.

Behind the egress hook there is only the device's queueing discipline. It may hold packets that were
sent before (fq up to 10 s, for SO_TXTIME), so it is removed.

The nftables tables have an owner (NFT_TABLE_F_OWNER, Linux 5.12), so `nft flush ruleset` skips
them. The owner is a netlink socket of this process. The process that keeps the TAPs (`tap_keeper`)
inherits this socket, so the tables exist as long as the TAPs. After a restart, the old tables and
those of the next controller exist side by side until the keeper ends.

Calls libnftables (libnftables(3)), which has no Python package of its own.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from sluice.sources.links import remove_queueing
from sluice.sources.peer import user_number

IKE_PORTS = (500, 4500)
LIBRARY = "libnftables.so.1"
OUTPUT_JSON = 1 << 4
"""NFT_CTX_OUTPUT_JSON."""
UNPRIVILEGED_PORT_START = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
ROOT = 0
# Priority 300 comes after source NAT (100), so the rule sees the port that the packet has on the
# wire.
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
EGRESS = """\
table netdev {table} {{
  flags owner
  counter refused {{ }}
  chain ike {{
    {allowed}
    counter name refused drop
  }}
}}
"""
GUARD = """\
add chain netdev {table} {chain} {{ type filter hook egress device "{device}" priority 0; }}
add rule netdev {table} {chain} meta l4proto udp th sport {{ {ports} }} jump ike
"""
UNGUARD = """\
flush chain netdev {table} {chain}
delete chain netdev {table} {chain}
"""
_numbers = itertools.count(1)
_PACKETS = re.compile(r"packets (\d+)")


class IkePorts:
    """Installs the rules; `close` removes them.

    If neither the rule nor the kernel protects the ports, raises OSError with instructions.
    """

    def __init__(
        self,
        users: Iterable[str],
        *,
        unprivileged_from: Path = UNPRIVILEGED_PORT_START,
    ) -> None:
        # The name must be unique. Tables of earlier `IkePorts`, even of this process, exist until
        # the keeper of their TAPs ends.
        self._table = f"sluice-ike-{os.getpid()}-{next(_numbers)}"
        self._netfilter: Netfilter | None = None
        self._guarded = 0
        numbers = set(map(_known_user, users))
        try:
            self._netfilter = Netfilter()
            self._netfilter.run(_rules(RULES, self._table, numbers))
            self._netfilter.run(_rules(EGRESS, self._table, numbers))
            # Tests whether the kernel supports the egress hook, and removes the rule at once.
            self._guard_exit(self._netfilter, "lo")
            self._netfilter.run(UNGUARD.format(table=self._table, chain=self._chain))
        except OSError as error:
            self.close()
            if numbers != {ROOT} or int(unprivileged_from.read_text()) <= max(IKE_PORTS):
                raise OSError(
                    "UDP ports 500 and 4500, which bypass the policy for IKE, cannot be reserved"
                    f" for `ike.users`: {error}; install libnftables1 and load nf_tables,"
                    " or leave `ike.users` at root and set"
                    f" net.ipv4.ip_unprivileged_port_start={max(IKE_PORTS) + 1}"
                ) from error

    def guard(self, device: str) -> None:
        """Installs the rule at the egress hook of a device, for the device's lifetime.

        Also drops packets that wait in the device's queueing discipline, because they have already
        passed the hook. Raises OSError.
        """
        if self._netfilter is not None:
            self._guard_exit(self._netfilter, device)
            remove_queueing(device)

    def _guard_exit(self, netfilter: Netfilter, device: str) -> None:
        self._guarded += 1
        rule = GUARD.format(table=self._table, chain=self._chain, device=device, ports=_ports())
        netfilter.run(rule)

    @property
    def _chain(self) -> str:
        """Returns the name of the netfilter chain of the device that was guarded last."""
        return f"device{self._guarded}"

    @property
    def counters(self) -> Mapping[str, int]:
        """Counts packets that were dropped because their sender is not in `ike.users`."""
        if self._netfilter is None:
            return {}
        dropped = 0
        try:
            for family in ("inet", "netdev"):
                listing = self._netfilter.run(f"list counter {family} {self._table} refused")
                dropped += sum(map(int, _PACKETS.findall(listing)))
        except OSError:
            return {"counters that cannot be read": 1}
        return {"dropped: ike_port_of_another_user": dropped}

    def close(self) -> None:
        """Removes the rules."""
        if self._netfilter is not None:
            self._netfilter.close()
            self._netfilter = None


class SeveralIkePorts:
    """Sums the counters of the `IkePorts` of several network namespaces."""

    def __init__(self, ports: Iterable[IkePorts]) -> None:
        self._ports = tuple(ports)

    @property
    def counters(self) -> Mapping[str, int]:
        """Same as `IkePorts.counters`, summed over the namespaces."""
        counts: Counter[str] = Counter()
        for ports in self._ports:
            counts.update(ports.counters)
        return counts


def _known_user(user: str) -> int:
    number = user_number(user)
    if number is None:
        raise OSError(f"ike.users: there is no user {user!r}; create it, or remove the name")
    return number


def _rules(text: str, table: str, users: Iterable[int]) -> str:
    allowed = ", ".join(str(user) for user in sorted(users))
    return text.format(
        table=table,
        ports=_ports(),
        # Without an allowed user, and for packets without socket, no rule accepts, so the chain
        # drops.
        allowed=f"meta skuid {{ {allowed} }} accept" if allowed else "",
    )


def _ports() -> str:
    return ", ".join(str(port) for port in IKE_PORTS)


class Netfilter:
    """Holds a libnftables context. Its netlink socket owns the tables created through it."""

    def __init__(self, *, as_json: bool = False) -> None:
        """`as_json`: listings are JSON. Raises OSError if the library is missing."""
        self._library = ctypes.CDLL(LIBRARY)
        self._library.nft_ctx_new.restype = ctypes.c_void_p
        self._library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
        self._library.nft_ctx_get_output_buffer.restype = ctypes.c_char_p
        context = self._library.nft_ctx_new(0)
        if not context:
            raise OSError("libnftables cannot create a context")
        self._context = ctypes.c_void_p(context)
        self._library.nft_ctx_buffer_error(self._context)
        self._library.nft_ctx_buffer_output(self._context)
        if as_json:
            self._library.nft_ctx_output_set_flags(self._context, OUTPUT_JSON)

    def run(self, commands: str) -> str:
        """Runs commands of nft(8) as one transaction. Returns their output. Raises OSError."""
        if self._library.nft_run_cmd_from_buffer(self._context, commands.encode()) != 0:
            problem = self._library.nft_ctx_get_error_buffer(self._context).decode()
            raise OSError(f"nftables: {problem.strip().splitlines()[0] if problem else 'refused'}")
        return str(self._library.nft_ctx_get_output_buffer(self._context).decode())

    def close(self) -> None:
        """Closes the netlink socket. The kernel then removes the tables that it owns."""
        self._library.nft_ctx_free(self._context)
