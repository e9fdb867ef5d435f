# SPDX-License-Identifier: Apache-2.0
"""Runs the images of docker/ by its compose files, and checks that they forward and enforce policy.

`make test-images` builds the images first. One part tests a router with its shipped configuration;
these tests depend on their order. The other part tests two sites, which the service `cable` links.
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from containers import Compose, Image

from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.process import run
from sluice_testkit.wait import wait_until

DOCKER = Path(__file__).resolve().parents[2] / "docker"
NET_ADMIN, NET_RAW, SYS_NICE = 1 << 12, 1 << 13, 1 << 23
COMPILERS = ("cc", "gcc", "rustc", "cargo", "ld", "make", "pip", "pip3")
IMAGES = ("sluice", "sluice-frr", "sluice-lab")
# Process names of the programs. They are needed because a program need not be the first process of
# its container: in the controller's container, the first process is a shell.
SERVICE_PROGRAMS = {"switch": "sluice-switch", "controller": "sluice"}
SLUICE_USER, FRR_USER = "990", "991"


@pytest.fixture(scope="module", params=IMAGES)
def image(request: pytest.FixtureRequest) -> Iterator[Image]:
    made = Image(f"localhost/{request.param}")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


class Router:
    """Two hosts, connected by a router that consists of the containers of docker/router."""

    def __init__(self, lab: Lab):
        self.namespace = lab.namespace("router")
        self.hosts = [self._host(lab, number) for number in (1, 2)]
        self.hosts[0].add_address("eth0", "10.1.0.3/24")  # no rule admits this address
        self.hosts[1].add_address("lo", "10.9.0.1/32")  # the target of FRR's static route
        self.compose = Compose(DOCKER / "router" / "compose.yaml", lab, self.namespace)

    def _host(self, lab: Lab, number: int) -> Namespace:
        host = lab.namespace(f"host{number}")
        veth(host, "eth0", self.namespace, f"port{number}")
        host.add_address("eth0", f"10.{number}.0.2/24")
        host.run("ip", "route", "add", "default", "via", f"10.{number}.0.1")
        return host

    def passes(self, source: str, destination: str = "10.2.0.2") -> bool:
        return pings(self.hosts[0], destination, "-I", source)


def pings(host: Namespace, destination: str, *options: str) -> bool:
    words = ("ping", "-c1", "-W1", *options, destination)
    return run(host.argv(words), check=False).returncode == 0


@pytest.fixture(scope="module")
def router(lab: Lab) -> Iterator[Router]:
    made = Router(lab)
    made.compose.up()
    yield made
    made.compose.down()


def test_compilers_are_not_in_the_images(image: Image) -> None:
    there = {path.name for path in (image.root / "usr/bin").iterdir()}
    assert not there & set(COMPILERS)
    assert not list((image.root / "var/lib/apt/lists").glob("*Packages*"))


def test_images_hold_what_is_pinned(image: Image) -> None:
    names = {"sluice": ("sluice",), "sluice-frr": ("frr",), "sluice-lab": ("sluice", "lab")}
    query = ("dpkg-query", "--show", "--showformat=${Package}=${Version}\n")
    held = set(run(["chroot", str(image.root), *query]).stdout.split())
    for part in names[image.name.removeprefix("localhost/")]:
        lines = (DOCKER / part / "packages.lock").read_text().splitlines()
        assert {line for line in lines if not line.startswith("#")} <= held


def test_nothing_is_said_of_where_they_were_built(image: Image) -> None:
    assert not [pair for pair in image.config["Env"] if "proxy" in pair.lower()]
    sources = (image.root / "etc/apt/sources.list.d/debian.sources").read_text()
    assert set(re.findall("URIs: (.*)", sources)) == {
        "http://deb.debian.org/debian",
        "http://deb.debian.org/debian-security",
    }


def test_a_router_is_healthy_in_its_containers(router: Router) -> None:
    for service in router.compose.services:
        wait_until(partial(router.compose.healthy, service), 60, f"{service} to be healthy")


def test_it_forwards_and_enforces_policy(router: Router) -> None:
    wait_until(lambda: router.passes("10.1.0.2"), 30, "a packet that policy lets pass")
    assert not router.passes("10.1.0.3")


def test_routes_come_from_frr(router: Router) -> None:
    wait_until(lambda: router.passes("10.1.0.2", "10.9.0.1"), 30, "FRR's route in the switch")
    assert not router.passes("10.1.0.3", "10.9.0.1")


def test_containers_are_not_root_and_have_what_they_are_granted(router: Router) -> None:
    for service, expected in (("switch", NET_ADMIN | NET_RAW), ("controller", NET_ADMIN)):
        status = router.compose.running[service].status(SERVICE_PROGRAMS[service])
        assert status["Uid"].split() == [SLUICE_USER] * 4
        assert int(status["CapPrm"], 16) == expected
        assert int(status["CapBnd"], 16) & ~SYS_NICE == expected
        assert status["NoNewPrivs"] == "1"


def test_daemons_of_frr_are_not_root(router: Router) -> None:
    frr = router.compose.running["frr"]
    for daemon in ("zebra", "bgpd", "ospfd", "ospf6d", "isisd", "bfdd", "vrrpd", "staticd"):
        pid = frr.run("cat", f"/run/frr/{daemon}.pid").strip()
        found = frr.run("sed", "-n", "s/^Uid:\\s*//p", f"/proc/{pid}/status").split()
        assert found == [FRR_USER] * 4, daemon


def test_the_log_of_frr_is_the_containers(router: Router) -> None:
    assert "zebra" in router.compose.running["frr"].process.log()


def test_a_controller_that_dies_is_started_again_and_frr_keeps_its_interfaces(
    router: Router,
) -> None:
    controller = router.compose.running["controller"]
    before = router.namespace.run("ip", "-json", "link", "show", "dev", "eth2").stdout
    os.kill(int(controller.status("sluice")["Pid"]), signal.SIGKILL)
    assert router.passes("10.1.0.2")  # the switch has the rules and needs no controller
    again = "controller: ended with status 137; starting it again"
    controller.process.wait_for_log(again)
    wait_until(lambda: controller.process.log().count("sluice: ready") == 2, 30, "a new one")
    wait_until(partial(router.compose.healthy, "controller"), 60, "the controller to be healthy")
    after = router.namespace.run("ip", "-json", "link", "show", "dev", "eth2").stdout
    assert json.loads(after)[0]["ifindex"] == json.loads(before)[0]["ifindex"]
    assert router.passes("10.1.0.2", "10.9.0.1")
    assert not router.passes("10.1.0.3", "10.9.0.1")


def test_the_switch_forwards_while_the_other_containers_are_new(router: Router) -> None:
    pid = router.compose.running["switch"].pid
    router.compose.running.pop("frr").stop()
    assert router.compose.running.pop("controller").stop() == 0
    assert router.passes("10.1.0.2")
    assert not router.passes("10.1.0.3")
    router.compose.start("frr")
    for service in ("controller", "frr"):
        wait_until(partial(router.compose.healthy, service), 60, f"{service} to be healthy")
    assert router.compose.running["switch"].pid == pid
    wait_until(lambda: has_route(router), 60, "FRR's route")
    assert router.passes("10.1.0.2", "10.9.0.1")


def has_route(router: Router) -> bool:
    shown = router.compose.running["frr"].run("vtysh", "-c", "show ip route 10.9.0.0/24")
    return "10.2.0.2, via eth2" in shown


def test_health_checks_fail_without_a_switch(router: Router) -> None:
    router.compose.running.pop("switch").stop()
    wait_until(lambda: not router.compose.healthy("controller"), 30, "the health check to fail")
    assert not router.passes("10.1.0.2")
    router.compose.start("switch")
    wait_until(lambda: router.compose.healthy("controller"), 60, "the controller to be healthy")
    wait_until(lambda: router.passes("10.1.0.2", "10.9.0.1"), 30, "FRR's route again")
    assert not router.passes("10.1.0.3", "10.9.0.1")


def test_the_switch_can_have_an_engine_inside(router: Router) -> None:
    before = router.compose.running.pop("switch")
    before.stop()
    options = f"{before.environment['SWITCH_OPTIONS']} --engine-port 9@/run/sluice/engine.sock"
    router.compose.services["switch"]["environment"] = {"SWITCH_OPTIONS": options}
    switch = router.compose.start("switch")
    show = partial(switch.run, "sluice-switch", "ctl", "esp", "show", check=False)
    wait_until(lambda: "port: " in show(), 30, "the engine to answer")
    paths = ("/var/lib/sluice-switch", "/run/sluice/engine.sock")
    assert switch.run("stat", "-c", "%U %a", *paths).split("\n")[:2] == ["sluice 700", "sluice 600"]
    wait_until(lambda: router.passes("10.1.0.2"), 60, "the switch to be programmed")
    assert not router.passes("10.1.0.3")


def legs(sites: Compose, prefix: str) -> int:
    """Returns the number of next hops by which the switch of r1 reaches a prefix."""
    shown = json.loads(sites.running["r1-controller"].run("sluice", "show", "routes", "--json"))
    return sum(len(route["nexthops"]) for route in shown if route["prefix"] == prefix)


def test_two_sites_reach_each_other(lab: Lab) -> None:
    sites = Compose(DOCKER / "two-sites" / "compose.yaml", lab)
    sites.up()
    try:
        for service in sites.services:
            if "healthcheck" in sites.services[service]:
                wait_until(partial(sites.healthy, service), 60, f"{service} to be healthy")
        for target in ("10.2.0.2", "2001:db8:2::2"):
            ping = partial(sites.running["h1"].succeeds, "ping", "-c1", "-W1", target)
            wait_until(ping, 60, f"h1 to reach {target}")
        wait_until(lambda: legs(sites, "10.2.0.0/24") == 2, 30, "a route by both transit routers")
    finally:
        sites.down()


DEMO = """
services:
  demo: {image: localhost/sluice-lab, network_mode: none, privileged: true}
"""


def test_the_demo_runs_in_one_container(lab: Lab) -> None:
    lone = Compose(DOCKER / "lab" / "none", lab, text=DEMO)
    lone.up()
    try:
        demo = lone.running["demo"].process
        assert demo.wait(300) == 0, demo.log()
        assert "demo passed" in demo.log()
        assert "protected, seen in clear on the wire or by h2: 0" in demo.log()
    finally:
        lone.down()
