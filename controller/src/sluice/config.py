# SPDX-License-Identifier: Apache-2.0
"""The router's configuration: one YAML file, validated whole.

`load_config(path)` returns a `Config` or raises `ConfigError`, which lists *every* problem found,
each with file, line, where in the document, what is wrong and what to do. Nothing is applied from
a file with a problem. Depends on model, connection_config and policy_config, and on
`yamlreader` for reading with line numbers.

docs/how-to/configure.md shows a commented example; the dataclasses here are the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from sluice import scalars
from sluice.connection_config import (
    FpmConfig,
    IkeConfig,
    SwitchAddress,
    SwitchConfig,
    read_fpm,
    read_ike,
    read_metrics,
    read_switch,
)
from sluice.interface_address import interface_address
from sluice.model import MAIN_TABLE, InterfaceAddress, InterfaceSpec, Mac, format_mac, parse_mac
from sluice.namespaces import HOME
from sluice.policy_config import PolicyConfig, read_interface_spd, read_policy, spd_names
from sluice.yamlreader import ConfigError, Mapping, Reader, Value

__all__ = ["Config", "ConfigError", "InterfaceConfig", "Limits", "PuntRate", "load_config"]

DEFAULT_VRF = "default"
MAX_INTERFACES = 1024  # what the pipeline has room for, engines among them
KERNEL_TABLES = {253: "default table", 255: "local table"}
DEFAULT_AUDIT_RATE = 100
PUNT_REASONS = (
    "ARP",
    "LINK_PROTOCOL",
    "NEIGHBOR_DISCOVERY",
    "ROUTING_PROTOCOL",
    "IKE",
    "LOCAL",
    "TTL_EXCEEDED",
    "MTU_EXCEEDED",
    "NEIGHBOR_UNRESOLVED",
    "NO_ROUTE",
    "UNREACHABLE",
    "PROHIBITED",
    "IP_OPTIONS",
    "EXTENSION_HEADERS",
    "INBOUND_MISS",
    "OUTBOUND_MISS",
    "FRAGMENT",
    "AUDIT",
)


class Isolation(Enum):
    """How the host stack keeps a VRF apart from the default one."""

    DEVICE = "device"
    """By a VRF device of the kernel's."""
    NAMESPACE = "namespace"
    """By a network namespace of its own."""
    SHARED = "shared"
    """Not: what it gets and sends is limited to what answers in place."""


@dataclass(frozen=True, slots=True)
class VrfConfig:
    """A VRF: its number in the pipeline and its kernel routing table.

    `next_hop_vrfs` names other VRFs by whose interfaces its routes may lead. `device` is the name
    of the kernel's VRF device and `namespace` that of the network namespace, where there is one;
    None for the default VRF. `isolation` is how the host stack keeps the VRF apart; None until that
    is decided (`sources.vrf_places`), and for the default VRF.
    """

    name: str
    id: int
    table: int
    next_hop_vrfs: frozenset[str] = frozenset()
    device: str | None = None
    namespace: str | None = None
    isolation: Isolation | None = None

    @property
    def place(self) -> int:
        """The number of the network namespace that the VRF's interfaces are in."""
        return self.id if self.isolation is Isolation.NAMESPACE else HOME


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """A layer-3 interface: a switch port, or one VLAN of it, and the TAP of the same `name`.

    `l3_if` is its number in the pipeline (position in the file, from 1). `device` is the port's
    own network device where this host can see it; the TAP's carrier follows that device's. `spd` is
    the SPD that guards it, None for `none`.
    """

    name: str
    l3_if: int
    port: int
    vlan: int
    mac: Mac
    mtu: int
    addresses: tuple[InterfaceAddress, ...]
    vrf: VrfConfig
    device: str | None
    spd: str | None = None

    @property
    def spec(self) -> InterfaceSpec:
        """What the state machines need to know of it."""
        return InterfaceSpec(
            name=self.name,
            l3_if=self.l3_if,
            port=self.port,
            vlan=self.vlan,
            vrf=self.vrf.id,
            mac=self.mac,
            mtu=self.mtu,
            device=self.device,
            namespace=self.vrf.place,
        )


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The audit log, and how many events of each kind it takes a second."""

    file: Path
    rate: int = DEFAULT_AUDIT_RATE


@dataclass(frozen=True, slots=True)
class PuntRate:
    """How many packets a second of one punt reason the CPU is willing to take."""

    rate: int
    burst: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the controller spends at most."""

    held_packets_per_neighbor: int = 32
    held_packets: int = 1024
    held_seconds: float = 3.0
    icmp_errors_per_second: int = 1000
    icmp_errors_burst: int = 100
    punt_queue: int = 8192
    fragment_datagrams: int = 8192
    fragments_waiting: int = 2048
    fragment_seconds: float = 5.0
    auditor_per_second: int = 5000
    auditor_seconds: float = 5.0


DEFAULT_PUNT_RATE = PuntRate(rate=1000, burst=200)
DEFAULT_PUNT_RATES = {
    "ROUTING_PROTOCOL": PuntRate(rate=10000, burst=2000),
    "NEIGHBOR_DISCOVERY": PuntRate(rate=2000, burst=400),
    "LOCAL": PuntRate(rate=10000, burst=2000),
    "MTU_EXCEEDED": PuntRate(rate=5000, burst=500),
    "INBOUND_MISS": PuntRate(rate=20000, burst=4000),
    "OUTBOUND_MISS": PuntRate(rate=20000, burst=4000),
    "FRAGMENT": PuntRate(rate=20000, burst=4000),
    "AUDIT": PuntRate(rate=100, burst=100),
}


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration."""

    router: str
    switch: SwitchConfig
    fpm: FpmConfig
    api_socket: Path
    state_dir: Path
    audit: AuditConfig
    vrfs: tuple[VrfConfig, ...]
    interfaces: tuple[InterfaceConfig, ...]
    limits: Limits = field(default_factory=Limits)
    punt_rates: dict[str, PuntRate] = field(default_factory=dict)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ike: IkeConfig = field(default_factory=IkeConfig)
    metrics_listen: SwitchAddress | None = None
    """Where metrics are served to Prometheus; None: nowhere."""

    def next_hop_vrfs(self) -> dict[int, frozenset[int]]:
        """By number: the other VRFs by whose interfaces a VRF's routes may lead."""
        ids = {vrf.name: vrf.id for vrf in self.vrfs}
        return {vrf.id: frozenset(ids[name] for name in vrf.next_hop_vrfs) for vrf in self.vrfs}


def load_config(path: str | Path) -> Config:
    """Read and validate the file. Raises ConfigError naming every problem."""
    reader = Reader.from_file(Path(path))
    config = _read_config(reader.root(), Path(path).parent)
    reader.finish()
    if config is None:  # finish() has raised already: a problem was recorded for each None
        raise ConfigError([f"{path}: empty configuration"])
    return config


# --- sections ------------------------------------------------------------------------------------


def _read_config(root: Mapping, directory: Path) -> Config | None:
    router = (
        root.required("router", scalars.name, "the router's name, like `router: r1`") or "router"
    )
    vrfs = _read_vrfs(root.section("vrfs"))
    interfaces = _read_interfaces(root, vrfs)
    _check_vrf_devices(root, vrfs.values(), interfaces)
    _check_vrf_namespaces(root, vrfs.values())
    state_dir = root.optional("state_dir", _path, Path(f"/var/lib/sluice/{router}"))
    config = Config(
        router=router,
        switch=read_switch(root.section("switch"), router, directory),
        fpm=read_fpm(root.section("fpm")),
        api_socket=root.section("api").optional(
            "socket", _path, Path(f"/run/sluice/{router}.sock")
        ),
        state_dir=state_dir,
        audit=_read_audit(root.section("audit"), state_dir),
        vrfs=tuple(vrfs.values()),
        interfaces=interfaces,
        limits=_read_limits(root.section("limits")),
        punt_rates=_read_punt_rates(root.section("punt_rates")),
        policy=read_policy(
            root,
            directory,
            ports={interface.port: interface.name for interface in interfaces},
            first_l3_if=len(root.sequence("interfaces")) + 1,
            vrfs=tuple(vrfs),
        ),
        ike=read_ike(root.section("ike")),
        metrics_listen=read_metrics(root.section("metrics")),
    )
    root.section("api").close()
    root.close()
    return config


def _read_audit(section: Mapping, state_dir: Path) -> AuditConfig:
    audit = AuditConfig(
        file=section.optional("file", _path, state_dir / "audit.log"),
        rate=section.optional("rate", scalars.integer(1, 100_000), DEFAULT_AUDIT_RATE),
    )
    section.close()
    return audit


def _read_vrfs(section: Mapping) -> dict[str, VrfConfig]:
    vrfs = {DEFAULT_VRF: VrfConfig(DEFAULT_VRF, 0, MAIN_TABLE)}
    tables = {MAIN_TABLE: DEFAULT_VRF}
    names = {DEFAULT_VRF, *(name for name, _ in section.items())}
    for name, value in section.items():
        vrf = value.mapping()
        others = _read_next_hop_vrfs(vrf, names - {name})
        if name == DEFAULT_VRF:
            if vrf.value("table") is not None:
                vrf.problem("table", "the default VRF has the main table; remove this")
            vrf.close()
            vrfs[name] = VrfConfig(name, 0, MAIN_TABLE, others)
            continue
        table = vrf.required(
            "table", scalars.integer(1, 2**32 - 1), "the kernel's routing table number"
        )
        device = vrf.optional("device", scalars.interface_name, _device_name(name, table))
        namespace = vrf.optional("namespace", scalars.name, _namespace_name(name, table))
        kinds = tuple(kind.value for kind in Isolation)
        isolation = vrf.optional("isolation", scalars.one_of(kinds), None)
        vrf.close()
        if table is None:
            continue
        if table in KERNEL_TABLES:
            value.problem(f"table {table} is the kernel's {KERNEL_TABLES[table]}; use another")
            continue
        if table in tables:
            value.problem(f"table {table} belongs to VRF {tables[table]!r}; give each its own")
            continue
        tables[table] = name
        kind = None if isolation is None else Isolation(isolation)
        vrfs[name] = VrfConfig(name, len(vrfs), table, others, device, namespace, kind)
    return vrfs


def _namespace_name(vrf: str, table: int | None) -> str:
    """The name of a VRF's network namespace unless the file gives one, by the same rule."""
    try:
        return scalars.name(vrf)
    except ValueError:
        return f"vrf{table}"


def _device_name(vrf: str, table: int | None) -> str:
    """The name of a VRF's device unless the file gives one: the VRF's where it can be."""
    try:
        return scalars.interface_name(vrf)
    except ValueError:
        return f"vrf{table}"


def _read_next_hop_vrfs(vrf: Mapping, others: set[str]) -> frozenset[str]:
    name = scalars.one_of(tuple(sorted(others)))
    read = (value.convert(name) for value in vrf.sequence("next_hop_vrfs"))
    return frozenset(one for one in read if one is not None)


def _read_interfaces(root: Mapping, vrfs: dict[str, VrfConfig]) -> tuple[InterfaceConfig, ...]:
    values = root.sequence("interfaces")
    if not values:
        root.problem("interfaces", "a router needs at least one entry under `interfaces:`")
    if len(values) > MAX_INTERFACES:
        root.problem("interfaces", f"the pipeline has room for {MAX_INTERFACES} interfaces")
    interfaces: list[InterfaceConfig] = []
    seen = _Uniqueness()
    spds = spd_names(root)
    for index, value in enumerate(values):
        section = value.mapping()
        interface = _read_interface(section, index + 1, vrfs, spds)
        section.close()
        if interface is not None:
            seen.check(interface, value)
            interfaces.append(interface)
    return tuple(interfaces)


def _check_vrf_devices(
    root: Mapping, vrfs: Iterable[VrfConfig], interfaces: Iterable[InterfaceConfig]
) -> None:
    """A VRF device needs a name of its own among the network devices."""
    taken = {"lo": "loopback"}
    for interface in interfaces:
        taken[interface.name] = f"interface {interface.name!r}"
        if interface.device is not None:
            taken[interface.device] = f"the port of interface {interface.name!r}"
    for vrf in vrfs:
        if vrf.device is None:
            continue
        if vrf.device in taken:
            problem = f"device {vrf.device!r} of VRF {vrf.name!r} is the name of"
            root.problem("vrfs", f"{problem} {taken[vrf.device]}; give the VRF another `device`")
        taken[vrf.device] = f"VRF {vrf.name!r}'s device"


def _check_vrf_namespaces(root: Mapping, vrfs: Iterable[VrfConfig]) -> None:
    """Each VRF has a network namespace for itself."""
    taken: dict[str | None, str] = {}
    for vrf in vrfs:
        if vrf.namespace in taken:
            problem = f"VRFs {taken[vrf.namespace]!r} and {vrf.name!r} have one network namespace"
            root.problem("vrfs", f"{problem}, {vrf.namespace!r}; give each its own `namespace`")
        if vrf.namespace is not None:
            taken[vrf.namespace] = vrf.name


def _read_interface(
    section: Mapping, l3_if: int, vrfs: dict[str, VrfConfig], spds: frozenset[str]
) -> InterfaceConfig | None:
    name = section.required("name", scalars.interface_name, "the interface's name, like r1-eth1")
    port = section.required("port", scalars.integer(0, 509), "the switch port's number")
    mac = section.required("mac", _unicast_mac, "the interface's MAC address")
    vlan = section.optional("vlan", scalars.integer(0, 4094), 0)
    mtu = section.optional("mtu", scalars.integer(1280, 9216), 1500)
    addresses = tuple(
        address
        for value in section.sequence("addresses")
        if (address := value.convert(interface_address)) is not None
    )
    vrf = section.optional("vrf", scalars.one_of(tuple(vrfs)), DEFAULT_VRF)
    device = section.optional("device", scalars.interface_name, None)
    if device is not None and device == name:
        section.problem("device", "the port's device and the TAP need different names")
    spd = read_interface_spd(section, spds)
    if name is None or port is None or mac is None:
        return None
    return InterfaceConfig(name, l3_if, port, vlan, mac, mtu, addresses, vrfs[vrf], device, spd)


class _Uniqueness:
    """What two interfaces must not share."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._ports: dict[tuple[int, int], str] = {}
        self._macs: dict[tuple[int, Mac], str] = {}
        self._prefixes: list[tuple[InterfaceAddress, InterfaceConfig]] = []

    def check(self, new: InterfaceConfig, value: Value) -> None:
        if new.name in self._names:
            value.problem(f"the name {new.name!r} is taken by an earlier interface; rename one")
        elif (owner := self._ports.get((new.port, new.vlan))) is not None:
            value.problem(f"port {new.port} vlan {new.vlan} belongs to {owner!r}; use another VLAN")
        elif (owner := self._macs.get((new.vlan, new.mac))) is not None:
            value.problem(f"MAC {format_mac(new.mac)} belongs to {owner!r}; give each its own")
        self._names.add(new.name)
        self._ports[new.port, new.vlan] = new.name
        self._macs[new.vlan, new.mac] = new.name
        for address in new.addresses:
            self._check_address(address, new, value)

    def _check_address(self, new: InterfaceAddress, to: InterfaceConfig, value: Value) -> None:
        for old, owner in self._prefixes:
            if owner.vrf != to.vrf or len(old.address) != len(new.address):
                continue
            if old.address == new.address:
                value.problem(f"address {new} is already on {owner.name!r}; remove one")
            elif owner.l3_if != to.l3_if and (
                old.prefix.covers(new.address) or new.prefix.covers(old.address)
            ):
                value.problem(f"{new} overlaps {old} of {owner.name!r}; use disjoint subnets")
        self._prefixes.append((new, to))


def _read_limits(section: Mapping) -> Limits:
    default = Limits()
    count = scalars.integer(0, 1_000_000)
    limits = Limits(
        held_packets_per_neighbor=section.optional(
            "held_packets_per_neighbor", count, default.held_packets_per_neighbor
        ),
        held_packets=section.optional("held_packets", count, default.held_packets),
        held_seconds=section.optional(
            "held_seconds", scalars.number(0.1, 60), default.held_seconds
        ),
        icmp_errors_per_second=section.optional(
            "icmp_errors_per_second", count, default.icmp_errors_per_second
        ),
        icmp_errors_burst=section.optional("icmp_errors_burst", count, default.icmp_errors_burst),
        punt_queue=section.optional(
            "punt_queue", scalars.integer(64, 1_000_000), default.punt_queue
        ),
        fragment_datagrams=section.optional(
            "fragment_datagrams", scalars.integer(1, 1_000_000), default.fragment_datagrams
        ),
        fragments_waiting=section.optional("fragments_waiting", count, default.fragments_waiting),
        fragment_seconds=section.optional(
            "fragment_seconds", scalars.number(0.1, 60), default.fragment_seconds
        ),
        auditor_per_second=section.optional(
            "auditor_per_second", scalars.integer(100, 1_000_000), default.auditor_per_second
        ),
        auditor_seconds=section.optional(
            "auditor_seconds", scalars.number(0.1, 3600), default.auditor_seconds
        ),
    )
    section.close()
    return limits


def _read_punt_rates(section: Mapping) -> dict[str, PuntRate]:
    rates = {reason: DEFAULT_PUNT_RATES.get(reason, DEFAULT_PUNT_RATE) for reason in PUNT_REASONS}
    for reason, value in section.items():
        if reason not in rates:
            value.problem(f"no such punt reason; one of {', '.join(PUNT_REASONS)}")
            continue
        entry = value.mapping()
        rate = entry.required("rate", scalars.integer(0, 10_000_000), "packets a second")
        burst = entry.optional("burst", scalars.integer(1, 1_000_000), max(1, (rate or 0) // 5))
        entry.close()
        if rate is not None:
            rates[reason] = PuntRate(rate, burst)
    return rates


# --- scalars: each converter takes the YAML scalar and returns a value or raises ValueError ------


def _path(value: object) -> Path:
    return Path(scalars.text(value))


def _unicast_mac(value: object) -> Mac:
    mac = parse_mac(scalars.text(value))
    if mac[0] & 1 or not any(mac):
        raise ValueError(f"{value!r} is not a unicast MAC address")
    return mac
