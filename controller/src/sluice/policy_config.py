# SPDX-License-Identifier: Apache-2.0
"""The part of the configuration that is about IPsec: SPDs, bundles of SAs, and their engines.

    engines: [{id: 1, port: 9}]
    bundles:
      - name: branch
        id: 1
        spd: corp
        outbound: {engine: 1, sa: 100, local: 10.0.1.1, path_mtu: 1500, overhead: 73}
        inbound: [{spi: 4096, engine: 1, sa: 200}]
    spds:
      - {name: corp, file: corp.yaml, flow_cache: {size: 65536, idle_timeout: 60}}

A part of `config`, which reads the rest of the file; without any of these sections there is no
policy, and an interface's `spd` stays None. An SPD's rules stand in a file of their own (relative
to the configuration's directory) or here, under `inbound` and `outbound`; either way they are
validated with the rest. Depends on spdfile and yamlreader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sluice import scalars
from sluice.model import Address, parse_address
from sluice.policy_model import Direction, Rule
from sluice.spdfile import load_spd, read_lists
from sluice.yamlreader import ConfigError, Mapping, Value

NO_SPD = "none"


@dataclass(frozen=True, slots=True)
class FlowCacheConfig:
    """The cache of each of an SPD's lists: whether, how many flows, and for how long (seconds)."""

    enabled: bool = True
    size: int = 65536
    idle_timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class SpdConfig:
    """An SPD as it is at start; `file` where its rules come from a file."""

    name: str
    file: Path | None
    rules: dict[Direction, tuple[Rule, ...]]
    flow_cache: FlowCacheConfig = field(default_factory=FlowCacheConfig)
    icmp_errors_checked: bool = False
    """Whether an inbound ICMP error in clear that no rule matches is judged by what it quotes."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """An ESP engine and the switch port it is on; `l3_if` is that port's number in the pipeline.

    `device` names the port's own network device where this host can see it: while that is down or
    absent, the engine's packets are dropped as NO_ENGINE, as they are while the switch says that
    the port is.
    """

    id: int
    port: int
    l3_if: int
    device: str | None = None


@dataclass(frozen=True, slots=True)
class OutboundSa:
    """The SA that encrypts for a bundle. `path_mtu` and `overhead` are in bytes of IP packet.

    `local` is the source address of the ESP packets that it makes; `spi` the SPI in them, where it
    is known: ICMP errors about them are told by it.
    """

    engine: int
    sa: int
    local: Address
    path_mtu: int
    overhead: int
    spi: int | None = None


@dataclass(frozen=True, slots=True)
class InboundSa:
    """An SA to this router."""

    spi: int
    engine: int
    sa: int


@dataclass(frozen=True, slots=True)
class BundleConfig:
    """SAs that protect the same traffic of one VRF; rules name it, rekeys do not change it."""

    name: str
    id: int
    spd: str
    vrf: str
    outbound: OutboundSa | None
    inbound: tuple[InboundSa, ...]


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """All of it; empty where the configuration says nothing of policy."""

    spds: tuple[SpdConfig, ...] = ()
    engines: tuple[EngineConfig, ...] = ()
    bundles: tuple[BundleConfig, ...] = ()

    def bundle_names(self, spd: str) -> frozenset[str]:
        """The bundles that an SPD's rules may name."""
        return frozenset(bundle.name for bundle in self.bundles if bundle.spd == spd)

    def bundle_ids(self) -> dict[str, int]:
        """The pipeline's number of each bundle."""
        return {bundle.name: bundle.id for bundle in self.bundles}


def read_policy(
    root: Mapping, directory: Path, ports: dict[int, str], first_l3_if: int, vrfs: tuple[str, ...]
) -> PolicyConfig:
    """The sections `spds`, `engines` and `bundles`.

    `ports` are taken by interfaces (port: name); engines' l3_if count from `first_l3_if`.
    """
    engines = _read_engines(root.sequence("engines"), ports, first_l3_if)
    values = root.sequence("spds")
    engine_ids = frozenset(engine.id for engine in engines)
    bundles = _read_bundles(root.sequence("bundles"), spd_names(root), engine_ids, vrfs)
    policy = PolicyConfig((), engines, bundles)
    return PolicyConfig(_read_spds(values, directory, policy), engines, bundles)


def spd_names(root: Mapping) -> frozenset[str]:
    """The names under `spds`, whatever else is wrong there."""
    names = (value.peek("name") for value in root.sequence("spds"))
    return frozenset(name for name in names if name is not None)


def read_interface_spd(section: Mapping, spds: frozenset[str]) -> str | None:
    """An interface's `spd`: a name, or None for `none`. Must be said once there is any SPD."""
    value = section.value("spd")
    if value is None or value.is_null():
        if spds:
            section.problem("spd", f"is missing: {', '.join(sorted(spds))}, or {NO_SPD}")
        return None
    name = value.convert(scalars.name)
    if name is None or name == NO_SPD:
        return None
    if name not in spds:
        known = ", ".join(sorted(spds)) or "nothing"
        value.problem(f"there is no SPD {name!r}; `spds:` has {known}; or write {NO_SPD}")
    return name


def _read_spds(values: list[Value], directory: Path, policy: PolicyConfig) -> tuple[SpdConfig, ...]:
    spds: dict[str, SpdConfig] = {}
    for value in values:
        section = value.mapping()
        spd = _read_spd(section, directory, policy)
        section.close()
        if spd is not None and spd.name in spds:
            value.problem(f"there is an SPD {spd.name!r} already; give each its own name")
        elif spd is not None:
            spds[spd.name] = spd
    return tuple(spds.values())


def _read_spd(section: Mapping, directory: Path, policy: PolicyConfig) -> SpdConfig | None:
    name = section.required("name", scalars.name, "the SPD's name")
    if name == NO_SPD:
        section.problem("name", f"{NO_SPD!r} stands for no SPD; choose another name")
    bundles = policy.bundle_names(name or "")
    file = section.value("file")
    inline = read_lists(section, bundles)
    cache = _read_flow_cache(section.section("flow_cache"))
    are_errors_checked = section.optional("icmp_errors", _icmp_errors, False)
    if file is None:
        return None if name is None else SpdConfig(name, None, inline, cache, are_errors_checked)
    if any(inline.values()):
        section.problem("file", "rules from a file or rules here, not both")
    path = file.convert(lambda given: directory / scalars.text(given))
    if name is None or path is None:
        return None
    try:
        text = load_spd(path, bundles)
    except ConfigError as error:
        file.include(error)
        return None
    if text.name != name:
        file.problem(f"{path} is the SPD {text.name!r}, not {name!r}")
    return SpdConfig(name, path, text.rules, cache, are_errors_checked)


def _icmp_errors(value: object) -> bool:
    """`checked`, or `off`, which YAML 1.1 reads as false where it is not in quotes."""
    if value is False or value in ("off", "checked"):
        return value == "checked"
    raise ValueError(f"{value!r} is neither off nor checked")


def _read_flow_cache(section: Mapping) -> FlowCacheConfig:
    default = FlowCacheConfig()
    cache = FlowCacheConfig(
        section.optional("enabled", scalars.boolean, default.enabled),
        section.optional("size", scalars.integer(1, 1_000_000), default.size),
        section.optional("idle_timeout", scalars.number(1.0, 86400.0), default.idle_timeout),
    )
    section.close()
    return cache


def _read_engines(
    values: list[Value], ports: dict[int, str], first_l3_if: int
) -> tuple[EngineConfig, ...]:
    engines: dict[int, EngineConfig] = {}
    taken = dict(ports)
    for l3_if, value in enumerate(values, first_l3_if):
        section = value.mapping()
        number = section.required("id", scalars.integer(1, 255), "the engine's number")
        port = section.required("port", scalars.integer(0, 509), "the switch port that it is on")
        device = section.optional("device", scalars.interface_name, None)
        section.close()
        if number is None or port is None:
            continue
        if number in engines:
            value.problem(f"there is an engine {number} already; give each its own id")
        if port in taken:
            value.problem(f"port {port} belongs to {taken[port]}; an engine has a port to itself")
        taken[port] = f"engine {number}"
        engines[number] = EngineConfig(number, port, l3_if, device)
    return tuple(engines.values())


def _read_bundles(
    values: list[Value], spds: frozenset[str], engines: frozenset[int], vrfs: tuple[str, ...]
) -> tuple[BundleConfig, ...]:
    bundles: list[BundleConfig] = []
    names: set[str] = set()
    numbers: set[int] = set()
    spis: dict[tuple[str, int], str] = {}
    for value in values:
        section = value.mapping()
        bundle = _read_bundle(section, spds, engines, vrfs)
        section.close()
        if bundle is None:
            continue
        if bundle.name in names or bundle.id in numbers:
            value.problem("an earlier bundle has this name or id; give each its own")
        for sa in bundle.inbound:
            if (bundle.vrf, sa.spi) in spis:
                owner = spis[bundle.vrf, sa.spi]
                value.problem(f"SPI {sa.spi} of VRF {bundle.vrf} belongs to {owner!r} already")
            spis[bundle.vrf, sa.spi] = bundle.name
        names.add(bundle.name)
        numbers.add(bundle.id)
        bundles.append(bundle)
    return tuple(bundles)


def _read_bundle(
    section: Mapping, spds: frozenset[str], engines: frozenset[int], vrfs: tuple[str, ...]
) -> BundleConfig | None:
    name = section.required("name", scalars.name, "the bundle's name, which rules use")
    number = section.required("id", scalars.integer(1, 0xFFFF), "the bundle's number")
    spd = section.required("spd", scalars.one_of(spds), "the SPD whose rules use it")
    vrf = section.optional("vrf", scalars.one_of(vrfs), vrfs[0])
    outbound = None
    if section.value("outbound") is not None:
        outbound = _read_outbound(section.section("outbound"), engines)
    inbound = tuple(
        sa
        for value in section.sequence("inbound")
        if (sa := _read_inbound(value.mapping(), engines)) is not None
    )
    if name is None or number is None or spd is None:
        return None
    return BundleConfig(name, number, spd, vrf, outbound, inbound)


def _read_outbound(section: Mapping, engines: frozenset[int]) -> OutboundSa | None:
    engine = section.required("engine", scalars.one_of(engines), "the engine that encrypts")
    sa = section.required("sa", scalars.integer(0, 0xFFFFFFFF), "the SA's number in the engine")
    local = section.required(
        "local", _unicast, "the source address of the ESP packets that this router sends"
    )
    spi = section.optional("spi", scalars.integer(256, 0xFFFFFFFF), None)
    path_mtu = section.optional("path_mtu", scalars.integer(1280, 9216), 1500)
    overhead = section.required(
        "overhead", scalars.integer(0, 1000), "bytes that the SA adds, at most"
    )
    section.close()
    if engine is None or sa is None or local is None or overhead is None:
        return None
    return OutboundSa(engine, sa, local, path_mtu, overhead, spi)


def _unicast(value: object) -> Address:
    address = parse_address(scalars.text(value))
    first = address[0]
    if not any(address) or first == 127 or first >= (224 if len(address) == 4 else 255):
        raise ValueError(f"{value!r} is no address that a router sends from")
    return address


def _read_inbound(section: Mapping, engines: frozenset[int]) -> InboundSa | None:
    spi = section.required(
        "spi", scalars.integer(256, 0xFFFFFFFF), "the SPI (1 to 255 are reserved)"
    )
    engine = section.required("engine", scalars.one_of(engines), "the engine that decrypts")
    sa = section.required("sa", scalars.integer(0, 0xFFFFFFFF), "the SA's number in the engine")
    section.close()
    if spi is None or engine is None or sa is None:
        return None
    return InboundSa(spi, engine, sa)
