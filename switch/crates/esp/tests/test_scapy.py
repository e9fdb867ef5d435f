# SPDX-License-Identifier: Apache-2.0
"""Tests the engine against scapy's ESP, in both directions, for each algorithm that scapy supports.

The engine runs as `esp-frames` (examples/), which reads and writes frames over pipes.
"""

import hashlib
import hmac
import json
import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrHopByHop
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import Packet, Raw

SWITCH = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", SWITCH / "target"))
PROGRAM = TARGET / "release" / "examples" / "esp-frames"

ENCRYPT, ENCRYPTED, DECRYPT, DECRYPTED = 1, 2, 3, 4
SPI, SA, BUNDLE, VRF = 0x12345678, 7, 3, 2
ENDS = {4: ("192.0.2.1", "198.51.100.1"), 6: ("2001:db8:1::1", "2001:db8:2::1")}


@dataclass(frozen=True)
class Algorithm:
    """An algorithm with its names in the engine and in scapy, and with keys."""

    name: str
    crypt: str
    crypt_key: bytes
    auth: str = "NULL"
    auth_key: bytes = b""


def _bytes(count: int) -> bytes:
    return hashlib.shake_128(b"a key of a test").digest(count)


ALGORITHMS = (
    Algorithm("aes-128-gcm", "AES-GCM", _bytes(20)),
    Algorithm("aes-256-gcm", "AES-GCM", _bytes(36)),
    Algorithm("chacha20-poly1305", "CHACHA20-POLY1305", _bytes(36)),
    Algorithm("aes-128-cbc-hmac-sha-256-128", "AES-CBC", _bytes(16), "SHA2-256-128", _bytes(32)),
    Algorithm("aes-256-cbc-hmac-sha-256-128", "AES-CBC", _bytes(32), "SHA2-256-128", _bytes(32)),
    Algorithm("null-hmac-sha-256-128", "NULL", b"", "SHA2-256-128", _bytes(32)),
)


@dataclass(frozen=True)
class Case:
    """An SA between the engine and scapy."""

    algorithm: Algorithm
    mode: str
    version: int
    udp: bool = False
    esn: bool = False

    def __str__(self) -> str:
        parts = (self.algorithm.name, self.mode, f"ipv{self.version}")
        return "-".join((*parts, *(["udp"] if self.udp else []), *(["esn"] if self.esn else [])))

    def spec(self, direction: str) -> dict[str, Any]:
        """Returns the SA in the engine's JSON form."""
        spec: dict[str, Any] = {
            "direction": direction,
            "sa": SA,
            "spi": SPI,
            "bundle": BUNDLE,
            "vrf": VRF,
            "mode": self.mode,
            "algorithm": self.algorithm.name,
            "key": self.algorithm.crypt_key.hex(),
            "integrity_key": self.algorithm.auth_key.hex(),
            "esn": self.esn,
        }
        local, remote = ENDS[self.version]
        if direction == "out":
            spec |= {"local": local, "remote": remote}
            if self.udp:
                spec["encapsulation"] = {}
        else:
            spec["encapsulated"] = self.udp
        return spec

    def scapy(self, high: int = 0) -> SecurityAssociation:
        """Returns scapy's SA object. `high` is the upper half of sequence numbers."""
        local, remote = ENDS[self.version]
        header = IP if self.version == 4 else IPv6
        extra = {"esn_en": True, "esn": high} if self.esn else {}
        return SecurityAssociation(
            ESP,
            spi=SPI,
            crypt_algo=self.algorithm.crypt,
            crypt_key=self.algorithm.crypt_key or None,
            auth_algo=self.algorithm.auth,
            auth_key=self.algorithm.auth_key or None,
            tunnel_header=header(src=local, dst=remote) if self.mode == "tunnel" else None,
            nat_t_header=UDP(sport=4500, dport=4500) if self.udp else None,
            **extra,
        )

    def clear(self) -> list[Packet]:
        """Returns cleartext packets that the SA may carry, of various lengths and protocols."""
        if self.mode == "transport":
            ends = [ENDS[self.version]]
        else:
            ends = [("10.1.0.1", "10.2.0.1"), ("2001:db8:a::1", "2001:db8:b::1")]
        packets = []
        for source, destination in ends:
            if ":" in source:
                base = IPv6(src=source, dst=destination)
                packets += [base / ICMPv6EchoRequest(data=bytes(size)) for size in range(6)]
                packets.append(base / IPv6ExtHdrHopByHop() / UDP(sport=1, dport=2) / Raw(b"data"))
            else:
                base = IP(src=source, dst=destination, id=9, ttl=61)
                packets += [base / ICMP() / Raw(bytes(size)) for size in range(6)]
                packets.append(base / UDP(sport=1, dport=2) / Raw(b"data"))
            packets += [base / TCP(sport=1, dport=2) / Raw(os.urandom(size)) for size in (0, 1340)]
        return [packet.__class__(bytes(packet)) for packet in packets]


CASES = [
    Case(algorithm, mode, version, udp, esn)
    for algorithm in ALGORITHMS
    for mode in ("tunnel", "transport")
    for version in (4, 6)
    for udp in (False, True)
    for esn in (False, True)
    # Left out, because in transport mode over IPv6 scapy puts no UDP header in front of ESP.
    if not (mode == "transport" and version == 6 and udp)
]


class Engine:
    """A process that runs the engine."""

    def __init__(self, state: Path):
        self._process = subprocess.Popen(
            [PROGRAM, state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: object) -> dict[str, Any]:
        """Sends a request, and returns the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def exchange(self, kind: int, packet: bytes) -> bytes:
        """Sends a packet with a shim to the engine. Returns the packet in the engine's answer."""
        ether_type = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
        shim = struct.pack("!BBHIHHH", kind, 1, BUNDLE, SA, 4, VRF, ether_type)
        answer = self.ask(frame=(bytes(12) + b"\x88\xb5" + shim + packet).hex())
        assert "frame" in answer, answer
        frame = bytes.fromhex(answer["frame"])
        assert frame[14] == kind + 1
        return frame[28:]

    def stop(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(10) == 0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    started = Engine(tmp_path)
    yield started
    started.stop()


def parsed(packet: bytes) -> Packet:
    return IP(packet) if packet[0] >> 4 == 4 else IPv6(packet)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scapy_reads_what_the_engine_writes(case: Case, tmp_path: Path) -> None:
    if case.esn:
        nearly_full_turn(tmp_path, case)
    engine = Engine(tmp_path)
    try:
        assert engine.ask(add=case.spec("out")) == {}
        number = 2**32 - 3 if case.esn else 0
        for packet in case.clear():
            number += 1
            sealed = parsed(engine.exchange(ENCRYPT, bytes(packet)))
            assert sealed[ESP].seq == number & 0xFFFFFFFF
            opened = case.scapy(number >> 32).decrypt(sealed)
            assert bytes(opened) == bytes(packet)
    finally:
        engine.stop()


def nearly_full_turn(state: Path, case: Case) -> None:
    """Makes the engine's sequence numbers begin just below 2^32, as if all lower numbers had been
    used.
    """
    algorithm = case.algorithm
    named = bytes([len(algorithm.crypt_key)]) + algorithm.crypt_key + algorithm.auth_key
    digest = hmac.digest(b"sluice-esp sequence numbers 1", named, "sha256")
    record = digest[:16] + struct.pack("!Q", 2**32 - 3)
    record += hashlib.sha256(record).digest()[:8]
    (state / "sequence-numbers").write_bytes(record)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_engine_reads_what_scapy_writes(case: Case, engine: Engine) -> None:
    assert engine.ask(add=case.spec("in")) == {}
    number = 0
    for packet in case.clear():
        number += 2**29 if case.esn else 1
        scapy = case.scapy(number >> 32)
        sealed = scapy.encrypt(packet, seq_num=number & 0xFFFFFFFF)
        assert engine.exchange(DECRYPT, bytes(sealed)) == bytes(packet)
        again = engine.ask(frame=frame_of(bytes(sealed)).hex())
        assert again == {"drop": "replayed"}
    if case.esn:
        assert number > 2**32


def frame_of(packet: bytes) -> bytes:
    ether_type = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    shim = struct.pack("!BBHIHHH", DECRYPT, 1, BUNDLE, SA, 4, VRF, ether_type)
    return bytes(12) + b"\x88\xb5" + shim + packet


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: one.name)
def test_another_key_is_no_key(algorithm: Algorithm, engine: Engine) -> None:
    case = Case(algorithm, "tunnel", 4)
    spec = case.spec("in")
    secret = "key" if algorithm.crypt_key else "integrity_key"
    spec[secret] = "00" + spec[secret][2:]
    assert engine.ask(add=spec) == {}
    sealed = case.scapy().encrypt(case.clear()[0])
    answer = engine.ask(frame=frame_of(bytes(sealed)).hex())
    # With AES-CBC, only the integrity key is used for authentication. So a wrong encryption key is
    # detected only after decryption.
    assert answer["drop"] in (
        "integrity_failed",
        "bad_padding",
        "bad_next_header",
        "inner_malformed",
    )
    assert algorithm.auth_key or answer["drop"] == "integrity_failed"
