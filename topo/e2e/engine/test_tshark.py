# SPDX-License-Identifier: Apache-2.0
"""Tests the ESP packets of an engine with tshark, which decrypts them with the SA's keys and checks
their ICVs.

r1 and r2 protect packets from h1 to h2 with each algorithm in turn. The packets are captured on the
link between the routers. topo/interop/test_libipsec.py tests ESP in UDP in the same way.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit import tshark
from sluice_testkit.capture import Capture

from ..protected.network import TUNNEL
from .network import Protected, inbound_spec, outbound_spec
from .test_protected_traffic import COUNT, PATTERN, passes

pytestmark = tshark.needed

KEY_BYTES = {
    "aes-128-gcm": (20, 0),
    "aes-256-gcm": (36, 0),
    "chacha20-poly1305": (36, 0),
    "aes-128-cbc-hmac-sha-256-128": (16, 32),
    "aes-256-cbc-hmac-sha-256-128": (32, 32),
    "null-hmac-sha-256-128": (0, 32),
}
"""Bytes of the keys for encryption and integrity, by algorithm."""
SA, BUNDLE_OF_R1, BUNDLE_OF_R2 = 12, 2, 1
"""Number of the SA from r1 to r2, and the ids of its bundle at r1 and r2."""


def keys(algorithm: str, round_: str) -> dict[str, str]:
    """Returns the keys of an SA in hexadecimal, under the names in the engine's specification. No
    other SA has these keys.
    """
    sizes = zip(("key", "integrity_key"), KEY_BYTES[algorithm], strict=True)
    return {
        name: hashlib.shake_128(f"{name} of {algorithm} {round_}".encode()).hexdigest(size)
        for name, size in sizes
    }


@contextmanager
def protected_by(protected: Protected, settings: dict[str, Any]) -> Iterator[None]:
    """Changes settings of the SA from r1 to r2 at both engines while the context is open."""
    r1, r2 = protected.engines["r1"], protected.engines["r2"]

    def install(more: dict[str, Any]) -> None:
        r1.ctl("delete-out", str(SA))
        r2.ctl("delete-in", str(TUNNEL[SA].spi))
        r1.add([outbound_spec(SA, BUNDLE_OF_R1, **more)])
        r2.add([inbound_spec(SA, BUNDLE_OF_R2, **more)])

    install(settings)
    try:
        yield
    finally:
        install({})


def captured(protected: Protected, path: Path) -> None:
    """Pings from h1 to h2. Writes r1's ESP packets on the link to t to a pcap file."""
    with Capture(
        protected.between, "eth1", lambda frame: frame.source == TUNNEL[SA].source
    ) as seen:
        passes(protected, "h1", "h2", 4)
        assert seen.count() >= COUNT
        seen.write_pcap(path)


@pytest.mark.parametrize("algorithm", list(KEY_BYTES))
def test_each_algorithm_is_decrypted_and_its_icv_is_good(
    protected: Protected, algorithm: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tshark.require(algorithm)
    given = keys(algorithm, request.node.name)
    path = tmp_path / "r1.pcap"
    with protected_by(protected, {"algorithm": algorithm, "esn": False} | given):
        captured(protected, path)
    ends = TUNNEL[SA]
    sa = tshark.EspSa(ends.source, ends.destination, ends.spi, algorithm, **given)
    opened = [one for one in tshark.esp_packets(path, [sa]) if one.spi == ends.spi]
    assert [one.sequence for one in opened] == list(range(1, COUNT + 1))
    hosts = tuple(protected.network.hosts[name].address(4) for name in ("h1", "h2"))
    for one in opened:
        assert (one.icv_is_good, one.inner) == (True, hosts)
        assert PATTERN in one.payload
    other = keys(algorithm, "no SA's")
    other_sa = replace(sa, key=other["key"], integrity_key=other["integrity_key"])
    refused = tshark.esp_packets(path, [other_sa])
    assert len(refused) == COUNT
    assert not any(one.icv_is_good for one in refused)
