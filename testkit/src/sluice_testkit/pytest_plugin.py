# SPDX-License-Identifier: Apache-2.0
"""pytest fixtures: `lab` for one test, `module_lab` for all tests of a module, `shown`.

When a test fails, the ends of all logs of its lab are added to its report.

`@pytest.mark.executes(PAGE, START...)` declares that a test executes the commands of a page that
begin so, or all of them; `shown` gives them to it, and fails where it leaves one. The declarations
are read by controller/tests/test_commands_shown.py.
"""

from collections.abc import Generator, Iterator

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.pages import Shown

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


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line("markers", "executes(page, *starts): commands that the test executes")


@pytest.fixture
def shown(request: pytest.FixtureRequest) -> Iterator[Shown]:
    """The commands of pages that the test's marks name. All of them have to be taken."""
    marks = list(request.node.iter_markers("executes"))
    given = Shown([(mark.args[0], mark.args[1:]) for mark in reversed(marks)])
    yield given
    if given.left():
        pytest.fail(f"shown, declared, and not executed: {given.left()}")


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
