# SPDX-License-Identifier: Apache-2.0
"""Protected traffic end to end with the real ESP engine, `sluice-esp`."""
