# SPDX-License-Identifier: Apache-2.0
"""Runs p4c's own v1model tests through a P4Runtime target.

p4c's tree has an STF script beside many of its sample programs. A script states what the program
must do: table entries, packets in, packets out. This package reads p4c's tree and contains no copy
of it. `python -m sluice_conformance --help` shows how to run the tests. README.md beside this
package explains the results.

    corpus     finds the programs and scripts, and the failures that p4c expects
    compiler   runs p4c and caches its output
    generate   runs p4testgen and caches its output
    stf        parses the script language
    derived    makes P4Info for programs for which p4c makes none
    program    resolves the names of a compiled program: tables, keys and actions
    control    converts script statements to P4Runtime entities
    client     a P4Runtime client
    fuzz       sends random packets through both targets (separate command)
    pipes      provides ports of a switch as pcap streams
    target     a switch under test: sluice-switch or BMv2
    runner     runs one test, from start to verdict
    verdict    results of a test, and the comparison of packets
    report     writes verdicts as text and JSON
"""
