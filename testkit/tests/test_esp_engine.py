# SPDX-License-Identifier: Apache-2.0
"""Tests the double of the ESP engine: its packets have the format of ESP, and only a double can
decrypt them.
"""

import os
import socket
import struct

import pytest

from sluice_testkit.esp_engine import (
    DECRYPT,
    DECRYPTED,
    ENCRYPT,
    ENCRYPTED,
    ESP,
    ETHERTYPE_SHIM,
    EspEngine,
    EspError,
    OutboundSa,
    Reassembly,
    Shim,
    esp_of,
    open_sealed,
    seal,
)
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.packet import ETHERTYPE_IPV6, parse
from sluice_testkit.wait import wait_until

SA4 = OutboundSa(0x1001, "192.0.2.1", "192.0.2.2")
SA6 = OutboundSa(0x1002, "2001:db8::1", "2001:db8::2")
MACS_AND_TYPE = 14


def ipv4(payload: bytes) -> bytes:
    addresses = bytes((10, 0, 0, 1)) + bytes((10, 0, 0, 2))
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0, 64, 17, 0)
    return header + addresses + payload


def ipv6(payload: bytes) -> bytes:
    header = struct.pack("!IHBB", 6 << 28, len(payload), 17, 63)
    return header + bytes(15) + b"\x02" + bytes(15) + b"\x03" + payload


INNER = [ipv4(bytes(range(8 + odd))) for odd in range(4)] + [ipv6(b"a question")]


@pytest.mark.parametrize("sa", [SA4, SA6])
@pytest.mark.parametrize("inner", INNER)
def test_what_is_sealed_opens_again_and_does_not_show(sa: OutboundSa, inner: bytes) -> None:
    outer = seal(sa, 7, inner)
    assert open_sealed(esp_of(outer)) == inner
    assert inner[-8:] not in outer
    assert len(inner) < len(outer) <= len(inner) + sa.overhead()


@pytest.mark.parametrize(("sa", "ether_type"), [(SA4, b"\x08\x00"), (SA6, b"\x86\xdd")])
def test_the_outer_packet_is_esp_between_the_tunnels_ends(
    sa: OutboundSa, ether_type: bytes
) -> None:
    frame = parse(bytes(12) + ether_type + seal(sa, 1, INNER[0]))
    assert (frame.source, frame.destination) == (sa.source, sa.destination)
    assert (frame.protocol, frame.is_fragment) == (ESP, False)
    assert struct.unpack_from("!II", esp_of(frame.data[MACS_AND_TYPE:])) == (sa.spi, 1)


def test_a_changed_bit_is_noticed() -> None:
    sealed = esp_of(seal(SA4, 1, INNER[0]))
    for at in range(len(sealed)):
        with pytest.raises(EspError, match="integrity"):
            open_sealed(sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :])
    with pytest.raises(EspError, match="too few"):
        open_sealed(sealed[:20])


def test_fragments_in_any_order_make_one_packet() -> None:
    packet = ipv4(bytes(range(64)))
    first = packet[:6] + b"\x20\x00" + packet[8:44]
    last = packet[:6] + b"\x00\x03" + packet[8:20] + packet[44:]
    other = packet[:4] + b"\x00\x09\x20\x00" + packet[8:44]
    for order in ((first, last), (last, first)):
        together = Reassembly()
        assert together.whole(other) is None
        assert together.whole(order[0]) is None
        whole = together.whole(order[1])
        assert whole is not None
        assert (whole[:4], whole[20:]) == (packet[:4], packet[20:])
    assert Reassembly().whole(packet) == packet


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_engine_on_its_link(lab: Lab) -> None:
    router, place = lab.namespace("router"), lab.namespace("engine")
    veth(router, "port9", place, "engine")
    with (
        EspEngine(place, "engine", {12: SA6}, {SA6.spi: 5}) as engine,
        router.socket(socket.AF_PACKET, socket.SOCK_RAW) as port,
    ):
        router.inside(lambda: port.bind(("port9", ETHERTYPE_SHIM)))
        port.settimeout(10)
        port.send(Shim(ENCRYPT, bundle=5, sa=12, ingress_l3_if=3, vrf=1).frame(INNER[0]))
        sealed = port.recv(2000)
        given = Shim(ENCRYPTED, 1, 5, 12, 3, 1, ETHERTYPE_IPV6)
        assert sealed == given.frame(seal(SA6, 1, INNER[0]))
        port.send(Shim(DECRYPT, ingress_l3_if=4, ether_type=ETHERTYPE_IPV6).frame(sealed[28:]))
        assert port.recv(2000) == Shim(DECRYPTED, bundle=5, ingress_l3_if=4).frame(INNER[0])
        assert [frame.flow for frame in engine.encrypted] == [f.flow for f in engine.decrypted]
        for unknown in (Shim(ENCRYPT, sa=13), Shim(DECRYPTED), Shim(DECRYPT)):
            port.send(unknown.frame(INNER[0]))
        wait_until(lambda: engine.refused.total() == 3, 10, "three refusals")
        assert engine.refused["no such outbound SA"] == 1
