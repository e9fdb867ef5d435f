# SPDX-License-Identifier: Apache-2.0
"""Compares Sluice with other programs (the peers) on the same machine. The results are in
bench/results/NAME.json.

    p4_cpu       the router program in packets per CPU-second: a million routes, a million flows
    forwarding   packets per CPU-second and packets per second through the whole switch
    new_flows    new flows per second; the controller searches the SPD for the first packet of each
    table_bounds costs of the rule tables, behind the limits of `mode: auto`; only printed

sluice-traffic generates the frames. scapy is for tests only, so benchmarks do not use it.
"""
