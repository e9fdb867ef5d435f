# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/how-to/ike.md has a valid configuration, and that its tables match the policies
that the mirror accepts.

The swanctl example runs in topo/interop/test_strongswan.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sluice_testkit.pages import blocks

from sluice.config import load_config
from sluice.kernel_mirror import (
    ACQUIRE_INTERVAL,
    ACQUIRES_PER_SECOND,
    GATHERING,
    REPORTING,
    TAKEOVER,
)
from sluice.model import parse_address
from sluice.policy.config import DEFAULT_PATH_MTU
from sluice.sa_model import MAX_REPLAY_WINDOW
from sluice.state.kernel_rules import KernelBundle, _default
from sluice.state.kernel_sas import AEADS, CIPHERS
from sluice.xfrm_model import KernelMode, PolicyAction, PolicyDirection

PAGE = "docs/how-to/ike.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")


def test_the_configuration_mirrors_its_spd(tmp_path: Path) -> None:
    (written,) = (block.text for block in blocks(PAGE) if block.language == "yaml")
    path = tmp_path / "r1.yaml"
    path.write_text(f"router: r1\nswitch: {{device_id: 1}}\n{written}", encoding="utf-8")
    config = load_config(path)
    (spd,) = config.policy.spds
    assert spd.is_mirrored
    assert [one.name for one in config.interfaces if one.spd == spd.name] == ["eth2"]
    assert all(engine.admin for engine in config.policy.engines)


@pytest.mark.parametrize("name", sorted({name for name, _ in (*AEADS, *CIPHERS)}))
def test_each_algorithm_is_named(name: str) -> None:
    assert f"`{name}`" in TEXT


def test_names_of_rules_and_bundles() -> None:
    ends = parse_address("10.0.1.1"), parse_address("10.0.2.1")
    assert f"`{KernelBundle(*ends, 1, KernelMode.TUNNEL).name}`" in TEXT
    defaults = [_default(one, PolicyAction.ALLOW).name for one in PolicyDirection]
    assert sorted(defaults) == [f"kernel-default-{end}" for end in ("fwd", "in", "out")]
    assert "`kernel-default-out`, `-in`, `-fwd`" in TEXT


@pytest.mark.parametrize(
    "sentence",
    [
        f"some {GATHERING * 1000:.0f} ms after the last change",
        f"once in {ACQUIRE_INTERVAL:.0f} s for a bundle",
        f"at most {ACQUIRES_PER_SECOND:.0f} a second",
        f"reported to the kernel every {REPORTING:.0f} s",
        f"deletes its predecessor, or after {TAKEOVER:.0f} s",
        f"replay window up to {MAX_REPLAY_WINDOW:,}",
        f"`path_mtu` of the SPD, by default {DEFAULT_PATH_MTU:,} bytes",
    ],
)
def test_figures(sentence: str) -> None:
    assert sentence in TEXT
