# SPDX-License-Identifier: Apache-2.0
"""Tests strongSwan's ESP in user space (kernel-libipsec) at p with the engine at r.

    charon of r ---- IKEv2 ---- charon of p        r's charon negotiates but carries no packet:
        | keys, from its log        |              r's switch sends ESP in UDP to the engine.
    engine of r -- ESP in UDP -- libipsec of p     h1 and h2 are behind r and p.

The kernels need no ESP. The test adds the SAs to r with `sluice sa`, as an operator would if the
IKE daemon has no kernel interface. libipsec supports only ESP in UDP (RFC 3948), without extended
sequence numbers.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sluice_testkit import strongswan, tshark
from sluice_testkit.capture import Capture
from sluice_testkit.charon_keys import ChildSa, EspKeys, child_sas
from sluice_testkit.namespaces import Lab
from sluice_testkit.strongswan import StrongSwan
from sluice_testkit.wait import wait_until

from .network import H1, H2, NATTED, PATTERN, SITE1, SITE2, UDP, Interop, P, R, connections

pytestmark = pytest.mark.skipif(
    not strongswan.has_userspace_esp(),
    reason="kernel-libipsec is not installed (Debian: strongswan-charon, strongswan-swanctl,"
    " libcharon-extra-plugins)",
)

OUT, BACK = "r-to-p", "p-to-r"
ALGORITHMS = {
    "aes128gcm16": "aes-128-gcm",
    "aes256gcm16": "aes-256-gcm",
    "chacha20poly1305": "chacha20-poly1305",
    "aes128-sha256": "aes-128-cbc-hmac-sha-256-128",
    "aes256-sha256": "aes-256-cbc-hmac-sha-256-128",
    "null-sha256": "null-hmac-sha-256-128",
}
"""Maps strongSwan's name of a proposal to the engine's name of the algorithm."""
OPEN = {
    "bundles": [{"name": "site2", "id": 1, "spd": "wan"}],
    "spds": [
        {
            "name": "wan",
            "inbound": [{"name": "all", "action": "bypass"}],
            "outbound": [{"name": "all", "action": "bypass"}],
        }
    ],
}
PROTECTED = {
    "spd": "wan",
    "inbound": [
        {"name": "site", "action": "protect", "bundle": "site2"}
        | {"source": SITE2, "destination": SITE1}
    ],
    "outbound": [
        {"name": "site", "action": "protect", "bundle": "site2"}
        | {"source": SITE1, "destination": SITE2}
    ],
}


class Tunnel:
    """Runs charon at r and at p, and holds the SAs that r's charon has negotiated."""

    def __init__(self, network: Interop):
        self.network = network
        self._seen: list[ChildSa] = []
        self._given = False
        options = {"kernel": strongswan.USERSPACE_ESP, "plugins": (*strongswan.PLUGINS, "chapoly")}
        self.r = network.charon(of_peer=False, keys_in_log=True, **options)
        self.p = network.charon(of_peer=True, **options)

    @property
    def sa(self) -> ChildSa:
        """The newest child SA, from r's point of view."""
        return self._seen[-1]

    def start(self, esp: str, natted: bool = False) -> None:
        """Starts both charons with the ESP proposal `esp`."""
        self._esp = esp
        self._remote = NATTED if natted else R
        self.start_peer()
        self.r.start(connections(of_peer=False, esp=esp))

    def start_peer(self) -> None:
        """Starts p's charon, then routes h1's site to its TUN device."""
        self.p.start(connections(of_peer=True, esp=self._esp, remote=self._remote))
        self.network.p.run("ip", "route", "replace", SITE1, "dev", strongswan.TUN)

    def establish(self, initiator: str) -> None:
        """Initiates a child SA at one end. Then adds its two SAs to r."""
        daemon: StrongSwan = getattr(self, initiator)
        daemon.ctl("--initiate", "--child", "net", "--timeout", "20")
        self.take_over()

    def take_over(self) -> None:
        """Takes the newest SAs that r's charon has negotiated, and adds them to r. If r already has
        SAs, rekeys them instead.
        """
        wait_until(self._has_new, 20, "keys in the log of r's charon")
        if self._given:
            for name, keys in ((BACK, self.sa.inbound), (OUT, self.sa.outbound)):
                self._sluice("sa", "rekey", name, "--spi", hex(keys.spi), *self._key_options(keys))
        else:
            self._sluice("sa", "add", str(self._file()))
            self._given = True
        wait_until(self._serves, 10, "the SAs in use")

    def end(self) -> None:
        """Ends both charons, and deletes all SAs from r."""
        for daemon in (self.r, self.p):
            if daemon.process is not None:
                daemon.kill()
        for name in {one["name"] for one in self.network.sas()}:
            self._sluice("sa", "del", name)
        wait_until(lambda: not self.network.sas(), 20, "no SA is left in r")

    def _has_new(self) -> bool:
        found = child_sas(self.r.log.read_text(encoding="utf-8"))
        is_new = len(found) > len(self._seen)
        self._seen = found
        return is_new

    def _serves(self) -> bool:
        network, new = self.network, (self.sa.outbound.spi, self.sa.inbound.spi)
        return network.in_use("outbound") == {new[0]} and new[1] in network.in_use("inbound")

    def _sluice(self, *words: str) -> None:
        controller = self.network.controller
        controller.command(*words, "--socket", str(controller.socket))

    def _key_options(self, keys: EspKeys) -> list[str]:
        return [
            word
            for name, path in self._key_files(keys).items()
            for word in (f"--{name.replace('_', '-')}", path)
        ]

    def _key_files(self, keys: EspKeys) -> dict[str, str]:
        """Writes an SA's keys to files. Returns the paths, by the names of the configuration
        keys.
        """
        digits = {"key_file": keys.encryption, "integrity_key_file": keys.integrity}
        files = {}
        for name, key in digits.items():
            if key:
                path = self.network.lab.directory / f"{keys.spi:x}.{name}"
                path.touch(mode=0o600)
                path.write_text(key + "\n", encoding="utf-8")
                files[name] = str(path)
        return files

    def _file(self) -> Path:
        common = {"bundle": "site2", "algorithm": ALGORITHMS[self._esp]}
        out = {"name": OUT, "direction": "outbound", "spi": self.sa.outbound.spi}
        out |= {"local": R, "remote": P, "encapsulation": {}}
        back = {"name": BACK, "direction": "inbound", "spi": self.sa.inbound.spi}
        back |= {"encapsulated": True, "replay_window": 64}
        sas = [
            common | out | self._key_files(self.sa.outbound),
            common | back | self._key_files(self.sa.inbound),
        ]
        path = self.network.lab.directory / "sas.yaml"
        path.write_text(yaml.safe_dump({"security_associations": sas}), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Interop:
    """Returns the network with a policy at r that protects the traffic between the sites."""
    network = Interop(module_lab, OPEN)
    network.start()
    path = module_lab.directory / "protected.yaml"
    path.write_text(yaml.safe_dump(PROTECTED), encoding="utf-8")
    controller = network.controller
    controller.command("spd", "commit", str(path), "--socket", str(controller.socket))
    network.p.run("ip", "route", "delete", SITE1)
    return network


@pytest.fixture
def tunnel(network: Interop) -> Iterator[Tunnel]:
    tunnel = Tunnel(network)
    yield tunnel
    tunnel.end()


@pytest.mark.parametrize("initiator", ["r", "p"])
@pytest.mark.parametrize("esp", list(ALGORITHMS))
def test_both_directions(network: Interop, tunnel: Tunnel, esp: str, initiator: str) -> None:
    """Each end decrypts what the other one has encrypted, no matter whether r or p initiated
    IKE.
    """
    tunnel.start(esp)
    assert network.ping(count=2).received == 0, "without an SA"
    tunnel.establish(initiator)
    with network.monitor(in_udp=True, hidden=esp != "null-sha256") as seen:
        network.passes("h2")
        network.passes("h1")
    assert len(seen) >= 20


def test_large_packets_and_tcp(network: Interop, tunnel: Tunnel) -> None:
    tunnel.start("aes128gcm16")
    tunnel.establish("r")
    with network.monitor(in_udp=True):
        network.passes(size=3000)
        network.transfers(2_000_000)


@pytest.mark.parametrize("initiator", ["r", "p"])
def test_rekey(network: Interop, tunnel: Tunnel, initiator: str) -> None:
    """After a rekey, packets use the new SAs in both directions.

    During the rekey, no packet is in clear.
    """
    tunnel.start("aes128gcm16")
    tunnel.establish("r")
    before = tunnel.sa
    with network.monitor(in_udp=True):
        network.passes()
        daemon: StrongSwan = getattr(tunnel, initiator)
        daemon.ctl("--rekey", "--child", "net")
        network.ping()
        tunnel.take_over()
        assert tunnel.sa.outbound.spi != before.outbound.spi
        network.passes("h2")
        network.passes("h1")


def test_a_peer_that_restarts(network: Interop, tunnel: Tunnel) -> None:
    """After p's charon was killed, no packet passes until new SAs are negotiated. None is in
    clear.
    """
    tunnel.start("aes128gcm16")
    tunnel.establish("r")
    with network.monitor(in_udp=True):
        network.passes()
        tunnel.p.kill()
        assert network.ping(count=2).received == 0
        tunnel.start_peer()
        assert network.ping(count=2).received == 0
        tunnel.establish("p")
        network.passes("h2")
        network.passes("h1")


def test_through_a_nat(network: Interop, tunnel: Tunnel) -> None:
    with network.nat():
        tunnel.start("aes128gcm16", natted=True)
        tunnel.establish("r")
        with network.monitor(in_udp=True), Capture(network.p, "eth0") as arriving:
            network.passes("h2")
            network.passes("h1")
            came = arriving.frames(lambda one: one.protocol == UDP and not one.outgoing)
        assert {one.source for one in came} == {NATTED}


@tshark.needed
@pytest.mark.parametrize("esp", list(ALGORITHMS))
def test_tshark_decrypts_both_ends(network: Interop, tunnel: Tunnel, esp: str) -> None:
    """tshark, as a third implementation, decrypts the ESP in UDP of the engine and that of
    libipsec.
    """
    tshark.require(ALGORITHMS[esp])
    tunnel.start(esp)
    tunnel.establish("r")
    with Capture(network.n, "from_r") as capture:
        network.passes("h2", count=5)
        path = network.lab.directory / f"{esp}.pcap"
        capture.frames()
        capture.write_pcap(path)
    out, back = tunnel.sa.outbound, tunnel.sa.inbound
    sas = [
        tshark.EspSa(R, P, out.spi, ALGORITHMS[esp], out.encryption, out.integrity),
        tshark.EspSa(P, R, back.spi, ALGORITHMS[esp], back.encryption, back.integrity),
    ]
    for sa, inner in ((sas[0], (H1, H2)), (sas[1], (H2, H1))):
        opened = [one for one in tshark.esp_packets(path, sas) if one.spi == sa.spi]
        assert len(opened) == 5
        assert all(one.icv_is_good and one.inner == inner for one in opened), opened
        assert all(PATTERN in one.payload for one in opened), opened
