# SPDX-License-Identifier: Apache-2.0
"""Sluice's controller: keeps a P4 switch true to the host's routes and neighbours.

The packages and what each may import are listed in docs/ARCHITECTURE.md and checked by
import-linter (controller/pyproject.toml).
"""

__version__ = "0.1.0"
