# SPDX-License-Identifier: Apache-2.0
"""Benchmarks against peers on the same machine; results in bench/results/NAME.json.

p4_cpu       the router program by packets a CPU-second: a million routes, a million flows
forwarding   packets per CPU-second and packets a second through the whole switch
new_flows    flows a second whose first packets the controller searches in the SPD

Frames come from sluice-traffic; scapy, which is for tests, has no part in it.
"""
