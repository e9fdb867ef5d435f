# SPDX-License-Identifier: Apache-2.0
"""Provides pytest fixtures: `lab` for one test, `module_lab` for all tests of a module, and
`shown`.

If a test fails, the ends of all logs of its lab are added to its report.

`@pytest.mark.executes(PAGE, START...)` declares that a test executes the commands of a page that
begin with one of the STARTs; without START, all commands of the page. The test gets the commands
from the fixture `shown`, which fails the test if it has not asked for all of them.
controller/tests/test_commands_shown.py also reads these declarations.
"""

from collections.abc import Generator, Iterator

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.pages import Shown

_open_labs: list[Lab] = []


def open_lab() -> Iterator[Lab]:
    """Yields a lab. If a test fails, its report shows the lab's logs. For fixtures of other
    scopes.
    """
    with Lab() as lab:
        _open_labs.append(lab)
        try:
            yield lab
        finally:
            _open_labs.remove(lab)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Yields namespaces, processes and a run directory for one test."""
    yield from open_lab()


@pytest.fixture(scope="module")
def module_lab() -> Iterator[Lab]:
    """Yields namespaces, processes and a run directory for the tests of one module."""
    yield from open_lab()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark `executes`."""
    config.addinivalue_line("markers", "executes(page, *starts): commands that the test executes")


@pytest.fixture
def shown(request: pytest.FixtureRequest) -> Iterator[Shown]:
    """Yields the commands that the test's marks declare. Fails the test if it has not asked for all
    of them.
    """
    marks = list(request.node.iter_markers("executes"))
    given = Shown([(mark.args[0], mark.args[1:]) for mark in reversed(marks)])
    yield given
    if given.left():
        pytest.fail(f"the test declares but does not execute: {given.left()}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the ends of the labs' logs to the report of a failed test."""
    report = yield
    if report.failed:
        for opened in _open_labs:
            report.sections.append(("logs of the lab", opened.supervisor.report()))
    return report
