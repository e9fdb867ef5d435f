# SPDX-License-Identifier: Apache-2.0
"""Provides routers whose kernel forwards."""

from collections.abc import Iterator

import pytest

from sluice_testkit.namespaces import Lab
from sluice_topo.kernel_router import KernelRouter


@pytest.fixture
def router(lab: Lab) -> Iterator[KernelRouter]:
    made = KernelRouter(lab)
    try:
        yield made
    finally:
        made.close()
