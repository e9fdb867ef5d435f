# SPDX-License-Identifier: Apache-2.0
"""Starts the hub and spokes of e2e.protected, with real ESP engines.

An engine is `sluice-esp` on an interface, or the engine inside sluice-switch. The tunnel between r1
and r2 is AES-128-GCM with ESN over IPv4; the tunnel between r1 and r3 is ChaCha20-Poly1305 over
IPv6. The tests install the SAs through the engines' admin sockets, without the controllers.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.packet import Frame
from sluice_testkit.sluice_esp import EspEngineProcess, SluiceEsp, SwitchEsp
from sluice_topo.network import Network
from sluice_topo.routers import P4Router

from ..protected.monitor import is_arp, is_esp, is_neighbor_discovery
from ..protected.network import ENGINE_PORT, TUNNEL, engine_place, started

ALGORITHM = {12: "aes-128-gcm", 21: "aes-128-gcm", 13: "chacha20-poly1305", 31: "chacha20-poly1305"}
KEY_BYTES = {"aes-128-gcm": 20, "chacha20-poly1305": 36}
HEADERS_AND_TRAILER = 8 + 8 + 3 + 2 + 16
"""Bytes of SPI and sequence number, IV, longest padding, trailer and ICV, for both algorithms."""


def key(number: int) -> str:
    """Returns the key of an SA. Each SA has a different key."""
    length = KEY_BYTES[ALGORITHM[number]]
    return hashlib.shake_128(f"key of {number}".encode()).hexdigest(length)


def outbound_spec(number: int, bundle: int, **more: Any) -> dict[str, Any]:
    """Returns the specification of an SA for the engine that encrypts."""
    sa = TUNNEL[number]
    ends = {"local": sa.source, "remote": sa.destination}
    return _spec("out", number, bundle) | ends | more


def inbound_spec(number: int, bundle: int, **more: Any) -> dict[str, Any]:
    """Returns the specification of an SA for the engine that decrypts."""
    return _spec("in", number, bundle) | more


def _spec(direction: str, number: int, bundle: int) -> dict[str, Any]:
    return {
        "direction": direction,
        "sa": number,
        "spi": TUNNEL[number].spi,
        "bundle": bundle,
        "mode": "tunnel",
        "algorithm": ALGORITHM[number],
        "key": key(number),
        "esn": ALGORITHM[number] == "aes-128-gcm",
    }


def specs(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the specifications of all SAs that a router's configuration refers to."""
    found = []
    for bundle in config["bundles"]:
        if "outbound" in bundle:
            found.append(outbound_spec(bundle["outbound"]["sa"], bundle["id"]))
        found += [inbound_spec(sa["sa"], bundle["id"]) for sa in bundle.get("inbound", ())]
    return found


class Protected:
    """Holds the running network and its engines."""

    def __init__(self, network: Network, engines: Mapping[str, EspEngineProcess]):
        self.network = network
        self.engines = engines

    @property
    def between(self) -> Namespace:
        """The namespace of t, which all protected traffic passes through."""
        return self.network.routers["t"].namespace

    def restore(self, name: str) -> None:
        """Adds a router's SAs to its engine again, for example after the engine was restarted."""
        self.engines[name].add(specs(self.network.p4_router(name).controller.config))


@contextmanager
def running(lab: Lab, inside: bool) -> Iterator[Protected]:
    """Starts the network and installs the SAs. With `inside`, the engines are inside the
    switches.
    """

    @contextmanager
    def attach(router: P4Router) -> Iterator[EspEngineProcess]:
        config = router.controller.config
        for bundle in config["bundles"]:
            if "outbound" in bundle:
                outer = 40 if ":" in bundle["outbound"]["local"] else 20
                bundle["outbound"]["overhead"] = outer + HEADERS_AND_TRAILER
        if inside:
            config["engines"] = [
                {"id": one["id"], "port": one["port"]} for one in config["engines"]
            ]
            yield _inside(router, lab)
        else:
            yield _beside(router, lab)

    with started(lab, attach) as (network, engines):
        protected = Protected(network, engines)
        for name in engines:
            protected.restore(name)
        yield protected


def _beside(router: P4Router, lab: Lab) -> EspEngineProcess:
    place = engine_place(lab, router)
    engine = SluiceEsp(f"{router.name}-esp", place, "engine", lab.directory, lab.supervisor)
    engine.start()
    return engine


def _inside(router: P4Router, lab: Lab) -> EspEngineProcess:
    controller = router.controller
    return SwitchEsp(f"{router.name}-esp", router.target, ENGINE_PORT, controller, lab.directory)


class LinkCaptures:
    """Captures the frames that the routers send on t's links.

    `check` fails if one of them is neither ESP, ARP nor neighbour discovery.
    """

    def __init__(self, captures: dict[str, Capture]):
        self._captures = captures

    def sent(self, interface: str) -> list[Frame]:
        """Returns the frames that t received on an interface."""
        return [frame for frame in self._captures[interface].frames() if not frame.outgoing]

    def esp(self, interface: str) -> list[Frame]:
        """Returns the ESP packets that t received on an interface."""
        return list(filter(is_esp, self.sent(interface)))

    def check(self) -> None:
        """Checks that the routers have sent no frame in clear."""
        for interface in self._captures:
            for frame in self.sent(interface):
                allowed = is_esp(frame) or is_arp(frame) or is_neighbor_discovery(frame)
                assert allowed, f"in clear on {interface}: {frame}"
