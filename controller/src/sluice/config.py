# SPDX-License-Identifier: Apache-2.0
"""Reads the router's configuration: one YAML file, validated as a whole.

`load_config(path)` returns a `Config` or raises `ConfigError`. The error lists *every* problem,
with file, line, position in the document, the fault, and the remedy. A file with a problem has no
effect at all. Depends on model, on the modules that read parts of the file (connection_config,
vrf_config, limits_config, policy.config), and on `yamlreader`, which keeps line numbers.

The schema consists of `RouterKeys` and the sections that it contains. `config_reference` generates
docs/reference/configuration.md from the schema. docs/how-to/configure.md has a commented example.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sluice import scalars
from sluice.config_keys import (
    ConfigSection,
    defaulted,
    list_of,
    optional,
    required,
    section_of,
    sections_of,
)
from sluice.connection_config import (
    FpmConfig,
    FpmKeys,
    IkeConfig,
    IkeKeys,
    MetricsKeys,
    SwitchAddress,
    SwitchConfig,
    SwitchKeys,
    read_fpm,
    read_ike,
    read_metrics,
    read_switch,
)
from sluice.interface_address import interface_address
from sluice.limits_config import (
    DEFAULT_PUNT_RATES,
    PUNT_REASONS,
    ControllerLimits,
    LimitKeys,
    PuntRate,
    PuntRateKeys,
    read_limits,
    read_punt_rates,
)
from sluice.model import InterfaceAddress, InterfaceSpec, Mac, format_mac, parse_mac
from sluice.policy.config import (
    BundleKeys,
    EngineKeys,
    PolicyConfig,
    SpdKeys,
    read_interface_spd,
    read_policy,
    spd_names,
)
from sluice.sa_config import SaKeys
from sluice.vrf_config import (
    DEFAULT_VRF,
    Isolation,
    VrfConfig,
    VrfKeys,
    check_namespaces,
    read_vrfs,
)
from sluice.yamlreader import ConfigError, YamlMapping, YamlReader, YamlValue

__all__ = [
    "DEFAULT_PUNT_RATES",
    "PUNT_REASONS",
    "AuditConfig",
    "Config",
    "ConfigError",
    "ControllerLimits",
    "InterfaceConfig",
    "Isolation",
    "PuntRate",
    "RouterKeys",
    "VrfConfig",
    "load_config",
]

MAX_INTERFACES = 1024  # maximum of the pipeline, with the engines' ports
RUN_DIRECTORY = "/run/sluice"
STATE_DIRECTORY = "/var/lib/sluice"


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """Describes a layer-3 interface: a switch port or one of its VLANs, and the TAP called `name`.

    `l3_if` is the interface's number in the pipeline: its position in the file, from 1. `device` is
    the network device behind the switch port, if this host has it. The TAP's carrier follows the
    carrier of this device. `spd` is the SPD that guards the interface, or None.
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
        """Returns the fields of the interface that the modules of `state` use."""
        return InterfaceSpec(
            name=self.name,
            l3_if=self.l3_if,
            port=self.port,
            vlan=self.vlan,
            vrf=self.vrf.id,
            mac=self.mac,
            mtu=self.mtu,
            device=self.device,
            namespace=self.vrf.namespace_number,
        )


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Holds the audit log's file, and the limit for each event type in events a second."""

    file: Path
    rate: int


@dataclass(frozen=True, slots=True)
class Config:
    """Holds a router's validated configuration."""

    router: str
    switch: SwitchConfig
    fpm: FpmConfig
    api_socket: Path
    state_dir: Path
    audit: AuditConfig
    vrfs: tuple[VrfConfig, ...]
    interfaces: tuple[InterfaceConfig, ...]
    limits: ControllerLimits = field(default_factory=ControllerLimits)
    punt_rates: dict[str, PuntRate] = field(default_factory=dict)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ike: IkeConfig = field(default_factory=IkeConfig)
    metrics_listen: SwitchAddress | None = None
    """Address that serves metrics to Prometheus. None: metrics are not served."""
    is_taken_over: bool = False
    """Whether `sluice up` made this configuration. The interfaces are then the kernel's own, and
    the routes are the kernel's. A file cannot set this."""

    def next_hop_vrfs(self) -> dict[int, frozenset[int]]:
        """Returns for each VRF the other VRFs whose interfaces its routes' next hops may use."""
        ids = {vrf.name: vrf.id for vrf in self.vrfs}
        return {vrf.id: frozenset(ids[name] for name in vrf.next_hop_vrfs) for vrf in self.vrfs}


# --- the schema ----------------------------------------------------------------------------------


@scalars.takes("unicast MAC address")
def _unicast_mac(value: object) -> Mac:
    mac = parse_mac(scalars.text(value))
    if mac[0] & 1 or not any(mac):
        raise ValueError(f"{value!r} is not a unicast MAC address")
    return mac


class ApiKeys(ConfigSection, title="api"):
    """Keys of the API socket."""

    socket = optional(
        scalars.path,
        "Unix socket of the JSON API, for `sluice` and other clients. Mode 0660.",
        f"`{RUN_DIRECTORY}/ROUTER.sock`",
    )


class AuditKeys(ConfigSection, title="audit"):
    """Keys of the audit log."""

    file = optional(
        scalars.path,
        "File of the audit log ([policy.md](../how-to/policy.md#audit-log)).",
        "`audit.log` in the state directory",
    )
    rate = defaulted(
        scalars.integer(1, 100_000, "events a second"),
        100,
        "Maximum rate of log entries for each kind of event.",
    )


class InterfaceKeys(ConfigSection, title="interfaces"):
    """Keys of a layer-3 interface."""

    name = required(
        scalars.interface_name, "Name of the interface and of its TAP device, like `r1-eth1`."
    )
    port = required(scalars.integer(0, 509), "Number of the switch port.")
    vlan = defaulted(
        scalars.integer(0, 4094), 0, "VLAN of the interface on the port. 0 means untagged."
    )
    mac = required(_unicast_mac, "MAC address of the interface.")
    mtu = defaulted(
        scalars.integer(1280, 9216, "bytes"), 1500, "Longest IP packet that the interface sends."
    )
    addresses = list_of(
        interface_address,
        "`ADDRESS/LENGTH`",
        "IPv4 and IPv6 addresses of the interface. Loopback, multicast and reserved addresses"
        " are refused. The first address of a subnet and the last of an IPv4 subnet are refused"
        " too, except in /31, /32, /127 and /128.",
    )
    vrf = defaulted(scalars.one_of((DEFAULT_VRF,), "a VRF"), DEFAULT_VRF, "VRF of the interface.")
    device = optional(
        scalars.interface_name,
        "Network device of the port, if this host has one. The carrier of the TAP follows the"
        " carrier of this device.",
    )
    spd = required(
        scalars.Scalar(scalars.name.convert, "an SPD, or `none`"),
        "SPD whose rules apply to packets at the interface. With `none`, no rule applies there.",
        "required if `spds` has an entry",
    )


class RouterKeys(ConfigSection, title="router"):
    """Keys of the file's top level."""

    router = required(
        scalars.name,
        "Name of the router, like `router: r1`. Default paths of sockets and state contain the"
        " name. The name also seeds the ECMP hash.",
    )
    switch = section_of(SwitchKeys, "Connection to the switch")
    fpm = section_of(FpmKeys, "FPM server, for zebra's routes")
    ike = section_of(IkeKeys, "Users that may send IKE packets")
    api = section_of(ApiKeys, "API socket")
    state_dir = optional(
        scalars.path,
        "Directory of the state: the last committed policy, the interface numbers, the audit log.",
        f"`{STATE_DIRECTORY}/ROUTER`",
    )
    metrics = section_of(MetricsKeys, "Metrics server, for Prometheus")
    audit = section_of(AuditKeys, "Audit log")
    vrfs = section_of(VrfKeys, "VRFs by name")
    interfaces = sections_of(InterfaceKeys, "Layer-3 interfaces", "required")
    limits = section_of(LimitKeys, "Limits of the controller's resources")
    punt_rates = section_of(
        PuntRateKeys, "Rates at which the switch punts packets to the controller"
    )
    spds = sections_of(SpdKeys, "Security policy databases")
    bundles = sections_of(BundleKeys, "Bundles of security associations")
    engines = sections_of(EngineKeys, "ESP engines")
    security_associations = sections_of(SaKeys, "Security associations")


# --- readers -------------------------------------------------------------------------------------


def load_config(path: str | Path) -> Config:
    """Reads and validates the file. Raises ConfigError, which names every problem."""
    reader = YamlReader.from_file(Path(path))
    config = _read_config(reader.root(), Path(path).parent)
    reader.finish()
    if config is None:  # unreachable: for each None a problem was recorded, so finish() raises
        raise ConfigError([f"{path}: empty configuration"])
    return config


def _read_config(root: YamlMapping, directory: Path) -> Config | None:
    router = root.required(RouterKeys.router) or "router"
    vrfs = read_vrfs(root.section(RouterKeys.vrfs))
    interfaces = _read_interfaces(root, vrfs)
    _check_vrf_devices(root, vrfs.values(), interfaces)
    check_namespaces(root, RouterKeys.vrfs, vrfs.values())
    state_dir = root.optional(RouterKeys.state_dir, Path(STATE_DIRECTORY, router))
    api = root.section(RouterKeys.api)
    config = Config(
        router=router,
        switch=read_switch(root.section(RouterKeys.switch), router, directory),
        fpm=read_fpm(root.section(RouterKeys.fpm)),
        api_socket=api.optional(ApiKeys.socket, Path(RUN_DIRECTORY, f"{router}.sock")),
        state_dir=state_dir,
        audit=_read_audit(root.section(RouterKeys.audit), state_dir),
        vrfs=tuple(vrfs.values()),
        interfaces=interfaces,
        limits=read_limits(root.section(RouterKeys.limits)),
        punt_rates=read_punt_rates(root.section(RouterKeys.punt_rates)),
        policy=read_policy(
            root.sequence(RouterKeys.spds),
            root.sequence(RouterKeys.bundles),
            root.sequence(RouterKeys.engines),
            root.sequence(RouterKeys.security_associations),
            directory=directory,
            ports={interface.port: interface.name for interface in interfaces},
            first_l3_if=len(root.sequence(RouterKeys.interfaces)) + 1,
            vrfs={vrf.name: vrf.id for vrf in vrfs.values()},
        ),
        ike=read_ike(root.section(RouterKeys.ike)),
        metrics_listen=read_metrics(root.section(RouterKeys.metrics)),
    )
    _check_kernel_spds(root, config)
    api.close()
    root.close()
    return config


def _check_kernel_spds(root: YamlMapping, config: Config) -> None:
    """Checks that each mirrored SPD guards interfaces of exactly one VRF.

    Also checks that no other SPD mirrors the kernel's policies in this VRF.
    """
    owners: dict[str, str] = {}
    for value, spd in zip(root.sequence(RouterKeys.spds), config.policy.spds, strict=False):
        if not spd.is_mirrored:
            continue
        vrfs = {one.vrf.name: one.vrf for one in config.interfaces if one.spd == spd.name}
        if len(vrfs) != 1:
            count = " and ".join(sorted(vrfs)) or "none"
            value.problem(
                "an SPD with `source: kernel` must guard interfaces of one VRF; its interfaces are"
                f" in: {count}"
            )
        for vrf in vrfs.values():
            if owners.setdefault(vrf.name, spd.name) != spd.name:
                value.problem(
                    f"{owners[vrf.name]!r} mirrors the kernel's policies in that VRF already;"
                    " remove one of the two SPDs"
                )


def _read_audit(section: YamlMapping, state_dir: Path) -> AuditConfig:
    audit = AuditConfig(
        file=section.optional(AuditKeys.file, state_dir / "audit.log"),
        rate=section.defaulted(AuditKeys.rate),
    )
    section.close()
    return audit


def _read_interfaces(root: YamlMapping, vrfs: dict[str, VrfConfig]) -> tuple[InterfaceConfig, ...]:
    values = root.sequence(RouterKeys.interfaces)
    if not values:
        root.problem(RouterKeys.interfaces, "a router needs at least one entry under `interfaces:`")
    if len(values) > MAX_INTERFACES:
        root.problem(
            RouterKeys.interfaces, f"the pipeline has room for only {MAX_INTERFACES} interfaces"
        )
    interfaces: list[InterfaceConfig] = []
    seen = _Uniqueness()
    spds = spd_names(root.sequence(RouterKeys.spds))
    for index, value in enumerate(values):
        section = value.mapping()
        interface = _read_interface(section, index + 1, vrfs, spds)
        section.close()
        if interface is not None:
            seen.check(interface, value)
            interfaces.append(interface)
    return tuple(interfaces)


def _check_vrf_devices(
    root: YamlMapping, vrfs: Iterable[VrfConfig], interfaces: Iterable[InterfaceConfig]
) -> None:
    """Checks that no other network device has the name of a VRF device."""
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
            root.problem(
                RouterKeys.vrfs, f"{problem} {taken[vrf.device]}; give the VRF another `device`"
            )
        taken[vrf.device] = f"VRF {vrf.name!r}'s device"


def _read_interface(
    section: YamlMapping, l3_if: int, vrfs: dict[str, VrfConfig], spds: frozenset[str]
) -> InterfaceConfig | None:
    name = section.required(InterfaceKeys.name)
    port = section.required(InterfaceKeys.port)
    mac = section.required(InterfaceKeys.mac)
    vlan = section.defaulted(InterfaceKeys.vlan)
    mtu = section.defaulted(InterfaceKeys.mtu)
    addresses = section.converted(InterfaceKeys.addresses)
    vrf = section.optional(InterfaceKeys.vrf, DEFAULT_VRF, scalars.one_of(tuple(vrfs)))
    device = section.optional(InterfaceKeys.device, None)
    if device is not None and device == name:
        section.problem(InterfaceKeys.device, "the port's device and the TAP need different names")
    spd = read_interface_spd(section, InterfaceKeys.spd, spds)
    if name is None or port is None or mac is None:
        return None
    return InterfaceConfig(name, l3_if, port, vlan, mac, mtu, addresses, vrfs[vrf], device, spd)


class _Uniqueness:
    """Checks values that two interfaces must not share: names, port and VLAN, MAC, subnets."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._ports: dict[tuple[int, int], str] = {}
        self._macs: dict[tuple[int, Mac], str] = {}
        self._prefixes: list[tuple[InterfaceAddress, InterfaceConfig]] = []

    def check(self, new: InterfaceConfig, value: YamlValue) -> None:
        if new.name in self._names:
            value.problem(f"the name {new.name!r} is taken by an earlier interface; rename one")
        elif (owner := self._ports.get((new.port, new.vlan))) is not None:
            value.problem(f"port {new.port} vlan {new.vlan} belongs to {owner!r}; use another VLAN")
        elif (owner := self._macs.get((new.vlan, new.mac))) is not None:
            value.problem(f"MAC {format_mac(new.mac)} belongs to {owner!r}; use another MAC")
        self._names.add(new.name)
        self._ports[new.port, new.vlan] = new.name
        self._macs[new.vlan, new.mac] = new.name
        for address in new.addresses:
            self._check_address(address, new, value)

    def _check_address(self, new: InterfaceAddress, to: InterfaceConfig, value: YamlValue) -> None:
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
