# SPDX-License-Identifier: Apache-2.0
"""Implements the `sluice` command: runs the daemon and sends requests to it.

Exit codes:

- 0: done.
- 1: failed, with a sentence on standard error.
- 2: wrong usage.
- 3: no daemon answers.

`main` has the commands, `tables` prints the API's data for people.
"""
