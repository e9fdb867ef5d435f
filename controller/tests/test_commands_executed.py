# SPDX-License-Identifier: Apache-2.0
"""Checks that each command shown in the documentation is executed by a test, or is listed in
NOT_EXECUTED with a reason.

Tests declare the commands that they execute with `@pytest.mark.executes(PAGE, START...)`. The
fixture `shown` (sluice_testkit) gives a test the page's text, and fails if the test does not
execute all commands that it declares. This module reads the declarations from the tests' sources. A
command that is only `make TARGET` counts as executed if `make test`, or a test of the installation,
depends on that target.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from sluice_testkit.pages import Command, blocks, commands, pages

ROOT = Path(__file__).parents[2]
TESTS = ("topo/e2e", "packaging/tests", "controller/tests", "testkit/tests")
SUITES = ("test", "test-install", "test-packages", "test-images")
LANGUAGES = {"sh", "console", "yaml", "json", "python", "frr", "text"}

DOCKER = "needs Docker's engine; test_images.py runs the same images by the same compose files"
BMV2 = "needs BMv2, which no package registry has"
P4C = "needs p4c's source tree, which no package registry has"
FUZZ = (
    "compiles the workspace anew with the fuzzers' profile; `cargo test -p sluice-fuzz` runs them"
)
NOT_EXECUTED = {
    ("README.md", "make test$"): "is the suite that this test is a part of",
    ("README.md", "apt-get install"): "prepares a machine on which nothing of the project runs yet",
    ("README.md", "curl "): "likewise, and runs what it fetches",
    ("docker/README.md", "docker run"): DOCKER,
    ("docker/README.md", "docker compose --file docker/two-sites/"): DOCKER,
    ("docker/README.md", "docker compose --file docker/router/"): DOCKER,
    ("docs/develop/ptf-test.md", "make ptf TARGET=bmv2"): BMV2,
    ("ptf-tests/README.md", "make ptf TARGET=bmv2"): BMV2,
    ("ptf-tests/README.md", "make differential"): BMV2,
    ("switch/crates/p4runtime-suite/README.md", "make p4runtime-suite TARGET=bmv2"): BMV2,
    ("switch/conformance/README.md", "make conformance"): P4C,
    ("switch/conformance/README.md", "PYTHONPATH=switch/conformance"): P4C,
    ("switch/crates/fuzz/README.md", "make fuzz"): FUZZ,
    ("switch/crates/fuzz/README.md", "sluice-fuzz replay"): FUZZ,
}
"""Reason why no test executes a command, by (page, beginning of the command)."""


@cache
def declared() -> dict[tuple[str, str], list[str]]:
    """Returns the names of the tests that declare a command, by (page, beginning of the
    command).
    """
    found: dict[tuple[str, str], list[str]] = {}
    for path in (path for folder in TESTS for path in (ROOT / folder).rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = dict(_constants(tree))
        for test in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for page, starts in _marks(test, constants):
                assert "shown" in {argument.arg for argument in test.args.args}, test.name
                for start in starts or ("",):
                    found.setdefault((page, start), []).append(f"{path.name}::{test.name}")
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                yield node.targets[0].id, ast.literal_eval(node.value)
            except ValueError:
                continue


def _marks(
    test: ast.FunctionDef, constants: dict[str, object]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.executes":
            words = [word for argument in mark.args for word in _words(argument, constants)]
            yield words[0], tuple(words[1:])


def _words(argument: ast.expr, constants: dict[str, object]) -> list[str]:
    if isinstance(argument, ast.Starred):
        assert isinstance(argument.value, ast.Name)
        several = constants[argument.value.id]
        assert isinstance(several, tuple)
        return [str(word) for word in several]
    if isinstance(argument, ast.Name):
        return [str(constants[argument.id])]
    return [str(ast.literal_eval(argument))]


@cache
def made_by_suites() -> frozenset[str]:
    """Returns the make targets that the test suites build, and the targets that only group such
    targets.
    """
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules: dict[str, list[str]] = {}
    whole = set()
    for target, needs, recipe in re.findall(r"^([a-z0-9-]+):(?!=)(.*)\n(\t?)", text, re.MULTILINE):
        # The default target of `make images`.
        chosen = re.findall(r"filter given,.*?\),(\w+)\)", needs)
        rules[target] = [*needs.split("##")[0].split(), *chosen]
        if rules[target] and not recipe:
            whole.add(target)
    for stamp, needs in re.findall(r"^\$\(STAMPS\)/([a-z-]+):(.*)$", text, re.MULTILINE):
        rules[f"$(STAMPS)/{stamp}"] = needs.split()
    made: set[str] = set()
    waiting = [*SUITES]
    while waiting:
        target = waiting.pop()
        if target not in made:
            made.add(target)
            waiting += rules.get(target, [])
    return frozenset(made | {target for target in whole if made.issuperset(rules[target])})


def made(command: Command) -> bool:
    """Returns whether the command is only `make TARGET`, for a target that the test suites
    build."""
    words = command.words.split()
    return len(words) == 2 and words[0] == "make" and words[1] in made_by_suites()


EVERY = [command for page in pages() for command in commands(page)]


@pytest.mark.parametrize("command", EVERY, ids=str)
def test_the_command_is_executed_by_a_test_or_listed(command: Command) -> None:
    tests = [
        test
        for (page, start), those in declared().items()
        if page == command.page and command.begins(start)
        for test in those
    ]
    reasons = [
        reason
        for (page, start), reason in NOT_EXECUTED.items()
        if page == command.page and command.begins(start)
    ]
    if reasons:
        assert len(reasons) == 1
        assert not tests, f"{command}: is executed by {tests}; remove the command from NOT_EXECUTED"
        return
    assert tests or made(command), f"{command}: no test executes it"


@pytest.mark.parametrize("entry", [*NOT_EXECUTED, *declared()], ids=": ".join)
def test_what_is_declared_or_listed_is_still_on_its_page(entry: tuple[str, str]) -> None:
    page, start = entry
    assert any(command.begins(start) for command in commands(page))


def test_every_block_names_its_language() -> None:
    """Checks that each code block names its language.

    Commands in a block without a language would not be found, and so not checked.
    """
    for page in pages():
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{page}:{block.line}: {block.language!r}"
            if block.language == "text":
                assert not re.search(r"^(\$ |make |sluice(-\w+)? )", block.text, re.MULTILINE), (
                    f"{page}:{block.line}: a command in a block of text"
                )


def test_there_are_as_many_commands_as_ever() -> None:
    assert len(EVERY) > 120
    assert len(NOT_EXECUTED) < 20


def test_make_s_targets_are_followed() -> None:
    assert {"ptf", "deb", "wheel", "images", "setup", "switch", "native"} <= made_by_suites()
    assert not {"fuzz", "conformance", "bench", "differential", "lock"} & made_by_suites()
