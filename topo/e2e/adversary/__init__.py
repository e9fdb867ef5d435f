# SPDX-License-Identifier: Apache-2.0
"""The adversary's seeded short form on the running router, and tests of the adversary itself."""
