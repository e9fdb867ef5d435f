# SPDX-License-Identifier: Apache-2.0
"""Contains Sluice's controller, which keeps a P4 switch consistent with the host's routes.

docs/ARCHITECTURE.md lists the packages and what each may import. import-linter checks this
(controller/pyproject.toml).
"""

__version__ = "0.1.0"
