# SPDX-License-Identifier: Apache-2.0
"""Builds rules, datagrams and captured frames for the tests of `sluice_adversary`: its reference,
checker and peer.
"""

from dataclasses import replace

from sluice_adversary import marks, plan
from sluice_adversary.datagrams import ENCRYPT, Datagram, EntryPoint, Shim, mac
from sluice_adversary.drafts import Draft, transport
from sluice_adversary.plan import packed
from sluice_adversary.policy import BYPASS, Policy, Rule, Spd, Verdict
from sluice_adversary.wire import ETHERTYPE_SHIM, UDP

A, B, C = (packed(link.host(4, 1)) for link in plan.LINKS.values())
A6, B6, C6 = (packed(link.host(6, 1)) for link in plan.LINKS.values())
OWN_B, OWN_B6 = packed(plan.LINKS["b"].own(4)), packed(plan.LINKS["b"].own(6))
ONE, TWO = Verdict("protect", 1), Verdict("protect", 2)
REST = Rule("rest", BYPASS)
FROM_A = EntryPoint("a")
NUMBER = 77


def protected_port(port: int = 7000, verdict: Verdict = ONE) -> Rule:
    """Returns a rule for one UDP destination port."""
    return Rule("port", verdict, protocols=(UDP,), destination_ports=((port, port),))


def policy(*outbound: Rule, inbound: tuple[Rule, ...] = (), checked: bool = False) -> Policy:
    """Returns a policy in which SPD `east` has these lists. SPD `south` has no rules, so it
    discards everything.
    """
    return Policy({"east": Spd("east", inbound, outbound, checked), "south": Spd("south")})


def udp(
    port: int = 7000, size: int = 64, ends: tuple[bytes, bytes] = (A, B), number: int = NUMBER
) -> Draft:
    """Returns a draft of a UDP datagram with source port 53."""
    version = 4 if len(ends[0]) == 4 else 6
    data = transport(ends, UDP, (53, port), number, size)
    return Draft(version, *ends, UDP, data, 5)


def datagram(*packets: bytes, entry: EntryPoint = FROM_A, number: int = NUMBER) -> Datagram:
    """Returns a datagram that is sent as these packets: one whole packet, or its fragments."""
    return Datagram(number, "made", entry, list(packets))


def left(link: str, packet: bytes) -> bytes:
    """Returns a frame that the router sends onto a link, with this packet."""
    ether_type = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
    here = plan.LINKS[link]
    return mac(here.host_mac) + mac(here.router_mac) + ether_type + packet


def to_engine(bundle: int, packet: bytes, kind: int = ENCRYPT) -> bytes:
    """Returns a frame that the switch sends to the engine, with this packet."""
    ether_type = ETHERTYPE_SHIM.to_bytes(2, "big")
    return bytes(12) + ether_type + Shim(kind, bundle).pack(packet) + packet


def filled(size: int) -> bytes:
    """Returns a payload that repeats the mark of datagram NUMBER."""
    return marks.fill(NUMBER, size)


def altered(policy: Policy, old: str, rule: Rule) -> Policy:
    """Returns the policy in which all rules with action `old` have the verdict of `rule` instead.
    Rules for sentinels keep their verdicts.
    """

    def exchange(one: Rule) -> Rule:
        is_meant = one.verdict.action == old and not one.is_sentinels
        return replace(one, verdict=rule.verdict) if is_meant else one

    return Policy(
        {
            name: replace(
                spd,
                inbound=tuple(map(exchange, spd.inbound)),
                outbound=tuple(map(exchange, spd.outbound)),
            )
            for name, spd in policy.spds.items()
        }
    )
