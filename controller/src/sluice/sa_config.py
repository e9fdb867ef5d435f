# SPDX-License-Identifier: Apache-2.0
"""Reads the section `security_associations` of the configuration, and of files for `sluice sa add`.

    security_associations:
      - name: to-branch
        bundle: branch
        direction: outbound
        spi: 0x1001
        algorithm: aes-128-gcm
        key_file: keys/to-branch
        local: 10.0.12.1
        remote: 10.0.20.1
        hard: {seconds: 28800}
        traffic: {source: 10.1.0.10, destination: 10.2.0.9}

Each cryptographic key is in a file of its own. The path of a key file is relative to the directory
of the file that names it. This module reads the keys only to compute their fingerprint. They are
read again when an engine receives the SA. Depends on sa_keys, sa_model and yamlreader.
"""

from __future__ import annotations

from collections.abc import Mapping as Names
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sluice import scalars
from sluice.config_keys import (
    ConfigKey,
    ConfigSection,
    PartKey,
    ScalarKey,
    defaulted,
    optional,
    required,
    section_of,
    sections_of,
)
from sluice.model import Address, format_address, parse_address
from sluice.policy.model import Direction, Opaque
from sluice.policy.populated import FIELDS, Populated, populated_problem, to_value
from sluice.policy.populated import to_document as traffic_document
from sluice.sa_keys import KeyFiles, fingerprint
from sluice.sa_model import (
    ALGORITHMS,
    MAX_REPLAY_WINDOW,
    NAT_TRAVERSAL,
    UNLIMITED,
    Algorithm,
    DontFragment,
    Fragmentation,
    KeyUnavailableError,
    Lifetime,
    Mode,
    Origin,
    SaSettings,
    SecurityAssociation,
    UdpPorts,
)
from sluice.yamlreader import YamlMapping, YamlReader, YamlValue

E = TypeVar("E", bound=Enum)

DEFAULT_REPLAY_WINDOW = 64
LARGEST = (1 << 63) - 1
IPV4_OCTETS = 4


# --- the schema ----------------------------------------------------------------------------------


@scalars.takes("address")
def unicast(value: object) -> Address:
    """Converts an IP address. Raises ValueError unless a router can use it as a source address."""
    address = parse_address(scalars.text(value))
    first = address[0]
    if not any(address) or first == 127 or first >= (224 if len(address) == 4 else 255):
        raise ValueError(f"{value!r} cannot be a router's source address; give a unicast address")
    return address


def _member(kind: type[E]) -> scalars.Scalar[E]:
    """Returns a converter to a member of an enumeration."""
    choose = scalars.one_of([one.value for one in kind])
    return scalars.Scalar(lambda value: kind(choose(value)), choose.values)


_BY_NAME = scalars.one_of(list(ALGORITHMS))
_ALGORITHM = scalars.Scalar(lambda value: ALGORITHMS[_BY_NAME(value)], _BY_NAME.values)
_PORT = scalars.integer(1, 65535)
_COUNT = scalars.integer(1, LARGEST)


def _whole_seconds(value: object) -> int:
    try:
        return _COUNT(value)
    except ValueError:
        raise ValueError(
            f"{value!r} is not a whole number of seconds from 1; 8 hours are written as 28800"
        ) from None


_SECONDS = scalars.Scalar(_whole_seconds, _COUNT.values)


class LifetimeKeys(ConfigSection, title="security_associations.soft"):
    """Configuration keys of the lifetime limits of an SA."""

    bytes = optional(
        _COUNT, "Number of bytes that the SA has protected, counted in clear.", "no limit"
    )
    packets = optional(_COUNT, "Number of packets that the SA has protected.", "no limit")
    seconds = optional(
        _SECONDS, "Time in seconds since the SA was first added to an engine.", "no limit"
    )


class EncapsulationKeys(ConfigSection, title="security_associations.encapsulation"):
    """Configuration keys of the UDP ports for ESP in UDP (RFC 3948). At least one port must be
    4500."""

    local_port = defaulted(_PORT, NAT_TRAVERSAL, "UDP port of this router.")
    remote_port = defaulted(_PORT, NAT_TRAVERSAL, "UDP port of the peer.")


def _value_of(name: str, values: str) -> scalars.Scalar[Address | int | Opaque]:
    """Returns a converter of a value of one selector."""
    return scalars.Scalar(lambda written: to_value(name, written), values)


class TrafficKeys(ConfigSection, title="security_associations.traffic"):
    """Configuration keys for the values that an SA's packets have. They are the selectors that
    `from_packet` names in the rules of the SA's bundle."""

    source = optional(_value_of("source", "address"), "Source address of the packets.", "any")
    destination = optional(
        _value_of("destination", "address"), "Destination address of the packets.", "any"
    )
    protocol = optional(
        _value_of("protocol", "name, 0 to 255, `opaque`"), "IP protocol of the packets.", "any"
    )
    source_ports = optional(
        _value_of("source_ports", "0 to 65,535, `opaque`"), "Source port of the packets.", "any"
    )
    destination_ports = optional(
        _value_of("destination_ports", "0 to 65,535, `opaque`"),
        "Destination port of the packets.",
        "any",
    )
    icmp = optional(
        _value_of("icmp", "`TYPE/CODE`, `opaque`"), "ICMP type and code of the packets.", "any"
    )
    mobility_types = optional(
        _value_of("mobility_types", "0 to 255, `opaque`"),
        "Message type of the Mobility Header.",
        "any",
    )


class SaKeys(ConfigSection, title="security_associations"):
    """Configuration keys of a security association."""

    name = required(scalars.name, "Name of the SA, used by commands.")
    bundle = required(scalars.Scalar(scalars.text.convert, "a bundle"), "Bundle of the SA.")
    direction = required(
        _member(Direction), "Direction of the SA. `outbound` encrypts, `inbound` decrypts."
    )
    spi = required(
        scalars.integer(256, 0xFFFFFFFF),
        "SPI of the ESP packets. The router that decrypts chooses the SPI.",
    )
    mode = defaulted(
        _member(Mode),
        Mode.TUNNEL,
        "Mode of ESP. `tunnel` carries whole IP packets. `transport` carries the payload of"
        " packets between `local` and `remote`.",
    )
    algorithm = required(
        _ALGORITHM, "Algorithm for encryption and integrity ([esp.md](../esp.md))."
    )
    key_file = required(
        scalars.path,
        "File that contains the key in hexadecimal digits. The key of an AEAD ends with its"
        " salt. Mode 0600.",
        "required if the algorithm encrypts",
    )
    integrity_key_file = required(
        scalars.path,
        "File that contains the key of HMAC-SHA-256-128 in hexadecimal digits. Mode 0600.",
        "required with HMAC-SHA-256-128",
    )
    esn = defaulted(
        scalars.boolean,
        False,
        "Turns on extended (64-bit) sequence numbers. The peer's setting must be the same.",
    )
    soft = section_of(LifetimeKeys, "Soft lifetime: after it, the SA should be rekeyed")
    hard = section_of(LifetimeKeys, "Hard lifetime: after it, the SA drops its packets")
    traffic = section_of(
        TrafficKeys,
        "Values of the packets that the SA carries. For rules with"
        " [`from_packet`](../how-to/rules.md#populate-from-packet). Without it, the SA carries the"
        " packets of rules without `from_packet`.",
        "none",
    )
    engine = optional(
        scalars.Scalar(scalars.integer(1, 255).convert, "an engine's id"),
        "The only engine of the bundle that may have the SA.",
        "any engine of the bundle",
    )
    ecn = defaulted(
        scalars.boolean,
        True,
        "Copies ECN between the inner and the outer header (RFC 6040).",
    )
    local = required(
        unicast, "Outbound: source address of the ESP packets.", "required if outbound"
    )
    remote = required(unicast, "Outbound: address of the peer.", "required if outbound")
    encapsulation = section_of(EncapsulationKeys, "Outbound: ESP in UDP", "none")
    ttl = optional(scalars.integer(1, 255), "Outbound: TTL of the outer header.", "64")
    dscp = optional(scalars.integer(0, 63), "Outbound: DSCP of the outer header.", "the inner DSCP")
    df = defaulted(
        _member(DontFragment), DontFragment.SET, "Outbound: DF bit of the outer IPv4 header."
    )
    fragmentation = defaulted(
        _member(Fragmentation),
        Fragmentation.BEFORE,
        "Outbound: how packets are fragmented that ESP makes too long. `before` fragments the"
        " packet before encryption. `after` fragments the ESP packet; over IPv4 this requires"
        " `df: clear` ([protect.md](../how-to/protect.md#the-path-mtu)).",
    )
    tfc_pad_to = defaulted(
        scalars.integer(0, 65535, "bytes"),
        0,
        "Outbound: length to which shorter packets are padded. 0 means no padding.",
    )
    replay_window = defaulted(
        scalars.integer(0, MAX_REPLAY_WINDOW, "packets"),
        DEFAULT_REPLAY_WINDOW,
        "Inbound: size of the anti-replay window. 0 turns the check off.",
    )
    encapsulated = defaulted(scalars.boolean, False, "Inbound: accepts only ESP in UDP.")


class SaFileKeys(ConfigSection, title="a file for `sluice sa add`"):
    """Configuration keys of a file of SAs."""

    security_associations = sections_of(SaKeys, "List of SAs")


KEY_FILES = (SaKeys.key_file, SaKeys.integrity_key_file)
TUNNEL_KEYS = (SaKeys.ttl, SaKeys.dscp, SaKeys.df, SaKeys.fragmentation, SaKeys.tfc_pad_to)
OUTBOUND_KEYS = (SaKeys.local, SaKeys.remote, SaKeys.encapsulation, *TUNNEL_KEYS)
INBOUND_KEYS = (SaKeys.replay_window, SaKeys.encapsulated)

# --- readers -------------------------------------------------------------------------------------


class BundleOfSas(NamedTuple):
    """Holds the properties of a bundle that its SAs use: the pipeline's numbers, and the
    engines."""

    id: int
    vrf: int
    engines: tuple[int, ...]


class ValuesInUse(NamedTuple):
    """Holds the values that no two SAs may share: names, inbound SPIs by VRF, and keys.

    Maps SPIs and keys (fingerprints) to the name of their SA.
    """

    names: set[str]
    spis: dict[tuple[int, int], str]
    keys: dict[str, str]

    @classmethod
    def by(cls, sas: tuple[SecurityAssociation, ...] = ()) -> ValuesInUse:
        """Returns the values that `sas` use."""
        taken = cls(set(), {}, {})
        for sa in sas:
            taken.names.add(sa.name)
            taken.keys[sa.settings.fingerprint] = sa.name
            if not sa.is_outbound:
                taken.spis[sa.settings.vrf, sa.settings.spi] = sa.name
        return taken

    def holders(self, sa: SecurityAssociation) -> set[str]:
        """Returns the names of the SAs that have the key or the inbound SPI of `sa`."""
        settings = sa.settings
        found = {self.keys.get(settings.fingerprint)}
        if not sa.is_outbound:
            found.add(self.spis.get((settings.vrf, settings.spi)))
        return {name for name in found if name is not None}


def read_associations(
    values: list[YamlValue],
    directory: Path,
    bundles: Names[str, BundleOfSas],
    taken: ValuesInUse,
    origin: Origin = Origin.CONFIGURATION,
) -> tuple[SecurityAssociation, ...]:
    """Reads a list of SAs. `bundles` are the bundles that they may name. Omits SAs with an error.

    Reports each error, and adds the values of the valid SAs to `taken`.
    """
    found = []
    for value in values:
        section = value.mapping()
        sa = _read(section, directory, bundles, origin)
        section.close()
        if sa is not None and _claim_values(sa, value, taken):
            found.append(sa)
    return tuple(found)


def parse_associations(
    text: str,
    name: str,
    directory: Path,
    bundles: Names[str, BundleOfSas],
    taken: ValuesInUse,
) -> tuple[SecurityAssociation, ...]:
    """Reads SAs from the text of a file called `name`. Raises ConfigError with every problem."""
    reader = YamlReader(text, name)
    root = reader.root()
    values = root.sequence(SaFileKeys.security_associations)
    if not values:
        root.problem(SaFileKeys.security_associations, "is missing: give a list of SAs")
    sas = read_associations(values, directory, bundles, taken, Origin.COMMAND)
    root.close()
    reader.finish()
    return sas


def _claim_values(sa: SecurityAssociation, value: YamlValue, taken: ValuesInUse) -> bool:
    """Adds an SA's name, inbound SPI and key to `taken`. Returns False if one of them is in use
    already."""
    settings, problems = sa.settings, 0
    if sa.name in taken.names:
        value.problem(f"there is an SA {sa.name!r} already; give each SA its own name")
        problems += 1
    place = settings.vrf, settings.spi
    if not sa.is_outbound and place in taken.spis:
        owner = taken.spis[place]
        value.problem(
            f"the inbound SPI {settings.spi:#x} belongs to {owner!r} already; use another"
        )
        problems += 1
    if settings.fingerprint in taken.keys:
        value.problem(
            f"has the same key as {taken.keys[settings.fingerprint]!r}, so a nonce could be used"
            " twice; give each SA its own key, for each direction too"
        )
        problems += 1
    if problems:
        return False
    taken.names.add(sa.name)
    taken.keys[settings.fingerprint] = sa.name
    if not sa.is_outbound:
        taken.spis[place] = sa.name
    return True


def _read(
    section: YamlMapping, directory: Path, bundles: Names[str, BundleOfSas], origin: Origin
) -> SecurityAssociation | None:
    name = section.required(SaKeys.name)
    bundle_name = section.required(SaKeys.bundle, scalars.one_of(bundles.keys()))
    bundle = None if bundle_name is None else bundles[bundle_name]
    engines = () if bundle is None else bundle.engines
    engine = section.optional(SaKeys.engine, None, scalars.one_of(engines)) if bundle else None
    section.ignore(SaKeys.engine)
    direction = section.required(SaKeys.direction)
    spi = section.required(SaKeys.spi)
    mode = section.defaulted(SaKeys.mode)
    algorithm = section.required(SaKeys.algorithm)
    keys = None if algorithm is None else _read_keys(section, directory, algorithm)
    section.ignore(*KEY_FILES)
    esn = section.defaulted(SaKeys.esn)
    own = _read_outbound(section, mode) if direction is Direction.OUTBOUND else {}
    fragmentation = _read_fragmentation(section, own)
    if direction is Direction.INBOUND:
        own = _read_inbound(section, esn=esn)
    if direction is None:
        section.ignore(*OUTBOUND_KEYS, *INBOUND_KEYS)
    others: tuple[ConfigKey, ...] = () if direction is None else INBOUND_KEYS
    for key in OUTBOUND_KEYS if direction is Direction.INBOUND else others:
        if section.value(key) is not None:
            section.problem(
                key, f"is not for an SA that is {direction and direction.value}; remove it"
            )
    ecn, soft, hard = section.defaulted(SaKeys.ecn), *_read_lifetimes(section)
    traffic = _read_traffic(section)
    if name is None or bundle is None or direction is None or spi is None or own is None:
        return None
    if algorithm is None or keys is None:
        return None
    settings = SaSettings(
        direction,
        spi,
        bundle.id,
        bundle.vrf,
        algorithm.name,
        keys[1],
        mode=mode,
        esn=esn,
        ecn=ecn,
        soft=soft,
        hard=hard,
        **own,
    )
    return SecurityAssociation(
        name,
        settings,
        origin,
        keys[0],
        engine,
        fragmentation=fragmentation,
        traffic=traffic,
    )


def _read_traffic(section: YamlMapping) -> Populated | None:
    if section.value(SaKeys.traffic) is None:
        return None
    written = section.section(SaKeys.traffic)
    keys = {key.name: key for key in TrafficKeys.all_keys() if isinstance(key, ScalarKey)}
    values = Populated(**{name: written.optional(keys[name], None) for name in FIELDS})
    given = [name for name in FIELDS if written.value(keys[name]) is not None]
    written.close()
    problem = populated_problem(values)
    if problem is not None and len(given) == len(values.selectors):  # all values could be read
        section.problem(SaKeys.traffic, problem)
    return values


def _read_keys(
    section: YamlMapping, directory: Path, algorithm: Algorithm
) -> tuple[KeyFiles, str] | None:
    """Reads the key files. Returns the files, and the fingerprint of the keys in them."""
    paths: list[Path | None] = []
    for key, size in zip(KEY_FILES, (algorithm.key, algorithm.integrity_key), strict=True):
        path = None
        if size:
            path = section.required(key)
            if path is None:
                return None
        elif section.value(key) is not None:
            section.problem(key, f"{algorithm.name} has no such key; remove it")
        paths.append(None if path is None else directory / path)
    files = KeyFiles(algorithm, *paths)
    try:
        return files, fingerprint(files)
    except KeyUnavailableError as error:
        section.problem(SaKeys.key_file, str(error))
        return None


def _read_lifetimes(section: YamlMapping) -> tuple[Lifetime, Lifetime]:
    soft, hard = (_read_lifetime(section, key) for key in (SaKeys.soft, SaKeys.hard))
    for name, early, late in zip(Lifetime._fields, soft, hard, strict=True):
        if early is not None and late is not None and early >= late:
            section.problem(SaKeys.soft, f"{name}: {early} is not below the hard limit, {late}")
    return soft, hard


def _read_lifetime(section: YamlMapping, key: PartKey) -> Lifetime:
    if section.value(key) is None:
        return UNLIMITED
    limits = section.section(key)
    keys = LifetimeKeys.bytes, LifetimeKeys.packets, LifetimeKeys.seconds
    lifetime = Lifetime(*(limits.optional(one, None) for one in keys))
    limits.close()
    return lifetime


def _read_outbound(section: YamlMapping, mode: Mode) -> dict[str, Any] | None:
    local, remote = section.required(SaKeys.local), section.required(SaKeys.remote)
    if local is not None and remote is not None and len(local) != len(remote):
        section.problem(SaKeys.remote, "must be of the same address family as `local`")
        remote = None
    ports = None
    if section.value(SaKeys.encapsulation) is not None:
        ports = _read_ports(section.section(SaKeys.encapsulation))
    if mode is Mode.TRANSPORT:
        for key in TUNNEL_KEYS:
            if section.value(key) is not None:
                section.problem(
                    key, "is a field of an outer header, which transport mode lacks; remove it"
                )
    found = {
        "local": local,
        "remote": remote,
        "ports": ports,
        "ttl": section.optional(SaKeys.ttl, None),
        "dscp": section.optional(SaKeys.dscp, None),
        "df": section.defaulted(SaKeys.df),
        "tfc_pad_to": section.defaulted(SaKeys.tfc_pad_to),
    }
    return None if local is None or remote is None else found


def _read_fragmentation(section: YamlMapping, outbound: Names[str, Any] | None) -> Fragmentation:
    found = section.defaulted(SaKeys.fragmentation)
    if found is Fragmentation.AFTER and outbound:
        is_ipv4 = len(outbound["local"]) == IPV4_OCTETS
        if is_ipv4 and outbound["df"] is not DontFragment.CLEAR:
            section.problem(SaKeys.fragmentation, "`after` requires `df: clear` over IPv4")
    return found


def _read_ports(section: YamlMapping) -> UdpPorts:
    ports = UdpPorts(
        section.defaulted(EncapsulationKeys.local_port),
        section.defaulted(EncapsulationKeys.remote_port),
    )
    if NAT_TRAVERSAL not in ports:
        section.problem(
            EncapsulationKeys.local_port,
            "`local_port` or `remote_port` must be 4500 (RFC 3948)",
        )
    section.close()
    return ports


def _read_inbound(section: YamlMapping, *, esn: bool) -> dict[str, Any]:
    window = section.defaulted(SaKeys.replay_window)
    if esn and not window:
        section.problem(
            SaKeys.replay_window,
            "must not be 0 with `esn`: the window is needed to find the upper 32 bits of sequence"
            " numbers",
        )
    return {"replay_window": window, "in_udp": section.defaulted(SaKeys.encapsulated)}


# --- writers -------------------------------------------------------------------------------------


def to_document(sa: SecurityAssociation, bundle: str) -> dict[str, Any]:
    """Converts an SA into an item of the section. The item has the names of the key files, but no
    keys."""
    settings = sa.settings
    found: dict[str, Any] = {
        "name": sa.name,
        "bundle": bundle,
        "direction": settings.direction.value,
        "spi": settings.spi,
        "mode": settings.mode.value,
        "algorithm": settings.algorithm,
        "esn": settings.esn,
        "ecn": settings.ecn,
    }
    if sa.engine is not None:
        found["engine"] = sa.engine
    if isinstance(sa.keys, KeyFiles):
        for key_file, path in zip(KEY_FILES, (sa.keys.key, sa.keys.integrity_key), strict=True):
            if path is not None:
                found[key_file.name] = str(path)
    for key, lifetime in (("soft", settings.soft), ("hard", settings.hard)):
        if lifetime != UNLIMITED:
            limits = lifetime._asdict().items()
            found[key] = {name: value for name, value in limits if value is not None}
    if sa.fragmentation is not Fragmentation.BEFORE:
        found["fragmentation"] = sa.fragmentation.value
    if sa.traffic is not None:
        found["traffic"] = traffic_document(sa.traffic)
    return found | (_outbound_document(settings) if sa.is_outbound else _inbound_document(settings))


def _inbound_document(settings: SaSettings) -> dict[str, Any]:
    return {"replay_window": settings.replay_window, "encapsulated": settings.in_udp}


def _outbound_document(settings: SaSettings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, address in (("local", settings.local), ("remote", settings.remote)):
        if address is not None:
            found[key] = format_address(address)
    if settings.ports is not None:
        ports = settings.ports
        found["encapsulation"] = {"local_port": ports.local, "remote_port": ports.remote}
    if settings.mode is Mode.TUNNEL:
        optional = {"ttl": settings.ttl, "dscp": settings.dscp}
        found |= {key: value for key, value in optional.items() if value is not None}
        found |= {"df": settings.df.value, "tfc_pad_to": settings.tfc_pad_to}
    return found
