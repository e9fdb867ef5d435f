# SPDX-License-Identifier: Apache-2.0
"""Builds topologies of P4 routers and plain Linux routers that run FRR, and runs the demo.

    demo                         runs the demo on mininet
    routing_demo  policy_demo    steps of the demo, on any built network: routing, policy
    esp_demo  ike_demo           steps of the demo about ESP and IKE
    demo_printer                 prints the demo's output
    traffic  datagrams           flows between hosts: at a steady rate, or a number of packets
    probes  spd_control          queries to hosts and kernels, and to a router's policy
    network  mininet_net         build a topology: in testkit namespaces, in mininet
    esp_sites                    ESP engines of the two sites
    routers                      the programs of a node
    description                  hosts, routers, links: read from the files in ../two_sites

The package runs with Debian's /usr/bin/python3, for which mininet is packaged, and needs testkit.
"""
