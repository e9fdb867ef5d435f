# SPDX-License-Identifier: Apache-2.0
"""Runs the last part of the demo with IKE: strongSwan negotiates the SAs between the sites.

The routers mirror policies and SAs from their kernels. This part needs strongSwan, and a kernel
with ESP. If one of them is missing, `esp_demo` runs instead, with configured SAs. Depends on
esp_sites and esp_demo.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

from sluice_testkit.strongswan import StrongSwan, is_installed, kernel_has_esp
from sluice_testkit.wait import Timeout, wait_until
from sluice_topo.datagrams import Datagrams
from sluice_topo.demo_printer import DemoPrinter, expect
from sluice_topo.esp_demo import (
    PORT,
    SECRET,
    SOURCE_PORT,
    VERSIONS,
    Transit,
    answered,
    traffic_both_ways,
    what_leaves_is_esp,
)
from sluice_topo.esp_sites import BUNDLES, ENDS, SPD, Sites
from sluice_topo.policy_demo import run_sluice
from sluice_topo.spd_control import SpdControl

SITES = {
    "r1": {4: "10.1.0.0/24", 6: "2001:db8:1::/64"},
    "r2": {4: "10.2.0.0/24", 6: "2001:db8:2::/64"},
}
LIFE = 100  # packets
CONNECTIONS = """\
connections {{
  site {{
    version = 2
    local_addrs = {local}
    remote_addrs = {remote}
    proposals = aes128-sha256-prfsha256-ecp256
    local {{ auth = psk
      id = {me} }}
    remote {{ auth = psk
      id = {peer} }}
    children {{
{children}
    }}
  }}
}}
secrets {{
  ike-both {{ secret = "the same words at both sites" }}
}}
"""
CHILD = """\
      net{version} {{
        local_ts = {local}
        remote_ts = {remote}
        esp_proposals = aes128gcm16-esn
        start_action = {start}
        {limits}
      }}"""


def can_run(sites: Sites) -> bool:
    """Returns whether strongSwan is installed and the kernel has ESP."""
    return is_installed() and kernel_has_esp(sites.router("r1").namespace)


def run(sites: Sites, printer: DemoPrinter) -> None:
    """Runs all steps of this part."""
    printer.part("Protection: strongSwan negotiates SAs, r1 and r2 encrypt (sluice-esp)")
    daemons = both_routers_negotiate(sites, printer)
    what_leaves_is_esp(sites, printer)
    a_rekey_loses_nothing(sites, printer, daemons)
    an_sa_expires_into_drops(sites, printer, daemons)


def connections(router: str, start: str = "trap", limits: str = "") -> str:
    """Returns a router's swanctl.conf. It contains one connection, with a child SA for each IP
    version.
    """
    (peer,) = BUNDLES.keys() - {router}
    children = [
        CHILD.format(
            version=version,
            local=SITES[router][version],
            remote=SITES[peer][version],
            start=start,
            limits=limits,
        )
        for version in VERSIONS
    ]
    return CONNECTIONS.format(
        me=router,
        peer=peer,
        local=ENDS[router],
        remote=ENDS[peer],
        children="\n".join(children),
    )


def both_routers_negotiate(sites: Sites, printer: DemoPrinter) -> dict[str, StrongSwan]:
    """Starts strongSwan at both routers.

    Checks that packets between the sites start IKE, and are answered after the negotiation.
    """
    with printer.step(
        "strongSwan runs at r1 and r2; each router mirrors its kernel's policies and SAs"
    ):
        daemons = {}
        for router in BUNDLES:
            sites.restart(router, sites.mirrored(router))
            place, lab = sites.router(router).namespace, sites.lab
            daemons[router] = StrongSwan(f"{router}-ike", place, lab.directory, lab.supervisor)
        sites.network.wait_for_bgp()
        for router in ("r2", "r1"):
            daemons[router].start(connections(router))
        for version in VERSIONS:
            wait_until(lambda v=version: answered(sites, v), 60, f"IPv{version} to pass")  # type: ignore[misc]
        run_sluice(sites.router("r1"), printer, "sa", "list")
    return daemons


def a_rekey_loses_nothing(
    sites: Sites, printer: DemoPrinter, daemons: Mapping[str, StrongSwan]
) -> None:
    """Checks that rekeys lose no packet in either direction, first one started by one end, then one
    by the other.
    """
    with printer.step("Rekeys during a transfer, started by either end, lose no packet"):
        transit = Transit(sites)
        old = sites.sending("r1")
        with traffic_both_ways(sites) as (there, back):
            there.wait_for_more(100)
            for router, daemon in daemons.items():
                before = {name: sites.sending(name) for name in BUNDLES}
                daemon.ctl("--rekey", "--child", "net4")
                printer.command(f"swanctl --rekey --child net4   # at {router}")
                for name, spis in before.items():
                    sends = partial(sends_by_others, sites, name, spis)
                    wait_until(sends, 20, f"{name} to send by a new SA")
            there.wait_for_more(250)
            back.wait_for_more(250)
            outcomes = there.stop(), back.stop()
        seen, _ = transit.stop()
        new = sites.sending("r1")
        lost = sum(outcome.lost for outcome in outcomes)
        expect(lost == 0, f"the rekey lost packets: {outcomes}")
        by_old, by_new = (sum(seen[spi] for spi in spis) for spis in (old - new, new - old))
        expect(by_old > 0 and by_new > 0, f"not both SAs carried packets: {seen}")
        printer.say(f"from r1: {by_old} packets by the first SA, {by_new} by the last")
        sent = sum(outcome.sent for outcome in outcomes)
        printer.measure("two rekeys: packets lost", f"{lost} of {sent} at 1,000/s")


def sends_by_others(sites: Sites, router: str, spis: Collection[int]) -> bool:
    """Returns whether a router has an outbound SA in use whose SPI is not in `spis`."""
    return bool(sites.sending(router) - set(spis))


def an_sa_expires_into_drops(
    sites: Sites, printer: DemoPrinter, daemons: Mapping[str, StrongSwan]
) -> None:
    """Checks that no packet passes after an SA's hard limit, if the peer's daemon is dead and
    cannot rekey.

    Packets must be dropped as NO_SA, and none may leave in clear.
    """
    h1, h2 = sites.network.hosts["h1"], sites.network.hosts["h2"]
    control = SpdControl(sites.router("r1").controller, SPD)
    limits = f"life_packets = {LIFE}\n        rekey_packets = 0"
    with printer.step(
        f"SAs may carry {LIFE} packets, and r2's daemon is killed: then no packet passes"
    ):
        daemons["r1"].ctl("--terminate", "--ike", "site", "--force")
        daemons["r1"].load(connections("r1", limits=limits))
        wait_until(lambda: answered(sites, 4), 30, "an SA with limits")
        (spi,) = sites.sending("r1")
        daemons["r2"].kill()
        transit = Transit(sites)
        with Datagrams(h1, h2, source_port=SOURCE_PORT, destination_port=PORT, mark=SECRET) as flow:
            flow.send(LIFE)
            wait_until(lambda: spi not in sites.sending("r1"), 20, "the SA to end")
            ended = control.fates()
            flow.arrived()
            flow.send(LIFE)
            with suppress(Timeout):  # a wrong result fails the step below
                wait_until(
                    lambda: (control.fates() - ended).without_sa >= LIFE, 10, "drops as NO_SA"
                )
            ended = control.fates() - ended
            late = flow.arrived()
        seen, in_clear = transit.stop()
        run_sluice(sites.router("r1"), printer, "sa", "list")
        expect(seen[spi] <= LIFE, f"the SA carried {seen[spi]} packets, not {LIFE}")
        expect(late == 0 and in_clear == 0, f"{late} arrived late, {in_clear} left in clear")
        expect(ended.without_sa >= LIFE, f"the packets were dropped as {ended}")
        printer.measure("after expiry: dropped as NO_SA", f"{ended.without_sa} of {LIFE}")
        printer.measure("after expiry: in clear on the links", str(in_clear))
        daemons["r2"].start(connections("r2"))
        wait_until(lambda: answered(sites, 4), 60, "IKE to start again")
        printer.say("r2's daemon is back, and IKE starts again")
