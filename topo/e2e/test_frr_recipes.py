# SPDX-License-Identifier: Apache-2.0
"""Tests the recipes of docs/how-to/frr-recipes.md: FRR must accept each one unchanged, and its
running configuration must contain it.
"""

import re

import pytest

from sluice_testkit import where
from sluice_testkit.frr import Frr
from sluice_testkit.namespaces import Lab, veth

PAGE = (where.repository() / "docs/how-to/frr-recipes.md").read_text(encoding="utf-8")
RECIPES = {
    section.split("\n", 1)[0]: text
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    for text in re.findall(r"^```frr\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
}
SLUICE = ("no zebra nexthop kernel enable", "fpm address 127.0.0.1 port 2620")


def test_every_recipe_has_the_lines_that_sluice_needs() -> None:
    assert len(RECIPES) >= 6
    for name, text in RECIPES.items():
        assert set(SLUICE) < set(text.splitlines()), name


@pytest.mark.parametrize("recipe", RECIPES)
def test_frr_takes_the_recipe(lab: Lab, recipe: str) -> None:
    place = lab.namespace("r")
    for number in (1, 2, 3):
        veth(place, f"eth{number}", place, f"end{number}")
    text = RECIPES[recipe]
    frr = Frr("recipe", place, text, lab.directory, lab.supervisor, fpm=True)
    frr.start()  # raises an error for a line that FRR refuses
    running = {line.strip() for line in frr.vtysh("show running-config").splitlines()}
    instances = {line for line in text.splitlines() if line.startswith("router ")}
    assert instances <= running
    neighbors = {line.strip() for line in text.splitlines() if " remote-as " in line}
    assert neighbors <= running
