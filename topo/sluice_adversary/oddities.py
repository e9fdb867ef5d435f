# SPDX-License-Identifier: Apache-2.0
"""Makes random datagrams with unusual contents other than fragments.

The unusual contents are: IPv4 options, extension headers, ICMP errors and their quotes, packets for
the router itself, spoofed sources, foreign MAC addresses, VLAN tags and neighbour discovery.
"""

import struct
from collections.abc import Callable
from dataclasses import replace

from . import marks, plan
from .datagram_maker import DatagramMaker
from .datagrams import DECRYPTED, Datagram, EntryPoint, Shim
from .drafts import Draft, in_chain, options_chain, transport
from .plan import packed
from .policy import PORTS
from .wire import (
    DESTINATION_OPTIONS,
    ESP,
    HOP_BY_HOP,
    ICMP,
    ICMPV6,
    ROUTING,
    TCP,
    UDP,
    extension,
    ipv4,
    routing_header,
    with_checksum,
)

NO_OPERATION, RECORD_ROUTE, ROUTER_ALERT = b"\1", b"\7\7\4\0\0\0\0", b"\x94\4\0\0"


def _version(
    maker: DatagramMaker, entry: EntryPoint, version: int, protocols: tuple[int, ...] = ()
) -> Draft:
    while True:
        chosen = maker.select(entry, protocols)
        if chosen.version == version:
            return maker.draft(entry, 16, selected=chosen)


# -- options and extension headers


def _ipv4_options(maker: DatagramMaker) -> Datagram:
    entry = maker.entry()
    draft = _version(maker, entry, 4)
    kinds = NO_OPERATION * 4, RECORD_ROUTE + NO_OPERATION, ROUTER_ALERT, NO_OPERATION * 12
    draft.options = maker.random.choice((*kinds, NO_OPERATION * 40, RECORD_ROUTE + b"\0"))
    if maker.random.random() < 0.5:
        return maker.datagram(entry, draft.cut(*maker.cuts(draft, 2)))
    return maker.datagram(entry, [draft.whole()])


def _source_route(maker: DatagramMaker) -> Datagram:
    entry = maker.entry()
    version = maker.random.choice((4, 6))
    draft = _version(maker, entry, version)
    if version == 4:
        kind, lead = maker.random.choice((131, 137)), maker.random.choice((0, 12))
        route = bytes((kind, 7, 4)) + packed("10.12.0.1")
        draft.options = NO_OPERATION * lead + route + NO_OPERATION
        return maker.datagram(entry, [draft.whole()])
    header = routing_header(draft.start, 0, 1)
    draft = in_chain(
        options_chain(maker.random.choice((0, 7))),
        replace(draft, start=ROUTING, payload=header + draft.payload),
    )
    return maker.datagram(entry, [draft.whole()])


def _segments_left(maker: DatagramMaker) -> Datagram:
    """Makes a packet whose routing header has segments left, whole or in fragments."""
    entry, random = maker.entry(), maker.random
    draft = _version(maker, entry, 6)
    header = routing_header(draft.start, random.choice((2, 3, 4, 253)), random.choice((1, 2, 255)))
    draft = in_chain(
        options_chain(random.choice((0, 1, 7))),
        replace(draft, start=ROUTING, payload=header + draft.payload),
    )
    if random.random() < 0.5:
        return maker.datagram(entry, draft.cut(*maker.cuts(draft, 2)))
    return maker.datagram(entry, [draft.whole()])


def _extension_headers(maker: DatagramMaker) -> Datagram:
    entry = maker.entry()
    draft = _version(maker, entry, 6)
    kinds = HOP_BY_HOP, DESTINATION_OPTIONS, ROUTING
    count = maker.random.randint(1, 5)
    draft.before = tuple(maker.random.choice(kinds[1:]) for _ in range(count))
    if maker.random.random() < 0.3:
        draft.before = (HOP_BY_HOP, *draft.before)
    return maker.datagram(entry, [draft.whole()])


def _deep_chain(maker: DatagramMaker) -> Datagram:
    """Makes a packet with a long chain of extension headers, which may exceed what a pipeline's
    parser walks.
    """
    entry = maker.entry()
    draft = _version(maker, entry, 6)
    chain = options_chain(maker.random.choice((6, 7, 8, 11, 20)))
    if maker.random.random() < 0.4:
        draft = in_chain(chain, draft)
        first = 8 * len(chain) + maker.random.choice((8, 16, 24))
        cuts = [first] if first < len(draft.payload) else []
        return maker.datagram(entry, draft.cut(*cuts))
    draft.before = chain
    return maker.datagram(entry, [draft.whole()])


def _transport_cut_off(maker: DatagramMaker) -> Datagram:
    """Makes a packet whose transport header is incomplete: the whole packet, or only its first
    fragment.
    """
    entry = maker.entry()
    draft = maker.draft(entry, 16, (UDP, TCP, ICMP, ICMPV6, ESP))
    data, size = draft.payload, maker.random.randrange(8)
    if maker.random.random() < 0.5:
        return maker.datagram(entry, [replace(draft, payload=data[:size]).whole()])
    packets = [draft.made_up(0, data[:size], True), draft.piece(8, len(data))]
    return maker.datagram(entry, packets)


def _hops_used_up(maker: DatagramMaker) -> Datagram:
    """Makes a packet with TTL 1. The router answers with an ICMP error that quotes it."""
    entry = maker.entry(decrypted=0.6)
    draft = maker.draft(entry, 40)
    draft.ttl = 1
    return maker.datagram(entry, [draft.whole()])


def _too_big(maker: DatagramMaker) -> Datagram:
    """Makes a packet that exceeds the MTU if the overhead of ESP is added.

    The router must send an ICMP error or fragment it.
    """
    entry = maker.entry(decrypted=0.5)
    draft = maker.draft(entry, 0)
    if draft.start not in (UDP, TCP):
        return maker.datagram(entry, [draft.whole()])
    room = 1480 if draft.version == 4 else 1460
    draft.payload += marks.fill(maker.number, room - len(draft.payload), len(draft.payload))
    return maker.datagram(entry, [draft.whole(fragment=maker.random.choice((0, 0x4000)))])


# -- ICMP


def _crossed_icmp(maker: DatagramMaker) -> Datagram:
    """Makes a packet with the wrong ICMP for its IP version: ICMP over IPv6, or ICMPv6 over
    IPv4.
    """
    entry = maker.entry()
    version = maker.random.choice((4, 6))
    draft = _version(maker, entry, version, (ICMPV6 if version == 4 else ICMP,))
    if maker.random.random() < 0.4:
        return maker.datagram(entry, draft.cut(*maker.cuts(draft, 2)))
    return maker.datagram(entry, [draft.whole()])


def _icmp_error(maker: DatagramMaker) -> Datagram:
    entry = maker.entry(decrypted=0.35)
    return maker.datagram(entry, [_error(maker, entry).whole()])


def _fragmented_icmp_error(maker: DatagramMaker) -> Datagram:
    entry = maker.entry(decrypted=0.35)
    draft = _error(maker, entry)
    return maker.datagram(entry, draft.cut(*maker.cuts(draft, 2)))


def _error(maker: DatagramMaker, entry: EntryPoint) -> Draft:
    """Makes an ICMP error.

    It quotes a packet to which the error may be an answer, or a similar packet.
    """
    random = maker.random
    about = _quoted(maker, entry)
    version = about.version
    types = (3, 11, 12, 3, 4, 5) if version == 4 else (1, 2, 3, 4)
    quote = about.whole()
    if random.random() < 0.15:
        pieces = about.cut(*maker.cuts(about, 2)) if len(about.payload) > 16 else [quote]
        quote = random.choice(pieces)
    if random.random() < 0.3:  # at least the headers that errors must quote
        quote = quote[: random.choice((20, 24, 28, 40, 44, 48, 64))]
    # The destination of an error is the quoted packet's source. Sometimes it is changed to another
    # host.
    source, destination = about.destination, about.source
    if random.random() < 0.15:
        destination = maker.addresses(entry, version)[1]
    if random.random() < 0.3:
        source = maker.addresses(entry, version)[0]
    if source in plan.OWN:
        source = maker.addresses(entry, version)[0]
    kind = random.choice(types) << 8 | random.choice((0, 0, 1, 4))
    data = struct.pack("!HHI", kind, 0, 0) + quote
    data += marks.fill(maker.number, 24, len(data))
    protocol = ICMP if version == 4 else ICMPV6
    data = with_checksum(source, destination, protocol, data, 2)
    ident = maker.ident(source, destination)
    return Draft(version, source, destination, protocol, data, ident)


def _quoted(maker: DatagramMaker, entry: EntryPoint) -> Draft:
    """Makes a packet whose answer would enter the router at `entry`."""
    answer = maker.select(entry)
    numbers = answer.numbers
    if answer.protocol not in (ICMP, ICMPV6, ESP):
        numbers = numbers[::-1]
    addresses = answer.destination, answer.source
    size = 16 + maker.random.choice((0, 32, 120))
    data = transport(addresses, answer.protocol, numbers, maker.number, size)
    return Draft(answer.version, *addresses, answer.protocol, data, 7)


# -- the router itself


def _to_router(maker: DatagramMaker) -> Datagram:
    """Makes a packet addressed to the router, from a link or decrypted by the engine, whole or in
    fragments.
    """
    entry = maker.entry(decrypted=0.4)
    chosen = maker.select(entry)
    link = maker.random.choice(tuple(plan.LINKS.values()))
    to = [packed(link.own(chosen.version))] * 3
    to.append(packed("255.255.255.255" if chosen.version == 4 else "ff02::1"))
    to.append(packed("224.0.0.1" if chosen.version == 4 else "ff02::2"))
    chosen = chosen._replace(destination=maker.random.choice(to))
    draft = maker.draft(entry, 24, selected=chosen)
    if maker.random.random() < 0.4:
        return maker.datagram(entry, draft.cut(*maker.cuts(draft, 2)))
    return maker.datagram(entry, [draft.whole()])


def _other_mac(maker: DatagramMaker) -> Datagram:
    """Makes a frame whose destination MAC address is not the router's: a group, broadcast, the
    port's device, or unknown.
    """
    random = maker.random
    entry = EntryPoint(random.choice(tuple(plan.LINKS)))
    link = plan.LINKS[entry.port]
    chosen = maker.select(entry)
    groups = ("255.255.255.255", "224.0.0.1") if chosen.version == 4 else ("ff02::1", "ff02::2")
    to = random.choice((*map(packed, groups), packed(link.own(chosen.version)), chosen.destination))
    if random.random() < 0.7:
        chosen = chosen._replace(protocol=UDP, numbers=(random.choice(PORTS), 7001))
    if chosen.version == 4 and random.random() < 0.4:  # the kernel accepts this source
        chosen = chosen._replace(source=bytes(4))
    draft = maker.draft(entry, 24, selected=chosen._replace(destination=to))
    made = maker.datagram(entry, [draft.whole()])
    if chosen.version == 4:
        group = "ff:ff:ff:ff:ff:ff" if to != packed("224.0.0.1") else "01:00:5e:00:00:01"
    else:
        group = f"33:33:{to[12]:02x}:{to[13]:02x}:{to[14]:02x}:{to[15]:02x}"
    made.to_mac = random.choice((group, group, link.port_mac, "02:00:00:00:09:09"))
    return made


def _vlan_tag(maker: DatagramMaker) -> Datagram:
    """Makes a frame with an 802.1Q tag: an unknown VLAN or only a priority. Sometimes a shim
    follows the tag.
    """
    random = maker.random
    entry = EntryPoint(random.choice(tuple(plan.LINKS)))
    draft = maker.draft(entry)
    if random.random() < 0.2:
        entry = EntryPoint(entry.port, Shim(DECRYPTED, 1, ingress_l3_if=2))
    made = maker.datagram(entry, [draft.whole()])
    made.vlan = random.choice((0, 0, 1, 4095))
    return made


def _spoofed_own(maker: DatagramMaker) -> Datagram:
    """Makes a packet that enters by a link although its source is the router's own address. Often
    it looks like IKE.
    """
    random = maker.random
    entry = EntryPoint(random.choice(("a", "a", "b", "c")))
    chosen = maker.select(entry)
    own = packed(random.choice(tuple(plan.LINKS.values())).own(chosen.version))
    if random.random() < 0.7:
        ports = random.choice((500, 4500)), random.choice(PORTS)
        chosen = chosen._replace(protocol=UDP, numbers=ports)
    draft = maker.draft(entry, 24, selected=chosen._replace(source=own))
    if random.random() < 0.3:
        return maker.datagram(entry, draft.cut(*maker.cuts(draft, 2)))
    return maker.datagram(entry, [draft.whole()])


def _neighbor_discovery(maker: DatagramMaker) -> Datagram:
    """Makes neighbour discovery with any destination and hop limit. Extension headers may precede
    it.
    """
    random = maker.random
    entry = maker.entry(decrypted=0.15)
    source, destination = maker.addresses(entry, 6)
    if random.random() < 0.3:
        destination = packed(random.choice(("ff02::1", "ff02::1:ff00:1")))
    kind = random.choice((133, 134, 135, 137)) << 8
    data = transport((source, destination), ICMPV6, (kind, 0), maker.number, 64)
    ident = maker.ident(source, destination)
    draft = Draft(6, source, destination, ICMPV6, data, ident, random.choice((255, 255, 64)))
    draft = in_chain(options_chain(random.choice((0, 1, 6, 7, 8, 9))), draft)
    if random.random() < 0.2:
        return maker.datagram(entry, draft.cut(*maker.cuts(draft, 2)))
    return maker.datagram(entry, [draft.whole()])


def _packet_in_packet(maker: DatagramMaker) -> Datagram:
    """Makes IP in IP. The inner headers must not affect the verdict."""
    entry = maker.entry()
    source, destination = maker.addresses(entry)
    inner_data = transport((source, destination), UDP, (7000, 7001), maker.number, 32)
    inner = ipv4(packed("10.11.0.1"), packed("10.12.0.1"), UDP, inner_data)
    version = 4 if len(source) == 4 else 6
    start = 4
    if version == 6 and maker.random.random() < 0.5:
        inner, start = extension(59) + marks.fill(maker.number, 40), DESTINATION_OPTIONS
    ident = maker.ident(source, destination)
    draft = Draft(version, source, destination, start, inner, ident)
    return maker.datagram(entry, [draft.whole()])


ODDITIES: tuple[tuple[str, int, Callable[[DatagramMaker], Datagram]], ...] = (
    ("IPv4 options", 3, _ipv4_options),
    ("source route", 1, _source_route),
    ("segments left", 1, _segments_left),
    ("extension headers", 5, _extension_headers),
    ("deep chain", 4, _deep_chain),
    ("transport header cut off", 1, _transport_cut_off),
    ("hops used up", 3, _hops_used_up),
    ("too big to protect", 1, _too_big),
    ("ICMP over the other IP", 4, _crossed_icmp),
    ("ICMP error", 10, _icmp_error),
    ("ICMP error in fragments", 2, _fragmented_icmp_error),
    ("to the router", 5, _to_router),
    ("another's MAC address", 3, _other_mac),
    ("VLAN tag", 2, _vlan_tag),
    ("spoofed own address", 3, _spoofed_own),
    ("neighbor discovery", 3, _neighbor_discovery),
    ("packet in packet", 1, _packet_in_packet),
)
