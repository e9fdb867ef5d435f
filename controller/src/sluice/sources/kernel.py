# SPDX-License-Identifier: Apache-2.0
"""The kernel's links, addresses and neighbours, as events, and requests about them.

`KernelMonitor` asks for everything at start and then follows the multicast groups. When the kernel
had to drop messages (ENOBUFS) it asks again, and gives an event for everything that changed or went
meanwhile: whoever applies its events in order has the kernel's state. Events that change nothing
are left out, but for a neighbour's repeated failure. (The kernel does not announce that it began
to resolve one: INCOMPLETE is seen at start only.)

Dumps and notifications travel on one socket, so that they come in the order of what happened.

Invariant: no request of this module changes a neighbour entry that is there. What is known of an
entry may be out of date when a request arrives, so that looking at it first is not enough.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from sluice.model import (
    Address,
    AddressAdded,
    AddressRemoved,
    InterfaceAddress,
    KernelEvent,
    LinkChanged,
    LinkRemoved,
    NeighborChanged,
    NeighborState,
    format_address,
)
from sluice.sources.neighbor_probe import NeighborProbe
from sluice.sources.netlink_socket import NetlinkSocket, Overrun
from sluice.wire import rtnetlink
from sluice.wire.errors import WireError
from sluice.wire.netlink import (
    HEADER,
    NLM_F_DUMP_INTR,
    NLMSG_DONE,
    NLMSG_ERROR,
    Message,
    messages,
)

log = logging.getLogger(__name__)

Key: TypeAlias = tuple[int] | tuple[int, bytes] | tuple[int, InterfaceAddress]
Known: TypeAlias = dict[Key, KernelEvent]

GROUPS = (
    rtnetlink.RTNLGRP_LINK,
    rtnetlink.RTNLGRP_NEIGH,
    rtnetlink.RTNLGRP_IPV4_IFADDR,
    rtnetlink.RTNLGRP_IPV6_IFADDR,
)
# A neighbour is known to an interface that has addresses, those to one that exists.
DUMPS: tuple[Callable[[int], bytes], ...] = (
    rtnetlink.dump_links,
    rtnetlink.dump_addresses,
    rtnetlink.dump_neighbors,
)
LINKS, ADDRESSES, NEIGHBORS = range(len(DUMPS))
NOT_ASKED_FOR = frozenset(
    {
        NeighborState.REACHABLE,
        NeighborState.DELAY,
        NeighborState.PROBE,
        NeighborState.NOARP,
        NeighborState.PERMANENT,
    }
)
"""States of neighbours that the kernel knows, is confirming, or is told about by an operator."""


class KernelMonitor:
    """Follows the kernel's view of the network namespace that it is created in."""

    def __init__(self, receive_buffer: int = 8 << 20, probe: NeighborProbe | None = None) -> None:
        self._socket = NetlinkSocket(GROUPS, receive_buffer)
        self._probe = NeighborProbe() if probe is None else probe
        # By kind (LINKS...): the last event of everything that there is.
        self._known: tuple[Known, ...] = tuple({} for _ in DUMPS)
        # The dump under way (an index into DUMPS), its sequence number, what it has shown so far,
        # and whether all dumps are wanted once more after it.
        self._dump: int | None = None
        self._dump_sequence = 0
        self._shown: set[Key] = set()
        self._dump_interrupted = False
        self._again = False
        self._complete = False
        self._requests: dict[int, str] = {}
        # By sequence number: neighbours that entries were asked for.
        self._resolving: dict[int, tuple[int, Address]] = {}
        self.counters: Counter[str] = Counter()

    @property
    def synced(self) -> bool:
        """Whether everything that the kernel has was shown and nothing is being asked again."""
        return self._complete and self._dump is None

    def fileno(self) -> int:
        """Readable while the kernel has news; call `poll` until it gives an empty list."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stops following."""
        self._socket.close()
        self._probe.close()

    def start(self) -> None:
        """Asks for everything; the answers come by `poll`."""
        if self._dump is not None:
            # One dump at a time on a socket; the kernel has ended none before its NLMSG_DONE.
            self._again = True
        else:
            self._ask(LINKS)

    def poll(self, limit: int) -> list[KernelEvent]:
        """About `limit` events, in order; empty when there is nothing more for now."""
        events: list[KernelEvent] = []
        while len(events) < limit:
            try:
                datagram = self._socket.receive()
            except Overrun:
                self.counters["overruns"] += 1
                self._requests.clear()  # whose answers may be among what was lost
                self._resolving.clear()
                self.start()
                continue
            if datagram is None:
                break
            self._read(datagram, events)
        return events

    # --- requests --------------------------------------------------------------------------------

    def use_neighbor(self, ifindex: int, address: Address) -> None:
        """Says that traffic goes to a neighbour: the kernel resolves or re-confirms it.

        To be called for a next hop that is not resolved, and again whenever a used one is reported
        STALE, FAILED or NONE. What comes of it is a NeighborChanged. Entries that are permanent,
        NOARP or kept by another program are left alone. Raises OSError: no room, or no way there.
        """
        known = self._known[NEIGHBORS].get((ifindex, address))
        if known is not None:
            self._probe_neighbor(ifindex, address)
            return
        sequence = self._request(
            f"resolve neighbour {format_address(address)} of interface {ifindex}",
            lambda sequence: rtnetlink.resolve_neighbor(sequence, ifindex, address),
        )
        self._resolving[sequence] = ifindex, address

    def _probe_neighbor(self, ifindex: int, address: Address) -> None:
        """There is an entry: the kernel resolves or confirms it as it does for any packet."""
        known = self._known[NEIGHBORS].get((ifindex, address))
        if isinstance(known, NeighborChanged) and (known.foreign or known.state in NOT_ASKED_FOR):
            self.counters["neighbors_left_alone"] += 1
        else:
            self._probe.send(ifindex, address)

    def add_address(self, ifindex: int, address: InterfaceAddress) -> None:
        """Gives an interface an address; failure is logged and counted."""
        self._request(
            f"add address {address} to interface {ifindex}",
            lambda sequence: rtnetlink.add_address(sequence, ifindex, address),
        )

    def remove_address(self, ifindex: int, address: InterfaceAddress) -> None:
        """Takes an address from an interface; failure is logged and counted."""
        self._request(
            f"remove address {address} from interface {ifindex}",
            lambda sequence: rtnetlink.remove_address(sequence, ifindex, address),
        )

    def _request(self, what: str, encode: Callable[[int], bytes]) -> int:
        sequence = self._socket.next_sequence()
        self._socket.send(encode(sequence))
        self._requests[sequence] = what
        return sequence

    # --- what the kernel says --------------------------------------------------------------------

    def _read(self, datagram: bytes, events: list[KernelEvent]) -> None:
        try:
            for message in messages(datagram):
                self._read_message(message, events)
        except WireError as error:
            # What follows in the datagram is lost, so the kernel is asked for everything.
            self.counters[error.name] += 1
            log.warning("netlink: %s in %s", error, datagram[:256].hex())
            self.start()

    def _read_message(self, message: Message, events: list[KernelEvent]) -> None:
        if message.sequence == self._dump_sequence and message.flags & NLM_F_DUMP_INTR:
            self._dump_interrupted = True
        if message.type in rtnetlink.KERNEL_MESSAGES:
            base = message.offset + HEADER.size
            event = rtnetlink.decode_kernel_message(message.type, message.body, base)
            if event is not None:
                self._learn(event, events)
        elif message.type == NLMSG_DONE and message.sequence == self._dump_sequence:
            self._end_dump(events)
        elif message.type == NLMSG_ERROR:
            self._answered(message)

    def _answered(self, message: Message) -> None:
        code, sequence = rtnetlink.decode_error(message.body, message.offset + HEADER.size)
        what = self._requests.pop(sequence, None)
        neighbor = self._resolving.pop(sequence, None)
        if neighbor is not None and code == errno.EEXIST:
            self._probe_after_all(*neighbor)
        elif code:
            name = errno.errorcode.get(code, str(code))
            self.counters[f"request_failed_{name}"] += 1
            log.warning("kernel: cannot %s: %s", what or "dump", os.strerror(code))
        if sequence == self._dump_sequence:
            self._dump = None  # refused: `synced` stays false

    def _probe_after_all(self, ifindex: int, address: Address) -> None:
        """An entry was made while one was asked for."""
        try:
            self._probe_neighbor(ifindex, address)
        except OSError as error:  # whoever wants the neighbour hears nothing and asks again
            self.counters[f"probe_failed_{errno.errorcode.get(error.errno or 0)}"] += 1

    def _learn(self, event: KernelEvent, events: list[KernelEvent]) -> None:
        """Takes in one event; passes it on if it is news."""
        match event:
            case LinkRemoved(ifindex):
                if self._known[LINKS].pop((ifindex,), None) is not None:
                    self._forget_interface(ifindex)
                    events.append(event)
            case AddressRemoved(ifindex, address):
                if self._known[ADDRESSES].pop((ifindex, address), None) is not None:
                    events.append(event)
            case NeighborChanged(ifindex, address, _, NeighborState.NONE):
                if self._known[NEIGHBORS].pop((ifindex, address), None) is not None:
                    events.append(event)
            case LinkChanged(ifindex):
                self._update(LINKS, (ifindex,), event, events)
            case AddressAdded(ifindex, address):
                self._update(ADDRESSES, (ifindex, address), event, events)
            case NeighborChanged(ifindex, address):
                self._update(NEIGHBORS, (ifindex, address), event, events)

    def _update(self, kind: int, key: Key, event: KernelEvent, events: list[KernelEvent]) -> None:
        if kind == self._dump:
            self._shown.add(key)
        # The kernel does not tell when a failed neighbour is tried again, so that the next failure
        # looks like the last; whoever asked for the new attempt waits for it.
        if self._known[kind].get(key) != event or _is_failure(event):
            self._known[kind][key] = event
            events.append(event)

    def _forget_interface(self, ifindex: int) -> None:
        """LinkRemoved speaks for the interface's addresses and neighbours too."""
        for kind in (ADDRESSES, NEIGHBORS):
            known = self._known[kind]
            for key in [key for key in known if key[0] == ifindex]:
                del known[key]

    # --- dumps -----------------------------------------------------------------------------------

    def _ask(self, kind: int) -> None:
        self._dump, self._shown, self._dump_interrupted = kind, set(), False
        self._dump_sequence = self._socket.next_sequence()
        self._socket.send(DUMPS[kind](self._dump_sequence))

    def _end_dump(self, events: list[KernelEvent]) -> None:
        """The dump under way has ended: what it did not show is gone. Goes on to the next one."""
        kind = self._dump
        if kind is None:
            return
        self._dump = None
        if self._again:
            self._again = False
            self._ask(LINKS)
        elif self._dump_interrupted:  # the kernel's tables changed meanwhile: it may have gaps
            self.counters["dumps_interrupted"] += 1
            self._ask(kind)
        else:
            for key in [key for key in self._known[kind] if key not in self._shown]:
                self._learn(_removal(self._known[kind][key]), events)
            if kind + 1 < len(DUMPS):
                self._ask(kind + 1)
            else:
                self._complete = True


def _is_failure(event: KernelEvent) -> bool:
    return isinstance(event, NeighborChanged) and event.state == NeighborState.FAILED


def _removal(event: KernelEvent) -> KernelEvent:
    """The event that undoes `event`."""
    match event:
        case LinkChanged(ifindex):
            return LinkRemoved(ifindex)
        case AddressAdded(ifindex, address):
            return AddressRemoved(ifindex, address)
        case NeighborChanged(ifindex, address):
            return NeighborChanged(ifindex, address, None, NeighborState.NONE)
    return event
