# SPDX-License-Identifier: Apache-2.0
"""The differential test: two targets give the same results for the same tables and packets.

case       a table state and packets as data, and their run on a target
canonical  the part of an outcome that the program determines, not the target
states     random table states: routers without policy
policies   random policy for them
packets    random packets: well-formed ones, some of them damaged
asked      random packets that meet policy
__main__   the search: seeded, bounded in time, writes its findings
golden     cases with their outcome, in files, run against any target
"""
