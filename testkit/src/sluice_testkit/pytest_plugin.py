# SPDX-License-Identifier: Apache-2.0
"""pytest fixtures: `lab` for one test, `module_lab` for all tests of a module.

When a test fails, the ends of all logs of its lab are added to its report.
"""

from collections.abc import Generator, Iterator

import pytest

from sluice_testkit.namespaces import Lab

_open_labs: list[Lab] = []


def open_lab() -> Iterator[Lab]:
    """A lab whose logs are shown when a test fails; for a fixture of another scope."""
    with Lab() as lab:
        _open_labs.append(lab)
        try:
            yield lab
        finally:
            _open_labs.remove(lab)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Namespaces, processes and a run directory for one test."""
    yield from open_lab()


@pytest.fixture(scope="module")
def module_lab() -> Iterator[Lab]:
    """Namespaces, processes and a run directory for the tests of one module."""
    yield from open_lab()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of the logs beside a failure."""
    report = yield
    if report.failed:
        for opened in _open_labs:
            report.sections.append(("logs of the lab", opened.supervisor.report()))
    return report
