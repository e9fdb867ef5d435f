# SPDX-License-Identifier: Apache-2.0
"""Reads full routing tables from the file BGP_TABLE, or generates them.

The file has one prefix per line (`.xz` is unpacked). Without a file, the table begins with random
prefixes, whose lengths are distributed as in the Internet. Each further prefix is derived from two
random prefixes of the table: the new one has the length of the first and the leading bits of the
second. So prefixes are nested and adjacent as often as in a real table.
"""

from __future__ import annotations

import lzma
import os
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.p4_cpu import LENGTHS

IPV6_LENGTHS = dict(
    zip(
        (29, 32, 33, 34, 36, 38, 39, 40, 42, 44, 45, 46, 47, 48),
        (4371, 22548, 2926, 2603, 5996, 1617, 1377, 13418, 2301, 14365, 1553, 3039, 3153, 75488),
        strict=True,
    )
)
"""Number of prefixes of a full IPv6 table, by length."""
SHARED = {4: 14, 6: 28}
"""Bits that a derived prefix copies from an existing one, by IP version."""
SEEDS = 20_000
"""Number of random prefixes without a file. All further prefixes are derived from them."""

Prefix = tuple[bytes, int]


@dataclass(frozen=True)
class Table:
    """Holds distinct IPv4 and IPv6 prefixes in random order, and says where they come from."""

    ipv4: list[Prefix]
    ipv6: list[Prefix]
    source: str

    def __len__(self) -> int:
        return len(self.ipv4) + len(self.ipv6)


def table(ipv4: int, ipv6: int) -> Table:
    """Returns this number of prefixes, which are the same in every run."""
    chance = random.Random(11)
    named = os.environ.get("BGP_TABLE")
    read: dict[int, list[Prefix]] = {4: [], 6: []}
    source = "made by the Internet's mix of lengths"
    if named:
        source = Path(named).name
        for prefix in _read(Path(named)):
            read[4 if len(prefix[0]) == 4 else 6].append(prefix)
    found = []
    for version, count in ((4, ipv4), (6, ipv6)):
        prefixes = read[version]
        chance.shuffle(prefixes)
        some = dict.fromkeys(prefixes[:count])
        if not some:
            some = _seeds(version, min(count, SEEDS), chance)
        elif len(some) < count:
            source += f", {count - len(some):,} IPv{version} prefixes by its mix"
        found.append(_extended(some, version, count, chance))
    return Table(found[0], found[1], source)


def routable(prefix: Prefix) -> bool:
    """Returns whether the prefix can be a route of the benchmark: routers forward to it, and it is
    outside of the lab's networks (10.0.0.0/8 and 2001:db8::/32).
    """
    address, length = prefix
    if len(address) == 4:
        head = address[0]
        return 0 < head < 224 and head not in (10, 127, 169) and length > 0
    return address[0] & 0xE0 == 0x20 and address[:4] != b"\x20\x01\x0d\xb8" and length > 3


def _read(path: Path) -> Iterator[Prefix]:
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for line in lines:
            text, _, length = line.strip().partition("/")
            family = socket.AF_INET6 if ":" in text else socket.AF_INET
            prefix = socket.inet_pton(family, text), int(length)
            if routable(prefix):
                yield prefix


def _seeds(version: int, count: int, chance: random.Random) -> dict[Prefix, None]:
    shares = LENGTHS if version == 4 else IPV6_LENGTHS
    lengths = chance.choices(list(shares), list(shares.values()), k=2 * count + 10)
    found: dict[Prefix, None] = {}
    for length in lengths:
        if version == 4:
            number, size = chance.randrange(1 << 24, 224 << 24), 4
        else:
            number, size = 1 << 125 | chance.getrandbits(125), 16
        prefix = _masked(number, size, length)
        if routable(prefix) and len(found) < count:
            found[prefix] = None
    return found


def _extended(
    some: dict[Prefix, None], version: int, count: int, chance: random.Random
) -> list[Prefix]:
    known = list(some)
    size, bits = (4, 32) if version == 4 else (16, 128)
    while len(some) < count:
        length = known[chance.randrange(len(known))][1]
        near = int.from_bytes(known[chance.randrange(len(known))][0], "big")
        free = bits - SHARED[version]
        prefix = _masked(near >> free << free | chance.getrandbits(free), size, length)
        if length > 8 and prefix not in some and routable(prefix):
            some[prefix] = None
    made = list(some)
    chance.shuffle(made)
    return made


def _masked(number: int, size: int, length: int) -> Prefix:
    free = size * 8 - length
    return (number >> free << free).to_bytes(size, "big"), length
