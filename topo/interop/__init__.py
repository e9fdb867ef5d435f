# SPDX-License-Identifier: Apache-2.0
"""IPsec with implementations of others, on a kernel with ESP: `make interop`."""
