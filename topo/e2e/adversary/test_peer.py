# SPDX-License-Identifier: Apache-2.0
"""Tests that the peer accepts a frame as ciphertext only if the whole frame is authentic ESP."""

import struct

import pytest

from sluice_adversary import plan
from sluice_adversary.checker import OutcomeChecker
from sluice_adversary.datagrams import ENCRYPT, SHIM_LENGTH, read_shim
from sluice_adversary.drafts import Draft
from sluice_adversary.peer import FROM_ROUTER, EspPeer, Sealer, router_sas
from sluice_adversary.plan import packed
from sluice_adversary.reference import Reference
from sluice_adversary.wire import DESTINATION_OPTIONS, ESP

from .made import REST, datagram, left, policy, protected_port, udp

LINKS = plan.LINKS


def sealer(bundle: int) -> Sealer:
    """Returns an encoder for an outbound SA of the router, with the router's key."""
    (sa,) = [sa for sa in router_sas() if (sa["direction"], sa["sa"]) == ("out", bundle)]
    return Sealer(sa["spi"], bytes.fromhex(sa["key"]))


def outer(bundle: int, esp: bytes) -> Draft:
    (sa,) = [sa for sa in router_sas() if (sa["direction"], sa["sa"]) == ("out", bundle)]
    local, remote = packed(sa["local"]), packed(sa["remote"])
    return Draft(4 if len(local) == 4 else 6, local, remote, ESP, esp, 7)


@pytest.mark.parametrize(("bundle", "link"), [(1, "b"), (2, "b"), (3, "c")])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 900])
def test_what_a_bundle_encrypted_is_seen_as_at_the_engine(
    bundle: int, link: str, size: int
) -> None:
    peer, packet = EspPeer(), udp(size=size).whole()
    assert peer.takes(LINKS[link], left(link, outer(bundle, sealer(bundle).seal(packet)).whole()))
    (frame,) = peer.heard()
    shim = read_shim(frame[14:])
    assert shim is not None
    assert (shim.kind, shim.bundle) == (ENCRYPT, bundle)
    assert frame[14 + SHIM_LENGTH :] == packet
    assert not list(peer.heard())


def test_any_altered_byte_of_esp_makes_it_plaintext() -> None:
    esp = sealer(1).seal(udp().whole())
    for at in range(len(esp)):
        altered = esp[:at] + bytes((esp[at] ^ 1,)) + esp[at + 1 :]
        assert not EspPeer().takes(LINKS["b"], left("b", outer(1, altered).whole()))


def test_a_sequence_number_that_comes_again_is_a_finding() -> None:
    peer, frame = EspPeer(), left("b", outer(1, sealer(1).seal(udp().whole())).whole())
    assert peer.takes(LINKS["b"], frame)
    assert not peer.takes(LINKS["b"], frame)


def test_plaintext_beside_ciphertext_is_plaintext() -> None:
    esp = sealer(1).seal(udp().whole())
    fine = outer(1, esp)
    with_options = outer(1, esp)
    with_options.options = bytes(4)
    six = outer(2, sealer(2).seal(udp().whole()))
    six.before = (DESTINATION_OPTIONS,)
    wrong_ends = outer(1, esp)
    wrong_ends.destination = packed(LINKS["b"].host(4, 1))
    for frame in (
        left("b", fine.whole() + b"x"),
        left("b", fine.whole() + bytes(1)),
        left("b", with_options.whole()),
        left("b", six.whole()),
        left("b", wrong_ends.whole()),
        *(left("b", piece) for piece in fine.cut(32)),
    ):
        assert not EspPeer().takes(LINKS["b"], frame)
    assert not EspPeer().takes(LINKS["c"], left("c", fine.whole()))
    assert EspPeer().takes(LINKS["b"], left("b", fine.whole()))


def test_esp_that_nobody_can_open_is_a_leak() -> None:
    """Checks that a clear packet behind a forged ESP header with a known SPI is reported as a leak.

    The policy bypasses the router's own packets, so only the check of the ESP can detect this
    packet.
    """
    packet = udp().whole()
    checker = OutcomeChecker()
    checker.new_round(Reference(policy(protected_port(), REST)))
    checker.sent(datagram(packet))
    esp = struct.pack("!II", FROM_ROUTER + 1, 1) + bytes(8) + packet
    frame = left("b", outer(1, esp).whole())
    assert not EspPeer().takes(LINKS["b"], frame)
    checker.saw("b", frame)
    assert [finding.kind for finding in checker.findings] == ["leak"]
