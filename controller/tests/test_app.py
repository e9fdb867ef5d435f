# SPDX-License-Identifier: Apache-2.0
"""What the daemon says about its surroundings at its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy_world import CONFIG, filled
from sluice.app import _warn_of_unprivileged_ike
from sluice.config import load_config

WITHOUT_SPD = """\
router: r1
interfaces: [{name: eth1, port: 1, mac: "02:00:00:00:01:01"}]
"""


@pytest.mark.parametrize(
    ("text", "start", "is_warned"),
    [
        (CONFIG, "1024", True),
        (CONFIG, "4500", True),
        (CONFIG, "4501", False),
        (WITHOUT_SPD, "1024", False),
    ],
)
def test_a_port_of_ike_that_any_user_may_bind_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, start: str, is_warned: bool
) -> None:
    config, setting = tmp_path / "r1.yaml", tmp_path / "start"
    config.write_text(filled(text, tmp_path) if text is CONFIG else text)
    setting.write_text(start + "\n")
    _warn_of_unprivileged_ike(load_config(config), setting)
    assert ("ip_unprivileged_port_start=4501" in caplog.text) is is_warned
