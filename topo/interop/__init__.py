# SPDX-License-Identifier: Apache-2.0
"""Tests IPsec with other implementations, on a kernel with ESP: `make interop`."""
