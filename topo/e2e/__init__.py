# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests: FRR, controller and switch in namespaces, observed by hosts outside."""
