# SPDX-License-Identifier: Apache-2.0
"""Reads the kernel's links, addresses and neighbours as events, and requests changes of them.

`KernelMonitor` dumps all objects at start and then follows the multicast groups. After an overrun
(ENOBUFS: the kernel dropped messages) it dumps again. It then returns an event for each object that
changed or disappeared meanwhile. A caller that applies all events in order has the kernel's state.
Events that change nothing are omitted, except a neighbour's repeated failure. (The kernel does not
announce that it starts to resolve a neighbour. So INCOMPLETE occurs only in the dump at start.)

Dumps and notifications use one socket, so they arrive in the order of the changes.

Invariant: no request of this module changes a neighbour entry that exists. So the kernel itself
must refuse such a change. A check by this module would not suffice, because its knowledge may be
out of date when the request arrives.
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

KernelObjectKey: TypeAlias = tuple[int] | tuple[int, bytes] | tuple[int, InterfaceAddress]
KernelObjects: TypeAlias = dict[KernelObjectKey, KernelEvent]

GROUPS = (
    rtnetlink.RTNLGRP_LINK,
    rtnetlink.RTNLGRP_NEIGH,
    rtnetlink.RTNLGRP_IPV4_IFADDR,
    rtnetlink.RTNLGRP_IPV6_IFADDR,
)
# Order: links before their addresses, addresses before the neighbours of the interface.
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
"""Neighbour states that need no probe. The kernel knows the neighbour or is confirming it, or an
operator has set it."""


class KernelMonitor:
    """Tracks the kernel's links, addresses and neighbours, in the network namespace of the
    constructor's caller."""

    def __init__(self, receive_buffer: int = 8 << 20, probe: NeighborProbe | None = None) -> None:
        self._socket = NetlinkSocket(GROUPS, receive_buffer)
        self._probe = NeighborProbe() if probe is None else probe
        # The last event of each existing object, by kind (LINKS...).
        self._known: tuple[KernelObjects, ...] = tuple({} for _ in DUMPS)
        # The dump in progress (an index into DUMPS), its sequence number, and the objects received
        # so far. `_again`: after this dump, all dumps must be repeated.
        self._dump: int | None = None
        self._dump_sequence = 0
        self._shown: set[KernelObjectKey] = set()
        self._dump_interrupted = False
        self._again = False
        self._complete = False
        self._requests: dict[int, str] = {}
        # The neighbour whose entry was requested, by sequence number of the request.
        self._resolving: dict[int, tuple[int, Address]] = {}
        self.counters: Counter[str] = Counter()

    @property
    def synced(self) -> bool:
        """Whether all dumps have completed and none is under way."""
        return self._complete and self._dump is None

    def fileno(self) -> int:
        """Returns a descriptor that is readable while messages wait.

        Then call `poll` until it returns an empty list.
        """
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the socket and the probe."""
        self._socket.close()
        self._probe.close()

    def start(self) -> None:
        """Requests all dumps. `poll` then returns their events."""
        if self._dump is not None:
            # A socket can have only one dump at a time. The new dumps start after NLMSG_DONE of
            # this dump.
            self._again = True
        else:
            self._ask(LINKS)

    def poll(self, limit: int) -> list[KernelEvent]:
        """Returns about `limit` events in order. The list is empty if no event waits."""
        events: list[KernelEvent] = []
        while len(events) < limit:
            try:
                datagram = self._socket.receive()
            except Overrun:
                self.counters["overruns"] += 1
                self._requests.clear()  # answers to these requests may be lost
                self._resolving.clear()
                self.start()
                continue
            if datagram is None:
                break
            self._read(datagram, events)
        return events

    # --- requests --------------------------------------------------------------------------------

    def use_neighbor(self, ifindex: int, address: Address) -> None:
        """Makes the kernel resolve or confirm a neighbour that receives traffic.

        Call it for an unresolved next hop, and again whenever a next hop in use is reported as
        STALE, FAILED or NONE. The result arrives as a NeighborChanged. Does nothing for entries
        that are permanent, NOARP or managed by another program. Raises OSError if the socket's
        buffer is full or the neighbour is unreachable.
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
        """Sends a packet to a neighbour that has an entry. This makes the kernel check the
        neighbour, as any packet does."""
        known = self._known[NEIGHBORS].get((ifindex, address))
        if isinstance(known, NeighborChanged) and (known.foreign or known.state in NOT_ASKED_FOR):
            self.counters["neighbors_left_alone"] += 1
        else:
            self._probe.send(ifindex, address)

    def add_address(self, ifindex: int, address: InterfaceAddress) -> None:
        """Adds an address to an interface. A failure is logged and counted."""
        self._request(
            f"add address {address} to interface {ifindex}",
            lambda sequence: rtnetlink.add_address(sequence, ifindex, address),
        )

    def remove_address(self, ifindex: int, address: InterfaceAddress) -> None:
        """Removes an address from an interface. A failure is logged and counted."""
        self._request(
            f"remove address {address} from interface {ifindex}",
            lambda sequence: rtnetlink.remove_address(sequence, ifindex, address),
        )

    def _request(self, what: str, encode: Callable[[int], bytes]) -> int:
        sequence = self._socket.next_sequence()
        self._socket.send(encode(sequence))
        self._requests[sequence] = what
        return sequence

    # --- messages of the kernel ------------------------------------------------------------------

    def _read(self, datagram: bytes, events: list[KernelEvent]) -> None:
        try:
            for message in messages(datagram):
                self._read_message(message, events)
        except WireError as error:
            # The rest of the datagram cannot be read, so dump everything again.
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
        """Probes a neighbour whose entry another program has just created, so that the request to
        create it failed."""
        try:
            self._probe_neighbor(ifindex, address)
        except OSError as error:  # no event follows, so the caller's schedule tries again
            self.counters[f"probe_failed_{errno.errorcode.get(error.errno or 0)}"] += 1

    def _learn(self, event: KernelEvent, events: list[KernelEvent]) -> None:
        """Records an event. Appends it to `events` if it changes the known state."""
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

    def _update(
        self, kind: int, key: KernelObjectKey, event: KernelEvent, events: list[KernelEvent]
    ) -> None:
        if kind == self._dump:
            self._shown.add(key)
        # A failed neighbour that the kernel has retried in vain is reported with the same state as
        # before. This event must not be omitted, because the caller that requested the retry waits
        # for it.
        if self._known[kind].get(key) != event or _is_failure(event):
            self._known[kind][key] = event
            events.append(event)

    def _forget_interface(self, ifindex: int) -> None:
        """Forgets addresses and neighbours of a removed link. LinkRemoved implies their removal."""
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
        """Ends a dump. Records objects that the dump did not contain as removed. Starts the next
        dump."""
        kind = self._dump
        if kind is None:
            return
        self._dump = None
        if self._again:
            self._again = False
            self._ask(LINKS)
        elif self._dump_interrupted:  # the kernel's tables changed during the dump
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
    """Returns the event for the removal of the object of `event`."""
    match event:
        case LinkChanged(ifindex):
            return LinkRemoved(ifindex)
        case AddressAdded(ifindex, address):
            return AddressRemoved(ifindex, address)
        case NeighborChanged(ifindex, address):
            return NeighborChanged(ifindex, address, None, NeighborState.NONE)
    return event
