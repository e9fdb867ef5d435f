# SPDX-License-Identifier: Apache-2.0
"""The demo where the kernel has ESP: strongSwan negotiates what protects the sites."""

import os
import subprocess

import pytest

from sluice_testkit import where
from sluice_testkit.strongswan import is_installed

from .network import needs_esp

pytestmark = [
    needs_esp,
    pytest.mark.skipif(not is_installed(), reason="strongSwan is not installed"),
]


def test_the_demo_negotiates() -> None:
    root = where.repository()
    environment = os.environ | {"PYTHONPATH": f"{root}/topo:{root}/testkit/src"}
    argv = ["/usr/bin/python3", "-m", "sluice_topo.demo"]  # Debian's, which has mininet
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "strongSwan negotiates" in done.stdout
    assert "two rekeys: packets lost: 0 of" in done.stdout
    assert "after expiry: in clear on the links: 0" in done.stdout
