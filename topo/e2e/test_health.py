# SPDX-License-Identifier: Apache-2.0
"""Tests that `sluice show status --check` reports the problems of a router whose programs have
failed.
"""

import signal

import pytest

from sluice_testkit import where
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.process import run
from sluice_testkit.wait import wait_until
from sluice_topo.description import two_sites
from sluice_topo.routers import P4Router


@pytest.fixture
def router(lab: Lab) -> P4Router:
    """Returns r1 of the demo without its neighbours. The check reports no problem."""
    place = lab.namespace("r1")
    for port in (1, 2, 3):
        veth(place, f"port{port}", place, f"peer{port}")
    router = P4Router(two_sites().router("r1"), place, lab.directory, lab.supervisor)
    router.start()
    wait_until(lambda: check(router) == (0, ""), 30, "a router without a problem")
    return router


def check(router: P4Router) -> tuple[int, str]:
    """Runs `sluice show status --check`. Returns its exit status and output."""
    words = [str(where.sluice()), "show", "status", "--check"]
    done = run([*words, "--socket", str(router.controller.socket)], check=False)
    return done.returncode, done.stdout + done.stderr


def names(router: P4Router, words: str) -> bool:
    """Returns whether the check fails and its output contains these words."""
    code, said = check(router)
    return code == 1 and words in said


def test_a_switch_that_hangs_is_named(router: P4Router) -> None:
    switch = router.target.process
    assert switch is not None
    switch.send(signal.SIGSTOP)
    try:
        wait_until(
            lambda: names(router, "has not answered for 5 s"),
            20,
            "the status to report the silent switch",
        )
    finally:
        switch.send(signal.SIGCONT)
    wait_until(lambda: check(router) == (0, ""), 30, "no problem")


def test_an_address_that_another_program_removes_is_named(router: P4Router) -> None:
    interface = router.controller.config["interfaces"][0]
    name, address = interface["name"], interface["addresses"][0]
    router.namespace.run("ip", "address", "del", address, "dev", name)
    lacks = f"interface {name} lacks its address {address}"
    wait_until(lambda: names(router, lacks), 20, f"{lacks} is named")
    router.namespace.run("ip", "address", "add", address, "dev", name)
    wait_until(lambda: check(router) == (0, ""), 30, "no problem")
