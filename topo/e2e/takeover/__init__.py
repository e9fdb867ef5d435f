# SPDX-License-Identifier: Apache-2.0
"""Tests `sluice up` and `sluice down` on a router whose kernel forwards."""
