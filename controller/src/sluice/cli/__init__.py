# SPDX-License-Identifier: Apache-2.0
"""Implements the `sluice` command: runs the daemon and sends requests to it.

Exit codes:

- 0: done.
- 1: failed. A sentence on standard error says why.
- 2: wrong usage.
- 3: no controller answers.

`main` defines the commands. `tables` prints the API's data for people.
"""
