# SPDX-License-Identifier: Apache-2.0
"""Reads the IPsec sections of the configuration: SPDs, bundles of SAs, and their engines.

    engines: [{id: 1, port: 9, admin: /run/sluice-esp/admin.sock}]
    bundles:
      - {name: branch, id: 1, spd: corp, engines: [1], path_mtu: 1500}
    security_associations: [...]
    spds:
      - {name: corp, file: corp.yaml, flow_cache: {size: 65536, idle_timeout: 60}}
      - {name: wan, source: kernel, path_mtu: 1500}

The module `sluice.config` reads the rest of the file. Without these sections there is no policy,
and the `spd` of every interface is None. The rules of an SPD are in one of three places:

- in a file of their own, whose path is relative to the configuration's directory;
- in the SPD's keys `inbound` and `outbound`;
- with `source: kernel`, in the kernel's XFRM policies. The templates of these policies are the
  SPD's bundles.

The controller installs the SAs in engines that have an `admin` socket (`sa_config`). In an engine
without `admin`, an operator installs the SAs by hand. The bundles of such an engine name these SAs:

    bundles:
      - name: branch
        id: 1
        spd: corp
        outbound: {engine: 1, sa: 100, local: 10.0.1.1, path_mtu: 1500, overhead: 73}
        inbound: [{spi: 4096, engine: 1, sa: 200}]

Depends on sa_config, spdfile, config_keys and yamlreader.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Names
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from sluice import scalars
from sluice.config_keys import (
    ConfigSection,
    ScalarKey,
    defaulted,
    list_of,
    optional,
    required,
    section_of,
    sections_of,
)
from sluice.model import Address
from sluice.policy import plain_spd
from sluice.policy.model import Direction, Rule
from sluice.policy.spdfile import SpdFileKeys, read_lists
from sluice.sa_config import BundleOfSas, ValuesInUse, read_associations, unicast
from sluice.sa_model import SecurityAssociation
from sluice.yamlreader import ConfigError, YamlMapping, YamlValue

NO_SPD = "none"
DEFAULT_PATH_MTU = 1500


@dataclass(frozen=True, slots=True)
class FlowCacheConfig:
    """Settings of the flow caches of an SPD's two lists. `idle_timeout` is in seconds."""

    enabled: bool = True
    size: int = 65536
    idle_timeout: float = 60.0


class LookupMode(Enum):
    """Tables of the switch in which an SPD's packets find a verdict."""

    AUTO = "auto"
    """CACHE_AND_RULES for a list that fits the rule tables as a whole, else CACHE (`table_use`)."""
    CACHE = "cache"
    """The flow cache: the first packet of each flow is punted."""
    RULES = "rules"
    """The rule tables: packets that need a rule beyond the tables are punted, each of them."""
    CACHE_AND_RULES = "cache+rules"
    """The flow cache, then the rule tables for packets without a flow."""


@dataclass(frozen=True, slots=True)
class SpdConfig:
    """Holds an SPD as configured.

    `file` is None unless the SPD's rules come from a file. `is_mirrored`: the rules come from the
    kernel's IPsec policies. `path_mtu` applies to all bundles of a mirrored SPD, in bytes of IP
    packet.
    """

    name: str
    file: Path | None
    rules: dict[Direction, tuple[Rule, ...]]
    flow_cache: FlowCacheConfig = field(default_factory=FlowCacheConfig)
    icmp_errors_checked: bool = False
    """If True, an inbound ICMP error that comes in clear and that no rule matches may pass. This
    depends on the packet that the error quotes (`decisions`)."""
    is_mirrored: bool = False
    path_mtu: int = DEFAULT_PATH_MTU
    reject: bool = False
    """If True, senders of packets that no outbound rule matches get an ICMP error."""
    mode: LookupMode = LookupMode.AUTO


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """An ESP engine and its switch port. `l3_if` is the number of the port's layer-3 interface.

    `device` is the network device behind the port, if this host has it. While the device is down or
    absent, or the switch reports the port down, the engine's packets are dropped as NO_ENGINE.
    `admin` is the Unix socket by which the controller installs SAs in the engine. None: an operator
    installs the SAs by hand.
    """

    id: int
    port: int
    l3_if: int
    device: str | None = None
    admin: Path | None = None


@dataclass(frozen=True, slots=True)
class OutboundSa:
    """An SA, installed by hand, that encrypts the packets of a bundle.

    `path_mtu` limits the length of the SA's ESP packets, and `overhead` is the number of bytes that
    encryption adds, both in bytes of IP packet. `local` is the source address of the ESP packets.
    `spi` is their SPI, or None if it is not configured. The SPI is needed to accept ICMP errors
    that quote these packets.
    """

    engine: int
    sa: int
    local: Address
    path_mtu: int
    overhead: int
    spi: int | None = None


@dataclass(frozen=True, slots=True)
class InboundSa:
    """An SA, installed by hand, that decrypts packets to this router."""

    spi: int
    engine: int
    sa: int


@dataclass(frozen=True, slots=True)
class BundleConfig:
    """A bundle of SAs that protect the same traffic of one VRF.

    Rules name bundles instead of SAs, because a rekey replaces the SAs. `outbound` and `inbound`
    are SAs that an operator installs in engines by hand. If both are empty, the controller installs
    the SAs of `security_associations` in `engines` (the preferred engine first). In that case
    `path_mtu` is the bundle's path MTU, in bytes of IP packet.
    """

    name: str
    id: int
    spd: str
    vrf: str
    outbound: OutboundSa | None
    inbound: tuple[InboundSa, ...]
    engines: tuple[int, ...] = ()
    path_mtu: int = DEFAULT_PATH_MTU
    later_fragments: bool = True
    """If False, the bundle carries no later fragments, in neither direction."""

    @property
    def is_by_hand(self) -> bool:
        """Returns whether an operator installs the bundle's SAs in the engines by hand."""
        return self.outbound is not None or bool(self.inbound)


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Holds all IPsec sections of the configuration. Empty if the configuration has none."""

    spds: tuple[SpdConfig, ...] = ()
    engines: tuple[EngineConfig, ...] = ()
    bundles: tuple[BundleConfig, ...] = ()
    security_associations: tuple[SecurityAssociation, ...] = ()

    def bundle_names(self, spd: str) -> frozenset[str]:
        """Returns the names of the bundles that an SPD's rules may use."""
        return frozenset(bundle.name for bundle in self.bundles if bundle.spd == spd)

    def without_later_fragments(self) -> frozenset[int]:
        """Returns the pipeline's numbers of the bundles that carry no later fragments."""
        return frozenset(bundle.id for bundle in self.bundles if not bundle.later_fragments)

    def bundle_ids(self) -> dict[str, int]:
        """Returns, by bundle name, the number of each bundle in the pipeline."""
        return {bundle.name: bundle.id for bundle in self.bundles}


# --- the schema ----------------------------------------------------------------------------------


@scalars.takes("`off`, `checked`")
def _icmp_errors(value: object) -> bool:
    """Returns True for `checked`, False for `off`. YAML 1.1 reads an unquoted `off` as false."""
    if value is False or value in ("off", "checked"):
        return value == "checked"
    raise ValueError(f"{value!r} is neither off nor checked")


@scalars.takes("`configuration`, `kernel`")
def _source(value: object) -> bool:
    """Converts the value of `source`. Returns whether the rules come from the kernel."""
    if value in ("configuration", "kernel"):
        return value == "kernel"
    raise ValueError(f"{value!r} is neither configuration nor kernel")


@scalars.takes(", ".join(f"`{mode.value}`" for mode in LookupMode))
def _mode(value: object) -> LookupMode:
    """Converts the value of `mode`."""
    try:
        return LookupMode(value)
    except ValueError:
        names = ", ".join(mode.value for mode in LookupMode)
        raise ValueError(f"{value!r} is none of {names}") from None


_AN_SPD = scalars.Scalar(scalars.name.convert, "an SPD")
_A_VRF = scalars.Scalar(scalars.text.convert, "a VRF")
_AN_ENGINE = scalars.Scalar(scalars.integer(1, 255).convert, "an engine's id")
_SA_NUMBER = scalars.integer(0, 0xFFFFFFFF)
_SPI = scalars.integer(256, 0xFFFFFFFF)
_PATH_MTU = scalars.integer(1280, 9216, "bytes")
_CACHE = FlowCacheConfig()


class FlowCacheKeys(ConfigSection, title="spds.flow_cache"):
    """Keys of the flow cache that each list of an SPD has."""

    enabled = defaulted(
        scalars.boolean,
        _CACHE.enabled,
        "Turns the flow cache of both lists on or off. `sluice flow-cache on` and `off` change"
        " the setting of a running controller.",
    )
    size = defaulted(
        scalars.integer(1, 1_000_000, "flows"),
        _CACHE.size,
        "Maximum number of cached flows of each list, for IPv4 and IPv6 together.",
    )
    idle_timeout = defaulted(
        scalars.number(1.0, 86400.0, "seconds"),
        _CACHE.idle_timeout,
        "Time without a packet after which a flow is deleted from the cache.",
    )


class SpdKeys(ConfigSection, title="spds"):
    """Keys of a security policy database."""

    name = required(scalars.name, "Name of the SPD, used by interfaces and bundles.")
    file = optional(
        scalars.path,
        "File that contains the rules. Without this key, `inbound` and `outbound` have the rules.",
    )
    source = optional(
        _source,
        "Source of the rules. `kernel` means the kernel's IPsec policies, set by an IKE daemon"
        " or by `ip xfrm` ([ike.md](../how-to/ike.md)).",
        "`configuration`",
    )
    path_mtu = defaulted(
        _PATH_MTU,
        DEFAULT_PATH_MTU,
        "Path MTU to all peers: the longest ESP packet. Only with `source: kernel`.",
    )
    inbound = SpdFileKeys.inbound
    outbound = SpdFileKeys.outbound
    icmp_errors = optional(
        _icmp_errors,
        "Handling of ICMP errors that arrive in clear and match no rule"
        " ([rules.md](../how-to/rules.md#icmp-errors)). `off` drops the errors. `checked`"
        " accepts errors about packets that this SPD bypassed, or about its own ESP packets.",
        "`off`",
    )
    reject = defaulted(
        scalars.boolean,
        False,
        'Answers packets that no outbound rule matches by the ICMP error "administratively'
        ' prohibited" ([rules.md](../how-to/rules.md#reject)).',
    )
    mode = optional(
        _mode,
        "Tables of the switch that give verdicts: the flow cache, the rule tables, or both."
        " `auto` uses the rule tables for each list that fits them as a whole"
        " ([policy.md](../how-to/policy.md#the-rule-tables)).",
        "`auto`",
    )
    flow_cache = section_of(FlowCacheKeys, "Flow caches of both lists")


class OutboundKeys(ConfigSection, title="bundles.outbound"):
    """Configuration keys of an encrypting SA that an operator installs in its engine by hand."""

    engine = required(_AN_ENGINE, "ID of the engine that encrypts.")
    sa = required(_SA_NUMBER, "Number of the SA in the engine.")
    local = required(unicast, "Source address of the ESP packets that this router sends.")
    spi = optional(
        _SPI,
        "SPI of the ESP packets that this router sends. Only `icmp_errors: checked` uses the SPI.",
        "unknown",
    )
    path_mtu = defaulted(
        _PATH_MTU, DEFAULT_PATH_MTU, "Path MTU to the peer: the longest ESP packet."
    )
    overhead = required(
        scalars.integer(0, 1000, "bytes"),
        "Maximum number of bytes that the SA adds to a packet ([esp.md](../esp.md#an-sa)).",
    )


class InboundKeys(ConfigSection, title="bundles.inbound"):
    """Configuration keys of a decrypting SA that an operator installs in its engine by hand."""

    spi = required(_SPI, "SPI of the peer's ESP packets. The values 1 to 255 are reserved.")
    engine = required(_AN_ENGINE, "ID of the engine that decrypts.")
    sa = required(_SA_NUMBER, "Number of the SA in the engine.")


class BundleKeys(ConfigSection, title="bundles"):
    """Keys of a bundle: SAs that protect the same traffic."""

    name = required(scalars.name, "Name of the bundle, used by rules.")
    id = required(scalars.integer(1, 0xFFFF), "Number of the bundle in the pipeline.")
    spd = required(_AN_SPD, "SPD whose rules may use the bundle.")
    vrf = optional(_A_VRF, "VRF of the protected packets and of the ESP packets.", "`default`")
    engines = list_of(
        _AN_ENGINE,
        "engine ids",
        "Engines that may have the bundle's SAs, in order of preference. Each of these engines"
        " must have `admin`.",
        "all engines that have `admin`",
    )
    path_mtu = defaulted(
        _PATH_MTU,
        DEFAULT_PATH_MTU,
        "Path MTU to the peer: the longest ESP packet. Only for `security_associations`.",
    )
    later_fragments = defaulted(
        scalars.boolean,
        True,
        "With `false`, fragments other than the first of a datagram do not pass this bundle, in"
        " either direction ([rules.md](../how-to/rules.md#fragments)).",
    )
    outbound = section_of(
        OutboundKeys,
        "SA that encrypts, added to the engine by hand",
        "none",
    )
    inbound = sections_of(InboundKeys, "SAs that decrypt, added to their engines by hand")


class EngineKeys(ConfigSection, title="engines"):
    """Keys of an ESP engine."""

    id = required(scalars.integer(1, 255), "Number of the engine.")
    port = required(
        scalars.integer(0, 509), "Switch port of the engine. No interface may use this port."
    )
    device = optional(
        scalars.interface_name,
        "Network device of the port, if this host has one ([policy.md](../how-to/policy.md)).",
    )
    admin = optional(
        scalars.socket_path,
        "Path of the engine's admin socket. The controller adds and deletes the engine's SAs"
        " over this socket ([protect.md](../how-to/protect.md)).",
        "none: SAs are added by hand",
    )


# --- readers -------------------------------------------------------------------------------------


def read_policy(
    spds: list[YamlValue],
    bundles: list[YamlValue],
    engines: list[YamlValue],
    associations: list[YamlValue],
    *,
    directory: Path,
    ports: dict[int, str],
    first_l3_if: int,
    vrfs: Names[str, int],
) -> PolicyConfig:
    """Reads the sections `spds`, `bundles`, `engines` and `security_associations`.

    `ports` maps each port that an interface uses to the interface's name. The engines' ports get
    the interface numbers from `first_l3_if` on. `vrfs` maps each VRF's name to its number in the
    pipeline.
    """
    known = _read_engines(engines, ports, first_l3_if)
    policy = PolicyConfig((), known, _read_bundles(bundles, spd_names(spds), known, tuple(vrfs)))
    taken = ValuesInUse.by()
    taken.spis.update(
        ((vrfs[bundle.vrf], sa.spi), bundle.name)
        for bundle in policy.bundles
        for sa in bundle.inbound
    )
    return replace(
        policy,
        spds=_read_spds(spds, directory, policy),
        security_associations=read_associations(
            associations, directory, bundles_of_sas(policy, vrfs), taken
        ),
    )


def bundles_of_sas(policy: PolicyConfig, vrfs: Names[str, int]) -> dict[str, BundleOfSas]:
    """Returns the bundles that `security_associations` may name, by name.

    `vrfs` maps each VRF's name to its number in the pipeline.
    """
    return {
        bundle.name: BundleOfSas(bundle.id, vrfs[bundle.vrf], bundle.engines)
        for bundle in policy.bundles
        if bundle.engines
    }


def spd_names(spds: list[YamlValue]) -> frozenset[str]:
    """Returns the names of the SPDs in the section `spds`, even if other keys are invalid."""
    names = (value.peek(SpdKeys.name.name) for value in spds)
    return frozenset(name for name in names if name is not None)


def read_interface_spd(
    section: YamlMapping, key: ScalarKey[str], spds: frozenset[str]
) -> str | None:
    """Returns the name of the SPD that guards an interface, or None if no SPD guards it.

    Reports the key as missing if any SPD exists.
    """
    value = section.value(key)
    if value is None or value.is_null():
        if spds:
            section.problem(key, f"is missing: write {', '.join(sorted(spds))}, or {NO_SPD}")
        return None
    name = value.convert(key.convert)
    if name is None or name == NO_SPD:
        return None
    if name not in spds:
        known = ", ".join(sorted(spds)) or "nothing"
        value.problem(f"there is no SPD {name!r}; `spds:` has {known}; or write {NO_SPD}")
    return name


def _read_spds(
    values: list[YamlValue], directory: Path, policy: PolicyConfig
) -> tuple[SpdConfig, ...]:
    spds: dict[str, SpdConfig] = {}
    for value in values:
        section = value.mapping()
        spd = _read_spd(section, directory, policy)
        section.close()
        if spd is not None and spd.name in spds:
            value.problem(f"there is an SPD {spd.name!r} already; give each SPD its own name")
        elif spd is not None:
            spds[spd.name] = spd
    return tuple(spds.values())


def _read_spd(section: YamlMapping, directory: Path, policy: PolicyConfig) -> SpdConfig | None:
    name = section.required(SpdKeys.name)
    if name == NO_SPD:
        section.problem(SpdKeys.name, f"{NO_SPD!r} stands for no SPD; choose another name")
    bundles = policy.bundle_names(name or "")
    file = section.value(SpdKeys.file)
    inline = read_lists(section, bundles)
    is_mirrored = section.optional(SpdKeys.source, False)
    path_mtu = section.defaulted(SpdKeys.path_mtu)
    cache = _read_flow_cache(section.section(SpdKeys.flow_cache))
    are_errors_checked = section.optional(SpdKeys.icmp_errors, False)
    reject = section.defaulted(SpdKeys.reject)
    mode = section.optional(SpdKeys.mode, LookupMode.AUTO)
    if is_mirrored and (file is not None or any(inline.values())):
        section.problem(
            SpdKeys.source, "the rules come from the kernel: remove `file` and the rules here"
        )
    if section.value(SpdKeys.path_mtu) is not None and not is_mirrored:
        section.problem(
            SpdKeys.path_mtu, "is only for `source: kernel`; otherwise each bundle has this key"
        )
    if is_mirrored and bundles:
        names = ", ".join(sorted(bundles))
        section.problem(
            SpdKeys.source, f"the kernel's templates are its bundles; remove the bundles {names}"
        )
    if file is None:
        if name is None:
            return None
        return SpdConfig(
            name, None, inline, cache, are_errors_checked, is_mirrored, path_mtu, reject, mode
        )
    if any(inline.values()):
        section.problem(SpdKeys.file, "give the rules in a file or here, not both")
    path = file.convert(lambda given: directory / scalars.text(given))
    if name is None or path is None:
        return None
    try:
        text = plain_spd.load(path, bundles)
    except ConfigError as error:
        file.include(error)
        return None
    if text.name != name:
        file.problem(f"{path} has rules of the SPD {text.name!r}, not of {name!r}")
    return SpdConfig(name, path, text.rules, cache, are_errors_checked, reject=reject, mode=mode)


def _read_flow_cache(section: YamlMapping) -> FlowCacheConfig:
    cache = FlowCacheConfig(
        section.defaulted(FlowCacheKeys.enabled),
        section.defaulted(FlowCacheKeys.size),
        section.defaulted(FlowCacheKeys.idle_timeout),
    )
    section.close()
    return cache


def _read_engines(
    values: list[YamlValue], ports: dict[int, str], first_l3_if: int
) -> tuple[EngineConfig, ...]:
    engines: dict[int, EngineConfig] = {}
    taken = dict(ports)
    for l3_if, value in enumerate(values, first_l3_if):
        section = value.mapping()
        number = section.required(EngineKeys.id)
        port = section.required(EngineKeys.port)
        device = section.optional(EngineKeys.device, None)
        admin = section.optional(EngineKeys.admin, None)
        section.close()
        if number is None or port is None:
            continue
        if number in engines:
            value.problem(f"there is an engine {number} already; give each engine its own id")
        if port in taken:
            value.problem(
                f"port {port} belongs to {taken[port]}; give the engine a port of its own"
            )
        taken[port] = f"engine {number}"
        if admin is not None and admin in (one.admin for one in engines.values()):
            value.problem(f"an earlier engine has {admin}; give each engine its own admin socket")
        engines[number] = EngineConfig(number, port, l3_if, device, admin)
    return tuple(engines.values())


def _read_bundles(
    values: list[YamlValue],
    spds: frozenset[str],
    engines: tuple[EngineConfig, ...],
    vrfs: tuple[str, ...],
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
            value.problem("an earlier bundle has this name or id; give each bundle its own")
        for sa in bundle.inbound:
            if (bundle.vrf, sa.spi) in spis:
                owner = spis[bundle.vrf, sa.spi]
                value.problem(f"SPI {sa.spi:#x} of VRF {bundle.vrf} belongs to {owner!r} already")
            spis[bundle.vrf, sa.spi] = bundle.name
        names.add(bundle.name)
        numbers.add(bundle.id)
        bundles.append(bundle)
    return tuple(bundles)


def _read_bundle(
    section: YamlMapping,
    spds: frozenset[str],
    engines: tuple[EngineConfig, ...],
    vrfs: tuple[str, ...],
) -> BundleConfig | None:
    name = section.required(BundleKeys.name)
    number = section.required(BundleKeys.id)
    spd = section.required(BundleKeys.spd, scalars.one_of(spds))
    vrf = section.optional(BundleKeys.vrf, vrfs[0], scalars.one_of(vrfs))
    by_hand = frozenset(engine.id for engine in engines if engine.admin is None)
    outbound = None
    if section.value(BundleKeys.outbound) is not None:
        outbound = _read_outbound(section.section(BundleKeys.outbound), by_hand)
    inbound = tuple(
        sa
        for value in section.sequence(BundleKeys.inbound)
        if (sa := _read_inbound(value.mapping(), by_hand)) is not None
    )
    engine_ids = _read_engines_of_bundle(section, engines)
    path_mtu = section.defaulted(BundleKeys.path_mtu)
    later = section.defaulted(BundleKeys.later_fragments)
    if any(section.value(key) for key in (BundleKeys.outbound, BundleKeys.inbound)):
        for key in (BundleKeys.engines, BundleKeys.path_mtu):
            if section.value(key) is not None:
                section.problem(
                    key, "is only for security_associations; here an operator sets the SAs"
                )
        engine_ids = ()
    if name is None or number is None or spd is None:
        return None
    return BundleConfig(name, number, spd, vrf, outbound, inbound, engine_ids, path_mtu, later)


def _read_engines_of_bundle(
    section: YamlMapping, engines: tuple[EngineConfig, ...]
) -> tuple[int, ...]:
    """Returns the engines in which a bundle's SAs are installed, the preferred engine first.

    If the bundle has no list of engines, returns all engines that have `admin`.
    """
    engine_ids = tuple(engine.id for engine in engines if engine.admin is not None)
    if section.value(BundleKeys.engines) is None:
        return engine_ids
    values = section.sequence(BundleKeys.engines)
    named = [value.convert(scalars.one_of(engine_ids)) for value in values]
    if not values or len(set(named)) < len(named):
        section.problem(
            BundleKeys.engines, "name each engine once, the preferred one first, like [1, 2]"
        )
    return tuple(dict.fromkeys(one for one in named if one is not None))


def _read_outbound(section: YamlMapping, engines: frozenset[int]) -> OutboundSa | None:
    engine = section.required(OutboundKeys.engine, _one_by_hand(engines))
    sa = section.required(OutboundKeys.sa)
    local = section.required(OutboundKeys.local)
    spi = section.optional(OutboundKeys.spi, None)
    path_mtu = section.defaulted(OutboundKeys.path_mtu)
    overhead = section.required(OutboundKeys.overhead)
    section.close()
    if engine is None or sa is None or local is None or overhead is None:
        return None
    return OutboundSa(engine, sa, local, path_mtu, overhead, spi)


def _read_inbound(section: YamlMapping, engines: frozenset[int]) -> InboundSa | None:
    spi = section.required(InboundKeys.spi)
    engine = section.required(InboundKeys.engine, _one_by_hand(engines))
    sa = section.required(InboundKeys.sa)
    section.close()
    if spi is None or engine is None or sa is None:
        return None
    return InboundSa(spi, engine, sa)


def _one_by_hand(engines: frozenset[int]) -> Callable[[object], int]:
    """Returns a function that reads the id of an engine without `admin`."""
    choose = scalars.one_of(engines)

    def convert(value: object) -> int:
        try:
            return choose(value)
        except ValueError as error:
            raise ValueError(
                f"{error} (only engines without `admin`; the controller sets the others' SAs)"
            ) from None

    return convert
