# SPDX-License-Identifier: Apache-2.0
"""SPDs: their rules, their commits, and the flow caches of their verdicts.

A commit passes these modules, from the operator's file to the switch:

    spdfile, spdtext    files of rules, read and written       } spell rules
    config              the configuration's SPDs and bundles   }
    check               refuses rules that cannot be in force
    warnings            reports rules that are never met, or leak; uses fragments and coverage
    review              shows what a commit would change
    operator_rules      appends the operator's rules to the generated ones (generated_rules)
    enforcement         one commit at a time: plans it (state.spd), deletes the flows it changes
                        (flow_invalidation), saves it (spdstore), writes it, puts it into force

A packet without a cached flow passes these modules:

    first_packets       selectors, the list's search, the verdict; decides what the packet becomes
    flow_tables         installs the flow, evicts others

`model` has the types of rules that all of them share. `start` gives the rules that a start begins
with, `entities` the switch's entities that bind interfaces and bundles to lists.
"""
