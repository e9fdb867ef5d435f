# SPDX-License-Identifier: Apache-2.0
"""Tests policy on one P4 router. A test can hold any message between controller and switch."""
