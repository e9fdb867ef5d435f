# SPDX-License-Identifier: Apache-2.0
"""Checks ESP packets with Wireshark: tshark decrypts a capture with the SAs' keys and checks the
integrity check values (ICVs).

Depends on process.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from sluice_testkit.process import run

PROGRAM = shutil.which("tshark")
needed = pytest.mark.skipif(
    PROGRAM is None, reason="tshark is not installed (Debian: tshark, by `make setup`)"
)
"""Marks a test that needs tshark. The test is skipped if tshark is missing."""

_HMAC = "HMAC-SHA-256-128 [RFC4868]"
_GCM, _CBC = "AES-GCM with 16 octet ICV [RFC4106]", "AES-CBC [RFC3602]"
ALGORITHMS = {
    "aes-128-gcm": (_GCM, "NULL"),
    "aes-256-gcm": (_GCM, "NULL"),
    "chacha20-poly1305": ("ChaCha20 with Poly1305 [RFC7634]", "NULL"),
    "aes-128-cbc-hmac-sha-256-128": (_CBC, _HMAC),
    "aes-256-cbc-hmac-sha-256-128": (_CBC, _HMAC),
    "null-hmac-sha-256-128": ("NULL", _HMAC),
}
"""Maps the engine's name of an algorithm to tshark's names for encryption and authentication."""
_FIELDS = (
    *("esp.spi", "esp.sequence", "esp.icv_good"),
    *("ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "data.data"),
)


@dataclass(frozen=True)
class EspSa:
    """Describes an SA of the captured ESP. Keys are in hexadecimal; an AEAD's key ends with its
    salt.
    """

    source: str
    destination: str
    spi: int
    algorithm: str
    key: str = ""
    integrity_key: str = ""

    def preference(self) -> str:
        """Returns the option that adds the SA to Wireshark's table `esp_sa`."""
        encryption, authentication = ALGORITHMS[self.algorithm]
        family = "IPv6" if ":" in self.source else "IPv4"
        keys = [f"0x{key}" if key else "" for key in (self.key, self.integrity_key)]
        fields = (family, self.source, self.destination, hex(self.spi), encryption, keys[0])
        return "uat:esp_sa:" + ",".join(f'"{one}"' for one in (*fields, authentication, keys[1]))

    def is_refused(self) -> bool:
        """Returns whether tshark refuses the option for this SA. tshark checks its options before
        it opens the capture file.
        """
        done = _tshark(["-r", os.devnull, "-o", self.preference()], check=False)
        return "Invalid -o flag" in done.stderr


@dataclass(frozen=True)
class EspPacket:
    """Holds an ESP packet as tshark dissects it.

    `inner` is source and destination of the inner packet, or None if tshark has not decrypted the
    packet. `payload` is the bytes of the inner packet that tshark calls data.
    """

    spi: int
    sequence: int
    icv_is_good: bool
    inner: tuple[str, str] | None
    payload: bytes


def require(algorithm: str) -> None:
    """Skips the test if the installed tshark does not support the algorithm."""
    if EspSa("192.0.2.1", "192.0.2.2", 256, algorithm).is_refused():
        pytest.skip(f"this tshark has no {ALGORITHMS[algorithm][0]}")


def esp_packets(capture: Path, sas: Iterable[EspSa]) -> list[EspPacket]:
    """Returns the ESP packets of a capture file in order, decrypted with the keys of `sas`."""
    sas = tuple(sas)
    options = ["esp.enable_encryption_decode:TRUE", "esp.enable_authentication_check:TRUE"]
    options += [sa.preference() for sa in sas]
    words = ["-n", "-r", str(capture), "-Y", "esp", "-T", "fields", "-E", "separator=|"]
    words += [word for option in options for word in ("-o", option)]
    words += [word for field in _FIELDS for word in ("-e", field)]
    done = _tshark(words)
    ends = {sa.spi: (sa.source, sa.destination) for sa in sas}
    return [_packet(line.split("|"), ends) for line in done.stdout.splitlines()]


def _tshark(words: Sequence[str], *, check: bool = True) -> CompletedProcess[str]:
    """Runs tshark with an empty configuration, without the user's settings."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory() as settings:
        environment = {"WIRESHARK_CONFIG_DIR": settings, "HOME": settings}
        return run([PROGRAM, *words], check=check, env=environment)


def _packet(fields: Sequence[str], ends: Mapping[int, tuple[str, str]]) -> EspPacket:
    """Parses one line of tshark's output. `ends` maps an SPI to the tunnel's outer addresses."""
    # If tshark decrypted the packet with a wrong key, it may show a second ESP header in the
    # result. So only the first is used.
    first = [field.partition(",")[0] for field in fields]
    number, sequence, good = first[:3]
    source, destination, source6, destination6 = fields[3:7]
    spi = int(number, 16)
    found = [*_pairs(source, destination), *_pairs(source6, destination6)]
    inner = [pair for pair in found if spi in ends and pair != ends[spi]]
    return EspPacket(
        spi,
        int(sequence),
        good in ("1", "True"),
        inner[0] if inner else None,
        bytes.fromhex(first[7]),
    )


def _pairs(sources: str, destinations: str) -> Iterable[tuple[str, str]]:
    """Pairs source and destination of each header. tshark's lists are separated by commas."""
    return zip(filter(None, sources.split(",")), filter(None, destinations.split(",")), strict=True)
