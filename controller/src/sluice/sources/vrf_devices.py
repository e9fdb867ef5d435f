# SPDX-License-Identifier: Apache-2.0
"""Creates kernel VRF devices, which make the host's network stack separate the VRFs.

Each VRF except the default VRF gets a device with its routing table
(Documentation/networking/vrf.rst). The TAPs of the VRF's interfaces belong to this device, and
zebra identifies the VRF by the device. On a kernel without VRF devices, `sources.vrf_namespaces`
selects another means to keep the VRFs apart.

Before a TAP joins a VRF device, these leaks between VRFs are closed:

- A VRF's table ends with an unreachable default route. Without it, a lookup that misses continues
  in the main table, and the host's packet leaves in the default VRF. The route's protocol is
  RTPROT_KERNEL, so zebra ignores it and announces it neither to other routers nor to the switch.
- The rule for VRFs' tables precedes the rule for the local table. Otherwise an address of the
  default VRF would be local in every VRF.
- Raw and UDP sockets that are bound to no VRF receive no packets of VRFs (`raw_l3mdev_accept` and
  `udp_l3mdev_accept` are 0). Otherwise they would answer such packets in the default VRF.
- The device has the settings of a TAP (interface_settings). The kernel treats packets from a VRF's
  TAP as received by the VRF's device, and applies that device's settings.

Devices stay when the controller ends, because FRR's VRFs and the TAPs' membership depend on them.
If another program opens a leak again, `recheck` closes it, and `repairs` counts the repair.

Depends on wire. Sends its requests to the kernel through `Asking`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple, TypeAlias

from sluice.config import VrfConfig
from sluice.model import LinkChanged
from sluice.sources.interface_settings import PROC, configure_interface, restore
from sluice.sources.links import ask
from sluice.wire.netlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_EXCL,
    U8,
    U32,
    Message,
    attribute,
    attributes,
    fixed,
)
from sluice.wire.routes import (
    AF_INET,
    AF_INET6,
    AF_UNSPEC,
    RTA_PRIORITY,
    RTA_TABLE,
    RTM_NEWROUTE,
    RTMSG,
    RTPROT_KERNEL,
)
from sluice.wire.rtnetlink import (
    IFF_UP,
    IFINFOMSG,
    IFLA_IFNAME,
    IFLA_INFO_DATA,
    IFLA_INFO_KIND,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IFLA_VRF_TABLE,
    RTM_GETLINK,
    RTM_NEWLINK,
    decode_kernel_message,
)

RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
# struct fib_rule_hdr: family, source and destination length, TOS, table, 2 reserved, action, flags
FIB_RULE_HDR = Struct("=BBBBBBBBI")
FRA_PRIORITY, FRA_TABLE, FRA_L3MDEV, FRA_PROTOCOL = 6, 15, 19, 21
FR_ACT_TO_TBL = 1
LOCAL_TABLE = 255
RTN_UNREACHABLE = 7
LAST_METRIC = 4278198272
"""Metric of administrative distance 255 and metric 8192, as in vrf.rst. Any other route is
preferred."""
RECHECK_SECONDS = 5.0
SOCKETS = ("raw_l3mdev_accept", "udp_l3mdev_accept")

Asking: TypeAlias = Callable[[int, int, bytes, str], list[Message]]
"""Signature of `links.ask`. The arguments are type, flags, body and subject of the request. Returns
the kernel's answers or raises OSError."""

log = logging.getLogger(__name__)


class VrfDevices:
    """Manages the VRF devices of the network namespace that the process is in."""

    def __init__(
        self,
        asking: Asking = ask,
        apply_settings: Callable[[str], None] = configure_interface,
        settings: Path = PROC / "ipv4",
        restoring: Callable[[str], list[str]] = restore,
    ) -> None:
        self._ask = asking
        self._apply_settings = apply_settings
        self._settings = settings
        self._restore = restoring
        self._ifindex: dict[int, int] = {}
        self._prepared: list[tuple[VrfConfig, str]] = []
        self.repairs: Counter[str] = Counter()
        """Number of repairs by `recheck`, by kind of leak."""
        self.missing: tuple[str, ...] = ()
        """Devices that `recheck` did not find. Their VRFs do not work until the next start."""

    def prepare(self, vrfs: Iterable[VrfConfig]) -> bool:
        """Finds or creates the device of each VRF except the default VRF.

        Closes the leaks of each device, and sets the device up.

        Returns False if the kernel has no VRF devices. Raises OSError if the kernel refuses a
        request.
        """
        named = [(vrf, vrf.device) for vrf in vrfs if vrf.device is not None]
        for vrf, name in named:
            device = self._find_or_make(vrf, name)
            if device is None:
                return False
            self._close(device.name, vrf.table, self._settings_applied)
            self._set_up(device)
            self._ifindex[vrf.id] = device.ifindex
            self._prepared.append((vrf, device.name))
            log.info("VRF %s: VRF device %s, table %d", vrf.name, device.name, vrf.table)
        return True

    def join(self, interface: str, vrf: int) -> None:
        """Assigns an interface to the device of a VRF, or to no device if the VRF has none.

        Does nothing for an interface that is assigned already, because each assignment makes the
        kernel set the interface down and up. Raises OSError.
        """
        link = self._link(interface)
        wanted = self._ifindex.get(vrf)
        if link is None:
            raise OSError(errno.ENODEV, "does not exist", interface)
        if link.master != wanted:
            body = IFINFOMSG.pack(0, 0, 0, link.ifindex, 0, 0)
            body += attribute(IFLA_MASTER, U32.pack(wanted or 0))
            self._ask(RTM_NEWLINK, NLM_F_ACK, body, interface)

    def recheck(self) -> None:
        """Closes leaks between VRFs (see the module) that another program has opened since
        `prepare`.

        Also sets up devices that are down, and lists missing devices in `missing`. Raises OSError.
        """
        found: list[str] = []
        links = {link.ifindex: link for link in self._links()} if self._prepared else {}
        missing: list[str] = []
        for vrf, name in self._prepared:
            device = links.get(self._ifindex[vrf.id])
            if device is None:
                missing.append(name)
                continue
            found += self._close(device.name, vrf.table, self._restore)
            if not device.up:
                self._set_up(device)
                found.append(f"VRF device {device.name} was down")
        self.missing = tuple(missing)
        for what in found:
            self.repairs[f"repaired: {what}"] += 1
            log.warning("VRFs: %s; repaired", what)

    async def watch(self) -> None:
        """Rechecks every `RECHECK_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            try:
                self.recheck()
            except OSError as error:
                self.repairs[f"VRF devices cannot be rechecked: {error}"] += 1

    # --- the device ------------------------------------------------------------------------------

    def _find_or_make(self, vrf: VrfConfig, name: str) -> LinkChanged | None:
        """Returns the VRF's device, or None if the kernel has no VRF devices."""
        links = list(self._links())
        found = [link for link in links if link.vrf_table == vrf.table]
        if found:
            return next((link for link in found if link.name == name), found[0])
        if any(link.name == name for link in links):
            raise OSError(
                errno.EEXIST,
                f"exists but is not a VRF device of table {vrf.table}; remove it, or give VRF"
                f" {vrf.name} another `device`",
                name,
            )
        try:
            new = _new_device(name, vrf.table)
            self._ask(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, new, name)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return None
            raise
        return self._link(name)

    def _set_up(self, device: LinkChanged) -> None:
        if not device.up:
            body = IFINFOMSG.pack(0, 0, 0, device.ifindex, IFF_UP, IFF_UP)
            self._ask(RTM_NEWLINK, NLM_F_ACK, body, device.name)

    def _links(self) -> Iterator[LinkChanged]:
        body = IFINFOMSG.pack(AF_UNSPEC, 0, 0, 0, 0, 0)
        for answer in self._ask(RTM_GETLINK, NLM_F_DUMP, body, "links"):
            event = decode_kernel_message(answer.type, answer.body, 0)
            if isinstance(event, LinkChanged):
                yield event

    def _link(self, name: str) -> LinkChanged | None:
        return next((link for link in self._links() if link.name == name), None)

    # --- leaks between VRFs ----------------------------------------------------------------------

    def _settings_applied(self, device: str) -> list[str]:
        self._apply_settings(device)
        return []

    def _close(
        self, device: str, table: int, apply_settings: Callable[[str], list[str]]
    ) -> list[str]:
        """Closes all leaks. Returns a description of each leak that was open."""
        found = []
        for name in SOCKETS:
            if self._is_open(name):
                (self._settings / name).write_text("0")
                found.append(f"net.ipv4.{name} was not 0")
        found += apply_settings(device)
        for family, ip in ((AF_INET, "IPv4"), (AF_INET6, "IPv6")):
            if self._end_table(family, table):
                found.append(f"{ip} table {table} had no unreachable default route")
            if self._put_vrfs_before_local(family):
                found.append(f"the {ip} routing rule of VRFs did not come first")
        return found

    def _is_open(self, setting: str) -> bool:
        path = self._settings / setting
        return not path.exists() or path.read_text().strip() != "0"

    def _end_table(self, family: int, table: int) -> bool:
        """Adds the unreachable default route. Returns whether it was missing."""
        body = RTMSG.pack(family, 0, 0, 0, 0, RTPROT_KERNEL, 0, RTN_UNREACHABLE, 0)
        body += attribute(RTA_TABLE, U32.pack(table))
        body += attribute(RTA_PRIORITY, U32.pack(LAST_METRIC))
        return self._add(RTM_NEWROUTE, body, f"unreachable default route of table {table}")

    def _add(self, kind: int, body: bytes, what: str) -> bool:
        """Adds a route or rule unless it exists. Returns whether it was missing."""
        try:
            self._ask(kind, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, body, what)
        except FileExistsError:
            return False
        return True

    def _put_vrfs_before_local(self, family: int) -> bool:
        """Puts the rule for VRFs' tables before the rule for the local table.

        Returns whether the order was wrong. Invariant: the local table always has a rule, and only
        the VRFs' rule is before it. Normally both rules have priority 0. Among rules of equal
        priority, the oldest comes first. So a rule that another program adds without a priority,
        and that thus also gets 0, comes after the local table's rule. A deletion also removes the
        oldest of equal rules.
        """
        rules = self._rules(family)
        local = next((rule for rule in rules if rule.table == LOCAL_TABLE), None)
        if local is None:
            log.warning("the kernel's local table had no routing rule; it is restored")
            rules = [local := RoutingRule(0, LOCAL_TABLE)]
            self._add(RTM_NEWRULE, _rule(family, local), "local rule")
        at = rules.index(local)
        if any(rule.to_vrfs for rule in rules[:at]):
            return False
        before = max(0, local.priority - 1)
        self._add(RTM_NEWRULE, _rule(family, RoutingRule(before, to_vrfs=True)), "VRFs' rule")
        if local.priority > 0:
            return True
        # If a controller was killed before it deleted the first local rule, a second one already
        # follows the VRFs' rule.
        if local not in rules[at + 1 :]:
            self._ask(RTM_NEWRULE, NLM_F_ACK | NLM_F_CREATE, _rule(family, local), "local rule")
        self._ask(RTM_DELRULE, NLM_F_ACK, _rule(family, local), "local rule")
        return True

    def _rules(self, family: int) -> list[RoutingRule]:
        """Returns the routing rules of a family in order."""
        header = FIB_RULE_HDR.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
        answers = self._ask(RTM_GETRULE, NLM_F_DUMP, header, "routing rules")
        return [_read_rule(answer.body) for answer in answers if answer.type == RTM_NEWRULE]


class RoutingRule(NamedTuple):
    """Holds the fields of a routing rule that this module needs. `to_vrfs`: the rule selects the
    table of the packet's VRF."""

    priority: int
    table: int = 0
    to_vrfs: bool = False


def _read_rule(body: bytes) -> RoutingRule:
    found = attributes(body, FIB_RULE_HDR.size)
    table = fixed(found.get(FRA_TABLE, bytes(4)), "FRA_TABLE", U32, 0)
    to_vrfs = fixed(found.get(FRA_L3MDEV, b"\0"), "FRA_L3MDEV", U8, 0)
    # the kernel omits the priority 0
    return RoutingRule(
        fixed(found.get(FRA_PRIORITY, bytes(4)), "FRA_PRIORITY", U32, 0), table, bool(to_vrfs)
    )


def _rule(family: int, rule: RoutingRule) -> bytes:
    body = FIB_RULE_HDR.pack(family, 0, 0, 0, rule.table, 0, 0, FR_ACT_TO_TBL, 0)
    body += attribute(FRA_PRIORITY, U32.pack(rule.priority))
    # networkd removes rules that do not have the kernel's protocol number.
    body += attribute(FRA_PROTOCOL, bytes([RTPROT_KERNEL]))
    if rule.to_vrfs:
        body += attribute(FRA_L3MDEV, b"\1")
    return body


def _new_device(name: str, table: int) -> bytes:
    data = attribute(IFLA_VRF_TABLE, U32.pack(table))
    info = attribute(IFLA_INFO_KIND, b"vrf") + attribute(IFLA_INFO_DATA, data)
    body = IFINFOMSG.pack(0, 0, 0, 0, 0, 0)
    body += attribute(IFLA_IFNAME, name.encode() + b"\0")
    return body + attribute(IFLA_LINKINFO, info)
