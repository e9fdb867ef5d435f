# SPDX-License-Identifier: Apache-2.0
"""Runs the demo on a two-site network, no matter how it was built. Each step checks its statements.

A step that fails raises an exception. All reported values were measured in this run. This module
contains the steps about routing. `policy_demo` follows, then `ike_demo` or `esp_demo`.
"""

import time
from functools import partial

from sluice_testkit.process import CommandFailed
from sluice_testkit.wait import Stopwatch, wait_until
from sluice_topo import esp_demo, esp_sites, ike_demo, policy_demo, probes
from sluice_topo.demo_printer import DemoPrinter, expect
from sluice_topo.network import Network
from sluice_topo.routers import P4Router
from sluice_topo.traffic import PathMonitor, UdpFlows

VERSIONS = (4, 6)
SITES = ("r1", "r2")
SITE_PREFIXES = {
    "r1": ("10.2.0.0/24", "2001:db8:2::/64"),
    "r2": ("10.1.0.0/24", "2001:db8:1::/64"),
}
FLOWS = 64
LEAST_SHARE = 0.2  # of 64 flows; with a fair hash, one run in 10^6 has a smaller share


def run(
    network: Network, printer: DemoPrinter, watch: Stopwatch, sites: esp_sites.Sites | None = None
) -> None:
    """Runs the whole demo. `watch` measures the time since before the first program was started.

    `sites` holds the routers' ESP engines. Without it, the parts about ESP are left out.
    """
    printer.part("Routing: FRR decides, the switches of r1 and r2 forward")
    bgp_comes_up(network, printer, watch)
    routes_arrive(network, printer, watch)
    ping_works(network, printer)
    traceroute_works(network, printer)
    both_paths_carry_flows(network, printer)
    large_packets_arrive(network, printer)
    a_link_fails_and_comes_back(network, printer)
    policy_demo.run(network, printer)
    if sites is not None:
        protection = ike_demo if ike_demo.can_run(sites) else esp_demo
        protection.run(sites, printer)
    the_kernel_stood_by(network, printer)


def bgp_comes_up(network: Network, printer: DemoPrinter, watch: Stopwatch) -> None:
    """Checks that all BGP sessions, IPv4 and IPv6, come up through the switches."""
    with printer.step("BGP comes up through the switches"):
        network.wait_for_bgp()
        for name, router in network.routers.items():
            summary = router.frr.json("show bgp summary json")
            peers = sum(len(family["peers"]) for family in summary.values())
            printer.say(f"{name}: {peers} sessions established")
        printer.measure("time from start until all BGP sessions are up", f"{watch.seconds():.1f} s")


def fib_legs(network: Network, name: str, prefix: str) -> int:
    """Returns the number of next hops that the forwarding plane of router `name` has for
    `prefix`.
    """
    router = network.routers[name]
    if isinstance(router, P4Router):
        return next(
            (
                len(route["nexthops"])
                for route in router.controller.show("routes")
                if route["prefix"] == prefix and route.get("installed", True)
            ),
            0,
        )
    family = "-6" if ":" in prefix else "-4"
    shown = router.namespace.run("ip", family, "route", "show", prefix).stdout
    return max(shown.count("nexthop "), shown.count(" via ")) if shown else 0


def has_legs(network: Network, name: str, prefix: str, legs: int) -> bool:
    """Returns whether the forwarding plane of router `name` has exactly `legs` next hops for
    `prefix`.

    Raises ProcessDied at once if a program of the router has ended.
    """
    network.routers[name].check()
    return fib_legs(network, name, prefix) == legs


def wait_for_legs(network: Network, legs: int, deadline: float = 60.0) -> None:
    """Waits until both site routers have exactly `legs` next hops to the other site, for IPv4 and
    IPv6.
    """
    for name in SITES:
        for prefix in SITE_PREFIXES[name]:
            wait_until(
                partial(has_legs, network, name, prefix, legs),
                deadline,
                f"{legs} next hops for {prefix} in {name}",
                interval=0.1,
                retry_on=(CommandFailed,),
            )


def routes_arrive(network: Network, printer: DemoPrinter, watch: Stopwatch) -> None:
    """Checks that the switches have FRR's routes, with both transit routers as next hops."""
    with printer.step("Routes arrive in the switches, each over two transit routers of equal cost"):
        wait_for_legs(network, 2)
        printer.measure(
            "time from start until the switches have all routes", f"{watch.seconds():.1f} s"
        )
        for name in SITES:
            for prefix in SITE_PREFIXES[name]:
                printer.say(f"{name}: {prefix} over {fib_legs(network, name, prefix)} next hops")


def ping_works(network: Network, printer: DemoPrinter) -> None:
    """Checks that the hosts reach each other.

    No packet may be lost, not even the first one, which has to wait until MAC addresses are
    resolved.
    """
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    with printer.step("h1 pings h2"):
        for version in VERSIONS:
            first = probes.ping(h1.namespace, h2.address(version), count=1)
            expect(first.received == 1, f"the first ping was lost:\n{first.output}")
            seen = probes.ping(h1.namespace, h2.address(version), count=50)
            expect(seen.lost == 0, f"pings were lost:\n{seen.output}")
            printer.measure(
                f"ping IPv{version} over 4 hops, average of 50", f"{seen.average:.2f} ms"
            )


def traceroute_works(network: Network, printer: DemoPrinter) -> None:
    """Checks that traceroute shows every router on the path. For a P4 router, its controller
    answers.
    """
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    transit = {4: ({"10.0.1.2", "10.0.2.2"}, {"10.0.3.2", "10.0.4.2"})}
    transit[6] = (
        {"2001:db8:0:1::2", "2001:db8:0:2::2"},
        {"2001:db8:0:3::2", "2001:db8:0:4::2"},
    )
    with printer.step("traceroute names every router on the path"):
        for version in VERSIONS:
            gateway = next(g for g in h1.description.gateways if (":" in g) == (version == 6))
            hops = probes.traceroute(h1.namespace, h2.address(version))
            printer.say(" -> ".join(" or ".join(sorted(hop)) or "*" for hop in hops))
            expect(len(hops) == 4, f"expected 4 hops, got {hops}")
            expect(hops[0] == {gateway}, f"hop 1 is {hops[0]}, not r1")
            expect(hops[1] and hops[1] <= transit[version][0], f"hop 2 is {hops[1]}, not t1 or t2")
            expect(hops[2] and hops[2] <= transit[version][1], f"hop 3 is {hops[2]}, not r2")
            expect(hops[3] == {h2.address(version)}, f"hop 4 is {hops[3]}, not h2")


def both_paths_carry_flows(network: Network, printer: DemoPrinter) -> None:
    """Checks that flows are spread over both transit routers, and that all packets of a flow use
    the same one.
    """
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    with printer.step(f"{FLOWS} UDP flows from h1 to h2 divide over t1 and t2"):
        for version in VERSIONS:
            with (
                PathMonitor(network) as monitor,
                UdpFlows(h1, h2, version, flows=FLOWS) as traffic,
            ):
                traffic.wait_for_more(5 * FLOWS)
                outcome = traffic.stop()
                flows = monitor.flows()
            expect(outcome.lost == 0, f"{outcome.lost} of {outcome.sent} packets were lost")
            expect(not flows["t1"] & flows["t2"], "a flow took both paths")
            shares = {name: len(ports) / FLOWS for name, ports in flows.items()}
            expect(min(shares.values()) >= LEAST_SHARE, f"the paths' shares are {shares}")
            told = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
            printer.measure(f"IPv{version} flows by path", told)


def large_packets_arrive(network: Network, printer: DemoPrinter) -> None:
    """Checks that datagrams longer than a link's MTU arrive, in fragments."""
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    with printer.step("Datagrams larger than a link arrive in fragments"):
        for version in VERSIONS:
            seen = probes.ping(h1.namespace, h2.address(version), size=4000)
            expect(seen.lost == 0, f"large pings were lost:\n{seen.output}")
            printer.say(
                f"IPv{version}: pings with 4000 bytes answered: {seen.received} of {seen.sent}"
            )


def a_link_fails_and_comes_back(network: Network, printer: DemoPrinter) -> None:
    """Cuts the link between r1 and t1 under traffic: traffic must move to t2. Then restores the
    link: traffic must use both paths again.
    """
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    t1 = network.routers["t1"].namespace
    with printer.step("The link between r1 and t1 is cut: traffic moves to t2"):
        with PathMonitor(network) as monitor, UdpFlows(h1, h2) as traffic:
            traffic.wait_for_more(250)
            t1.link_up("eth1", False)
            wait_for_legs(network, 1)
            monitor.clear()
            traffic.wait_for_more(500)
            expect(monitor.packets()["t1"] == 0, "t1 still carries packets")
            outcome = traffic.stop()
        expect(outcome.received > 700, f"too few packets arrived: {outcome}")
        printer.measure("link failure: packets lost", f"{outcome.lost} of {outcome.sent} at 500/s")
        printer.measure("link failure: longest gap", f"{outcome.outage * 1000:.0f} ms")
        for version in VERSIONS:
            seen = probes.ping(h1.namespace, h2.address(version), count=20)
            expect(seen.lost == 0, f"pings were lost after the failure:\n{seen.output}")
    with printer.step("The link between r1 and t1 is restored: traffic uses both paths again"):
        with PathMonitor(network) as monitor, UdpFlows(h1, h2) as traffic:
            traffic.wait_for_more(250)
            watch = Stopwatch()
            t1.link_up("eth1", True)
            network.wait_for_bgp()
            wait_for_legs(network, 2)
            wait_until(lambda: monitor.packets()["t1"] > 0, 20, "packets on t1 again")
            recovered = watch.seconds()
            outcome = traffic.stop()
        printer.measure(
            "recovery: time from link up until both paths carry packets", f"{recovered:.1f} s"
        )
        printer.measure("recovery: packets lost", f"{outcome.lost} of {outcome.sent} at 500/s")


def the_kernel_stood_by(network: Network, printer: DemoPrinter) -> None:
    """Checks that at the sites' routers, the switches have forwarded all packets and the kernels
    none.
    """
    with printer.step("Which programs forwarded the packets: the switches or the kernels?"):
        for name in SITES:
            router = network.routers[name]
            by_kernel = probes.kernel_forwarded(router.namespace)
            if not isinstance(router, P4Router):
                printer.measure(f"{name}: packets forwarded by the kernel", str(by_kernel))
                continue
            ports = router.target.ports.values()
            sent = sum(probes.interface_packets(router.namespace, port)[1] for port in ports)
            printer.measure(f"{name}: packets sent by the switch", str(sent))
            printer.measure(f"{name}: packets forwarded by the kernel", str(by_kernel))
            expect(by_kernel == 0, f"the kernel of {name} forwarded {by_kernel} packets")


def now() -> str:
    """Returns the current date and time, for the demo's headline."""
    return time.strftime("%Y-%m-%d %H:%M:%S")
