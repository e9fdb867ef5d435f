# SPDX-License-Identifier: Apache-2.0
"""Compares the results of two targets for the same tables and packets (the differential test).

case            tables and packets as data, and their run on a target
canonical       the part of an outcome that the P4 program determines and the target does not choose
states          random tables of routers without IPsec policy
policies        random IPsec policy for such routers
rule_sets       random entries of the rule tables, for the flows of such a policy
packets         random packets, some of them damaged on purpose
policy_packets  random packets to which the policy applies
__main__        the search: takes a seed, is bounded in time, writes its findings
golden          stored cases with their outcome, run against any target
"""
