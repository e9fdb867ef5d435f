# SPDX-License-Identifier: Apache-2.0
"""Provides the common parts of the PTF suite and the differential test.

    schema     converts names to P4Info ids, and Python values to bytestrings
    runtime    a P4Runtime client: arbitration, pipeline, Write, Read, packet I/O
    wire       the far ends of the switch's ports: packet sockets
    probe      sends packets and collects all results, without a sleep
    router     writes the pipeline's tables: interfaces, neighbours, routes
    frames     packets for tests, and the expected results of routing
    case       turns a function into a PTF test

Depends on protobuf 3.20 with p4runtime 1.5, grpcio, scapy and ptf (.venv/ptf). The package does not
use the controller's code, so that the suite checks the pipeline independently of it.
"""
