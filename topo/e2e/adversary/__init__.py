# SPDX-License-Identifier: Apache-2.0
"""Tests a running router by short attacks of the adversary (`sluice_adversary`), and tests the
adversary itself.
"""
