# SPDX-License-Identifier: Apache-2.0
"""Policy at one P4 router, where a test can hold back every message."""
