# SPDX-License-Identifier: Apache-2.0
"""Runs the demo of `sluice up`: `make demo-takeover`.

The demo takes over a router whose kernel forwards, and ends the takeover, under traffic. The demo
counts the packets that are lost in each transition, and measures rates before and after. All
printed values were observed in this run.

Exit status 0: every step has passed. 1: a step has failed. 2: wrong usage.
"""

import json
import os
import sys
import time
from contextlib import ExitStack

from sluice_testkit import where
from sluice_testkit.namespaces import Lab
from sluice_testkit.process import Supervisor
from sluice_testkit.wait import Stopwatch, wait_until
from sluice_topo import probes
from sluice_topo.demo_printer import DemoPrinter, expect
from sluice_topo.kernel_router import KernelRouter, TcpSession, sessions_of
from sluice_topo.traffic import UdpFlows

PICTURE = """
  h1 --- eth1 [ r ] eth2 --- h2       r: a Linux router whose kernel forwards
                eth3 --- h3           eth3 stays with the kernel"""
RATE = 1000.0
IPERF_PORT, IPERF_SECONDS = "5201", "3"
LOST_AT_A_KILL = 0.25
"""Part of a second in which packets may be lost after a kill. The kernel frees the memory of a
killed process before its descriptors."""


def main() -> int:
    """Runs the demo. Returns the exit status."""
    if os.geteuid() != 0:
        print("make demo-takeover: run it as root, which network namespaces need", file=sys.stderr)
        return 2
    try:
        where.sluice_switch()
        where.sluice()
    except FileNotFoundError as missing:
        print(f"make demo-takeover: {missing}", file=sys.stderr)
        return 2
    print(f"Sluice: taking over a running router{PICTURE}", flush=True)
    watch = Stopwatch()
    printer = DemoPrinter(lambda text: print(text, flush=True), colours=sys.stdout.isatty())
    with Lab() as lab:
        router = KernelRouter(lab)
        try:
            perform(router, printer, lab.supervisor)
        except Exception as error:  # the reader gets the step's message, without a traceback
            told = "\n".join([str(error), *getattr(error, "__notes__", ())])
            print(f"   FAILED: {told}", flush=True)
            return 1
        finally:
            router.close()
    printer.table()
    print(f"\n{watch.seconds():.0f} s from start to end")
    print("demo passed")
    return 0


def perform(router: KernelRouter, printer: DemoPrinter, supervisor: Supervisor) -> None:
    """Runs all steps."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(one) for one in sessions_of(router)]
        with printer.step("The kernel forwards, and four TCP sessions are open"):
            kernel_forwards(router, printer, sessions)
            measure_rate(router, printer, supervisor, "the kernel forwards")
        with printer.step("sluice up --dry-run"):
            words = ("up", "--dry-run", "eth1", "eth2")
            printer.command(f"sluice {' '.join(words)}", router.command(*words).stdout.splitlines())
        transition(router, printer, "up", sessions)
        with printer.step("The switch forwards"):
            switch_forwards(router, printer)
            measure_rate(router, printer, supervisor, "the switch forwards")
        with printer.step("A route of the kernel is followed"):
            follow_route(router, printer)
        transition(router, printer, "down", sessions)
        for process in ("switch", "controller"):
            router.up()
            kill(router, printer, process, sessions)
    with printer.step("A host with an IPsec policy is refused"):
        refuse(router, printer)


def kernel_forwards(router: KernelRouter, printer: DemoPrinter, sessions: list[TcpSession]) -> None:
    """Shows that the kernel forwards."""
    before = probes.kernel_forwarded(router.namespace)
    for session in sessions:
        session.exchange(10)
    forwarded = probes.kernel_forwarded(router.namespace) - before
    expect(forwarded >= 40, "the kernel did not forward")
    printer.say(f"packets that the kernel has forwarded for them: {forwarded}")


def transition(
    router: KernelRouter, printer: DemoPrinter, word: str, sessions: list[TcpSession]
) -> None:
    """Runs `sluice up` or `sluice down` under traffic, and counts lost packets."""
    h1, h2 = router.hosts[:2]
    with printer.step(f"sluice {word}, under {RATE:.0f} packets a second"):
        with UdpFlows(h1, h2, rate=RATE) as traffic:
            traffic.wait_for_more(500)
            told = router.up() if word == "up" else router.down()
            for session in sessions:
                session.exchange(20)
            traffic.wait_for_more(500)
            outcome = traffic.stop()
        words = "up eth1 eth2" if word == "up" else "down"
        printer.command(f"sluice {words}", told.splitlines())
        printer.measure(f"packets lost at `sluice {word}`", f"{outcome.lost} of {outcome.sent}")
        printer.say(f"the {len(sessions)} TCP sessions go on")
        expect(outcome.lost == 0, f"{outcome.lost} packets were lost")


def switch_forwards(router: KernelRouter, printer: DemoPrinter) -> None:
    """Shows by counters that the switch forwards, and the kernel does not."""
    h1, h2 = router.hosts[:2]
    kernel, switch = probes.kernel_forwarded(router.namespace), router.switch_packets()
    expect(probes.ping(h1.namespace, h2.address(4), count=20).lost == 0, "pings were lost")
    expect(probes.ping(h1.namespace, h2.address(6), count=20).lost == 0, "pings were lost")
    kernel = probes.kernel_forwarded(router.namespace) - kernel
    switch = router.switch_packets() - switch
    printer.say(
        f"40 pings and their answers: {switch} packets in the switch, {kernel} in the"
        " kernel's forwarding"
    )
    expect(switch >= 80 and kernel == 0, "the switch did not forward alone")


def follow_route(router: KernelRouter, printer: DemoPrinter) -> None:
    """Adds a route by `ip route`, and measures the time until the switch uses it."""
    h1, h2 = router.hosts[:2]
    h2.namespace.add_address("lo", "203.0.113.1/32")
    watch = Stopwatch()
    router.namespace.run("ip", "route", "add", "203.0.113.0/24", "via", h2.address(4))
    wait_until(
        lambda: probes.ping(h1.namespace, "203.0.113.1", count=1).received == 1,
        10,
        "the switch to use the new route",
    )
    printer.command(f"ip route add 203.0.113.0/24 via {h2.address(4)}")
    printer.say(f"a ping was answered {watch.seconds():.2f} s later")


def kill(
    router: KernelRouter, printer: DemoPrinter, process: str, sessions: list[TcpSession]
) -> None:
    """Kills a process under traffic, and counts lost packets."""
    h1, h2 = router.hosts[:2]
    with printer.step(f"kill -9 of the {process}, under {RATE:.0f} packets a second"):
        with UdpFlows(h1, h2, rate=RATE) as traffic:
            traffic.wait_for_more(500)
            router.kill(process)
            traffic.wait_for_more(1000)
            for session in sessions:
                session.exchange(20)
            outcome = traffic.stop()
        router.wait_for_end()
        printer.measure(
            f"packets lost at kill -9 of the {process}",
            f"{outcome.lost} of {outcome.sent} (outage: {outcome.outage * 1000:.0f} ms)",
        )
        expect(outcome.lost <= RATE * LOST_AT_A_KILL, f"{outcome.lost} packets were lost")
        kernel = probes.kernel_forwarded(router.namespace)
        expect(probes.ping(h1.namespace, h2.address(4)).lost == 0, "pings were lost")
        expect(probes.kernel_forwarded(router.namespace) > kernel, "the kernel does not forward")
        printer.say("the kernel forwards again, and the TCP sessions go on")


def refuse(router: KernelRouter, printer: DemoPrinter) -> None:
    """Shows that a host with an IPsec policy is refused by name."""
    selector = ("src", "10.0.1.0/24", "dst", "10.0.2.0/24", "dir", "fwd")
    router.namespace.run("ip", "xfrm", "policy", "add", *selector, "action", "block")
    done = router.command("up", "eth1", "eth2", check=False)
    router.namespace.run("ip", "xfrm", "policy", "delete", *selector)
    printer.command("sluice up eth1 eth2", done.stderr.splitlines())
    expect(done.returncode == 1 and "ip xfrm policy" in done.stderr, "the host was not refused")


def measure_rate(
    router: KernelRouter, printer: DemoPrinter, supervisor: Supervisor, when: str
) -> None:
    """Measures the rate of one TCP connection through the router by iperf3."""
    h1, h2 = router.hosts[:2]
    argv = h2.namespace.argv(["iperf3", "-s", "-1", "-p", IPERF_PORT, "--forceflush"])
    server = supervisor.start(f"iperf3-{time.monotonic_ns()}", argv)
    server.wait_for_log("listening")
    words = ("iperf3", "-c", h2.address(4), "-p", IPERF_PORT, "-t", IPERF_SECONDS, "-J")
    found = json.loads(h1.namespace.run(*words).stdout)
    server.wait()
    rate = found["end"]["sum_received"]["bits_per_second"] / 1e9
    printer.measure(f"one TCP connection while {when}", f"{rate:.2f} Gbit/s")


if __name__ == "__main__":
    sys.exit(main())
