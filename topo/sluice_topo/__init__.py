# SPDX-License-Identifier: Apache-2.0
"""Topologies of P4 and plain Linux routers running FRR, and the demo's story.

    demo                     the story, on mininet
    story  policy_story      its steps and checks, on any built network: routing, policy
    teller                   how a story is told
    traffic  datagrams       flows between hosts, by rate and by count
    probes  spd_control      what is asked of hosts and kernels, and of a router's policy
    network  mininet_net     two ways to build: testkit namespaces, mininet nodes
    routers                  what runs in a node
    description              what there is: read from the files in ../two_sites

Runs with Debian's /usr/bin/python3 (mininet is installed there) and testkit.
"""
