# SPDX-License-Identifier: Apache-2.0
"""Tests SAs and policies installed by `ip xfrm` at both ends. At r, switch and engine carry them
out; at p, Linux's own ESP.
"""

import hashlib
import itertools

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.wait import wait_until

from .network import H2, PATTERN, SITE1, SITE2, Interop, P, R, needs_esp

SPI = {"out": 0x1001, "in": 0x2001}
ALGORITHMS = {
    "aes-128-gcm": (("aead", "rfc4106(gcm(aes))", 20, 128),),
    "aes-256-gcm": (("aead", "rfc4106(gcm(aes))", 36, 128),),
    "chacha20-poly1305": (("aead", "rfc7539esp(chacha20,poly1305)", 36, 128),),
    "aes-128-cbc": (("enc", "cbc(aes)", 16, None), ("auth-trunc", "hmac(sha256)", 32, 128)),
    "null": (("enc", "ecb(cipher_null)", 0, None), ("auth-trunc", "hmac(sha256)", 32, 128)),
}


_tunnels = itertools.count()


def algorithms(name: str, direction: str, tunnel: int) -> list[str]:
    """Returns arguments of `ip xfrm state add`. Each tunnel and direction has its own keys.

    A key must not be used again, because the controller refuses the key of an SA that has reached a
    hard limit.
    """
    words: list[str] = []
    for kind, algorithm, size, bits in ALGORITHMS[name]:
        digits = hashlib.shake_128(f"{kind} {direction} {name} {tunnel}".encode()).hexdigest(size)
        key = f"0x{digits}" if digits else ""
        words += [kind, algorithm, key, *([] if bits is None else [str(bits)])]
    return words


def install(
    network: Interop, name: str, *more: str, esn: bool = False, states: bool = True
) -> None:
    """Installs the SAs and policies of a new tunnel at both ends."""
    tunnel = next(_tunnels)
    flag = ["flag", "esn", "replay-window", "64"] if esn else ["replay-window", "32"]
    ends = {"out": (R, P, SITE1, SITE2), "in": (P, R, SITE2, SITE1)}
    for place, directions in (
        (network.p, {"out": ("in", "fwd"), "in": ("out",)}),
        (network.r, {"out": ("out",), "in": ("in", "fwd")}),
    ):
        for direction, (source, destination, from_site, to_site) in ends.items():
            outer = ("src", source, "dst", destination)
            if states:
                place.run(
                    *("ip", "xfrm", "state", "add", *outer, "proto", "esp"),
                    *("spi", hex(SPI[direction]), "reqid", "7", "mode", "tunnel"),
                    *flag,
                    *algorithms(name, direction, tunnel),
                    *(more if place is network.r and direction == "out" else ()),
                )
            for kind in directions[direction]:
                place.run(
                    *("ip", "xfrm", "policy", "add", "src", from_site, "dst", to_site),
                    *("dir", kind, "tmpl", *outer, "proto", "esp", "reqid", "7"),
                    *("mode", "tunnel"),
                )


def wait_mirrored(network: Interop) -> None:
    """Waits until r uses the tunnel's SAs in both directions."""
    wait_until(
        lambda: (
            (network.in_use("outbound"), network.in_use("inbound")) == ({SPI["out"]}, {SPI["in"]})
        ),
        10,
        "the SAs in use",
    )


@needs_esp
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_linux_decrypts_what_the_engine_sends_and_the_reverse(network: Interop, name: str) -> None:
    install(network, name)
    wait_mirrored(network)
    assert network.problems() == []
    with network.monitor(hidden=name != "null") as seen:
        network.passes("h2")
        network.passes("h1")
    assert len(seen) >= 20


@needs_esp
def test_with_extended_sequence_numbers(network: Interop) -> None:
    install(network, "aes-128-gcm", esn=True)
    wait_mirrored(network)
    with network.monitor():
        network.passes()


@needs_esp
def test_large_packets(network: Interop) -> None:
    """A packet too long for the tunnel is fragmented before encryption. If it has DF, its sender
    gets an ICMP error.
    """
    install(network, "aes-128-gcm")
    wait_mirrored(network)
    with network.monitor():
        network.passes(size=3000)
        told = network.ping(size=1450, count=2, options=("-M", "do"))
        assert told.received == 0
        assert "mtu" in told.output.lower(), told.output
        fits = network.ping(size=1380, count=2, options=("-M", "do"))
        assert fits.received == 2, fits.output


@needs_esp
def test_tcp(network: Interop) -> None:
    install(network, "aes-128-gcm")
    wait_mirrored(network)
    with network.monitor():
        network.transfers(1_000_000)


@needs_esp
def test_what_the_kernel_shows_is_what_the_engine_carried(network: Interop) -> None:
    install(network, "aes-128-gcm")
    wait_mirrored(network)
    network.passes(count=5, size=100)
    shown = ("ip", "-s", "xfrm", "state", "get", "src", R, "dst", P, "proto", "esp")
    words = (*shown, "spi", hex(SPI["out"]))
    wait_until(
        lambda: "640(bytes), 5(packets)" in network.r.run(*words).stdout,
        10,
        "the kernel's counters",
    )


@needs_esp
def test_a_hard_limit_ends_in_drops(network: Interop) -> None:
    """When an SA has reached its hard limit, packets are dropped as NO_SA. The kernel is told, and
    deletes the SA.
    """
    install(network, "aes-128-gcm", "limit", "packet-hard", "5")
    wait_mirrored(network)
    with network.monitor():
        assert network.ping(count=8).received == 5
    states = ("ip", "xfrm", "state")
    wait_until(
        lambda: hex(SPI["out"])[2:] not in network.r.run(*states).stdout,
        10,
        "the state to go",
    )
    before = network.drops("NO_SA")
    assert network.ping(count=3).received == 0
    assert network.drops("NO_SA") == before + 3


def test_traffic_without_an_sa_is_an_acquire_and_a_drop(network: Interop) -> None:
    monitor = network.lab.supervisor.start(
        "acquires", network.r.argv(["ip", "xfrm", "monitor", "acquire"])
    )
    install(network, "aes-128-gcm", states=False)
    network.wait_for_rules("protect", 1)
    before = network.drops("NO_SA")
    assert network.ping(count=3).received == 0
    assert network.drops("NO_SA") == before + 3
    wait_until(lambda: f"sel src 10.1.0.2/32 dst {H2}/32" in monitor.log(), 10)
    monitor.kill()


def policy(network: Interop, command: str, *words: str) -> None:
    """Runs `ip xfrm policy` in r, for packets from h1's site to h2's site."""
    selector = ("src", SITE1, "dst", SITE2, "dir", "out")
    network.r.run("ip", "xfrm", "policy", command, *selector, *words)


def test_policies_count_for_flows_that_are_cached(network: Interop) -> None:
    """A new kernel policy applies at once to a flow that is already cached.

    The flow first passes in clear. Then one policy blocks it, and another one protects it without
    having an SA. After the policy is deleted, the flow passes in clear again.
    """
    network.passes(count=2)
    policy(network, "add", "action", "block")
    network.wait_for_rules("discard", 1)
    assert network.ping(count=2).received == 0
    tunnel = ("src", R, "dst", P, "proto", "esp", "reqid", "7", "mode", "tunnel")
    policy(network, "update", "tmpl", *tunnel)
    network.wait_for_rules("protect", 1)
    with Capture(network.n, "from_r") as capture:
        assert network.ping(count=2).received == 0
        assert not [frame for frame in capture.frames() if PATTERN in frame.data]
    policy(network, "delete")
    network.wait_for_rules("protect", 0)
    network.passes(count=2)


@needs_esp
def test_an_sa_that_is_deleted_leaves_its_policy(network: Interop) -> None:
    """If an SA is deleted but not its policy, packets are dropped as NO_SA, and none leaves in
    clear.
    """
    install(network, "aes-128-gcm")
    wait_mirrored(network)
    with network.monitor():
        network.passes(count=2)
        words = ("dst", P, "proto", "esp", "spi", hex(SPI["out"]))
        network.r.run("ip", "xfrm", "state", "delete", *words)
        wait_until(lambda: not network.in_use("outbound"), 10, "the SA to go")
        before = network.drops("NO_SA")
        assert network.ping(count=3).received == 0
        assert network.drops("NO_SA") >= before + 3
    assert network.rules("protect")


@needs_esp
def test_the_routers_own_packets_are_the_engines_too(network: Interop) -> None:
    """r's engine encrypts the packets that r itself sends.

    r's kernel must not encrypt them (setting disable_xfrm).
    """
    install(network, "aes-128-gcm")
    wait_mirrored(network)
    with network.monitor():
        own = network.r.run("ping", "-n", "-c", "3", "-i", "0.2", "-I", "10.1.0.1", H2)
        assert "3 received" in own.stdout
    state = ("dst", P, "proto", "esp", "spi", hex(SPI["out"]))
    shown = network.r.run("ip", "xfrm", "state", "get", "src", R, *state).stdout
    assert "oseq 0x0," in shown, f"the kernel has sent by the SA itself: {shown}"


def test_a_policy_that_cannot_be_mirrored_drops_and_is_named(network: Interop) -> None:
    for kind in ("out",):
        network.r.run(
            *("ip", "xfrm", "policy", "add", "src", SITE1, "dst", SITE2, "dir", kind),
            *("mark", "1", "mask", "1", "tmpl", "src", R, "dst", P, "proto", "esp"),
            *("reqid", "7", "mode", "tunnel"),
        )
    wait_until(network.problems, 10, "the problem")
    assert "by mark" in network.problems()[0]
    assert network.ping(count=2).received == 0
