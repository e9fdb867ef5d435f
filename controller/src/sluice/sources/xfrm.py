# SPDX-License-Identifier: Apache-2.0
"""Mirrors the kernel's IPsec databases (XFRM), and sends notifications to key managers through the
kernel.

`XfrmMonitor` dumps all policies and states at start and then follows the multicast groups. After an
overrun (ENOBUFS: the kernel dropped messages), or when a message cannot be decoded, it requests all
dumps again. Objects that a dump does not contain are gone. Dumps and notifications use one socket,
so they arrive in the order of the changes.

`XfrmMonitor` makes only two changes in the kernel: it updates the usage of states, and it ends
states that have reached a hard lifetime limit.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import TypeVar

from sluice.sources.netlink_socket import NETLINK_XFRM, NetlinkSocket, Overrun
from sluice.wire import xfrm
from sluice.wire.errors import WireError
from sluice.wire.netlink import (
    HEADER,
    NLM_F_DUMP_INTR,
    NLMSG_DONE,
    NLMSG_ERROR,
    Message,
    messages,
)
from sluice.wire.rtnetlink import decode_error
from sluice.xfrm_model import (
    Defaults,
    DefaultsChanged,
    Flushed,
    KernelPolicy,
    KernelSelector,
    KernelState,
    PolicyChanged,
    PolicyGone,
    PolicyKey,
    StateChanged,
    StateGone,
    StateKey,
    Usage,
    XfrmEvent,
)

K = TypeVar("K")
V = TypeVar("V")
log = logging.getLogger(__name__)

GROUPS = (xfrm.XFRMNLGRP_EXPIRE, xfrm.XFRMNLGRP_SA, xfrm.XFRMNLGRP_POLICY, xfrm.XFRMNLGRP_MIGRATE)
DUMPS: tuple[Callable[[int], bytes], ...] = (
    xfrm.get_defaults,
    xfrm.dump_states,
    xfrm.dump_policies,
)
DEFAULTS, STATES, POLICIES = range(len(DUMPS))
NOT_SUPPORTED = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of kernels without default policies (before Linux 5.15). Such a kernel allows by
default."""
DATAGRAMS = 64
"""Maximum number of datagrams that one `poll` reads."""
START_SECONDS = 10.0


class XfrmMonitor:
    """Tracks the IPsec databases of the network namespace in which the constructor is called."""

    def __init__(self, receive_buffer: int = 8 << 20) -> None:
        """Raises OSError if the kernel has no XFRM, or denies access to it."""
        try:
            self._socket = NetlinkSocket(GROUPS, receive_buffer, NETLINK_XFRM)
        except OSError as error:
            raise OSError(
                error.errno, f"the kernel's IPsec policies cannot be read: {error.strerror}"
            ) from error
        self.policies: dict[PolicyKey, KernelPolicy] = {}
        self.states: dict[StateKey, KernelState] = {}
        self.defaults = Defaults()
        self.counters: Counter[str] = Counter()
        self._dump: int | None = None
        self._dump_sequence = 0
        self._shown: set[PolicyKey | StateKey] = set()
        self._dump_interrupted = self._again = self._complete = False
        self._lost = False
        self.is_refused = False
        """Whether the kernel refused a dump. If so, `synced` is False until `read_again`."""
        self._requests: dict[int, str] = {}

    @property
    def synced(self) -> bool:
        """Whether `policies`, `states` and `defaults` match the kernel's."""
        return self._complete and self._dump is None and not self._lost

    def fileno(self) -> int:
        """Returns a descriptor that is readable while messages of the kernel wait."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def start(self) -> None:
        """Reads all databases. Returns when they are complete. Raises OSError."""
        self._read_all()
        deadline = time.monotonic() + START_SECONDS
        while not self.synced:
            left = deadline - time.monotonic()
            if left <= 0 or self.is_refused:
                raise OSError(errno.ETIMEDOUT, "the kernel's IPsec policies cannot be read")
            select.select([self._socket], [], [], left)
            self.poll()

    def poll(self) -> bool:
        """Reads the messages that wait. Returns whether the databases may have changed since the
        last call.

        The databases are complete only while `synced`.
        """
        changed = False
        for _ in range(DATAGRAMS):
            try:
                datagram = self._socket.receive()
            except Overrun:
                self.counters["overruns"] += 1
                self._lost = True
                continue
            if datagram is None:
                if self._lost:  # only when the queue is empty, because it needs room for the answer
                    self._lost = False
                    self._read_all()
                break
            changed |= self._read(datagram)
        self.counters["messages of other processes"] = self._socket.foreign
        return changed or self.is_refused

    def read_again(self) -> None:
        """Dumps all databases again after the kernel has refused a dump."""
        self._read_all()

    # --- notifications of key managers -----------------------------------------------------------

    def acquire(self, policy: KernelPolicy, flow: KernelSelector) -> None:
        """Makes the kernel request an SA from its key managers, like an acquire for its own
        packets."""
        self._request("ask for an SA", lambda n: xfrm.acquire(n, policy, flow))
        self.counters["acquires"] += 1

    def report_usage(self, state: KernelState, usage: Usage) -> None:
        """Sets the kernel's usage counters of a state."""
        self._request(f"report {state.key}", lambda n: xfrm.report_usage(n, state, usage))

    def expire(self, state: KernelState, *, hard: bool) -> None:
        """Notifies key managers that a state has reached a lifetime limit. A hard limit ends the
        state."""
        self._request(f"expire {state.key}", lambda n: xfrm.expire(n, state, hard=hard))
        self.counters["hard expiries" if hard else "soft expiries"] += 1

    def _request(self, what: str, encode: Callable[[int], bytes]) -> None:
        sequence = self._socket.next_sequence()
        try:
            self._socket.send(encode(sequence))
        except OSError as error:
            self.counters[f"request_failed_{errno.errorcode.get(error.errno or 0)}"] += 1
        else:
            self._requests[sequence] = what

    # --- messages of the kernel ------------------------------------------------------------------

    def _read(self, datagram: bytes) -> bool:
        changed = False
        try:
            for message in messages(datagram):
                changed |= self._read_message(message)
        except WireError as error:
            # The rest of the datagram is lost. Its bytes are not logged: they may contain keys.
            self.counters[error.name] += 1
            log.warning("xfrm: a message of the kernel cannot be read: %s", error)
            if self._dump is None:
                self._read_all()
            return True
        return changed

    def _read_message(self, message: Message) -> bool:
        is_answer = message.port == self._socket.port
        of_dump = is_answer and message.sequence == self._dump_sequence
        if of_dump and message.flags & NLM_F_DUMP_INTR:
            self._dump_interrupted = True
        if message.type == NLMSG_DONE:
            return of_dump and self._end_dump()
        if message.type == NLMSG_ERROR:
            return self._answered(message)
        if message.type == xfrm.XFRM_MSG_MIGRATE:
            self.counters["migrations ignored"] += 1
            return False
        event = xfrm.decode(message.type, message.body, message.offset + HEADER.size)
        if event is None:
            self.counters["messages of no interest"] += 1
            return False
        changed = self._learn(event)
        if of_dump and self._dump == DEFAULTS:  # an answer without end marker
            return self._end_dump() or changed
        return changed

    def _learn(self, event: XfrmEvent) -> bool:
        match event:
            case StateChanged(state):
                self._note(state.key)
                changed = self.states.get(state.key) != state
                self.states[state.key] = state
                return changed
            case StateGone(key):
                return self.states.pop(key, None) is not None
            case PolicyChanged(policy):
                self._note(policy.key)
                changed = self.policies.get(policy.key) != policy
                self.policies[policy.key] = policy
                return changed
            case PolicyGone(policy_key):
                return self.policies.pop(policy_key, None) is not None
            case DefaultsChanged(defaults):
                changed = self.defaults != defaults
                self.defaults = defaults
                return changed
            case Flushed():  # it may concern only one protocol or type
                self._read_all()
                return False

    def _note(self, key: PolicyKey | StateKey) -> None:
        if self._dump is not None:
            self._shown.add(key)

    def _answered(self, message: Message) -> bool:
        code, sequence = decode_error(message.body, message.offset + HEADER.size)
        what = self._requests.pop(sequence, None)
        if sequence == self._dump_sequence and self._dump == DEFAULTS and code in NOT_SUPPORTED:
            return self._end_dump()
        if code:
            self.counters[f"request_failed_{errno.errorcode.get(code, str(code))}"] += 1
            log.warning("xfrm: cannot %s: %s", what or "read all", os.strerror(code))
        if sequence == self._dump_sequence and code:
            self._refuse()
        return False

    def _refuse(self) -> None:
        self._dump, self._complete, self.is_refused = None, False, True

    # --- dumps -----------------------------------------------------------------------------------

    def _read_all(self) -> None:
        """Requests all dumps. If a dump is in progress, they start after it."""
        if self._dump in (None, DEFAULTS):  # an answer to DEFAULTS may be lost
            self._ask(DEFAULTS)
        else:
            self._again = True

    def _ask(self, kind: int) -> None:
        self._dump, self._dump_interrupted = kind, False
        self._shown = set()
        self.is_refused = False
        self._dump_sequence = self._socket.next_sequence()
        try:
            self._socket.send(DUMPS[kind](self._dump_sequence))
        except OSError as error:
            self.counters[f"request_failed_{errno.errorcode.get(error.errno or 0)}"] += 1
            self._refuse()

    def _end_dump(self) -> bool:
        """Ends a dump. Removes objects that the dump did not contain. Starts the next dump."""
        kind = self._dump
        if kind is None:
            return False
        self._dump = None
        if self._again:
            self._again = False
            self._ask(DEFAULTS)
            return False
        if self._dump_interrupted:  # the kernel's tables changed during the dump
            self.counters["dumps_interrupted"] += 1
            self._ask(kind)
            return False
        if kind == STATES:
            self.states = _only(self.states, self._shown)
        elif kind == POLICIES:
            self.policies = _only(self.policies, self._shown)
            self._complete = True
            return True
        self._ask(kind + 1)
        return False


def _only(known: Mapping[K, V], shown: Container[object]) -> dict[K, V]:
    return {key: value for key, value in known.items() if key in shown}
