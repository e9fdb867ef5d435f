# SPDX-License-Identifier: Apache-2.0
"""Policy at one P4 router whose every message a test can hold."""
