# SPDX-License-Identifier: Apache-2.0
"""Tests the search for tests in a directory tree like that of p4c."""

from pathlib import Path

import pytest

from sluice_conformance import corpus

CMAKE = """
set (XFAIL_TESTS
  # because
  testdata/p4_16_samples/bad-bmv2.p4
  testdata/p4_16_samples/worse-bmv2.p4 # error: testdata/p4_16_samples/good-bmv2.p4 (sic)
)
if (SUPPORT_P4_14)
  list(APPEND XFAIL_TESTS
    testdata/p4_14_samples/old.p4
  )
endif()
set (OTHER testdata/p4_14_samples/fine.p4)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        corpus.CMAKE: CMAKE,
        Path("testdata/p4_16_samples/good-bmv2.p4"): "#include <v1model.p4>",
        Path("testdata/p4_16_samples/good-bmv2.stf"): "wait",
        Path("testdata/p4_16_samples/bad-bmv2.p4"): "#include <v1model.p4>",
        Path("testdata/p4_16_samples/psa-bmv2.p4"): "#include <psa.p4>",
        Path("testdata/p4_16_samples/other.p4"): "#include <v1model.p4>",
        Path("testdata/p4_14_samples/old.p4"): "",
        corpus.TESTGEN / "gen.p4": "#include <v1model.p4>",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_expected_failures_are_paths_outside_of_comments() -> None:
    assert corpus.expected_failures(CMAKE) == {
        "testdata/p4_16_samples/bad-bmv2.p4",
        "testdata/p4_16_samples/worse-bmv2.p4",
        "testdata/p4_14_samples/old.p4",
    }


def test_the_selection(tree: Path) -> None:
    found = {test.name: test for test in corpus.find(tree)}
    assert list(found) == [
        "p4_16_samples/bad-bmv2",
        "p4_16_samples/good-bmv2",
        "p4_14_samples/old",
        "testgen/gen",
    ]
    assert found["p4_16_samples/good-bmv2"].script is not None
    assert found["p4_16_samples/bad-bmv2"].expected_failure
    assert found["p4_14_samples/old"].expected_failure
    assert found["p4_14_samples/old"].p4_14


def test_generated_scripts_are_tests_of_their_program(tree: Path) -> None:
    program = corpus.find(tree)[-1]
    made = corpus.with_script(program, tree / "gen_1.stf")
    assert (made.name, made.suite, made.program) == (
        "generated/gen_1",
        "generated",
        program.program,
    )
    assert made.script is not None
    assert not made.p4_14
    assert not made.may_fail
    assert corpus.with_script(program, tree / "gen_1.stf", frozenset({"gen.p4"})).may_fail


def test_doubtful_programs_are_names_outside_of_comments(tree: Path) -> None:
    listed = 'p4tools_add_xfail_reason(\n "stf"\n # see other.p4\n gen.p4\n)\n'
    (tree / corpus.TESTGEN.parent / "BMV2STFXfail.cmake").write_text(listed)
    assert corpus.doubtful_generation(tree) == {"gen.p4"}


def test_another_folder_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(corpus.NotACorpus, match="testdata"):
        corpus.find(tmp_path)
