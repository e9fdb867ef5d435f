# SPDX-License-Identifier: Apache-2.0
"""p4c's own v1model tests, run through a P4Runtime target.

p4c keeps beside its sample programs what they must do, in STF: table entries,
packets in, packets out. Everything here reads p4c's tree and copies nothing of
it. `python -m sluice_conformance --help` says how to run it; README.md beside
this package says what the results mean.

    corpus     which programs and scripts there are, and which p4c expects to fail
    compiler   p4c, its output kept by what went into it
    generate   p4testgen, likewise
    stf        the script language, as data
    derived    P4Info for programs of which p4c makes none
    program    what a compiled program calls its tables, keys and actions
    control    from script statements to P4Runtime entities
    client     a P4Runtime client
    fuzz       random packets through both targets (a program of its own)
    pipes      ports of a switch, as pcap streams
    target     a switch under test: sluice-switch or BMv2
    runner     one test from start to verdict
    report     verdicts as text and JSON
"""
