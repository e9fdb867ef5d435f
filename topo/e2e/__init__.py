# SPDX-License-Identifier: Apache-2.0
"""FRR, controller and switch together, in namespaces, with hosts that look from outside."""
