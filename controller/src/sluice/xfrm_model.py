# SPDX-License-Identifier: Apache-2.0
"""Defines the entries of the kernel's IPsec databases (linux/xfrm.h), and events about them.

XFRM policies are the kernel's SPD, and XFRM states its SAD. A policy contains templates. A state
that matches a template (reqid, addresses, mode) is an SA for this template. All types are
immutable. Depends on model only.
"""

from __future__ import annotations

import hmac
from enum import IntEnum
from typing import NamedTuple, NoReturn, TypeAlias

from sluice.model import Address, Prefix, format_address

NO_LIMIT = (1 << 64) - 1
"""XFRM_INF: no limit."""
ESP = 50
"""IP protocol number."""


class SecretKey:
    """Holds key material. It cannot be pickled, and its repr shows only the length.

    So the key never appears in a log.
    """

    __slots__ = ("_octets",)

    def __init__(self, octets: bytes) -> None:
        self._octets = octets

    def reveal(self) -> bytes:
        """Returns the key, for the engine."""
        return self._octets

    def __len__(self) -> int:
        return len(self._octets)

    def __repr__(self) -> str:
        return f"Key({len(self)} bytes)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretKey) and hmac.compare_digest(self._octets, other._octets)

    def __hash__(self) -> int:
        return hash(self._octets)

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys must not be pickled")


class PolicyDirection(IntEnum):
    """Points at which the kernel looks up policies. FWD: for received packets that are to be
    forwarded."""

    IN = 0
    OUT = 1
    FWD = 2


class PolicyAction(IntEnum):
    """Action on the packets of a policy, with the kernel's values XFRM_POLICY_*."""

    ALLOW = 0
    BLOCK = 1


class KernelMode(IntEnum):
    """Modes of IPsec, with the values of the kernel's XFRM_MODE_*."""

    TRANSPORT = 0
    TUNNEL = 1
    ROUTE_OPTIMIZATION = 2
    IN_TRIGGER = 3
    BEET = 4


class PortMatch(NamedTuple):
    """Matches ports that equal `value` in the bits set in `mask`.

    For ICMP, the source port is the type and the destination port the code. For the Mobility
    Header, the source port is the message type and the destination port 0.
    """

    value: int
    mask: int


ANY_PORT = PortMatch(0, 0)


class KernelSelector(NamedTuple):
    """Holds struct xfrm_selector.

    `protocol` 0 matches any protocol. An `ifindex` or `user` of 0 restricts nothing.
    """

    source: Prefix
    destination: Prefix
    protocol: int
    source_port: PortMatch = ANY_PORT
    destination_port: PortMatch = ANY_PORT
    ifindex: int = 0
    user: int = 0


class Template(NamedTuple):
    """Holds struct xfrm_user_tmpl: the protection that a policy requires. A `reqid` of 0 matches
    any.

    In tunnel mode, the addresses are the outer ones. An address of zeros stands for the packet's
    own address.
    """

    source: Address
    destination: Address
    protocol: int
    spi: int
    reqid: int
    mode: int
    is_optional: bool


class Mark(NamedTuple):
    """Holds struct xfrm_mark."""

    value: int
    mask: int


NO_MARK = Mark(0, 0)


class KernelLimits(NamedTuple):
    """Holds the soft or the hard half of struct xfrm_lifetime_cfg. NO_LIMIT: no limit.

    `seconds` count from the addition of the state, `used_seconds` from its first packet. In these
    two, 0 also means no limit.
    """

    bytes: int = NO_LIMIT
    packets: int = NO_LIMIT
    seconds: int = 0
    used_seconds: int = 0


class Usage(NamedTuple):
    """Holds struct xfrm_lifetime_cur. Times are in seconds since the epoch; 0 means that the event
    has not happened."""

    bytes: int = 0
    packets: int = 0
    added: int = 0
    used: int = 0


class PolicyKey(NamedTuple):
    """Identifies a policy by the kernel's index, which the kernel never reuses.

    The lowest three bits are the direction. For policies of single sockets, they exceed the values
    of `PolicyDirection`.
    """

    number: int
    is_sub: bool = False
    """Type SUB (XFRM_POLICY_TYPE_SUB): the kernel looks it up in addition to main policies."""

    @property
    def is_of_socket(self) -> bool:
        """Whether the policy belongs to one socket, such as a policy that exempts an IKE daemon's
        socket."""
        return self.number & 7 > max(PolicyDirection)


class KernelPolicy(NamedTuple):
    """Describes a policy. The kernel prefers the lowest `priority`, then the oldest policy."""

    key: PolicyKey
    direction: PolicyDirection
    priority: int
    action: int
    selector: KernelSelector
    templates: tuple[Template, ...] = ()
    mark: Mark = NO_MARK
    if_id: int = 0


class KernelAlgorithm(NamedTuple):
    """Holds an algorithm: the kernel's name, the key, and the ICV length in bits (0: none)."""

    name: str
    key: SecretKey
    icv_bits: int = 0


class Encapsulation(NamedTuple):
    """Holds struct xfrm_encap_tmpl. Kind 2 is ESP in UDP (RFC 3948)."""

    kind: int
    source_port: int
    destination_port: int


class StateKey(NamedTuple):
    """Identifies a state by header fields of its packets."""

    destination: Address
    spi: int
    protocol: int

    def __str__(self) -> str:
        return f"SPI {self.spi:#010x} to {format_address(self.destination)}"


class KernelState(NamedTuple):
    """Describes a state. A state without algorithms is larval: its SA is being negotiated.

    `flags` are XFRM_STATE_*, `extra_flags` are XFRM_SA_XFLAG_*. `others` has the numbers of
    attributes (XFRMA_*) that change the SA's behaviour and are not decoded here.
    """

    key: StateKey
    source: Address
    reqid: int
    mode: int
    flags: int
    selector: KernelSelector
    soft: KernelLimits
    hard: KernelLimits
    usage: Usage
    replay_window: int
    sequence: int = 0
    """Last sequence number sent (outbound), or highest one received (inbound)."""
    aead: KernelAlgorithm | None = None
    encryption: KernelAlgorithm | None = None
    integrity: KernelAlgorithm | None = None
    encapsulation: Encapsulation | None = None
    mark: Mark = NO_MARK
    if_id: int = 0
    extra_flags: int = 0
    tfc_pad: int = 0
    others: frozenset[int] = frozenset()

    @property
    def is_larval(self) -> bool:
        """Whether the state has no keys yet."""
        return self.aead is None and self.encryption is None and self.integrity is None


class Defaults(NamedTuple):
    """Holds the kernel's actions on packets that no policy matches (XFRM_MSG_GETDEFAULT)."""

    inbound: PolicyAction = PolicyAction.ALLOW
    forward: PolicyAction = PolicyAction.ALLOW
    outbound: PolicyAction = PolicyAction.ALLOW


# --- events --------------------------------------------------------------------------------------


class StateChanged(NamedTuple):
    """A state is new or changed."""

    state: KernelState


class StateGone(NamedTuple):
    """A state was deleted, or has reached a hard lifetime."""

    key: StateKey


class PolicyChanged(NamedTuple):
    """A policy is new or changed."""

    policy: KernelPolicy


class PolicyGone(NamedTuple):
    """A policy was deleted, or has reached a hard lifetime."""

    key: PolicyKey


class Flushed(NamedTuple):
    """All states, or all policies, were flushed. A new dump shows those that the kernel still
    has."""


class DefaultsChanged(NamedTuple):
    """The kernel's actions on packets that no policy matches have changed."""

    defaults: Defaults


XfrmEvent: TypeAlias = (
    StateChanged | StateGone | PolicyChanged | PolicyGone | Flushed | DefaultsChanged
)
