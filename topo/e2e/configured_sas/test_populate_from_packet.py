# SPDX-License-Identifier: Apache-2.0
"""Tests rules with `from_packet`: under one rule, each pair of hosts has SAs of its own.

h1 and h3 have three addresses each. The rules are committed in front of the others, and removed
after the test. If the target is sluice-switch, r3's engine is inside its switch. After each test,
all frames that the routers sent to t are checked: none may be in clear.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit.wait import wait_until
from sluice_topo import probes

from ..engine.network import LinkCaptures
from ..engine.test_protected_traffic import COUNT, PATTERN, numbers
from ..protected.network import SOON
from .network import ALGORITHM, Sites, inbound, outbound

NEAR, FAR = "10.1.0.0/24", "10.3.0.0/24"
PAIRS = {
    "a": ("10.1.0.2", "10.3.0.2"),
    "b": ("10.1.0.12", "10.3.0.12"),
    "c": ("10.1.0.13", "10.3.0.13"),
}
SPIS = {"a": (0x1A03, 0x3A01), "b": (0x1B03, 0x3B01), "c": (0x1C03, 0x3C01)}
"""For each pair: the SPI from r1 to r3, and the SPI from r3 to r1."""
STRAY = 0x3D01
LISTS = (
    ("r1", "to-spoke3", "outbound", "spoke3", NEAR, FAR),
    ("r1", "to-spoke3", "inbound", "spoke3", FAR, NEAR),
    ("r3", "wan", "outbound", "hub", FAR, NEAR),
    ("r3", "wan", "inbound", "hub", NEAR, FAR),
)


@pytest.fixture
def pairs(sites: Sites) -> Iterator[ExitStack]:
    """Adds addresses and rules. After the test, removes them, and the SAs that the test has
    registered with the yielded ExitStack.
    """
    with ExitStack() as stack:
        for host, end in (("h1", 0), ("h3", 1)):
            place = sites.network.hosts[host].namespace
            for pair in ("b", "c"):
                change = f"{PAIRS[pair][end]}/24", "dev", "eth0"
                place.run("ip", "address", "add", *change)
                stack.callback(place.run, "ip", "address", "del", *change)
        for router, spd, direction, bundle, source, destination in LISTS:
            rule = {
                "name": "pairs",
                "action": "protect",
                "bundle": bundle,
                "source": source,
                "destination": destination,
                "from_packet": ["source", "destination"],
            }
            sites.sluice(router, "spd", "add", spd, direction, json.dumps(rule), "--first")
            stack.callback(sites.sluice, router, "spd", "delete", spd, direction, "pairs")
        yield stack


def add(sites: Sites, stack: ExitStack, pair: str) -> None:
    """Adds the four SAs of a pair, at the receivers first."""
    there, back = SPIS[pair]
    near, far = PAIRS[pair]
    to_far, to_near = {"source": near, "destination": far}, {"source": far, "destination": near}
    for number, spi, traffic, from_, to in (
        (13, there, to_far, ("r1", "spoke3"), ("r3", "hub")),
        (31, back, to_near, ("r3", "hub"), ("r1", "spoke3")),
    ):
        name = f"{pair}-{number}"
        more: dict[str, Any] = {"name": name, "spi": spi, "traffic": traffic}
        for (router, bundle), make in ((to, inbound), (from_, outbound)):
            path = sites.engines[router].key_file(name, ALGORITHM[number])
            sa = make(number, bundle, path) | more
            sites.sluice(router, "sa", "add", sites.file_of(router, sa))
            stack.callback(_delete, sites, router, name, spi)


def _delete(sites: Sites, router: str, name: str, spi: int) -> None:
    if sites.state(router, name, spi) is not None:
        sites.sluice(router, "sa", "del", name)


def ping(sites: Sites, pair: str, *options: str) -> probes.Ping:
    """Pings from the near host of a pair to the far one."""
    near, far = PAIRS[pair]
    words = ("-I", near, "-l", str(COUNT), "-p", PATTERN.hex(), *options)
    place = sites.network.hosts["h1"].namespace
    return probes.ping(place, far, count=COUNT, interval=1.0, size=100, options=words)


def used(wires: LinkCaptures) -> set[int]:
    """Returns the SPIs of the ESP packets that r1 has sent to t towards r3."""
    return {spi for spi, _ in numbers(wires.esp("eth2"))}


def wanted(sites: Sites) -> list[dict[str, Any]]:
    """Returns the traffic for which r1's audit log says that an SA is wanted."""
    path = Path(sites.router("r1").controller.config["state_dir"]) / "audit.log"
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [line["traffic"] for line in lines if line["event"] == "sa wanted"]


def test_each_pair_of_hosts_has_its_own_sa(
    sites: Sites, wires: LinkCaptures, pairs: ExitStack
) -> None:
    """Two pairs of hosts use two SAs of one rule. A third pair gets neither of them, nor the SA of
    the whole bundle: its packets are dropped as NO_SA, and the audit log names the wanted SA.
    """
    for pair in ("a", "b"):
        add(sites, pairs, pair)
    for pair in ("a", "b"):
        before = used(wires)
        seen = ping(sites, pair)
        assert seen.lost == 0, seen.output
        assert used(wires) - before == {SPIS[pair][0]}
    drops, before = sites.drops("r1", "NO_SA"), used(wires)
    assert ping(sites, "c", *SOON).received == 0
    assert sites.drops("r1", "NO_SA") - drops >= COUNT
    assert used(wires) == before
    traffic = dict(zip(("source", "destination"), PAIRS["c"], strict=True))
    wait_until(lambda: traffic in wanted(sites), 10, "the wanted SA to be reported")
    # When the SA is added, the cached flow to the bundle without an SA is deleted.
    add(sites, pairs, "c")
    seen = ping(sites, "c")
    assert seen.lost == 0, seen.output
    assert used(wires) - before == {SPIS["c"][0]}


def test_a_pair_whose_sa_is_deleted_gets_no_other(
    sites: Sites, wires: LinkCaptures, pairs: ExitStack
) -> None:
    """If the SA of a pair is deleted while it is in use, the packets of this pair are dropped.
    Packets of the other pair pass.
    """
    for pair in ("a", "b"):
        add(sites, pairs, pair)
        assert ping(sites, pair).lost == 0
    sites.sluice("r1", "sa", "del", "a-13")
    drops, before = sites.drops("r1", "NO_SA"), len(wires.esp("eth2"))
    assert ping(sites, "a", *SOON).received == 0
    assert sites.drops("r1", "NO_SA") - drops >= COUNT
    assert len(wires.esp("eth2")) == before
    assert ping(sites, "b").lost == 0


def test_an_sa_accepts_no_packets_of_another_pair(
    sites: Sites, wires: LinkCaptures, pairs: ExitStack
) -> None:
    """If a peer sends the packets of one pair by the SA of another pair, the receiver decrypts and
    drops them as INBOUND_WRONG_SA.
    """
    add(sites, pairs, "a")
    add(sites, pairs, "b")
    assert ping(sites, "b").lost == 0
    near, far = PAIRS["b"]
    path = sites.engines["r3"].key_file("stray", ALGORITHM[31])
    there = sites.engines["r1"].key_file("stray", ALGORITHM[31])
    of_a = {"source": PAIRS["a"][1], "destination": PAIRS["a"][0]}
    of_b = {"source": far, "destination": near}
    # r3 sends by its newest SA for pair b. At r1, the same SA is configured for pair a.
    for router, sa in (
        ("r1", inbound(31, "spoke3", there) | {"traffic": of_a}),
        ("r3", outbound(31, "hub", path) | {"traffic": of_b}),
    ):
        stray = sa | {"name": "stray", "spi": STRAY}
        sites.sluice(router, "sa", "add", sites.file_of(router, stray))
        pairs.callback(_delete, sites, router, "stray", STRAY)
    drops = sites.drops("r1", "INBOUND_WRONG_SA")
    assert ping(sites, "b", *SOON).received == 0
    assert sites.drops("r1", "INBOUND_WRONG_SA") - drops >= COUNT
    assert STRAY in {spi for spi, _ in numbers(wires.esp("eth4"))}


def test_pairs_keep_their_sas_over_a_restart(
    sites: Sites, wires: LinkCaptures, pairs: ExitStack
) -> None:
    """A controller that is killed and started again gives each pair the SA that it had."""
    for pair in ("a", "b"):
        add(sites, pairs, pair)
        assert ping(sites, pair).lost == 0
    controller = sites.router("r1").controller
    controller.kill()
    controller.start()
    for pair in ("b", "a"):
        wait_until(
            lambda pair=pair: sites.state("r1", f"{pair}-13", SPIS[pair][0]) == "in use",  # type: ignore[misc]
            20,
            "the SA to be in use",
        )
        before = len(wires.esp("eth2"))
        assert ping(sites, pair).lost == 0
        later = {spi for spi, _ in numbers(wires.esp("eth2")[before:])}
        assert later == {SPIS[pair][0]}
    drops = sites.drops("r1", "NO_SA")
    assert ping(sites, "c", *SOON).received == 0
    assert sites.drops("r1", "NO_SA") - drops >= COUNT
