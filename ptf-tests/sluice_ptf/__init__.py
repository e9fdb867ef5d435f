# SPDX-License-Identifier: Apache-2.0
"""The common base of the PTF suite and the differential test.

schema     names of the P4Info to ids, Python values to bytestrings
runtime    a P4Runtime client: arbitration, pipeline, Write, Read, packet I/O
wire       the test's ends of the switch's ports
probe      packets in, all resulting packets out, without a sleep
router     the pipeline's tables as verbs: an interface, a neighbour, a route
frames     packets for tests, and the expected results of routing
case       a function as a PTF test

Depends on protobuf 3.20 with p4runtime 1.5, grpcio, scapy and ptf (.venv/ptf),
and on nothing of the controller: the suite checks the contract independently.
"""
