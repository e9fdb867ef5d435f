# SPDX-License-Identifier: Apache-2.0
"""Tests IPsec with other implementations. Some tests need a kernel with ESP: `make interop`."""
