# SPDX-License-Identifier: Apache-2.0
"""Tests that YAML text is parsed to the same nodes as by PyYAML, and that limits on size and depth
hold for any text.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluice import yamlnodes
from sluice.yamlnodes import MAXIMUM_DEPTH, LimitError, compose
from sluice.yamlreader import ConfigError, YamlReader

DEEP = 60_000
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(DOCUMENTS, st.sampled_from([True, False, None]))
def test_documents_read_as_pyyaml_reads_them(document: object, flow: bool | None) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow)
    node, expected = compose(text), yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    assert expected is not None
    assert yaml.serialize(node) == yaml.serialize(expected)
    assert (node.start_mark.line, node.end_mark.line) == (
        expected.start_mark.line,
        expected.end_mark.line,
    )


@pytest.mark.parametrize(
    "text",
    ["a: &x [1, 2]\nb: *x\n", "- !!str 1\n- ! 2\n- '3'\n- |\n  4\n", "", "# nothing", "--- a\n"],
)
def test_anchors_tags_and_empty_documents(text: str) -> None:
    expected = yaml.compose(text, Loader=yaml.SafeLoader)
    found = compose(text)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert yaml.serialize(found) == yaml.serialize(expected)


@pytest.mark.parametrize(
    "deep",
    [
        lambda n: "[" * n,
        lambda n: "{a: " * n,
        lambda n: "- " * n,
        lambda n: "\n".join(" " * i + "a:" for i in range(min(n, 2000))),
        lambda n: "[" * n + "]" * n,
        lambda n: "? " * n,
    ],
)
def test_depth_is_bounded_before_anything_is_built(deep: Callable[[int], str]) -> None:
    with pytest.raises(LimitError, match=f"nested more than {MAXIMUM_DEPTH} deep"):
        compose(deep(DEEP))


def test_the_deepest_that_may_be() -> None:
    assert compose("[" * MAXIMUM_DEPTH + "]" * MAXIMUM_DEPTH) is not None
    with pytest.raises(LimitError):
        compose("[" * (MAXIMUM_DEPTH + 1) + "]" * (MAXIMUM_DEPTH + 1))


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for level in range(1, levels):
        repeated = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{repeated}]")
    return "\n".join(lines)


def test_aliases_repeat_so_much_and_no_more() -> None:
    assert compose(laughs(3)) is not None
    with pytest.raises(LimitError, match="aliases repeat more than 100000 values"):
        compose(laughs(9))


def test_aliases_do_not_get_around_the_depth() -> None:
    text = "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 40))
    with pytest.raises(LimitError, match="nested more than"):
        compose(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: *x", "the alias \\*x has no anchor before it"),
        ("a: &x [*x]", "the alias \\*x is inside the value that it repeats"),
        ("&x a: &x b", "the anchor &x is defined twice"),
        ("a: 1\n---\nb: 2", "a second document begins"),
    ],
)
def test_anchors_and_documents_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as error:
        compose(text)
    assert error.value.problem is not None
    with pytest.raises(ConfigError, match=f"f.yaml:[12]: not YAML: {problem}"):
        YamlReader(text, "f.yaml")


@pytest.mark.parametrize(("text", "line"), [("a:\n\t- b\n", 2), ("a: 1\n\tb: 2", 2)])
def test_a_tab_is_called_a_tab(text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=f"f.yaml:{line}: .*: a tab; indent by spaces"):
        YamlReader(text, "f.yaml")


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamlnodes, "MAXIMUM_BYTES", 100)
    assert compose("a" * 100) is not None
    for text in ("a" * 101, "ä" * 51):
        with pytest.raises(LimitError, match="more than 100 bytes"):
            compose(text)


def test_a_limit_is_a_problem_with_file_and_line() -> None:
    with pytest.raises(ConfigError) as error:
        YamlReader("a: 1\nb: " + "[" * DEEP, "f.yaml")
    (problem,) = error.value.problems
    assert problem.startswith("f.yaml:2: lists and mappings are nested more than 32 deep")


@given(st.text(alphabet="[]{}:,-?&*!|> \nab'\"#%", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert _accepts(lambda: YamlReader(text, "f.yaml")) == _accepts(
        lambda: yaml.compose(text, Loader=yaml.CSafeLoader)
    )


def _accepts(read: Callable[[], object]) -> bool:
    try:
        read()
    except (ConfigError, yaml.YAMLError):
        return False
    return True
