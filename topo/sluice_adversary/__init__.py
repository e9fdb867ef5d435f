# SPDX-License-Identifier: Apache-2.0
"""An adversary for the router's IPsec policy: random rules, random datagrams, and a judge.

    wire        IP packets as bytes, made and read
    marks       the number of a datagram, in every eight bytes of its payload
    plan        the network's addresses, interfaces, bundles
    policy      ordered lists of rules: random ones, their YAML, the plain search
    datagrams   a datagram: its frames in order, and where it enters
    lists       the verdicts of the ordered lists for a packet, and where it leaves
    reference   the permitted outcomes of a datagram (RFC 4301, sections 5 to 7)
    errors      the packets that ICMP errors quote
    drafts, shapes, oddities, sealed   random datagrams of all shapes
    judge       captured frames against the reference: leaks, and verdicts that differ
    network     the running router with a capture on every link and at the host's sockets
    campaign    rounds of commit, attack, judgement
    report      findings: a line for people, a reproducer, bench/results/leaks.json

Nothing here imports the controller. The tests reach the router only through its ports, its host
interfaces and `spd commit`. Run it: `python -m sluice_adversary --packets N --seed S`.
"""
