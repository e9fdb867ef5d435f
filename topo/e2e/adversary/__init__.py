# SPDX-License-Identifier: Apache-2.0
"""Short attacks by the adversary on a running router, and tests of the adversary itself."""
