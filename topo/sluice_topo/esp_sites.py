# SPDX-License-Identifier: Apache-2.0
"""Runs the ESP engines of the two sites' routers. Writes the keys and configurations of the SAs
between these routers.

An engine is connected to a port of its router's switch, and runs in the router's namespace. Each
run generates new keys. The key of each SA is in a file at each router.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sluice_testkit.esp_engine import ENGINE_MTU
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.sluice_esp import SluiceEsp
from sluice_topo.network import Network
from sluice_topo.routers import P4Router

SPD, PROTECTED = "wan", "wan-protected.yaml"
ENGINE_PORT, KEY_BYTES = 9, 20
UNGUARDED_INTERFACE = "eth1"  # to the host
BUNDLES = {"r1": "site-b", "r2": "site-a"}
ENDS = {"r1": "10.1.0.1", "r2": "10.2.0.1"}
"""Tunnel addresses: each router's address on its site.

This address stays reachable if a transit link fails.
"""
SPIS = {"r1-to-r2": 0x1001, "r2-to-r1": 0x2001}


@dataclass
class Sites:
    """Holds the two routers with their engines. The directories of their keys are in `lab`'s
    directory.
    """

    network: Network
    lab: Lab
    engines: dict[str, SluiceEsp]

    def router(self, name: str) -> P4Router:
        """Returns the router of this name."""
        return self.network.p4_router(name)

    def new_key(self, name: str) -> None:
        """Generates a key and writes it to a file at each router."""
        key = secrets.token_hex(KEY_BYTES) + "\n"
        for router in BUNDLES:
            path = self.key_file(router, name)
            path.touch(mode=0o600)
            path.write_text(key, encoding="utf-8")

    def key_file(self, router: str, name: str) -> Path:
        """Returns the path of a key file at a router."""
        directory = self.lab.directory / f"{router}-keys"
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory / name

    def sa(self, router: str, name: str, spi: int, key: str, **more: Any) -> dict[str, Any]:
        """Returns the configuration of an SA for a router: outbound if the name begins with this
        router, otherwise inbound.
        """
        here, _, peer = name.split("-")
        sa: dict[str, Any] = {
            "name": name,
            "bundle": BUNDLES[router],
            "spi": spi,
            "algorithm": "aes-128-gcm",
            "esn": True,
            "key_file": str(self.key_file(router, key)),
        }
        if here == router:
            ends = {"local": ENDS[here], "remote": ENDS[peer]}
            return sa | {"direction": "outbound"} | ends | more
        return sa | {"direction": "inbound"}

    def configured(self, router: str, sas: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns a router's configuration with its engine, these SAs, and an SPD whose rules use
        them.
        """
        file = str(self.router(router).files / PROTECTED)
        return self._with_engine(router, {"name": SPD, "file": file}) | {
            "bundles": [{"name": BUNDLES[router], "id": 1, "spd": SPD}],
            "security_associations": sas,
        }

    def mirrored(self, router: str) -> dict[str, Any]:
        """Returns a router's configuration with its engine, and with an SPD that mirrors the
        kernel's policies.
        """
        return self._with_engine(router, {"name": SPD, "source": "kernel"})

    def _with_engine(self, router: str, spd: dict[str, Any]) -> dict[str, Any]:
        config = dict(self.router(router).controller.config)
        admin = str(self.engines[router].admin)
        config["engines"] = [
            {"id": 1, "port": ENGINE_PORT, "device": f"port{ENGINE_PORT}", "admin": admin}
        ]
        config["spds"] = [spd]
        config["interfaces"] = [
            interface | {"spd": "none" if interface["name"] == UNGUARDED_INTERFACE else SPD}
            for interface in config["interfaces"]
        ]
        return config

    def write(self, router: str, sas: list[dict[str, Any]]) -> None:
        """Writes a router's configuration file with these SAs, for a later reload."""
        controller = self.router(router).controller
        controller.config = controller.config | {"security_associations": sas}
        text = yaml.safe_dump(controller.config, sort_keys=False)
        controller.config_path.write_text(text, encoding="utf-8")

    def sending(self, router: str) -> set[int]:
        """Returns the SPIs of the outbound SAs in use at a router."""
        return {
            spi
            for spi, sa in self.sas(router).items()
            if sa["direction"] == "outbound" and sa["state"] == "in use"
        }

    def restart(self, router: str, config: dict[str, Any]) -> None:
        """Restarts a router's controller with another configuration."""
        controller = self.router(router).controller
        controller.stop()
        controller.config = config
        controller.start()

    def sas(self, router: str) -> dict[int, dict[str, Any]]:
        """Returns a router's SAs as in `sluice show sas`, by SPI."""
        return {one["spi"]: one for one in self.router(router).controller.show("sas")}


def attach_engines(network: Network, lab: Lab) -> Sites | None:
    """Starts an engine at each site's router. Precondition: the switches are not running.

    Returns None if one of these routers is not a P4 router.
    """
    sites = Sites(network, lab, {})
    for name in BUNDLES:
        router = network.routers[name]
        if not isinstance(router, P4Router):
            return None
        place = router.namespace
        veth(place, f"port{ENGINE_PORT}", place, "engine", mtu=ENGINE_MTU)
        for end in (f"port{ENGINE_PORT}", "engine"):
            place.silence(end)
        router.target.ports[ENGINE_PORT] = f"port{ENGINE_PORT}"
        engine = SluiceEsp(f"{name}-esp", place, "engine", lab.directory, lab.supervisor)
        engine.start()
        sites.engines[name] = engine
    return sites
