# SPDX-License-Identifier: Apache-2.0
"""Reads the configuration sections `limits` and `punt_rates`.

Depends on yamlreader, config_keys and scalars.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice import scalars
from sluice.config_keys import ConfigSection, defaulted, optional, required
from sluice.yamlreader import YamlMapping

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
    "ACQUIRE",
)


@dataclass(frozen=True, slots=True)
class PuntRate:
    """Holds the policer settings of one punt reason: rate in packets per second, burst in
    packets."""

    rate: int
    burst: int


@dataclass(frozen=True, slots=True)
class ControllerLimits:
    """Holds the limits of the controller's resources."""

    held_packets_per_neighbor: int = 32
    held_packets: int = 1024
    held_seconds: float = 3.0
    icmp_errors_per_second: int = 1000
    icmp_errors_burst: int = 100
    icmp_rejects_per_second: int = 100
    punt_queue: int = 8192
    fragment_datagrams: int = 8192
    fragments_waiting: int = 2048
    fragment_seconds: float = 5.0
    auditor_per_second: int = 5000
    auditor_seconds: float = 5.0
    path_mtu_seconds: float = 600.0


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
    "ACQUIRE": PuntRate(rate=100, burst=100),
}


_DEFAULT = ControllerLimits()
_COUNT = 1_000_000


class LimitKeys(ConfigSection, title="limits"):
    """Keys of the limits of the controller's resources."""

    held_packets_per_neighbor = defaulted(
        scalars.integer(0, _COUNT, "packets"),
        _DEFAULT.held_packets_per_neighbor,
        "Maximum number of packets that wait for the resolution of one neighbour.",
    )
    held_packets = defaulted(
        scalars.integer(0, _COUNT, "packets"),
        _DEFAULT.held_packets,
        "Maximum number of packets that wait for the resolution of all neighbours.",
    )
    held_seconds = defaulted(
        scalars.number(0.1, 60, "seconds"),
        _DEFAULT.held_seconds,
        "Longest wait of a packet for the resolution. After this time the router drops the"
        ' packet and sends "host unreachable" to its source.',
    )
    icmp_errors_per_second = defaulted(
        scalars.integer(0, _COUNT, "a second"),
        _DEFAULT.icmp_errors_per_second,
        "Maximum rate of ICMP errors that the router sends to all hosts. The limit for each host"
        " is a tenth of this rate.",
    )
    icmp_errors_burst = defaulted(
        scalars.integer(0, _COUNT, "errors"),
        _DEFAULT.icmp_errors_burst,
        "Maximum burst of ICMP errors that the router sends to all hosts. The limit for each"
        " host is half of this burst.",
    )
    icmp_rejects_per_second = defaulted(
        scalars.integer(0, _COUNT, "a second"),
        _DEFAULT.icmp_rejects_per_second,
        "Maximum rate of ICMP errors about packets that a rule or an SPD with `reject` discards, to"
        " all hosts. The burst is a tenth of this rate. The limits for each host are a quarter of"
        " rate and burst.",
    )
    punt_queue = defaulted(
        scalars.integer(64, _COUNT, "packets"),
        _DEFAULT.punt_queue,
        "Length of the queue of punted packets that wait for the controller.",
    )
    fragment_datagrams = defaulted(
        scalars.integer(1, _COUNT, "datagrams"),
        _DEFAULT.fragment_datagrams,
        "Maximum number of fragmented datagrams that the controller tracks.",
    )
    fragments_waiting = defaulted(
        scalars.integer(0, _COUNT, "fragments"),
        _DEFAULT.fragments_waiting,
        "Maximum number of later fragments that wait for the first fragment of their datagram.",
    )
    fragment_seconds = defaulted(
        scalars.number(0.1, 60, "seconds"),
        _DEFAULT.fragment_seconds,
        "Time after which the controller forgets a fragmented datagram, from the first fragment"
        " that arrived.",
    )
    auditor_per_second = defaulted(
        scalars.integer(100, _COUNT, "a second"),
        _DEFAULT.auditor_per_second,
        "Rate at which the auditor compares entries of the switch with the wanted entries.",
    )
    auditor_seconds = defaulted(
        scalars.number(0.1, 3600, "seconds"),
        _DEFAULT.auditor_seconds,
        "Interval between the starts of two rounds of the auditor.",
    )
    path_mtu_seconds = defaulted(
        scalars.number(300, 86_400, "seconds"),
        _DEFAULT.path_mtu_seconds,
        "Time for which a path MTU from an authentic ICMP error counts, after the latest error"
        " ([protect.md](../how-to/protect.md#the-path-mtu)).",
    )


class PuntRateKeys(ConfigSection, title="punt_rates"):
    """Keys of the section of a punt reason."""

    rate = required(
        scalars.integer(0, 10_000_000, "packets a second"),
        "Maximum rate of packets that the switch punts to the controller for this reason.",
    )
    burst = optional(
        scalars.integer(1, 1_000_000, "packets"),
        "Maximum burst of packets that the switch punts for this reason.",
        "a fifth of the rate",
    )


def read_limits(section: YamlMapping) -> ControllerLimits:
    """Reads the section `limits`."""
    limits = ControllerLimits(
        held_packets_per_neighbor=section.defaulted(LimitKeys.held_packets_per_neighbor),
        held_packets=section.defaulted(LimitKeys.held_packets),
        held_seconds=section.defaulted(LimitKeys.held_seconds),
        icmp_errors_per_second=section.defaulted(LimitKeys.icmp_errors_per_second),
        icmp_errors_burst=section.defaulted(LimitKeys.icmp_errors_burst),
        icmp_rejects_per_second=section.defaulted(LimitKeys.icmp_rejects_per_second),
        punt_queue=section.defaulted(LimitKeys.punt_queue),
        fragment_datagrams=section.defaulted(LimitKeys.fragment_datagrams),
        fragments_waiting=section.defaulted(LimitKeys.fragments_waiting),
        fragment_seconds=section.defaulted(LimitKeys.fragment_seconds),
        auditor_per_second=section.defaulted(LimitKeys.auditor_per_second),
        auditor_seconds=section.defaulted(LimitKeys.auditor_seconds),
        path_mtu_seconds=section.defaulted(LimitKeys.path_mtu_seconds),
    )
    section.close()
    return limits


def read_punt_rates(section: YamlMapping) -> dict[str, PuntRate]:
    """Reads the section `punt_rates`. Reasons that it omits get their defaults."""
    rates = {reason: DEFAULT_PUNT_RATES.get(reason, DEFAULT_PUNT_RATE) for reason in PUNT_REASONS}
    for reason, value in section.items():
        if reason not in rates:
            value.problem(f"unknown punt reason; use one of {', '.join(PUNT_REASONS)}")
            continue
        entry = value.mapping()
        rate = entry.required(PuntRateKeys.rate)
        burst = entry.optional(PuntRateKeys.burst, max(1, (rate or 0) // 5))
        entry.close()
        if rate is not None:
            rates[reason] = PuntRate(rate, burst)
    return rates
