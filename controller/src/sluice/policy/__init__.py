# SPDX-License-Identifier: Apache-2.0
"""Manages the SPDs: their rules, commits of rules, and the flow caches that hold verdicts.

These modules process a commit, from the operator's file to the switch:

    spdfile, spdtext    read and write files of rules
    config              reads the SPDs and bundles of the configuration
    check               refuses rules that cannot be in force
    warnings            reports rules that have unwanted effects
    coverage            reports rules that match no packet
    fragments           reports where the fragments of each rule get their verdict
    review              shows what a commit would change
    operator_rules      appends the operator's rules to the generated ones (generated_rules)
    enforcement         runs one commit at a time: plans the commit (state.spd), deletes the flows
                        whose verdict changes (flow_invalidation), saves the rules (spdstore) and
                        writes the lists to the switch
    rule_edits          adds, deletes and moves single rules; the result is committed
    history             keeps the last commits, to show them and to restore their rules

These modules process a packet without a cached flow:

    decisions           decides about a packet: the search, ICMP errors and fragments
    first_packets       reads the packet's selectors, applies the decision
    flow_tables         installs the flow, and evicts another flow if the cache is full

`model` defines the types of rules that all modules share. `start` selects the rules that an SPD
starts with. `entities` makes the switch's entities that bind interfaces and bundles to lists.
"""
