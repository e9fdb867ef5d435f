# SPDX-License-Identifier: Apache-2.0
"""Topologies of P4 and plain Linux routers running FRR, and the demo.

    demo                         the demo on mininet
    routing_demo  policy_demo    its steps and checks, on any built network: routing, policy
    demo_printer                 the output of the demo
    traffic  datagrams           flows between hosts, by rate and by count
    probes  spd_control          queries to hosts and kernels, and to a router's policy
    network  mininet_net         two ways to build: testkit namespaces, mininet nodes
    routers                  the programs of a node
    description              hosts, routers, links: read from the files in ../two_sites

Runs with Debian's /usr/bin/python3 (mininet is installed there) and testkit.
"""
