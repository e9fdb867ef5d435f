# SPDX-License-Identifier: Apache-2.0
"""Tests SAs from the configuration: installation, rekeying, expiry, the move to another engine, and
their return after each kind of restart.

After each test, all frames that the routers sent to t are checked: none may be in clear.
"""

import json
import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from sluice_testkit import where
from sluice_testkit.capture import Capture
from sluice_testkit.packet import ICMP, ICMPV6
from sluice_testkit.pages import Command, Shown
from sluice_testkit.process import CommandFailed, run
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.traffic import UdpFlows

from ..engine.network import LinkCaptures
from ..engine.test_protected_traffic import COUNT, PATTERN, numbers
from ..protected.network import SOON
from .network import NAMES, SPARE, SPARE_SPI, Sites, inbound, outbound

VERSIONS = pytest.mark.parametrize("version", [4, 6])


def ping(sites: Sites, source: str, to: str, version: int, *options: str) -> probes.Ping:
    """Pings from host to host. Sends all requests at once."""
    hosts = sites.network.hosts
    words = ("-l", str(COUNT), "-p", PATTERN.hex(), *options)
    place, address = hosts[source].namespace, hosts[to].address(version)
    return probes.ping(place, address, count=COUNT, interval=1.0, size=100, options=words)


def passes(sites: Sites, source: str, to: str, version: int = 4) -> None:
    """Checks that all pings from host to host are answered."""
    seen = ping(sites, source, to, version)
    assert seen.lost == 0, f"{seen.output}\n{where_lost(sites)}"


def where_lost(sites: Sites) -> str:
    """Returns each router's SAs, drops and problems, for an error message."""
    lines = []
    for name in sites.engines:
        counters = sites.router(name).controller.ask(command="show", what="counters")
        drops = {k: v["packets"] for k, v in counters["switch_drops"].items() if v["packets"]}
        lines.append(f"{name}: {sites.sluice(name, 'sa', 'list')} switch {drops}")
        lines.append(sites.problems(name))
    return "\n".join(lines)


def in_use(sites: Sites, router: str, name: str, spi: int) -> bool:
    return sites.state(router, name, spi) == "in use"


def serves(sites: Sites, router: str, number: int, spi: int) -> None:
    """Waits until a router uses this SA."""
    wait_until(
        partial(in_use, sites, router, NAMES[number], spi), 20, f"{NAMES[number]} at {router}"
    )


def current(sites: Sites, router: str, number: int) -> int:
    """Returns the SPI of a tunnel's SA that is in use at a router."""
    (spi,) = (
        spi
        for (name, spi), sa in sites.sas(router).items()
        if name == NAMES[number] and sa["state"] == "in use"
    )
    return spi


@VERSIONS
@pytest.mark.parametrize(("to", "wire"), [("h2", "eth1"), ("h3", "eth2")], ids=["ipv4", "ipv6"])
def test_sites_are_protected(
    sites: Sites, wires: LinkCaptures, version: int, to: str, wire: str
) -> None:
    """If the SAs come from the configuration, the links between the routers carry the hosts'
    packets only as ESP, and the hosts get cleartext.
    """
    with Capture(sites.network.hosts[to].namespace, "eth0") as arriving:
        passes(sites, "h1", to, version)
        echo = {4: ICMP, 6: ICMPV6}[version]
        clear = arriving.frames(lambda frame: frame.protocol == echo and PATTERN in frame.data)
        assert len([frame for frame in clear if not frame.outgoing]) == COUNT
    assert len(wires.esp(wire)) == COUNT
    assert not any(PATTERN in frame.data for frame in wires.sent(wire))


def test_what_is_listed(sites: Sites) -> None:
    """Checks that `sluice sa list` shows each SA with its bundle, state and counters. The SA of the
    second engine has the state standby.
    """
    before = sites.sas("r1")[NAMES[12], 0x1002]["packets"]  # as of the controller's last query
    passes(sites, "h1", "h2")

    def counted() -> bool:
        return bool(sites.sas("r1")[NAMES[12], 0x1002]["packets"] >= before + COUNT)

    wait_until(counted, 10, "the engine's counts to be read")
    sas = sites.sas("r1")
    assert {name: sa["state"] for (name, _), sa in sas.items()} == {
        NAMES[12]: "in use",
        NAMES[21]: "in use",
        NAMES[13]: "in use",
        NAMES[31]: "in use",
        SPARE: "standby",
    }
    assert sas[SPARE, SPARE_SPI]["engine"] == 2
    assert "SA" not in sites.problems("r1")
    text = sites.sluice("r1", "sa", "list", "--bundle", "spoke2")
    assert "0x1002" in text
    assert "0x1003" not in text
    metrics = sites.sluice("r1", "metrics")
    labels = 'sa="r1-to-r2",bundle="spoke2",direction="outbound",spi="0x1002"'
    assert f'sluice_sa_packets_total{{router="r1",{labels}}}' in metrics
    assert 'sluice_esp_engine_up{router="r1",engine="2"} 1' in metrics


def test_an_sa_that_expires_ends_in_drops_by_name(sites: Sites, wires: LinkCaptures) -> None:
    """After an SA has reached its hard limit of packets, no packet leaves, neither in ESP nor in
    clear.
    """
    keys = sites.engines["r1"]
    path, there = keys.key_file("short"), sites.engines["r2"].key_file("short")
    short = {"name": "short", "spi": 0x1777}
    begin = inbound(12, "hub", there) | short
    sites.sluice("r2", "sa", "add", sites.file_of("r2", begin))
    more = outbound(12, "spoke2", path, soft={"packets": COUNT}, hard={"packets": 2 * COUNT})
    sites.sluice("r1", "sa", "add", sites.file_of("r1", more | short | {"engine": 1}))
    assert in_use(sites, "r1", "short", 0x1777), "the newest SA is in use"
    passes(sites, "h1", "h2")
    wait_until(lambda: "soft limit" in sites.problems("r1"), 10, "the soft limit to be reported")
    passes(sites, "h1", "h2")
    with ExitStack() as stack:
        stack.callback(sites.restore_configured, "r1")
        stack.callback(sites.sluice, "r2", "sa", "del", "short")
        stack.callback(sites.sluice, "r1", "sa", "del", "short")
        # Without the configured SAs, no other SA can replace the expired one.
        sites.without_configured("r1", "spoke2")
        before = sites.drops("r1", "NO_SA")
        seen = ping(sites, "h1", "h2", 4, *SOON)
        assert seen.received == 0, "the engine ends the SA after exactly its limit of packets"
        wait_until(lambda: sites.state("r1", "short", 0x1777) == "expired", 10, "the SA to expire")
        assert "expired" in sites.problems("r1")
        ping(sites, "h1", "h2", 4, *SOON)
        assert sites.drops("r1", "NO_SA") - before >= COUNT
    passes(sites, "h1", "h2")
    again = sites.file_of("r1", outbound(12, "spoke2", path) | {"name": "short", "spi": 0x1778})
    with pytest.raises(CommandFailed, match="hard limit"):
        sites.sluice("r1", "sa", "add", again)


def test_a_rekey_in_mid_transfer_loses_nothing(sites: Sites, wires: LinkCaptures) -> None:
    """Two rekeys of the SA in each direction lose no packet. The old SAs are deleted
    automatically.
    """
    hosts = sites.network.hosts
    with UdpFlows(hosts["h1"], hosts["h2"]) as there, UdpFlows(hosts["h2"], hosts["h1"]) as back:
        for number, spis in ((12, (0x1112, 0x1212)), (21, (0x2121, 0x2221))):
            for spi in spis:
                there.wait_for_more(100)
                back.wait_for_more(100)
                sites.rekey(number, spi)
                from_ = NAMES[number][:2]
                serves(sites, from_, number, spi)
        there.wait_for_more(250)
        outcomes = there.stop(), back.stop()
    assert [one.lost for one in outcomes] == [0, 0], f"{outcomes}\n{where_lost(sites)}"
    used = {spi for spi, _ in numbers(wires.esp("eth1"))}
    assert used == {0x1002, 0x1112, 0x1212}

    def only_the_new() -> bool:
        listed = {spi for router in ("r1", "r2") for _, spi in sites.sas(router)}
        return listed & {0x1002, 0x1112, 0x2001, 0x2121} == set()

    wait_until(only_the_new, 40, "the old SAs to be deleted")

    def only_the_new_in_engines() -> bool:
        held = {
            sa["spec"]["spi"]
            for router in ("r1", "r2")
            for sa in sites.engines[router].all[0].status()["sas"]
        }
        return held & {0x1002, 0x1112, 0x2001, 0x2121} == set()

    wait_until(only_the_new_in_engines, 20, "the engines to delete the old SAs")
    passes(sites, "h1", "h2")


@pytest.mark.executes("docs/how-to/protect.md")
def test_the_commands_of_the_page(sites: Sites, shown: Shown, tmp_path: Path) -> None:
    """The commands of docs/how-to/protect.md work: they generate keys, list SAs, and rekey an SA at
    both ends.
    """
    keys = tmp_path / "keys"

    def typed(router: str, command: Command) -> str:
        controller = sites.router(router).controller
        text = command.text.replace("/etc/sluice/keys", str(keys))
        script = f"export PATH={where.sluice().parent}:$PATH SLUICE_SOCKET={controller.socket}"
        return str(run(["bash", "-euo", "pipefail", "-c", f"{script}\n{text}"]).stdout)

    typed("r1", shown.take("mkdir"))
    for _ in range(2):
        typed("r1", shown.take("(umask"))
    assert {path.stat().st_mode & 0o777 for path in keys.iterdir()} == {0o600}
    assert re.search(r"^r1-to-r2 .* in use", typed("r1", shown.take("sluice sa list")), re.M)
    assert "synced" in typed("r1", shown.take("sluice show status"))
    (keys / "r1-to-r2").rename(keys / "r1-to-r2.2")
    hosts = sites.network.hosts
    with UdpFlows(hosts["h1"], hosts["h2"]) as traffic:
        for router in ("r2", "r1"):
            traffic.wait_for_more(50)
            typed(router, shown.take("sluice sa rekey"))
        serves(sites, "r1", 12, 0x1F02)
        traffic.wait_for_more(100)
        outcome = traffic.stop()
    assert outcome.lost == 0, where_lost(sites)


def test_a_killed_engine_is_seen_and_mended(sites: Sites, wires: LinkCaptures) -> None:
    """While its engine is dead, a router drops packets as NO_ENGINE. A restarted engine gets its
    SAs back.

    No sequence number is used twice.
    """
    engine = sites.engines["r2"].all[0]
    passes(sites, "h1", "h2")
    before = sites.drops("r2", "NO_ENGINE")
    engine.kill()
    try:
        wait_until(lambda: "does not answer" in sites.problems("r2"), 10, "the death to be seen")
        assert ping(sites, "h2", "h1", 4, *SOON).received == 0
        assert sites.drops("r2", "NO_ENGINE") - before >= COUNT
    finally:
        engine.start()
    serves(sites, "r2", 21, current_spi(sites, "r2", 21))
    passes(sites, "h2", "h1")
    sealed = numbers(wires.esp("eth3"))
    assert len(sealed) == len(set(sealed))


def current_spi(sites: Sites, router: str, number: int) -> int:
    """Returns the largest SPI of a tunnel's SAs at a router, in any state."""
    return max(spi for name, spi in sites.sas(router) if name == NAMES[number])


def test_a_bundle_moves_to_another_engine(sites: Sites, wires: LinkCaptures) -> None:
    """If a bundle's engine dies, the bundle's standby SA on the other engine takes over.

    The other engine does not use the key of the dead engine.
    """
    engine, spi = sites.engines["r1"].all[0], current(sites, "r1", 12)
    passes(sites, "h1", "h2")
    engine.kill()
    try:
        wait_until(partial(in_use, sites, "r1", SPARE, SPARE_SPI), 20, "the bundle to move")
        assert sites.sas("r1")[NAMES[12], spi]["state"] in ("waiting", "rekey needed")
        wait_until(
            lambda: sites.sas("r1")[NAMES[21], current_spi(sites, "r1", 21)]["engine"] == 2,
            20,
            "the inbound SA to move",
        )
        passes(sites, "h1", "h2")
    finally:
        engine.start()
    serves(sites, "r1", 12, spi)
    passes(sites, "h1", "h2")
    sealed = numbers(wires.esp("eth1"))
    assert len(sealed) == len(set(sealed))


def test_a_controller_that_restarts_disturbs_nobody(sites: Sites) -> None:
    hosts, router = sites.network.hosts, sites.router("r1")
    before = sites.sas("r1")
    with UdpFlows(hosts["h1"], hosts["h2"]) as traffic:
        traffic.wait_for_more(100)
        router.controller.kill()
        router.controller.start()
        traffic.wait_for_more(250)
        outcome = traffic.stop()
    assert outcome.lost == 0, f"{outcome}\n{where_lost(sites)}"
    after = sites.sas("r1")
    assert {key: one["number"] for key, one in before.items()} == {
        key: one["number"] for key, one in after.items()
    }


def test_a_rekey_survives_restarts_of_controllers_between_its_ends(
    sites: Sites, wires: LinkCaptures
) -> None:
    """A rekey completes although both controllers are killed twice: after the receiver's and after
    the sender's rekey.
    """
    hosts, spi = sites.network.hosts, 0x1E12
    label = f"{NAMES[12]}-{spi:x}"
    with UdpFlows(hosts["h1"], hosts["h2"]) as traffic:
        traffic.wait_for_more(100)
        for router in ("r2", "r1"):
            path = sites.engines[router].key_file(label)
            words = ("--spi", f"{spi:#x}", "--key-file", str(path))
            sites.sluice(router, "sa", "rekey", NAMES[12], *words)
            for restarted in ("r1", "r2"):
                sites.router(restarted).controller.kill()
                sites.router(restarted).controller.start()
        serves(sites, "r1", 12, spi)
        traffic.wait_for_more(100)
        outcome = traffic.stop()
    assert outcome.lost == 0, f"{outcome}\n{where_lost(sites)}"
    assert spi in {one for one, _ in numbers(wires.esp("eth1"))}


def test_an_engine_that_lost_its_reserve_refuses_until_a_rekey(
    sites: Sites, wires: LinkCaptures
) -> None:
    """An engine that has lost its file of reserved sequence numbers refuses the old key and drops
    packets.

    After a rekey, packets pass again.
    """
    engine = sites.engines["r2"].all[0]
    passes(sites, "h2", "h1")
    old = current(sites, "r2", 21)
    engine.kill()
    engine.forget()
    engine.start()
    wait_until(
        lambda: sites.state("r2", NAMES[21], old) == "rekey needed", 20, "the key to be refused"
    )
    assert "rekey" in sites.problems("r2")
    before = len(wires.esp("eth3"))
    assert ping(sites, "h2", "h1", 4, *SOON).received == 0
    assert len(wires.esp("eth3")) == before
    sites.rekey(21, 0x2E21)
    serves(sites, "r2", 21, 0x2E21)
    passes(sites, "h2", "h1")
    sealed = numbers(wires.esp("eth3"))
    assert len(sealed) == len(set(sealed))


def test_a_switch_that_restarts_gets_its_sas(sites: Sites) -> None:
    router = sites.router("r2")
    router.target.kill()
    router.target.start()
    router.controller.wait_synced(60)
    wait_until(lambda: ping(sites, "h1", "h2", 4, *SOON).lost == 0, 60, "the sites to be joined")


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        ("00", 0o600, "40 hexadecimal digits"),
        ("zz" * 20, 0o600, "hexadecimal digits only"),
        ("00" * 20, 0o644, "chmod 600"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_wrong_key_file_is_refused_and_changes_nothing(
    sites: Sites, tmp_path: Path, content: str | None, mode: int, says: str
) -> None:
    before = sites.sas("r1").keys()
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    sa = outbound(12, "spoke2", path) | {"name": "wrong", "spi": 0x1888}
    for words in (
        ("sa", "add", sites.file_of("r1", sa)),
        ("sa", "rekey", NAMES[12], "--spi", "0x1889", "--key-file", str(path)),
    ):
        with pytest.raises(CommandFailed) as failed:
            sites.sluice("r1", *words)
        assert says in str(failed.value)
        assert "zzzz" not in str(failed.value)
    assert sites.sas("r1").keys() <= before  # an SA of an earlier rekey may be deleted meanwhile


def test_a_key_serves_one_sa_only(sites: Sites) -> None:
    """The controller refuses a key that an SA already uses: for a second SA, and for a rekey of the
    same SA.
    """
    path = sites.engines["r1"].keys / NAMES[13]
    sa = outbound(13, "spoke3", path) | {"name": "again", "spi": 0x1999}
    with pytest.raises(CommandFailed, match="a nonce could be used twice"):
        sites.sluice("r1", "sa", "add", sites.file_of("r1", sa))
    with pytest.raises(CommandFailed, match="a nonce could be used twice"):
        sites.sluice("r1", "sa", "rekey", NAMES[13], "--spi", "0x1999", "--key-file", str(path))


def test_no_key_is_written_anywhere(sites: Sites) -> None:
    """No key appears in a log, in a file of a controller, or in a command's output."""
    texts = [sites.everything_written()]
    for name in sites.engines:
        texts += [sites.sluice(name, "sa", "list", "--json"), sites.sluice(name, "metrics")]
        status = sites.router(name).controller.ask(command="show", what="status")
        texts.append(json.dumps(status))
    text = "\n".join(texts).lower()
    keys = {one for engines in sites.engines.values() for one in engines.told}
    assert len(keys) >= 5
    assert not [one for one in keys if one in text]
