# SPDX-License-Identifier: Apache-2.0
"""Runs a BGP speaker with a full table. The speaker announces and withdraws routes as fast as TCP
accepts the data.

All updates are encoded before a measurement (RFC 4271; RFC 4760 for IPv6 in an IPv4 session). The
speaker waits for the router's connection. A thread keeps the session up, and reads and drops the
router's messages.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from bench.routing_table import Prefix
from sluice_testkit.namespaces import Namespace

PORT = 179
MARKER = b"\xff" * 16
OPEN, UPDATE, KEEPALIVE = 1, 2, 4
HOLD_SECONDS = 180
IPV4_UNICAST, IPV6_UNICAST = b"\x00\x01\x00\x01", b"\x00\x02\x00\x01"
PREFIXES = 16
"""Prefixes per update. In the Internet's tables, about six prefixes share their attributes."""
WITHDRAWN = 500
"""IPv4 prefixes per update that withdraws. For IPv6, half as many."""


def message(kind: int, body: bytes) -> bytes:
    """Returns a BGP message: the header, then `body`."""
    return MARKER + struct.pack("!HB", 19 + len(body), kind) + body


def _encoded(prefixes: Iterable[Prefix]) -> bytes:
    return b"".join(bytes((length,)) + address[: (length + 7) // 8] for address, length in prefixes)


def _attribute(flags: int, kind: int, value: bytes) -> bytes:
    if len(value) > 255:
        return struct.pack("!BBH", flags | 0x10, kind, len(value)) + value
    return struct.pack("!BBB", flags, kind, len(value)) + value


def _path(numbers: Sequence[int]) -> bytes:
    """Returns ORIGIN and AS_PATH, with four-octet AS numbers (RFC 6793)."""
    segment = struct.pack("!BB", 2, len(numbers)) + struct.pack(f"!{len(numbers)}I", *numbers)
    return _attribute(0x40, 1, b"\0") + _attribute(0x40, 2, segment)


def announcement(prefixes: Sequence[Prefix], gateway: bytes, path: Sequence[int]) -> bytes:
    """Returns one update that announces prefixes of one IP version, with `gateway` as next hop."""
    if len(prefixes[0][0]) == 4:
        attributes = _path(path) + _attribute(0x40, 3, gateway)
        length = struct.pack("!HH", 0, len(attributes))
        return message(UPDATE, length + attributes + _encoded(prefixes))
    reach = IPV6_UNICAST[:2] + IPV6_UNICAST[3:] + bytes((16,)) + gateway + b"\0"
    attributes = _path(path) + _attribute(0x80, 14, reach + _encoded(prefixes))
    return message(UPDATE, struct.pack("!HH", 0, len(attributes)) + attributes)


def announcements(
    prefixes: Sequence[Prefix], gateways: Sequence[bytes], own_as: int, shift: int = 0
) -> bytes:
    """Returns updates that announce all these prefixes.

    The updates use the gateways in turn. Each update has its own AS path.
    """
    chance = random.Random(3)
    made = []
    for number, start in enumerate(range(0, len(prefixes), PREFIXES)):
        path = (own_as, chance.randrange(1000, 60_000), chance.randrange(1000, 400_000))
        gateway = gateways[(number + shift) % len(gateways)]
        made.append(announcement(prefixes[start : start + PREFIXES], gateway, path))
    return b"".join(made)


def withdrawals(prefixes: Sequence[Prefix]) -> bytes:
    """Returns updates that withdraw all these prefixes, which are of one IP version."""
    made = []
    is_ipv4 = not prefixes or len(prefixes[0][0]) == 4
    step = WITHDRAWN if is_ipv4 else WITHDRAWN // 2
    for start in range(0, len(prefixes), step):
        gone = _encoded(prefixes[start : start + step])
        if is_ipv4:
            made.append(message(UPDATE, struct.pack("!H", len(gone)) + gone + b"\0\0"))
        else:
            unreach = _attribute(0x80, 15, IPV6_UNICAST[:2] + IPV6_UNICAST[3:] + gone)
            made.append(message(UPDATE, struct.pack("!HH", 0, len(unreach)) + unreach))
    return b"".join(made)


class Speaker:
    """Runs a BGP speaker on an address of a namespace. The session lasts while the context is
    open.
    """

    def __init__(self, namespace: Namespace, address: str, own_as: int):
        self._as = own_as
        self._router_id = socket.inet_aton(address)
        self._listener = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((address, PORT))
        self._listener.listen(4)
        self._sending = threading.Lock()
        self._over = threading.Event()
        self._session: socket.socket | None = None

    def connect(self, deadline: float) -> None:
        """Waits for the router's connection and brings the session up."""
        self._listener.settimeout(deadline)
        session, _ = self._listener.accept()
        session.settimeout(deadline)
        kind, _ = _receive(session)
        if kind != OPEN:
            raise ConnectionError(
                f"expected a BGP OPEN from the router, received message type {kind}"
            )
        capabilities = b"".join(
            bytes((code, len(value))) + value
            for code, value in (
                (1, IPV4_UNICAST),
                (1, IPV6_UNICAST),
                (65, struct.pack("!I", self._as)),
            )
        )
        options = bytes((2, len(capabilities))) + capabilities
        body = struct.pack("!BHH4sB", 4, self._as, HOLD_SECONDS, self._router_id, len(options))
        session.sendall(message(OPEN, body + options) + message(KEEPALIVE, b""))
        kind = OPEN
        while kind != KEEPALIVE:
            kind, _ = _receive(session)
        session.settimeout(None)
        self._session = session
        for work in (self._read, self._keep):
            threading.Thread(target=work, daemon=True).start()

    def send(self, updates: bytes) -> None:
        """Sends encoded updates. Returns when the socket has accepted them all."""
        assert self._session is not None
        with self._sending:
            self._session.sendall(updates)

    def _read(self) -> None:
        assert self._session is not None
        try:
            while self._session.recv(1 << 16):
                pass
        except OSError:
            pass
        self._over.set()

    def _keep(self) -> None:
        while not self._over.wait(HOLD_SECONDS / 6):
            try:
                self.send(message(KEEPALIVE, b""))
            except OSError:
                return

    @property
    def lost(self) -> bool:
        """Whether the session has ended."""
        return self._over.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for one in (self._session, self._listener):
            if one is not None:
                one.close()


def _receive(session: socket.socket) -> tuple[int, bytes]:
    """Receives one message. Returns its type and body."""
    head = _exactly(session, 19)
    length, kind = struct.unpack("!HB", head[16:])
    return kind, _exactly(session, length - 19)


def _exactly(session: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = session.recv(size - len(found))
        if not part:
            raise ConnectionError("the router closed the BGP session")
        found += part
    return found
