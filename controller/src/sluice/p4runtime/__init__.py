# SPDX-License-Identifier: Apache-2.0
"""Implements a P4Runtime session: arbitration, pipeline, reads, writes with per-update errors.

`messages` encodes requests. `session` exchanges messages through `sluice._native`. The package
works for any pipeline: it contains no P4 names.
"""
