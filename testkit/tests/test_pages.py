# SPDX-License-Identifier: Apache-2.0
"""Tests that the commands of a page are split as bash would split them, and that none is
missing.
"""

from pathlib import Path

import pytest

from sluice_testkit import where
from sluice_testkit.pages import Shown, blocks, commands

PAGE = """\
# A page

```sh
# A comment of its own.
one --option \\
    word   # what it does

for x in 1 2; do
    two $x
done
cat > file <<'END'
$ not a command
END
```

```text
three
```

- A list:

  ```console
  $ four | five
  printed
  $ six
  ```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(where, "repository", lambda: tmp_path)
    blocks.cache_clear()
    commands.cache_clear()
    return "page.md"


def test_commands_are_whole_and_know_their_line_and_output(page: str) -> None:
    assert [(one.line, one.words, one.output) for one in commands(page)] == [
        (5, "one --option word", ""),
        (8, "for x in 1 2; do two $x done", ""),
        (11, "cat > file <<'END' $ not a command END", ""),
        (23, "four | five", "printed\n"),
        (25, "six", ""),
    ]
    assert [one.language for one in blocks(page)] == ["sh", "text", "console"]


def test_a_block_that_bash_does_not_take_is_an_error(page: str, tmp_path: Path) -> None:
    (tmp_path / "bad.md").write_text("```sh\nif true; then\n```\n")
    with pytest.raises(ValueError, match=r"bad\.md:2"):
        commands("bad.md")


def test_what_a_test_declares_it_has_to_take(page: str) -> None:
    shown = Shown([(page, ("one", "four | five$"))])
    assert shown.take("one").text.startswith("one --option")
    assert shown.left() == ["page.md:23: four | five"]
    with pytest.raises(LookupError, match="no command is left"):
        shown.take("one")
    assert [one.words for one in shown.rest()] == ["four | five"]
    assert not shown.left()


def test_what_the_page_does_not_show_cannot_be_declared(page: str) -> None:
    with pytest.raises(LookupError, match="seven"):
        Shown([(page, ("seven",))])
    with pytest.raises(LookupError, match="four"):
        Shown([(page, ("four$",))])
