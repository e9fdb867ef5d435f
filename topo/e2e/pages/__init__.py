# SPDX-License-Identifier: Apache-2.0
"""Executes the commands of the documentation unchanged."""
