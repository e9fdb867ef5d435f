# SPDX-License-Identifier: Apache-2.0
"""Tests what limits a tunnel's path MTU: links, and ICMP errors that came inside the tunnel. Also
tests ESP in fragments.

After each test, all frames that the routers sent to t are checked: none may be in clear.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from sluice_testkit.packet import ICMP
from sluice_testkit.wait import wait_until
from sluice_topo import probes

from ..engine.network import LinkCaptures
from ..frames import ethernet, inject
from ..packets import icmp, ipv4
from ..protected.network import ELSEWHERE, R1_TO_T, SOON, ProtectedNetwork, flush_path_mtu
from .network import ALGORITHM, NAMES, Sites, inbound, outbound
from .test_configured_sas import current, in_use, where_lost

OVERHEAD = 57
"""Largest overhead of AES-128-GCM in bytes, in a tunnel over IPv4."""
LOCAL, REMOTE = "10.0.12.1", "10.0.20.1"
ESP, IPV4, FRAGMENTATION_NEEDED = 50, 0x0800, (3, 4)
R2_TO_H2 = "02:00:00:00:02:01"
NARROW = 1400


def path_mtu(sites: Sites) -> dict[str, Any]:
    """Returns the path MTU of the tunnel from r1 to r2, as in `sluice sa list`."""
    sa = sites.sas("r1")[NAMES[12], current(sites, "r1", 12)]
    return dict(sa["path_mtu"])


def ping(sites: Sites, size: int, *options: str, count: int = 1, to: str = "h2") -> probes.Ping:
    """Pings from h1 to another site. `size` is the length of the IP packet."""
    hosts = sites.network.hosts
    place, address = hosts["h1"].namespace, hosts[to].address(4)
    return probes.ping(place, address, count=count, size=size - 28, options=options)


def takes(sites: Sites, wires: LinkCaptures, wire: str, mtu: int) -> None:
    """Checks that the tunnel carries packets up to a path MTU of `mtu`.

    A packet is not fragmented if its ESP packet has exactly this length. If the ESP packet would be
    longer, a packet with DF gets an ICMP error and is not encrypted. A packet without DF is
    fragmented before encryption.
    """
    h1, room = sites.network.hosts["h1"].namespace, mtu - OVERHEAD
    flush_path_mtu(h1)
    seen = ping(sites, room, "-M", "do")
    assert seen.lost == 0, f"{seen.output}\n{where_lost(sites)}"
    before = len(wires.esp(wire))
    told = ping(sites, room + 1, "-M", "do", *SOON)
    assert told.received == 0
    assert f"mtu={room}" in told.output.replace(" ", ""), told.output
    assert len(wires.esp(wire)) == before, "the ICMP error comes before the packet is encrypted"
    flush_path_mtu(h1)
    seen = ping(sites, 1500, "-M", "dont")
    assert seen.lost == 0, f"{seen.output}\n{where_lost(sites)}"
    lengths = [len(frame.data) - 14 for frame in wires.esp(wire)]
    assert max(lengths) == mtu
    assert not any(frame.is_fragment for frame in wires.esp(wire))
    flush_path_mtu(h1)


def test_the_link_that_leads_to_the_peer_bounds_it(sites: Sites, wires: LinkCaptures) -> None:
    """The path MTU is the MTU of the link that ESP takes to the peer. The inner packets' route uses
    another link, which does not limit it.
    """
    router = sites.router("r1")
    unbounded = {"bytes": 1500, "interface": None, "told_by": None, "forgotten_in": None}
    assert path_mtu(sites) == unbounded
    router.namespace.run("ip", "link", "set", "eth3", "mtu", str(NARROW))
    router.frr.configure(f"ip route {REMOTE}/32 10.0.13.2")
    try:
        bounded = unbounded | {"bytes": NARROW, "interface": "eth3"}
        wait_until(lambda: path_mtu(sites) == bounded, 10, "the link to limit the path MTU")
        assert f"path MTU {NARROW:,} (eth3)" in sites.sluice("r1", "sa", "list")
        takes(sites, wires, "eth2", NARROW)
        router.namespace.run("ip", "link", "set", "eth3", "mtu", "1450")
        wait_until(lambda: path_mtu(sites)["bytes"] == 1450, 10, "the link to take more")
    finally:
        router.frr.configure(f"no ip route {REMOTE}/32 10.0.13.2")
        router.namespace.run("ip", "link", "set", "eth3", "mtu", "1500")
    wait_until(lambda: path_mtu(sites) == unbounded, 10, "the old path MTU to apply again")


def error(sites: Sites, source: str, mtu: int, spi: int | None = None) -> bytes:
    """Returns an ICMP error (fragmentation needed) that quotes an ESP packet of the tunnel from r1
    to r2.
    """
    header = (spi or current(sites, "r1", 12)).to_bytes(4, "big") + (1).to_bytes(4, "big")
    about = ipv4(LOCAL, REMOTE, ESP, header + bytes(1472))[:28]
    return ipv4(source, LOCAL, ICMP, icmp(*FRAGMENTATION_NEEDED, mtu, about))


def counted(sites: Sites, group: str, name: str) -> int:
    """Returns a counter of r1's controller."""
    counters = sites.router("r1").controller.ask(command="show", what="counters")
    return int(counters["controller"][group].get(name, 0))


def one_more(sites: Sites, group: str, name: str, happens: Callable[[], None]) -> None:
    """Calls `happens`, and checks that it increments the counter by one."""
    now = partial(counted, sites, group, name)
    before = now()
    happens()
    wait_until(lambda: now() == before + 1, 10, f"{group}: {name}")


def in_clear(sites: Sites, packet: bytes) -> None:
    """Injects a clear packet on the link from t to r1."""
    inject(sites.between, "eth1", ethernet(R1_TO_T, ELSEWHERE, IPV4, packet))


def protected(sites: Sites, packet: bytes) -> None:
    """Sends a packet from h2 to r2, which sends it on through the tunnel."""
    place = sites.network.hosts["h2"].namespace
    inject(place, "eth0", ethernet(R2_TO_H2, ELSEWHERE, IPV4, packet))


@pytest.mark.parametrize("is_let_in", [False, True], ids=["refused", "let in by a rule"])
def test_an_error_in_clear_is_counted_and_changes_nothing(sites: Sites, is_let_in: bool) -> None:
    """An ICMP error in clear does not change the path MTU, even if a rule lets the error pass."""
    walks = ProtectedNetwork(sites.network, {}, {}, sites.directory)
    rules = ["{name: errors, action: bypass, protocol: icmp, icmp: 3/4}"] if is_let_in else []
    group, name = "first_packets", "ICMP errors in clear refused"
    if is_let_in:
        group, name = "path_mtu_errors", "refused: came in clear"
    before = path_mtu(sites)
    with walks.amended("r1", "to-spoke2", {"inbound": rules}):
        forged = error(sites, "10.0.12.2", 576)
        one_more(sites, group, name, partial(in_clear, sites, forged))
    assert path_mtu(sites) == before
    assert before["bytes"] == 1500


def test_an_error_inside_the_tunnel_lowers_it_and_never_raises_it(
    sites: Sites, wires: LinkCaptures
) -> None:
    """An ICMP error inside the tunnel lowers the path MTU if rules admit the error. It never raises
    the path MTU.
    """
    walks = ProtectedNetwork(sites.network, {}, {}, sites.directory)
    sent = f"protocol: icmp, source: 10.2.0.0/16, destination: {LOCAL}"
    sends = f"{{name: errors, action: protect, bundle: hub, {sent}}}"
    takes_in = f"{{name: errors, action: protect, bundle: spoke2, {sent}}}"
    host = sites.network.hosts["h2"].address(4)
    tells = partial(one_more, sites, "path_mtu_errors")
    with walks.amended("r2", "wan", {"outbound": [sends]}):
        refused = "dropped: policy discards inbound"
        before = counted(sites, "first_packets", refused)
        protected(sites, error(sites, host, NARROW))
        wait_until(
            lambda: counted(sites, "first_packets", refused) > before,
            10,
            "the error to be refused without a rule",
        )
        assert path_mtu(sites)["bytes"] == 1500
        with walks.amended("r1", "to-spoke2", {"inbound": [takes_in]}):
            one_more(
                *(sites, "path_mtu_errors", "path MTUs told"),
                lambda: protected(sites, error(sites, host, NARROW)),
            )
            found = path_mtu(sites)
            assert (found["bytes"], found["told_by"]) == (NARROW, host)
            assert 500 < found["forgotten_in"] <= 600
            assert f"told by {host}" in sites.sluice("r1", "sa", "list")
            takes(sites, wires, "eth1", NARROW)
            tells(
                "refused: tells no less than is known",
                lambda: protected(sites, error(sites, host, 1450)),
            )
            tells("path MTUs told", lambda: protected(sites, error(sites, host, 68)))
            assert path_mtu(sites)["bytes"] == 1280 + OVERHEAD, (
                "the path MTU never falls below IPv6's minimum MTU"
            )
    controller = sites.router("r1").controller
    controller.kill()
    controller.start()
    wait_until(lambda: path_mtu(sites)["bytes"] == 1500, 20, "the error to be forgotten")


def reassembled(sites: Sites, router: str) -> int:
    """Returns the number of ESP packets that a spoke's engine has reassembled."""
    return int(sites.engines[router].all[0].status()["others"].get("reassembled", 0))


@pytest.mark.parametrize(
    ("number", "wire", "df"), [(12, "eth1", "clear"), (13, "eth2", "set")], ids=["ipv4", "ipv6"]
)
def test_after_encryption_esp_is_fragmented_as_the_sa_says(
    sites: Sites, wires: LinkCaptures, number: int, wire: str, df: str
) -> None:
    """If an SA fragments after encryption, inner packets as long as the link's MTU pass, even with
    DF.

    The spoke's engine reassembles their ESP packets.
    """
    spoke, algorithm = NAMES[number][-2:], ALGORITHM[number]
    name, spi, host = f"in-parts-{spoke}", 0x1AAA + number, spoke.replace("r", "h")
    keys = {router: sites.engines[router].key_file(name, algorithm) for router in ("r1", spoke)}
    ends = {"name": name, "spi": spi}
    after = {"df": df, "fragmentation": "after", "engine": 1}
    with ExitStack() as stack:
        sa = inbound(number, "hub", keys[spoke]) | ends
        sites.sluice(spoke, "sa", "add", sites.file_of(spoke, sa))
        stack.callback(sites.sluice, spoke, "sa", "del", name)
        sa = outbound(number, spoke.replace("r", "spoke"), keys["r1"]) | ends | after
        sites.sluice("r1", "sa", "add", sites.file_of("r1", sa))
        stack.callback(sites.sluice, "r1", "sa", "del", name)
        wait_until(partial(in_use, sites, "r1", name, spi), 10, "the SA to be in use")
        assert sites.sas("r1")[name, spi]["path_mtu"] is None
        before = reassembled(sites, spoke)
        seen = ping(sites, 1500, "-M", "do", count=5, to=host)
        assert seen.lost == 0, f"{seen.output}\n{where_lost(sites)}"
        assert reassembled(sites, spoke) == before + 5
        sealed = wires.esp(wire)
        assert len([frame for frame in sealed if frame.is_fragment]) == 10
        assert max(len(frame.data) for frame in sealed) <= 14 + 1500
    seen = ping(sites, 100, to=host)
    assert seen.lost == 0, f"{seen.output}\n{where_lost(sites)}"
