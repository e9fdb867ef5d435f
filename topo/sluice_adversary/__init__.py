# SPDX-License-Identifier: Apache-2.0
"""Attacks the router's IPsec policy with random rules and random datagrams, and checks the results.

    wire        builds and parses IP packets
    marks       writes a datagram's number into every eight bytes of its payload
    plan        addresses, interfaces and bundles of the network
    policy      ordered lists of rules: random ones, their YAML form, the linear search
    datagrams   a datagram: its frames in order, and where it enters the router
    lists       the verdicts of the ordered lists for a packet, and where it leaves the router
    reference   the permitted outcomes of a datagram (RFC 4301, sections 5 to 7)
    errors      the packets that ICMP errors quote
    drafts, shapes, oddities, sealed   random datagrams of all shapes (kinds of contents)
    checker     compares captured frames with the reference: leaks, and lost datagrams
    peer        the far end of the router's bundles, if a real ESP engine runs in the switch
    listeners   receiving sockets
    network     the running router, with captures on every link and at the host's sockets
    campaign    rounds of: commit rules, send datagrams, check frames
    report      writes findings: a summary, reproducers, bench/results/leaks.json

No module imports the controller. The adversary accesses the router only through its ports, its host
interfaces, `spd commit`, and queries of its counters. To run it:
`python -m sluice_adversary --packets N --seed S`.
"""
