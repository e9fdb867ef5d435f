# SPDX-License-Identifier: Apache-2.0
"""Tests that the commands in the documentation work as they are written."""
