# SPDX-License-Identifier: Apache-2.0
"""Runs the last part of the demo: ESP protects the traffic between the sites, and no packet leaves
in clear.

Captures on the links of r1 count ESP packets, and search all frames for a known cleartext. Captures
at the hosts count the packets that arrive. This part runs after `policy_demo`, on routers with
engines (`esp_sites`).
"""

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sluice_testkit.capture import Capture
from sluice_testkit.esp_engine import ESP
from sluice_testkit.packet import Frame
from sluice_testkit.wait import Timeout, wait_until
from sluice_topo import probes
from sluice_topo.datagrams import Datagrams
from sluice_topo.demo_printer import DemoPrinter, expect
from sluice_topo.esp_sites import BUNDLES, PROTECTED, SPIS, Sites
from sluice_topo.policy_demo import run_sluice
from sluice_topo.spd_control import SpdControl
from sluice_topo.traffic import UdpFlows

SECRET = b"plans of the new office: "
SOURCE_PORT, PORT = 40001, 7100
VERSIONS = (4, 6)
NEW = {"r1-to-r2": 0x1002, "r2-to-r1": 0x2002}
SHORT, LAST = 0x1003, 0x1004
"""SPIs of two SAs from r1 to r2: the one that expires, and its replacement."""
LIFE = 100  # packets


def run(sites: Sites, printer: DemoPrinter) -> None:
    """Runs all steps of this part."""
    printer.part("Protection: r1 and r2 encrypt the traffic between their sites (sluice-esp)")
    both_routers_get_sas(sites, printer)
    what_leaves_is_esp(sites, printer)
    a_rekey_loses_nothing(sites, printer)
    an_sa_expires_into_drops(sites, printer)


class Transit:
    """Captures the links from r1 to the transit routers. Counts ESP packets by SPI, and frames that
    contain SECRET in clear.
    """

    def __init__(self, sites: Sites):
        self._captures = [
            Capture(sites.network.routers[name].namespace, "eth1") for name in ("t1", "t2")
        ]

    def stop(self) -> tuple[Counter[int], int]:
        """Ends the capture.

        Returns r1's ESP packets by SPI, and the number of frames that contain SECRET.
        """
        for capture in self._captures:
            capture.stop()
        frames = [frame for capture in self._captures for frame in capture.frames()]
        from_r1 = [frame for frame in frames if not frame.outgoing and frame.protocol == ESP]
        return Counter(map(spi_of, from_r1)), sum(SECRET in frame.data for frame in frames)


def spi_of(frame: Frame) -> int:
    """Returns the SPI of an ESP packet over IPv4 without options."""
    (spi,) = struct.unpack_from("!I", frame.data, 34)
    return int(spi)


def both_routers_get_sas(sites: Sites, printer: DemoPrinter) -> None:
    """Adds one SA for each direction. Each controller installs them in its engine and its
    switch.
    """
    with printer.step(
        "The controllers install two SAs in engines and switches, with keys from files"
    ):
        for name in SPIS:
            sites.new_key(name)
        for router in BUNDLES:
            sas = [sites.sa(router, name, spi, name) for name, spi in SPIS.items()]
            sites.restart(router, sites.configured(router, sas))
        run_sluice(sites.router("r1"), printer, "spd", "commit", PROTECTED)
        for router in BUNDLES:
            wait_for_states(sites, router, dict.fromkeys(SPIS.values(), "in use"))
        sites.network.wait_for_bgp()
        run_sluice(sites.router("r1"), printer, "sa", "list")


def wait_for_states(sites: Sites, router: str, states: dict[int, str]) -> None:
    """Waits until SAs of a router have these states. The keys of `states` are SPIs."""

    def found() -> bool:
        sas = sites.sas(router)
        return all(sas[spi]["state"] == state for spi, state in states.items() if spi in sas) and (
            sas.keys() >= states.keys()
        )

    wait_until(found, 20, f"{router}'s SAs to be {states}")


def what_leaves_is_esp(sites: Sites, printer: DemoPrinter) -> None:
    """Checks that r1's links carry the hosts' datagrams as ESP packets only, and that all datagrams
    reach h2.
    """
    h1, h2 = sites.network.hosts["h1"], sites.network.hosts["h2"]
    count = 50
    with printer.step("The links to t1 and t2 carry ESP; the hosts receive the cleartext"):
        for version in VERSIONS:
            wait_until(lambda v=version: answered(sites, v), 30, f"IPv{version} to pass")  # type: ignore[misc]
            with Datagrams(
                h1, h2, version, source_port=SOURCE_PORT, destination_port=PORT, mark=SECRET
            ) as flow:
                spis = sites.sending("r1")
                transit = Transit(sites)
                arriving = Capture(h2.namespace, "eth0", lambda frame: SECRET in frame.data)
                flow.exchange(count)
                arriving.stop()
                seen, in_clear = transit.stop()
            at_host = len(arriving.frames())
            carried = {spi: seen[spi] for spi in spis if seen[spi]}
            esp = sum(carried.values())
            expect(esp >= count, f"ESP on the links: {seen}, not {count} by {spis}")
            expect(in_clear == 0, f"{in_clear} packets were in clear on the links")
            expect(at_host == count, f"h2's link saw {at_host} of {count}")
            printer.measure(
                f"IPv{version}: {count} datagrams from h1 to h2",
                f"{esp} ESP packets by SPI {', '.join(map(hex, carried))}, "
                f"{in_clear} in clear, {at_host} at h2",
            )


def answered(sites: Sites, version: int) -> bool:
    """Returns whether h2 answers a ping from h1."""
    hosts = sites.network.hosts
    seen = probes.ping(hosts["h1"].namespace, hosts["h2"].address(version), count=1, interval=0.2)
    return seen.lost == 0


@contextmanager
def traffic_both_ways(sites: Sites) -> Iterator[tuple[UdpFlows, UdpFlows]]:
    """Sends 500 packets per second from each host to the other while the context is open."""
    h1, h2 = sites.network.hosts["h1"], sites.network.hosts["h2"]
    with UdpFlows(h1, h2) as there, UdpFlows(h2, h1) as back:
        yield there, back


def a_rekey_loses_nothing(sites: Sites, printer: DemoPrinter) -> None:
    """Checks that no packet is lost when the SAs of both directions are rekeyed. For each SA, the
    receiver is rekeyed first.
    """
    with printer.step("A rekey of both directions during a transfer loses no packet"):
        transit = Transit(sites)
        with traffic_both_ways(sites) as (there, back):
            there.wait_for_more(100)
            for name, spi in NEW.items():
                sites.new_key(f"{name}.2")
                sender, _, receiver = name.split("-")
                for router in (receiver, sender):
                    rekey(sites, printer, router, name, spi, f"{name}.2")
                wait_for_states(sites, sender, {spi: "in use"})
            there.wait_for_more(250)
            back.wait_for_more(250)
            outcomes = there.stop(), back.stop()
        seen, _ = transit.stop()
        lost = sum(outcome.lost for outcome in outcomes)
        expect(lost == 0, f"the rekey lost packets: {outcomes}")
        old, new = seen[SPIS["r1-to-r2"]], seen[NEW["r1-to-r2"]]
        expect(old > 0 and new > 0, f"not both SAs carried packets: {seen}")
        printer.say(
            f"from r1: {old} packets by SPI {SPIS['r1-to-r2']:#x}, "
            f"then {new} by SPI {NEW['r1-to-r2']:#x}"
        )
        sent = sum(outcome.sent for outcome in outcomes)
        printer.measure("rekey of both directions: packets lost", f"{lost} of {sent} at 1,000/s")


def rekey(sites: Sites, printer: DemoPrinter, router: str, name: str, spi: int, key: str) -> None:
    """Runs `sluice sa rekey` at one router, and prints the command."""
    words = ["sa", "rekey", name, "--spi", f"{spi:#x}", "--key-file"]
    controller = sites.router(router).controller
    path = str(sites.key_file(router, key))
    controller.command(*words, path, "--socket", str(controller.socket))
    printer.command(f"sluice {' '.join(words)} {key}   # at {router}")


def an_sa_expires_into_drops(sites: Sites, printer: DemoPrinter) -> None:
    """Checks that after an SA's hard limit, packets are dropped as NO_SA, and none leaves in
    clear.
    """
    h1, h2 = sites.network.hosts["h1"], sites.network.hosts["h2"]
    control = SpdControl(sites.router("r1").controller, "wan")
    with printer.step(f"An SA may carry {LIFE} packets; after them, no packet passes"):
        sites.new_key("short")
        for router in ("r2", "r1"):
            sas = [
                sites.sa(router, "r1-to-r2", SHORT, "short", hard={"packets": LIFE}),
                sites.sa(router, "r2-to-r1", NEW["r2-to-r1"], "r2-to-r1.2"),
            ]
            sites.write(router, sas)
            run_sluice(sites.router(router), printer, "reload")
            wait_for_states(sites, router, {SHORT: "in use"})
        wait_until(lambda: NEW["r1-to-r2"] not in sites.sas("r1"), 20, "the old SA to go")
        transit = Transit(sites)
        with Datagrams(h1, h2, source_port=SOURCE_PORT, destination_port=PORT, mark=SECRET) as flow:
            already = sites.sas("r1")[SHORT]["packets"] or 0
            flow.exchange(LIFE - already)
            flow.send(LIFE)
            wait_for_states(sites, "r1", {SHORT: "expired"})
            ended = control.fates()
            flow.send(LIFE)
            with suppress(Timeout):  # a wrong result fails the step below
                wait_until(
                    lambda: (control.fates() - ended).without_sa >= LIFE, 10, "drops as NO_SA"
                )
            ended = control.fates() - ended
            late = flow.arrived()
        seen, in_clear = transit.stop()
        run_sluice(sites.router("r1"), printer, "sa", "list")
        expect(seen[SHORT] <= LIFE, f"the SA carried {seen[SHORT]} packets, not {LIFE}")
        expect(late == 0 and in_clear == 0, f"{late} arrived late, {in_clear} left in clear")
        expect(ended.without_sa == LIFE, f"the packets were dropped as {ended}")
        printer.measure("after expiry: dropped as NO_SA", f"{ended.without_sa} of {LIFE}")
        printer.measure("after expiry: in clear on the links", str(in_clear))
        sites.new_key("last")
        for router in ("r2", "r1"):
            rekey(sites, printer, router, "r1-to-r2", LAST, "last")
        wait_until(lambda: answered(sites, 4), 20, "the new SA to carry packets")
        printer.say("after a rekey, the new SA carries packets")
