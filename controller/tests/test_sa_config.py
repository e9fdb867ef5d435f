# SPDX-License-Identifier: Apache-2.0
"""When an SA has packets fragmented: which SAs may have ESP fragmented, and how that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluice.sa_config import BundleOfSas, ValuesInUse, parse_associations, to_document
from sluice.sa_model import Fragmentation, SecurityAssociation
from sluice.yamlreader import ConfigError

BUNDLES = {"branch": BundleOfSas(5, 0, (1,))}
IPV4 = "local: 192.0.2.1, remote: 198.51.100.1"
IPV6 = 'local: "2001:db8::1", remote: "2001:db8::2"'
TAKES_DF = "takes df: clear"


def read(directory: Path, rest: str, direction: str = "outbound") -> SecurityAssociation:
    """The SA that a file has."""
    path = directory / "key"
    path.touch(mode=0o600)
    path.write_text("0f" * 20)
    text = (
        f"security_associations: [{{name: a, bundle: branch, direction: {direction}, spi: 0x1001,"
        f" algorithm: aes-128-gcm, key_file: key, {rest}}}]"
    )
    (sa,) = parse_associations(text, "sas.yaml", directory, BUNDLES, ValuesInUse.by())
    return sa


def test_packets_are_fragmented_before_encryption_unless_said(tmp_path: Path) -> None:
    assert read(tmp_path, IPV4).fragmentation is Fragmentation.BEFORE
    before = f"{IPV6}, fragmentation: before"
    assert read(tmp_path, before).fragmentation is Fragmentation.BEFORE


@pytest.mark.parametrize("ends", [f"{IPV4}, df: clear", IPV6], ids=["ipv4", "ipv6"])
def test_after_encryption_is_written_as_it_was_read(tmp_path: Path, ends: str) -> None:
    sa = read(tmp_path, f"{ends}, fragmentation: after")
    assert sa.fragmentation is Fragmentation.AFTER
    text = json.dumps({"security_associations": [to_document(sa, "branch")]})
    (again,) = parse_associations(text, "again", tmp_path, BUNDLES, ValuesInUse.by())
    assert again == sa


@pytest.mark.parametrize(
    ("rest", "direction", "says"),
    [
        (f"{IPV4}, fragmentation: after", "outbound", TAKES_DF),
        (f"{IPV4}, df: copy, fragmentation: after", "outbound", TAKES_DF),
        (f"{IPV4}, mode: transport, fragmentation: after", "outbound", "of an outer header"),
        ("fragmentation: after", "inbound", "is not for an SA that is inbound"),
        (f"{IPV4}, df: clear, fragmentation: never", "outbound", "before, after"),
    ],
)
def test_what_cannot_be_fragmented_is_refused(
    tmp_path: Path, rest: str, direction: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read(tmp_path, rest, direction)
