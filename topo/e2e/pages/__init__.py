# SPDX-License-Identifier: Apache-2.0
"""Commands on the pages, executed unchanged."""
