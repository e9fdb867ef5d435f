# SPDX-License-Identifier: Apache-2.0
"""Tests the keys `fragmentation` and `traffic` of an SA: which values are accepted, and that the
settings are saved and read back.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluice.model import parse_address
from sluice.policy.model import OPAQUE, UDP
from sluice.policy.populated import Populated
from sluice.sa_config import BundleOfSas, ValuesInUse, parse_associations, to_document
from sluice.sa_model import Fragmentation, SecurityAssociation
from sluice.yamlreader import ConfigError

BUNDLES = {"branch": BundleOfSas(5, 0, (1,))}
IPV4 = "local: 192.0.2.1, remote: 198.51.100.1"
IPV6 = 'local: "2001:db8::1", remote: "2001:db8::2"'
A, B = parse_address("10.1.0.1"), parse_address("10.2.0.1")
REQUIRES_DF = "`after` requires `df: clear`"


def read(directory: Path, rest: str, direction: str = "outbound") -> SecurityAssociation:
    """Parses a file with one SA, and returns the SA."""
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
        (f"{IPV4}, fragmentation: after", "outbound", REQUIRES_DF),
        (f"{IPV4}, df: copy, fragmentation: after", "outbound", REQUIRES_DF),
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


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("source: 10.1.0.1, destination: 10.2.0.1", Populated(A, B)),
        (
            "source: 10.1.0.1, protocol: udp, source_ports: 5000, destination_ports: opaque",
            Populated(A, None, UDP, 5000, OPAQUE),
        ),
        ("protocol: 58, icmp: 128/0", Populated(protocol=58, icmp=128 << 8)),
        ("protocol: mobility, mobility_types: 5", Populated(protocol=135, mobility_types=5)),
    ],
)
@pytest.mark.parametrize(("direction", "rest"), [("outbound", f"{IPV4}, "), ("inbound", "")])
def test_traffic_is_written_as_it_was_read(
    tmp_path: Path, written: str, values: Populated, direction: str, rest: str
) -> None:
    sa = read(tmp_path, f"{rest}traffic: {{{written}}}", direction)
    assert sa.traffic == values
    text = json.dumps({"security_associations": [to_document(sa, "branch")]})
    (again,) = parse_associations(text, "again", tmp_path, BUNDLES, ValuesInUse.by())
    assert again == sa


def problems(directory: Path, old: str, new: str) -> list[str]:
    """Reads a file with one outbound SA in which `new` replaces `old`. Returns the problems."""
    path = directory / "key"
    path.touch(mode=0o600)
    path.write_text("0f" * 20)
    text = (
        "security_associations: [{name: a, bundle: branch, direction: outbound, spi: 0x1001,"
        f" algorithm: aes-128-gcm, key_file: key, engine: 1, {IPV4}}}]"
    )
    assert old in text
    with pytest.raises(ConfigError) as error:
        parse_associations(text.replace(old, new), "sas.yaml", directory, BUNDLES, ValuesInUse.by())
    return error.value.problems


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("spi: 0x1001", "spi: 0400", ".spi: YAML takes 0400 for the number 256; write 256 or 400"),
        ("spi: 0x1001", "spi: 10:30", ".spi: YAML takes 10:30 for the number 630; write 630"),
        ("algorithm: aes-128-gcm", "algorithm: des", ".algorithm: 'des' is not one of"),
        ("direction: outbound", "direction: out", ".direction: 'out' is not one of"),
        ("bundle: branch", "bundle: twig", ".bundle: 'twig' is not one of: branch"),
        ("engine: 1", "traffic: {}", ".traffic: gives no value"),
        ("engine: 1", "traffic: {source: 10.0.0.0/8}", ".traffic.source: '10.0.0.0/8' is not an"),
        (
            "engine: 1",
            "traffic: {source: 10.0.0.1, port: 5}",
            ".traffic.port: unknown key; known here: destination,",
        ),
        ("engine: 1", "traffic: {protocol: udp, icmp: 8/0}", ".traffic: the protocol udp has no"),
        ("engine: 1", "traffic: {icmp: 8}", ".traffic.icmp: '8' is no ICMP type and code like 8/0"),
        ("engine: 1", "traffic: {source_ports: 070}", "YAML takes 070 for the number 56"),
        (
            "engine: 1",
            "hard: {seconds: 8h}",
            ".hard.seconds: '8h' is not a whole number of seconds from 1; 8 hours are written as"
            " 28800",
        ),
    ],
)
def test_one_mistake_is_one_problem(tmp_path: Path, old: str, new: str, says: str) -> None:
    (problem,) = problems(tmp_path, old, new)
    assert says in problem


def test_a_second_sa_of_an_spi_names_it_in_hexadecimal(tmp_path: Path) -> None:
    for name, digits in (("one", "01"), ("two", "02")):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(digits * 20)
    sas = ", ".join(
        f"{{name: {name}, bundle: branch, direction: inbound, spi: 4097, algorithm: aes-128-gcm,"
        f" key_file: {name}}}"
        for name in ("one", "two")
    )
    text = f"security_associations: [{sas}]"
    with pytest.raises(ConfigError, match="the inbound SPI 0x1001 belongs to 'one' already"):
        parse_associations(text, "sas.yaml", tmp_path, BUNDLES, ValuesInUse.by())
