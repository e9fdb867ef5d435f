# SPDX-License-Identifier: Apache-2.0
"""Reads the keys of child SAs from the log of the charon that negotiated them.

charon logs keys if its log level for `chd` is 4 (`StrongSwan(keys_in_log=True)`). Pure functions:
they take the log as text and return SAs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_PREFIX = re.compile(r"^\d+\[[A-Z]{3}\] (?:<[^>]*> )?")
_KEY = re.compile(r"(encryption|integrity) (initiator|responder) key => (\d+) bytes")
_BYTES = re.compile(r" *\d+: (.*)")
_SPI = re.compile(r"  SPI 0x([0-9a-f]{8}), ")
_ASKS = "establishing CHILD_SA "
_INITIATOR, _RESPONDER = "initiator", "responder"
BYTES_PER_LINE = 16


@dataclass(frozen=True)
class EspKeys:
    """Holds SPI and keys of one direction of a child SA.

    Keys are in hexadecimal; an AEAD's key ends with its salt.
    """

    spi: int
    encryption: str
    integrity: str


@dataclass(frozen=True)
class ChildSa:
    """Holds the keys of a child SA. `inbound` and `outbound` are as seen by the host that wrote the
    log.
    """

    inbound: EspKeys
    outbound: EspKeys


@dataclass
class _Negotiation:
    """Collects what the log says about one child SA."""

    initiated: bool
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    spis: dict[str, int] = field(default_factory=dict)

    def sa(self) -> ChildSa:
        own, other = (_INITIATOR, _RESPONDER) if self.initiated else (_RESPONDER, _INITIATOR)
        return ChildSa(self._half("inbound", other), self._half("outbound", own))

    def _half(self, direction: str, sender: str) -> EspKeys:
        encryption, integrity = (
            self.keys.get((k, sender), "") for k in ("encryption", "integrity")
        )
        return EspKeys(self.spis[direction], encryption, integrity)


def child_sas(log: str) -> list[ChildSa]:
    """Returns the child SAs whose two SPIs are both in the log, in the log's order."""
    return [one.sa() for one in _negotiations(log) if len(one.spis) == 2]


def _negotiations(log: str) -> list[_Negotiation]:
    found: list[_Negotiation] = []
    asked, direction = False, ""
    lines = (_PREFIX.sub("", line) for line in log.splitlines())
    for line in lines:
        if line.startswith(_ASKS):
            asked = True
        elif key := _KEY.match(line):
            kind, sender, size = key[1], key[2], int(key[3])
            # charon logs all keys of one child SA together: first those of the initiator.
            if not found or found[-1].spis or (kind, sender) in found[-1].keys:
                found.append(_Negotiation(initiated=asked))
                asked = False
            found[-1].keys[kind, sender] = _dumped(lines, size)
        elif line.endswith((" inbound ESP SA", " outbound ESP SA")):
            direction = line.split()[-3]
        elif (spi := _SPI.match(line)) and direction and found:
            found[-1].spis.setdefault(direction, int(spi[1], 16))
            direction = ""
    return found


def _dumped(lines: Iterator[str], size: int) -> str:
    """Returns the hex digits of a dump of `size` bytes.

    Each line of the dump ends with the same bytes as text. If the log ends early, fewer digits are
    returned.
    """
    digits = ""
    while len(digits) < 2 * size and (dumped := _BYTES.match(next(lines, ""))):
        count = min(BYTES_PER_LINE, size - len(digits) // 2)
        digits += "".join(dumped[1].split(" ")[:count])
    return digits.lower()
