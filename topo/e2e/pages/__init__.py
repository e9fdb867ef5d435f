# SPDX-License-Identifier: Apache-2.0
"""Commands that the pages show, executed as they stand there."""
