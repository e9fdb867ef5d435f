# SPDX-License-Identifier: Apache-2.0
"""Topologies of P4 and plain Linux routers running FRR, and the demo's story.

    demo                     the story, on mininet
    story                    its steps and checks, on any built network
    lab_network  mininet_net two ways to build: testkit namespaces, mininet nodes
    routers                  what runs in a node
    description              what there is: read from the files in ../two_sites

Runs with Debian's /usr/bin/python3 (mininet is installed there) and testkit.
"""
