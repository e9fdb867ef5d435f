# SPDX-License-Identifier: Apache-2.0
"""Tests that an interface keeps its number over restarts.

A number that is given to another interface is reported as moved.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice import numbers as numbers_module
from sluice.config import Config, load_config
from sluice.numbers import InterfaceNumbers, NumbersError


def configured(directory: Path, *names: str, engines: str = "[]") -> Config:
    interfaces = [
        f'{{name: {name}, port: {port}, mac: "02:00:00:00:01:{port:02x}"}}'
        for port, name in enumerate(names, 1)
    ]
    path = directory / "r.yaml"
    path.write_text(f"router: r\ninterfaces: [{', '.join(interfaces)}]\nengines: {engines}\n")
    return load_config(path)


def give(directory: Path, *names: str, engines: str = "[]") -> tuple[dict[str, int], set[int]]:
    """Simulates a start of a controller that also updates the switch.

    Returns the numbers by name, and the set of numbers that were given to another interface.
    """
    numbers = InterfaceNumbers(directory)
    config = numbers.assign(configured(directory, *names, engines=engines))
    moved = set(map(int, numbers.moved)) if numbers.moved else set()
    numbers.settled()
    given = {one.name: one.l3_if for one in config.interfaces}
    given |= {f"engine {one.id}": one.l3_if for one in config.policy.engines}
    return given, moved


def test_the_first_start_numbers_by_order_and_knows_nothing(tmp_path: Path) -> None:
    assert give(tmp_path, "a", "b") == ({"a": 1, "b": 2}, {1, 2})


def test_order_additions_and_removals_change_no_number(tmp_path: Path) -> None:
    give(tmp_path, "a", "b", "c")
    assert give(tmp_path, "c", "a", "b") == ({"a": 1, "b": 2, "c": 3}, set())
    assert give(tmp_path, "d", "c") == ({"d": 4, "c": 3}, set())
    assert give(tmp_path, "b", "c", "d") == ({"b": 2, "c": 3, "d": 4}, set())


def test_engines_are_numbered_with_them(tmp_path: Path) -> None:
    engine = "[{id: 1, port: 9}]"
    assert give(tmp_path, "a", engines=engine)[0] == {"a": 1, "engine 1": 2}
    assert give(tmp_path, "a", "b", engines=engine) == ({"a": 1, "b": 3, "engine 1": 2}, set())


def test_a_number_that_is_given_anew_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers_module, "MAX_INTERFACES", 2)
    give(tmp_path, "a", "b")
    assert give(tmp_path, "c", "b") == ({"c": 1, "b": 2}, {1})
    with pytest.raises(NumbersError, match="at most 2 interfaces and engines together"):
        give(tmp_path, "a", "b", "c")


def test_moved_numbers_stay_so_until_the_switch_has_heard(tmp_path: Path) -> None:
    """Checks that numbers count as moved until the switch is updated.

    If the controller dies before this update, the next controller must still withdraw the entries
    with these numbers.
    """
    for _ in range(2):
        numbers = InterfaceNumbers(tmp_path)
        numbers.assign(configured(tmp_path, "a", "b"))
        assert numbers.moved == {1, 2}
    numbers.settled()
    assert give(tmp_path, "a", "b")[1] == set()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 2, "numbers": {}, "moved": []}',
        '{"version": 1, "numbers": {"a": 1, "b": 1}, "moved": []}',
        '{"version": 1, "numbers": {"a": 0}, "moved": []}',
        '{"version": 1, "numbers": {"a": true}, "moved": []}',
        "[" * 100_000,
    ],
    ids=["empty", "a list", "another version", "twice", "zero", "no number", "deep"],
)
def test_a_damaged_file_is_said(tmp_path: Path, text: str) -> None:
    give(tmp_path, "a")
    (tmp_path / "interfaces.json").write_text(text)
    with pytest.raises(NumbersError, match=r"interfaces\.json: damaged .*; remove the file"):
        give(tmp_path, "a")


def test_the_file_is_nobody_elses(tmp_path: Path) -> None:
    give(tmp_path, "a")
    assert (tmp_path / "interfaces.json").stat().st_mode & 0o777 == 0o600
