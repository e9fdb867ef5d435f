# SPDX-License-Identifier: Apache-2.0
"""Tests reloads of the configuration while the router runs. A reload is accepted or refused as a
whole.

Every host continuously sends to every other host. Like a restart, a reload of interfaces or their
SPDs never mixes the old configuration with the new one. The controller's process keeps running.
SLUICE_RESTARTS is the number of random changes.
"""

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import yaml

from sluice_testkit import where
from sluice_testkit.namespaces import Lab
from sluice_testkit.process import run
from sluice_testkit.wait import Timeout, wait_until

from .network import OneRouter
from .restarts import INTERFACES, NONE, Discards, RestartSetting, Traffic, draw, leaks, losses

SEED = 15
RELOADS = int(os.environ.get("SLUICE_RESTARTS", "3"))
OPEN = RestartSetting(guards=dict.fromkeys(INTERFACES, "open"), spds={"open": Discards()})
FAILED = 1


@pytest.fixture(scope="module")
def started(module_lab: Lab) -> OneRouter:
    network = OneRouter(module_lab, versions=(4,))
    network.start()
    return network


@pytest.fixture
def network(started: OneRouter) -> Iterator[OneRouter]:
    """Yields the network after a restart with SPDs that let everything pass. After the test, the
    controller's process must still run.
    """
    begin_with(started, OPEN)
    yield started
    assert started.controller.process is not None
    started.controller.process.check()


def begin_with(network: OneRouter, setting: RestartSetting) -> None:
    """Restarts the controller with a setting, including the setting's rules. Returns when zebra is
    connected.
    """
    network.controller.kill()
    setting.configure(network.controller.config)
    network.controller.start("--configured-policy")
    network.controller.wait_synced()
    wait_until(lambda: network.controller.show("status")["fpm"]["peer"], 20, "zebra")


def write(network: OneRouter, config: dict[str, Any]) -> None:
    """Writes a configuration file for the next reload."""
    text = yaml.safe_dump(config, sort_keys=False)
    network.controller.config_path.write_text(text, encoding="utf-8")


def reload(network: OneRouter) -> tuple[int, str]:
    """Runs `sluice reload`. Returns its exit status and output."""
    command = [str(where.sluice()), "reload", "--socket", str(network.controller.socket)]
    done = run(command, check=False)
    return done.returncode, done.stdout + done.stderr


def reload_with(network: OneRouter, setting: RestartSetting) -> None:
    """Reloads with another setting. Checks that the reload is accepted. The rules in force do not
    change.
    """
    setting.configure(network.controller.config)
    write(network, network.controller.config)
    status, said = reload(network)
    assert status == 0, said


def index(network: OneRouter, name: str) -> Any:
    """Returns the kernel's index of a network device in the router's namespace."""
    done = network.router.namespace.run("ip", "-j", "link", "show", name)
    return json.loads(done.stdout)[0]["ifindex"]


def drawn(dice: random.Random, old: RestartSetting) -> RestartSetting:
    """Draws a random order of the interfaces, and random SPDs for them. Keeps the rules, since only
    commits change rules.
    """
    guards = {name: dice.choice([*old.spds, NONE]) for name in INTERFACES}
    guards |= {name: old.guards[name] for name in INTERFACES if dice.random() < 0.4}
    order = tuple(dice.sample(INTERFACES, len(INTERFACES)))
    return RestartSetting(order, guards, old.spds)


def change(network: OneRouter, old: RestartSetting, new: RestartSetting) -> None:
    """Reloads with setting `new` instead of `old` under traffic. No packet may leak, and flows that
    the change does not affect may lose none.
    """
    with Traffic(network) as traffic:
        traffic.wait_until_passing(old)
        reload_with(network, new)
        traffic.wait_until_passing(new)
        network.controller.wait_synced()
        traffic.stop()
        assert leaks(traffic, old, new) == []
        with suppress(Timeout):  # the last packets may still be under way
            wait_until(lambda: losses(traffic, old, new) == [], 5)
        assert losses(traffic, old, new) == []


def test_random_reloads_never_mix(network: OneRouter) -> None:
    dice = random.Random(SEED)
    old = draw(dice)
    begin_with(network, old)
    process = network.controller.pid
    for _ in range(RELOADS):
        new = drawn(dice, old)
        change(network, old, new)
        old = new
    assert network.controller.pid == process
    assert network.controller.process is not None
    assert network.controller.process.running()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"swich": {}}, "swich"),
        ({"router": "other"}, "router: cannot be changed while the controller runs"),
        (
            {"vrfs": {"red": {"table": 100}}},
            "vrfs.red: cannot be changed while the controller runs",
        ),
        ({"spds": []}, "there is no SPD 'open'"),
    ],
)
def test_what_cannot_be_taken_is_refused_whole(
    network: OneRouter, change: dict[str, Any], said: str
) -> None:
    """A reload with one invalid change is refused as a whole: its valid changes do not apply
    either.
    """
    controller = network.controller
    before = controller.show("punts")["reasons"]["NO_ROUTE"]["rate"]
    uptime = controller.show("status")["uptime"]
    write(network, controller.config | {"punt_rates": {"NO_ROUTE": {"rate": 7}}} | change)
    assert controller.process is not None
    os.kill(controller.pid, signal.SIGHUP)
    controller.process.wait_for_log("is not reloaded, the configuration in force stays")
    status, answer = reload(network)
    assert status == FAILED
    assert said in answer
    shown = controller.show("status")
    assert shown["uptime"] > uptime
    assert shown["role"] == "primary"
    assert any(said in problem for problem in shown["problems"])
    assert controller.show("punts")["reasons"]["NO_ROUTE"]["rate"] == before
    write(network, controller.config)
    assert reload(network) == (0, "nothing has changed\n")
    wait_until(lambda: controller.show("status")["problems"] == [], 20, "no problem any more")


def test_settings_change_under_the_running_session(network: OneRouter) -> None:
    controller = network.controller
    before = controller.show("status")
    write(network, controller.config | {"punt_rates": {"NO_ROUTE": {"rate": 7}}})
    assert reload(network) == (0, "punt_rates.NO_ROUTE.rate\npunt_rates.NO_ROUTE.burst\n")
    controller.wait_synced()
    assert controller.show("punts")["reasons"]["NO_ROUTE"]["rate"] == 7
    after = controller.show("status")
    assert after["uptime"] > before["uptime"]
    assert after["fpm"]["peer"] == before["fpm"]["peer"]  # the same connection, with the same port


def test_an_interface_goes_and_comes_and_all_others_stay(network: OneRouter) -> None:
    controller, place = network.controller, network.router.namespace
    lost = controller.config["interfaces"][3]
    less = controller.config | {"interfaces": controller.config["interfaces"][:3]}
    others = [f"eth{number}" for number in (1, 2, 3)]
    indexes = [index(network, name) for name in others]
    write(network, less)
    assert reload(network) == (0, f"interfaces.{lost['name']}\n")
    controller.wait_synced()
    assert lost["name"] not in place.run("ip", "-brief", "link").stdout
    assert [one["name"] for one in controller.show("interfaces")] == others
    write(network, controller.config)
    assert reload(network) == (0, f"interfaces.{lost['name']}\n")
    controller.wait_synced()
    assert [index(network, name) for name in others] == indexes
    a = network.host("a")
    d = network.address("d")
    wait_until(lambda: a.run("ping", "-c1", "-W1", d, check=False).returncode == 0, 20, "d again")


def test_an_interface_that_cannot_be_made_changes_nothing(network: OneRouter) -> None:
    """A reload changes nothing if an interface cannot be created, because another device that is no
    TAP has its name.
    """
    controller, place = network.controller, network.router.namespace
    place.run("ip", "link", "add", "taken", "type", "veth", "peer", "name", "taken-peer")
    before = controller.show("status")
    fifth = {"name": "taken", "port": 5, "mac": "02:00:00:00:01:05", "spd": "open"}
    write(
        network,
        controller.config | {"interfaces": [*controller.config["interfaces"], fifth]},
    )
    status, said = reload(network)
    assert status == FAILED
    assert "interface taken: " in said
    after = controller.show("status")
    assert after["fpm"]["peer"] == before["fpm"]["peer"]
    assert after["role"] == "primary"
