# SPDX-License-Identifier: Apache-2.0
"""Tests FRR, controller and switch end to end, in namespaces. The hosts around the routers observe
the results.
"""
