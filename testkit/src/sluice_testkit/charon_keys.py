# SPDX-License-Identifier: Apache-2.0
"""Keys of child SAs, read from the log of the charon that negotiated them.

charon writes them where its log level for `chd` is 4 (`StrongSwan(keys_in_log=True)`). Pure: the
log's text in, SAs out.
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
    """Keys of one direction of a child SA, in hexadecimal. An AEAD's key ends with its salt."""

    spi: int
    encryption: str
    integrity: str


@dataclass(frozen=True)
class ChildSa:
    """A child SA as the end sees it whose log was read."""

    inbound: EspKeys
    outbound: EspKeys


@dataclass
class _Negotiation:
    """Facts that a log has given so far about one child SA."""

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
    """The child SAs of a log that both SPIs are known of, in order."""
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
            # The keys of one child SA follow each other, those of its first sender first.
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
    """The digits of a dump, whose lines end with the bytes as text; fewer where the log ends."""
    digits = ""
    while len(digits) < 2 * size and (dumped := _BYTES.match(next(lines, ""))):
        count = min(BYTES_PER_LINE, size - len(digits) // 2)
        digits += "".join(dumped[1].split(" ")[:count])
    return digits.lower()
