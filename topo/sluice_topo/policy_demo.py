# SPDX-License-Identifier: Apache-2.0
"""Runs the second part of the demo, with an SPD on r1's links to the transit routers.

Packets are counted wherever they can end: at the receiver, on the wire by captures, in the switch,
and in the controller by reason. The demo checks each of its statements by a sum of these counts.
This part needs a network whose routing works (`routing_demo`).
"""

import statistics
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sluice_testkit.capture import Capture
from sluice_testkit.wait import Timeout, wait_until
from sluice_topo import probes
from sluice_topo.datagrams import Datagrams
from sluice_topo.demo_printer import DemoPrinter, expect, significant
from sluice_topo.network import Network
from sluice_topo.routers import P4Router
from sluice_topo.spd_control import SpdControl
from sluice_topo.traffic import UdpFlows

VERSIONS = (4, 6)
GUARDED, SPD = "r1", "wan"
UNGUARDED_INTERFACE = "eth1"  # to h1
CHAT, GAMES, VIDEO, PAYROLL = 9100, 27015, 9000, 7000  # UDP ports
SOURCE_PORT = 40000
COMMITS = 20
BETWEEN_COMMITS = 60  # packets
ROUNDS = 5
GAME, SALARY = b"game move: ", b"director's salary: "


def run(network: Network, printer: DemoPrinter) -> None:
    """Runs all steps, if r1 is a P4 router."""
    router = network.routers[GUARDED]
    if not isinstance(router, P4Router):
        return
    printer.part(f"Policy: r1 guards its links to t1 and t2 by the SPD {SPD!r}")
    control = SpdControl(router.controller, SPD)
    an_spd_is_put_in_place(network, router, control, printer)
    the_first_packet_is_searched(network, control, printer)
    a_discard_is_cached(network, control, printer)
    a_commit_takes_effect_at_once(network, router, control, printer)
    the_cache_is_worth_it(network, router, control, printer)
    nothing_protected_leaves_in_clear(network, router, control, printer)


def guarded(router: P4Router) -> dict[str, Any]:
    """Returns the router's configuration with the SPD on all interfaces but one."""
    config = dict(router.controller.config)
    config["spds"] = [{"name": SPD, "file": str(router.files / "wan.yaml")}]
    config["bundles"] = [{"name": "site-b", "id": 1, "spd": SPD}]
    config["interfaces"] = [
        interface | {"spd": "none" if interface["name"] == UNGUARDED_INTERFACE else SPD}
        for interface in config["interfaces"]
    ]
    return config


def an_spd_is_put_in_place(
    network: Network, router: P4Router, control: SpdControl, printer: DemoPrinter
) -> None:
    """Restarts the controller with an SPD. Checks that the switch forwards meanwhile."""
    with printer.step("The controller of r1 starts anew, with an SPD; the switch keeps forwarding"):
        with UdpFlows(network.hosts["h1"], network.hosts["h2"]) as traffic:
            traffic.wait_for_more(100)
            router.controller.stop()
            router.controller.config = guarded(router)
            router.controller.start()
            traffic.wait_for_more(250)
            outcome = traffic.stop()
        expect(outcome.lost == 0, f"the restart lost packets: {outcome}")
        printer.measure("an SPD is put on: packets lost", f"0 of {outcome.sent} at 500/s")
        checked = run_sluice(router, printer, "spd", "check", "--frr", "frr.conf", "wan.yaml")
        expect("fine" in checked, f"the rules are not fine: {checked}")
        printer.say("outbound, the first match decides:")
        for rule in outbound_rules(router):
            text = "always there, written by nobody" if rule["generated"] else rule["text"]
            number = "-" if rule["position"] is None else rule["position"]
            printer.say(f"  {number:>2}  {rule['name']:<19} {text}")
        printer.say("   -  (final)             discard")
        printer.say(
            f"BGP passes by its rules, {bgp_packets(network, router, control)} packets so far"
        )


def run_sluice(router: P4Router, printer: DemoPrinter, *words: str) -> str:
    """Runs the `sluice` command with the router's files, and prints it."""
    files = (".yaml", ".conf")
    given = [str(router.files / word) if word.endswith(files) else word for word in words]
    output = router.controller.command(*given, "--socket", str(router.controller.socket))
    output = output.replace(f"{router.files}/", "").rstrip()
    printer.command(f"sluice {' '.join(words)}", output.splitlines())
    return output


def outbound_rules(router: P4Router) -> list[dict[str, Any]]:
    """Returns the rules of the outbound list in force."""
    lists = router.controller.show("spd")
    (rules,) = (one["rules"] for one in lists if one["direction"] == "outbound")
    return list(rules)


def bgp_packets(network: Network, router: P4Router, control: SpdControl) -> int:
    """Makes r1 request its peers' routes again. Returns the packets that matched BGP's rules."""

    def met() -> int:
        counts = [control.rule(name) for name in ("bgp-out", "bgp-back")]
        return sum(count.searched + count.hits for count in counts)

    before = met()
    router.frr.vtysh("clear bgp * soft in")
    wait_until(lambda: met() > before, 10, "BGP to meet its rules")
    network.wait_for_bgp()
    return met()


def the_first_packet_is_searched(
    network: Network, control: SpdControl, printer: DemoPrinter
) -> None:
    """Checks that the CPU gets one packet of a flow and that the switch forwards the others."""
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    rest = 99
    with printer.step("A flow's first packet is punted and searched, the rest hit the flow cache"):
        for version in VERSIONS:
            rule = "site" if version == 4 else "site-v6"
            with Datagrams(h1, h2, version, source_port=SOURCE_PORT, destination_port=CHAT) as flow:
                before = control.rule(rule)
                (first,) = flow.exchange(1)
                wait_for_flow(control, CHAT)
                times = flow.exchange(rest)
                met = control.rule(rule) - before
            expect(met.searched == 1, f"{met.searched} packets were searched, not 1")
            expect(met.hits == rest, f"{met.hits} packets hit the cache, not {rest}")
            printer.measure(
                f"IPv{version}: {1 + rest} packets of a new flow",
                f"{met.searched} searched, {met.hits} from the cache",
            )
            printer.say(
                f"   the first was {first * 1e6:,.0f} µs under way, "
                f"the others {statistics.median(times) * 1e6:,.0f} µs (median)"
            )


def wait_for_flow(control: SpdControl, port: int) -> dict[str, Any]:
    """Waits until the switch holds the flow to this port."""
    return wait_until(lambda: control.flow(SOURCE_PORT, port) or {}, 10, f"a flow to port {port}")


def a_discard_is_cached(network: Network, control: SpdControl, printer: DemoPrinter) -> None:
    """Checks that the rule no-games costs one search of the rules. The switch discards all later
    packets.
    """
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    rest = 99
    wire = WireMonitor(network, GAME)
    with (
        printer.step("A discard rule discards, and its verdict is cached like any other"),
        Datagrams(h1, h2, source_port=SOURCE_PORT, destination_port=GAMES, mark=GAME) as flow,
    ):
        met, ended = control.rule("no-games"), control.fates()
        flow.send(1)
        cached = wait_for_flow(control, GAMES)
        flow.send(rest)
        with suppress(Timeout):
            wait_until(lambda: (control.fates() - ended).all == 1 + rest, 5, "all to be discarded")
        met, ended = control.rule("no-games") - met, control.fates() - ended
        seen = wire.seen() + flow.arrived()
        expect(cached["rule"] == "no-games" and cached["action"] == "discard", f"{cached}")
        expect(met.searched == 1 and met.hits == rest, f"the rule met {met}")
        expect(ended.discarded_by_switch == rest, f"they ended as {ended}")
        expect(seen == 0, f"{seen} discarded packets were seen")
        printer.measure(
            f"{1 + rest} packets to UDP port {GAMES}",
            f"{met.searched} searched, {met.hits} discarded by the switch",
        )
        printer.measure("   of these seen on the wire to t1, t2 or by h2", str(seen))


class WireMonitor:
    """Captures the frames that leave r1 and contain `mark`, in any encapsulation."""

    def __init__(self, network: Network, mark: bytes):
        self._captures = [
            Capture(network.routers[name].namespace, "eth1", lambda frame: mark in frame.data)
            for name in ("t1", "t2")
        ]

    def seen(self) -> int:
        """Ends the capture and returns the number of such frames."""
        for capture in self._captures:
            capture.stop()
        return sum(len(capture.frames()) for capture in self._captures)


def a_commit_takes_effect_at_once(
    network: Network, router: P4Router, control: SpdControl, printer: DemoPrinter
) -> None:
    """Changes rules back and forth under traffic. Checks that no packet meets removed rules."""
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    with printer.step(
        f"An edit of the SPD takes effect at once, on running flows ({COMMITS} times)"
    ):
        run_sluice(router, printer, "spd", "diff", "wan-no-video.yaml")
        before = control.fates()
        with UdpFlows(h1, h2, rate=1000, port=VIDEO) as video:
            video.wait_for_more(100)
            edits = Edits(router, control, video)
            for _ in range(COMMITS // 2):
                edits.commit("wan-no-video.yaml", passes=False)
                edits.commit("wan.yaml", passes=True)
            outcome = video.stop()
        ended = control.fates() - before
        expect(edits.passed_late == 0, f"{edits.passed_late} packets met the rules of before")
        expect(edits.lost == 0, f"{edits.lost} packets were lost after a commit let them pass")
        discarded = ended.discarded_by_switch + ended.discarded_by_controller
        stale = outcome.sent - outcome.received - discarded
        # Other packets with a stale verdict can only be BGP's.
        expect(0 <= stale <= ended.stale, f"the sum is not even: {outcome}, {ended}")
        printer.measure("commit, median and longest", milliseconds(edits.seconds))
        printer.measure(
            "sent after a commit that discards them, let through",
            f"{edits.passed_late} of {edits.forbidden}",
        )
        printer.measure(
            "sent after a commit that lets them pass, lost", f"{edits.lost} of {edits.allowed}"
        )
        printer.say("and every packet is accounted for:")
        printer.say(
            f"  {outcome.sent} sent = {outcome.received} arrived + "
            f"{ended.discarded_by_switch} discarded by the switch "
            f"+ {ended.discarded_by_controller} discarded by the search "
            f"+ {stale} with a verdict too old"
        )


def milliseconds(times: list[float]) -> str:
    """Formats median and maximum of times given in seconds."""
    return f"{statistics.median(times) * 1000:.1f} ms, {max(times) * 1000:.1f} ms"


class Edits:
    """Makes commits under traffic, and counts what happens to the packets sent between them."""

    def __init__(self, router: P4Router, control: SpdControl, video: UdpFlows):
        self._router, self._control, self._video = router, control, video
        self._ended = control.fates()
        self.seconds: list[float] = []
        self.forbidden = self.passed_late = 0
        self.allowed = self.lost = 0

    def commit(self, file: str, *, passes: bool) -> None:
        """Commits, then checks the packets sent after the commit has returned."""
        asked, returned = self._control.commit(self._router.files / file)
        self.seconds.append(returned - asked)
        enough = self._video.sent() + BETWEEN_COMMITS
        wait_until(lambda: self._video.sent() >= enough, 10, "packets", interval=0.002)
        sent = self._video.sent_since(returned)
        if passes:
            self.allowed += len(sent)
            with suppress(Timeout):
                wait_until(lambda: self._video.arrived(sent) == len(sent), 2, "all to arrive")
            self.lost += len(sent) - self._video.arrived(sent)
        else:
            self.forbidden += len(sent)
            wait_until(lambda: self._ended_so_far() >= sent.stop, 5, "an end of all packets")
            self.passed_late += self._video.arrived(sent)

    def _ended_so_far(self) -> int:
        """Returns the number of packets that have arrived or were counted as dropped."""
        return self._video.received() + (self._control.fates() - self._ended).all


def the_cache_is_worth_it(
    network: Network, router: P4Router, control: SpdControl, printer: DemoPrinter
) -> None:
    """Compares the cost of a packet with and without the flow cache, in turn."""
    with printer.step("What the flow cache is worth: off and on in turn, medians of 5 rounds each"):
        costs: dict[bool, list[Cost]] = {True: [], False: []}
        for _ in range(ROUNDS):
            for on in (False, True):
                control.cache(on)
                costs[on].append(cost(network, router, control, on))
        cpu = {on: statistics.median(one.cpu for one in costs[on]) for on in costs}
        ping = {on: statistics.median(one.ping for one in costs[on]) for on in costs}
        compare(printer, "CPU of r1 for a packet at 1000/s", cpu)
        compare(printer, "round trip of a ping", ping)


def compare(printer: DemoPrinter, what: str, microseconds: dict[bool, float]) -> None:
    """Prints the cost with and without the cache, as a factor and as bars."""
    on, off = microseconds[True], microseconds[False]
    expect(off > on, f"{what}: {off:.0f} µs without the cache, {on:.0f} µs with it")
    factor = f"factor {significant(off / on)}"
    printer.say(f"{what}: {factor}")
    printer.bars([("without the cache", off), ("with it", on)], "µs")
    printer.note(
        f"{what}, without and with the flow cache",
        f"{significant(off)} µs, {significant(on)} µs: {factor}",
    )


@dataclass(frozen=True)
class Cost:
    """Holds the cost of a packet, in microseconds."""

    cpu: float
    ping: float


def cost(network: Network, router: P4Router, control: SpdControl, on: bool) -> Cost:
    """Measures one round. Checks that searches and hits match the cache's state."""
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    pids = router.target.pid, router.controller.pid
    with UdpFlows(h1, h2, rate=1000, port=CHAT) as traffic:
        traffic.wait_for_more(64)  # with the cache on, all flows are cached now
        met = control.rule("site")
        first, spent = traffic.sent(), sum(map(probes.cpu_seconds, pids))
        traffic.wait_for_more(400)
        spent = sum(map(probes.cpu_seconds, pids)) - spent
        packets = traffic.sent() - first
        met = control.rule("site") - met
        outcome = traffic.stop()
    expect(outcome.lost == 0, f"packets were lost: {outcome}")
    cached, searched = (met.hits, met.searched) if on else (met.searched, met.hits)
    expect(cached >= packets - 1 and searched == 0, f"cache {'on' if on else 'off'}, but {met}")
    ping = probes.ping(h1.namespace, h2.address(4), count=25, interval=0.01, answered=True)
    expect(ping.lost == 0 and ping.median, f"pings were lost:\n{ping.output}")
    return Cost(spent / packets * 1e6, (ping.median or 0) * 1000)


def nothing_protected_leaves_in_clear(
    network: Network, router: P4Router, control: SpdControl, printer: DemoPrinter
) -> None:
    """Commits a rule that protects a running flow by a bundle without an SA.

    Checks that no packet of the flow leaves in clear.
    """
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    count = 100
    with (
        printer.step("What has to be protected never leaves in clear, here while there is no SA"),
        Datagrams(
            h1, h2, source_port=SOURCE_PORT, destination_port=PAYROLL, mark=SALARY
        ) as payroll,
    ):
        wire = WireMonitor(network, SALARY)
        payroll.exchange(count)
        in_clear = wire.seen()
        expect(in_clear == count, f"the captures saw {in_clear} of {count}: they prove nothing")
        printer.say(f"while bypassed, captures on the links to t1 and t2 saw {in_clear} of {count}")
        run_sluice(router, printer, "spd", "commit", "wan-payroll.yaml")
        wire, ended = WireMonitor(network, SALARY), control.fates()
        payroll.send(count)
        with suppress(Timeout):  # a wrong result fails the step below
            wait_until(
                lambda: (control.fates() - ended).without_sa >= count, 5, "all to be dropped"
            )
        ended = control.fates() - ended
        seen = wire.seen() + payroll.arrived()
        expect(seen == 0, f"{seen} packets left in clear")
        expect(ended.without_sa == count, f"they ended as {ended}")
        printer.measure("protected, dropped by name (NO_SA)", f"{ended.without_sa} of {count}")
        printer.measure("protected, seen in clear on the wire or by h2", str(seen))
