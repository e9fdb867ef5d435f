# SPDX-License-Identifier: Apache-2.0
"""Holds the SPDs: their rules, their commits and the flow caches of their verdicts.

A commit passes these modules, from the operator's file to the switch:

    spdfile, spdtext    read and write files of rules
    config              reads the SPDs and bundles of the configuration
    check               refuses rules that cannot be in force
    warnings            reports rules that have unwanted effects or match no packet; uses
                        fragments and coverage
    review              shows what a commit would change
    operator_rules      appends the operator's rules to the generated ones (generated_rules)
    enforcement         runs one commit at a time: plans it (state.spd), deletes the flows that it
                        changes (flow_invalidation), saves it (spdstore), writes it, puts it into
                        force
    rule_edits          adds, deletes and moves single rules, as the rules of a commit
    history             keeps the last commits, to show them and to go back to one

A packet without a cached flow passes these modules:

    first_packets       reads the packet's selectors, searches the list, applies the verdict
    flow_tables         installs the flow and evicts others

`model` has the types of rules that all modules share. `start` selects the rules that an SPD starts
with. `entities` makes the switch's entities that bind interfaces and bundles to lists.
"""
