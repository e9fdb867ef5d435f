# SPDX-License-Identifier: Apache-2.0
"""The differential test: the same tables and packets through two targets give the same.

case       a table state and packets as data, and how a target runs them
canonical  what of an outcome is the program's and not the target's choice
states     random table states: routers without policy
policies   random policy for them
packets    random packets: well-formed ones, then bent
asked      random packets that policy has something to say about
__main__   the search: seeded, bounded in time, writes what it finds
golden     cases with their outcome, in files, run against any target
"""
