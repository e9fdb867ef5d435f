# SPDX-License-Identifier: Apache-2.0
"""Starts the hub and spokes of e2e.protected. Their controllers install the SAs in the engines.

The tunnel between r1 and r2 is AES-128-GCM with ESN over IPv4; the tunnel between r1 and r3 is
ChaCha20-Poly1305 over IPv6. r1 has two engines. The second engine has its own outbound SA to r2,
and takes over if the first engine fails. If the target is sluice-switch, r3's engine is inside its
switch. All other engines are `sluice-esp`.
"""

import gzip
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sluice_testkit.esp_engine import ENGINE_MTU
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.sluice_esp import EspEngineProcess, SluiceEsp, SwitchEsp
from sluice_testkit.target import target_name
from sluice_topo.network import Network
from sluice_topo.routers import P4Router

from ..protected.network import ENGINE_PORT, TUNNEL, engine_place, started

ALGORITHM = {12: "aes-128-gcm", 21: "aes-128-gcm", 13: "chacha20-poly1305", 31: "chacha20-poly1305"}
KEY_BYTES = {"aes-128-gcm": 20, "chacha20-poly1305": 36}
NAMES = {12: "r1-to-r2", 21: "r2-to-r1", 13: "r1-to-r3", 31: "r3-to-r1"}
SPARE, SPARE_SPI = "r1-to-r2-spare", 0x1A02
SECOND_PORT = 10
"""Port of r1's second engine."""


def key(label: str, algorithm: str) -> str:
    """Returns the key of this algorithm that belongs to a label, in hexadecimal."""
    return hashlib.shake_128(f"key of {label}".encode()).hexdigest(KEY_BYTES[algorithm])


@dataclass
class Engines:
    """Holds a router's engines, the preferred engine first, and the directory of its keys."""

    all: list[EspEngineProcess]
    keys: Path
    told: list[str] = field(default_factory=list)
    """All keys that `key_file` has written. A test searches for them in logs, files and outputs."""

    def key_file(self, label: str, algorithm: str = "aes-128-gcm", mode: int = 0o600) -> Path:
        """Writes the key that belongs to a label to a file. Returns the file's path."""
        path = self.keys / label
        path.touch(mode=mode)
        path.chmod(mode)
        path.write_text(key(label, algorithm) + "\n", encoding="utf-8")
        self.told.append(key(label, algorithm))
        return path


class Sites:
    """Holds the running network, and controls its routers."""

    def __init__(self, network: Network, engines: dict[str, Engines], directory: Path):
        self.network = network
        self.engines = engines
        self.directory = directory

    @property
    def between(self) -> Namespace:
        """The namespace of t, which all protected traffic passes through."""
        return self.network.routers["t"].namespace

    def router(self, name: str) -> P4Router:
        """Returns the router of this name."""
        return self.network.p4_router(name)

    def sluice(self, router: str, *words: str) -> str:
        """Runs the `sluice` command for a router and returns its output."""
        controller = self.router(router).controller
        return controller.command(*words, "--socket", str(controller.socket))

    def sas(self, router: str) -> dict[tuple[str, int], dict[str, Any]]:
        """Returns the SAs of `sluice sa list`, by name and SPI."""
        listed = self.router(router).controller.ask(command="show", what="sas")
        return {(one["name"], one["spi"]): one for one in listed}

    def state(self, router: str, name: str, spi: int) -> str | None:
        """Returns the state of a router's SA, or None if the SA is not listed."""
        found = self.sas(router).get((name, spi))
        return None if found is None else str(found["state"])

    def drops(self, router: str, reason: str) -> int:
        """Returns the number of packets that the router's switch has dropped for this reason."""
        counters = self.router(router).controller.ask(command="show", what="counters")
        return int(counters["switch_drops"].get(reason, {"packets": 0})["packets"])

    def problems(self, router: str) -> str:
        """Returns the problems that `show status` lists for a router."""
        status = self.router(router).controller.ask(command="show", what="status")
        return "\n".join(status["problems"])

    def file_of(self, router: str, *sas: dict[str, Any]) -> str:
        """Writes SAs to a file for `sluice sa add` and returns its path."""
        path = self.directory / f"{router}-add.yaml"
        path.write_text(yaml.safe_dump({"security_associations": list(sas)}), encoding="utf-8")
        return str(path)

    def rekey(self, number: int, spi: int) -> None:
        """Rekeys an SA at its two routers, first at the one that decrypts."""
        from_, _, to = NAMES[number].split("-")
        label = f"{NAMES[number]}-{spi:x}"
        for router in (to, from_):
            path = self.engines[router].key_file(label, ALGORITHM[number])
            self.sluice(
                router, "sa", "rekey", NAMES[number], "--spi", f"{spi:#x}", "--key-file", str(path)
            )

    def without_configured(self, router: str, bundle: str) -> None:
        """Reloads a router's configuration without the outbound SAs of a bundle."""
        controller = self.router(router).controller
        config = controller.config
        left = [
            sa
            for sa in config["security_associations"]
            if (sa["bundle"], sa["direction"]) != (bundle, "outbound")
        ]
        self._reload(router, config | {"security_associations": left})

    def restore_configured(self, router: str) -> None:
        """Writes a router's original configuration again, and reloads it."""
        self._reload(router, self.router(router).controller.config)

    def _reload(self, router: str, config: dict[str, Any]) -> None:
        self.router(router).controller.config_path.write_text(
            yaml.safe_dump(config), encoding="utf-8"
        )
        self.sluice(router, "reload")

    def everything_written(self) -> str:
        """Returns the text of all logs, and of all files in the controllers' state directories."""
        texts = [path.read_text("utf-8", "replace") for path in self.directory.rglob("*.log")]
        for name in self.engines:
            state = Path(self.router(name).controller.config["state_dir"])
            texts += [_text(path) for path in state.rglob("*") if path.is_file()]
        return "\n".join(texts)


def _text(path: Path) -> str:
    """Returns the text of a file, which may be compressed."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    return data.decode("utf-8", "replace")


def outbound(number: int, bundle: str, key_file: Path, **more: Any) -> dict[str, Any]:
    """Returns the configuration of a tunnel's SA for the router that encrypts."""
    sa = TUNNEL[number]
    ends = {"local": sa.source, "remote": sa.destination}
    return _common(number, bundle, key_file) | {"direction": "outbound"} | ends | more


def inbound(number: int, bundle: str, key_file: Path, **more: Any) -> dict[str, Any]:
    """Returns the configuration of a tunnel's SA for the router that decrypts."""
    return _common(number, bundle, key_file) | {"direction": "inbound"} | more


def _common(number: int, bundle: str, key_file: Path) -> dict[str, Any]:
    return {
        "name": NAMES[number],
        "bundle": bundle,
        "spi": TUNNEL[number].spi,
        "algorithm": ALGORITHM[number],
        "esn": ALGORITHM[number] == "aes-128-gcm",
        "key_file": str(key_file),
    }


def configure(config: dict[str, Any], engines: Engines) -> None:
    """Replaces the SA numbers in a router's configuration by named SAs with key files."""
    sas: list[dict[str, Any]] = []
    for bundle in config["bundles"]:
        name = bundle["name"]
        if "outbound" in bundle:
            number = bundle.pop("outbound")["sa"]
            path = engines.key_file(NAMES[number], ALGORITHM[number])
            more = {"engine": 1} if number == 12 else {}
            sas.append(outbound(number, name, path, **more))
        for sa in bundle.pop("inbound", ()):
            number = sa["sa"]
            path = engines.key_file(NAMES[number], ALGORITHM[number])
            sas.append(inbound(number, name, path))
    config["security_associations"] = sas


def add_spare(config: dict[str, Any], engines: Engines, router: str) -> None:
    """Adds the standby SA from r1 to r2, which r1's second engine uses when the first one fails."""
    path = engines.key_file(SPARE)
    spare = {"name": SPARE, "spi": SPARE_SPI}
    if router == "r1":
        sa = outbound(12, "spoke2", path) | spare | {"engine": 2}
    else:
        (bundle,) = (one["name"] for one in config["bundles"])
        sa = inbound(12, bundle, path) | spare
    config["security_associations"].append(sa)


@contextmanager
def running(lab: Lab) -> Iterator[Sites]:
    """Starts the network, with SAs from the configuration."""

    @contextmanager
    def attach(router: P4Router) -> Iterator[Engines]:
        config = router.controller.config
        keys = lab.directory / f"{router.name}-keys"
        keys.mkdir(mode=0o700)
        if router.name == "r3" and target_name() == "sluice-switch":
            engines = Engines([_inside(lab, router)], keys)
        else:
            engines = Engines(_beside(lab, router), keys)
        for configured, engine in zip(config["engines"], engines.all, strict=True):
            configured["admin"] = str(engine.admin)
        configure(config, engines)
        if router.name != "r3":
            add_spare(config, engines, router.name)
        yield engines

    with started(lab, attach) as (network, engines):
        yield Sites(network, engines, lab.directory)


def _inside(lab: Lab, router: P4Router) -> EspEngineProcess:
    """Configures the engine inside a router's switch. It starts with the switch."""
    controller = router.controller
    del controller.config["engines"][0]["device"]
    return SwitchEsp(f"{router.name}-esp", router.target, ENGINE_PORT, controller, lab.directory)


def _beside(lab: Lab, router: P4Router) -> list[EspEngineProcess]:
    """Starts `sluice-esp` engines in a separate namespace: two for r1, one for any other router."""
    place, name = engine_place(lab, router), router.name
    engines = [SluiceEsp(f"{name}-esp", place, "engine", lab.directory, lab.supervisor)]
    if name == "r1":
        veth(router.namespace, "port10", place, "engine2", mtu=ENGINE_MTU)
        place.silence("engine2")
        router.target.ports[SECOND_PORT] = "port10"
        second = SluiceEsp(f"{name}-esp2", place, "engine2", lab.directory, lab.supervisor)
        engines.append(second)
        one = {"id": 2, "port": SECOND_PORT, "device": "port10"}
        router.controller.config["engines"].append(one)
    for engine in engines:
        engine.start()
    return [*engines]
