# SPDX-License-Identifier: Apache-2.0
"""Makes random datagrams with ESP or similar contents.

The contents are: ESP and packets that resemble it, frames that enter by the engine port, and forged
shims.
"""

import struct
from collections.abc import Callable

from . import marks, plan
from .datagram_maker import DatagramMaker, Selectors
from .datagrams import DECRYPT, DECRYPTED, ENCRYPT, ENCRYPTED, Datagram, EntryPoint, Shim
from .drafts import Draft
from .plan import packed
from .policy import PORTS
from .wire import ESP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, TCP, UDP, with_checksum

# -- ESP, and packets that resemble it


def _esp(maker: DatagramMaker) -> Datagram:
    """Makes an ESP packet to the router or to another host, whole or in fragments."""
    entry = maker.entry(decrypted=0.1)
    draft = _sealed_draft(maker, entry, ESP)
    if maker.random.random() < 0.4:
        return maker.datagram(entry, draft.cut(*maker.cuts(draft, 2)))
    return maker.datagram(entry, [draft.whole()])


def _esp_in_udp(maker: DatagramMaker) -> Datagram:
    """Makes ESP in UDP, IKE (which begins with four zero bytes), or a NAT keep-alive.

    The packet is whole or in two fragments, of which the first may end before the SPI.
    """
    entry = maker.entry(decrypted=0.1)
    draft = _sealed_draft(maker, entry, UDP)
    if maker.random.random() < 0.5 and len(draft.payload) > 24:
        first = maker.random.choice((8, 16, 24))
        return maker.datagram(entry, draft.cut(first))
    return maker.datagram(entry, [draft.whole()])


def _sealed_draft(maker: DatagramMaker, entry: EntryPoint, protocol: int) -> Draft:
    random = maker.random
    source, destination = maker.addresses(entry)
    version = 4 if len(source) == 4 else 6
    if random.random() < 0.6 and entry.port in plan.LINKS:
        destination = packed(plan.LINKS[entry.port].own(version))
    spi = random.choice((*plan.SPIS, 0x7777, 0x1001))
    body = struct.pack("!II", spi, 1) + marks.fill(maker.number, 8 * random.randint(2, 40))
    if protocol == UDP:
        if random.random() < 0.25:
            body = bytes(4) + body[4:]
        elif random.random() < 0.1:
            body = b"\xff"
        ports = random.choice(((4500, 4500), (random.choice(PORTS), 4500), (4500, 7000)))
        body = struct.pack("!HHHH", *ports, 8 + len(body), 0) + body
        body = with_checksum(source, destination, UDP, body, 6)
    return Draft(version, source, destination, protocol, body, maker.ident(source, destination))


def _length_lies(maker: DatagramMaker) -> Datagram:
    """Makes UDP on port 4500 that is too short for ESP, often with a wrong UDP length. The Ethernet
    padding behind it looks like ESP.
    """
    entry = EntryPoint(maker.random.choice(tuple(plan.LINKS)))
    version = maker.random.choice((4, 4, 6))
    source, destination = maker.addresses(entry, version)
    if maker.random.random() < 0.7:
        destination = packed(plan.LINKS[entry.port].own(version))
    says = maker.random.choice((8, 16, 40, 200))
    data = struct.pack("!HHHH", 4500, 4500, says, 0)
    data += bytes(maker.random.choice((0, 0, 4, 7)))
    draft = Draft(version, source, destination, UDP, data, maker.ident(source, destination))
    trailer = struct.pack("!II", 0x1001, 1) + marks.fill(maker.number, 24)
    return maker.datagram(entry, [draft.whole()], trailer)


# -- the engine's port, and forged shims


def _engine_output(maker: DatagramMaker) -> Datagram:
    """Makes an ESP packet as the engine sends it, without a fault."""
    return maker.datagram(*_from_engine(maker, maker.random.choice((ESP, ESP, UDP))))


def _from_engine(maker: DatagramMaker, protocol: int) -> tuple[EntryPoint, list[bytes]]:
    bundle = plan.BUNDLES[maker.random.choice((1, 2, 3))]
    assert bundle.local is not None
    source = packed(bundle.local)
    version = 4 if len(source) == 4 else 6
    link = maker.random.choice(tuple(plan.LINKS.values()))
    destination = packed(link.host(version, maker.random.choice(plan.HOSTS)))
    body = struct.pack("!II", 0x5001, 1) + marks.fill(maker.number, 64)
    if protocol == UDP:
        body = struct.pack("!HHHH", 4500, 4500, 8 + len(body), 0) + body
        body = with_checksum(source, destination, UDP, body, 6)
    ident = maker.ident(source, destination)
    draft = Draft(version, source, destination, protocol, body, ident)
    return EntryPoint(plan.ENGINE, Shim(ENCRYPTED, bundle.number)), [draft.whole()]


def _engine_lies(maker: DatagramMaker) -> Datagram:
    """Makes a frame that the engine marks as encrypted, but with one fault.

    The packet is not ESP, its source is not the bundle's address, it is fragmented, or the shim has
    an unknown bundle or a wrong VRF.
    """
    random = maker.random
    entry, packets = _from_engine(maker, ESP)
    shim = entry.shim
    assert shim is not None
    kind = random.randrange(6)
    if kind == 0:  # any packet
        draft = maker.draft(EntryPoint(random.choice(tuple(plan.LINKS))), 16)
        packets = [draft.whole()]
    elif kind == 1:  # the source is the bundle's address, but the packet is not ESP
        local = packed(str(plan.BUNDLES[shim.bundle].local))
        version = 4 if len(local) == 4 else 6
        to = packed(plan.LINKS[random.choice("abc")].host(version, 1))
        protocol, numbers = random.choice(((UDP, (4500, 4500)), (UDP, (7000, 53)), (TCP, (1, 2))))
        chosen = Selectors(version, local, to, protocol, numbers)
        draft = maker.draft(entry, 0, selected=chosen)
        draft.payload = draft.payload[:8] + bytes(4) + draft.payload[12:]  # four zero bytes
        packets = [draft.whole()]
    elif kind == 2:  # another bundle
        other = random.choice([n for n in plan.BUNDLES if n != shim.bundle])
        entry = EntryPoint(entry.port, shim._replace(bundle=other))
    elif kind == 3:
        entry = EntryPoint(entry.port, shim._replace(bundle=random.choice((0, 9, 60000))))
    elif kind == 4:
        entry = EntryPoint(entry.port, shim._replace(vrf=random.choice((1, 7))))
    else:
        local = packed(str(plan.BUNDLES[shim.bundle].local))
        version = 4 if len(local) == 4 else 6
        to = packed(plan.LINKS[random.choice("abc")].host(version, 1))
        body = struct.pack("!II", 0x5001, 1) + marks.fill(maker.number, 64)
        draft = Draft(version, local, to, ESP, body, maker.ident(local, to))
        packets = draft.cut(32)
    return maker.datagram(entry, packets)


def _engine_confused(maker: DatagramMaker) -> Datagram:
    """Makes an invalid frame that enters by the engine port.

    It has no shim, a wrong kind, an unknown bundle, a wrong VRF, or a VLAN tag.
    """
    random = maker.random
    draft = maker.draft(EntryPoint(random.choice(tuple(plan.LINKS))), 16)
    shims = (
        None,
        Shim(0, 1),
        Shim(ENCRYPT, 1),
        Shim(DECRYPT, 1),
        Shim(77, 1),
        Shim(DECRYPTED, 0),
        Shim(DECRYPTED, 9, ingress_l3_if=2),
        Shim(DECRYPTED, 1, ingress_l3_if=2, vrf=7),
    )
    made = maker.datagram(EntryPoint(plan.ENGINE, random.choice(shims)), [draft.whole()])
    if random.random() < 0.2:
        made.entry = EntryPoint(plan.ENGINE, Shim(DECRYPTED, 1, ingress_l3_if=2))
        made.vlan = random.choice((0, 1))
    return made


def _forged_shim(maker: DatagramMaker) -> Datagram:
    """Makes a frame with a shim that enters by a link, where no engine is."""
    random = maker.random
    port = random.choice(tuple(plan.LINKS))
    bundle, kind = random.choice((1, 2, 3)), random.choice((DECRYPTED, ENCRYPTED, DECRYPT, 0))
    ether_type = random.choice((None, None, None, 0x0806, ETHERTYPE_IPV4, ETHERTYPE_IPV6))
    shim = Shim(kind, bundle, ingress_l3_if=random.randint(0, 3), ether_type=ether_type)
    if random.random() < 0.5:
        _, packets = _from_engine(maker, ESP)
    else:
        packets = [maker.draft(EntryPoint(port), 16).whole()]
    return maker.datagram(EntryPoint(port, shim), packets)


SEALED: tuple[tuple[str, int, Callable[[DatagramMaker], Datagram]], ...] = (
    ("ESP", 3, _esp),
    ("ESP in UDP", 5, _esp_in_udp),
    ("lying lengths", 3, _length_lies),
    ("engine's ESP", 2, _engine_output),
    ("engine lies", 4, _engine_lies),
    ("engine confused", 2, _engine_confused),
    ("forged shim", 2, _forged_shim),
)
