# SPDX-License-Identifier: Apache-2.0
"""Tests ICMP errors about ESP packets that this router has sent.

Such an error may set the path MTU of an SA only if it came through the bundle whose ESP it quotes.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import packets
from sluice.model import parse_address
from sluice.path_mtu_errors import PathMtuErrors
from sluice.policy.model import Direction
from sluice.sa_model import KeyMaterial, Origin, SaSettings, SecurityAssociation
from sluice.wire.packet import ESP, ICMP, internet_checksum
from test_punts import punt

LOCAL, REMOTE, ROUTER = "192.0.2.1", "198.51.100.1", "203.0.113.9"
BUNDLE, SPI, LENGTH = 5, 0x1001, 1500


class NoKeys:
    def read(self) -> KeyMaterial:
        raise AssertionError("no key is needed here")


def sa(direction: Direction, spi: int) -> SecurityAssociation:
    ends = (
        {"local": parse_address(LOCAL), "remote": parse_address(REMOTE)}
        if direction is Direction.OUTBOUND
        else {}
    )
    settings = SaSettings(direction, spi, BUNDLE, 0, "aes-128-gcm", f"of {spi}", **ends)  # type: ignore[arg-type]
    return SecurityAssociation(f"sa-{spi:x}", settings, Origin.CONFIGURATION, NoKeys())


class ReportRecorder:
    """Records the path MTUs that are reported for SAs."""

    def __init__(self) -> None:
        wanted = [sa(Direction.INBOUND, SPI), sa(Direction.OUTBOUND, SPI)]
        self.table = SimpleNamespace(wanted=wanted)
        self.recorder: list[tuple[str, int, bytes]] = []
        self.counts = True

    def report_path_mtu(self, sa: SecurityAssociation, mtu: int, sender: bytes) -> bool:
        assert sa.is_outbound
        self.recorder.append((sa.name, mtu, sender))
        return self.counts


def error(
    mtu: int, *, spi: int = SPI, source: str = LOCAL, destination: str = REMOTE, protocol: int = ESP
) -> bytes:
    header = spi.to_bytes(4, "big") + (9).to_bytes(4, "big")
    about = packets.ipv4(source, destination, header + bytes(LENGTH - 28), protocol)
    message = bytes([3, 4]) + bytes(4) + mtu.to_bytes(2, "big") + about[:28]
    message = message[:2] + internet_checksum(message).to_bytes(2, "big") + message[4:]
    return packets.ethernet(packets.ipv4(ROUTER, source, message, ICMP))


def counted(frame: bytes, recorder: ReportRecorder | None = None, **known: int) -> dict[str, int]:
    errors = PathMtuErrors(recorder or ReportRecorder())  # type: ignore[arg-type]
    errors.delivered(punt(frame, "LOCAL", **known))
    return dict(errors.counters)


def test_an_error_that_its_bundle_carried_counts() -> None:
    recorder = ReportRecorder()
    assert counted(error(1400), recorder, bundle=BUNDLE) == {"path MTUs told": 1}
    assert recorder.recorder == [(f"sa-{SPI:x}", 1400, parse_address(ROUTER))]


@pytest.mark.parametrize(
    ("frame", "known", "why"),
    [
        (error(1400), {}, "came in clear"),
        (error(1400), {"bundle": BUNDLE + 1}, "came by another bundle"),
        (error(LENGTH), {"bundle": BUNDLE}, "the packet would fit"),
        (error(0), {"bundle": BUNDLE}, "the packet would fit"),
    ],
)
def test_any_other_is_counted_and_changes_nothing(
    frame: bytes, known: dict[str, int], why: str
) -> None:
    recorder = ReportRecorder()
    assert counted(frame, recorder, **known) == {f"refused: {why}": 1}
    assert recorder.recorder == []


@pytest.mark.parametrize(
    ("frame", "known"),
    [
        (error(1400, spi=SPI + 1), {"bundle": BUNDLE}),
        (error(1400, destination="198.51.100.2"), {"bundle": BUNDLE}),
        (error(1400, source="192.0.2.2"), {"bundle": BUNDLE}),
        (error(1400, protocol=17), {"bundle": BUNDLE}),
        (error(1400), {"bundle": BUNDLE, "vrf": 1}),
        (error(1400)[:60], {"bundle": BUNDLE}),
        (b"no packet", {"bundle": BUNDLE}),
    ],
)
def test_what_is_about_no_packet_of_ours_is_nobodys(frame: bytes, known: dict[str, int]) -> None:
    recorder = ReportRecorder()
    assert counted(frame, recorder, **known) == {}
    assert recorder.recorder == []


def test_what_tells_no_less_is_counted() -> None:
    recorder = ReportRecorder()
    recorder.counts = False
    assert counted(error(1400), recorder, bundle=BUNDLE) == {
        "refused: tells no less than is known": 1
    }
