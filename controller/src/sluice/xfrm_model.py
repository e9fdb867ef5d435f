# SPDX-License-Identifier: Apache-2.0
"""The kernel's IPsec databases as linux/xfrm.h has them: policies, states, and their changes.

XFRM policies are the kernel's SPD, XFRM states its SAD. A policy names templates; a state that fits
a template (reqid, addresses, mode) is an SA for it. Everything is immutable. Depends on model only.
"""

from __future__ import annotations

import hmac
from enum import IntEnum
from typing import NamedTuple, NoReturn, TypeAlias

from sluice.model import Address, Prefix, format_address

NO_LIMIT = (1 << 64) - 1
"""XFRM_INF."""
ESP = 50
"""The IP protocol."""


class Key:
    """Key material. Its text is its length; it cannot be pickled or copied into a log."""

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
        return isinstance(other, Key) and hmac.compare_digest(self._octets, other._octets)

    def __hash__(self) -> int:
        return hash(self._octets)

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys are not pickled")


class PolicyDirection(IntEnum):
    """Where the kernel looks a policy up. FWD: what it forwards, after it came in."""

    IN = 0
    OUT = 1
    FWD = 2


class PolicyAction(IntEnum):
    """XFRM_POLICY_*: what happens to packets of a policy."""

    ALLOW = 0
    BLOCK = 1


class Mode(IntEnum):
    """XFRM_MODE_*."""

    TRANSPORT = 0
    TUNNEL = 1
    ROUTE_OPTIMIZATION = 2
    IN_TRIGGER = 3
    BEET = 4


class PortMatch(NamedTuple):
    """Matches ports whose bits under `mask` are those of `value`. Of ICMP the source port is the
    type, the destination port the code."""

    value: int
    mask: int


ANY_PORT = PortMatch(0, 0)


class KernelSelector(NamedTuple):
    """struct xfrm_selector. `protocol` 0 is any; `ifindex` and `user` 0 are none."""

    source: Prefix
    destination: Prefix
    protocol: int
    source_port: PortMatch = ANY_PORT
    destination_port: PortMatch = ANY_PORT
    ifindex: int = 0
    user: int = 0


class Template(NamedTuple):
    """struct xfrm_user_tmpl: a protection that a policy asks for. `reqid` 0 is any.

    Addresses are the outer ones in tunnel mode; all zeros: those of the packet.
    """

    source: Address
    destination: Address
    protocol: int
    spi: int
    reqid: int
    mode: int
    is_optional: bool


class Mark(NamedTuple):
    """struct xfrm_mark."""

    value: int
    mask: int


NO_MARK = Mark(0, 0)


class Limits(NamedTuple):
    """Half of struct xfrm_lifetime_cfg, the soft or the hard one; NO_LIMIT where there is none.

    `seconds` count since the state was added, `used_seconds` since its first packet; of both 0 is
    no limit, too.
    """

    bytes: int = NO_LIMIT
    packets: int = NO_LIMIT
    seconds: int = 0
    used_seconds: int = 0


class Usage(NamedTuple):
    """struct xfrm_lifetime_cur. Times are seconds since the epoch, 0: not yet."""

    bytes: int = 0
    packets: int = 0
    added: int = 0
    used: int = 0


class PolicyKey(NamedTuple):
    """Identifies a policy by the kernel's index. The kernel gives each index once; its lowest three
    bits are the direction, or more than `PolicyDirection` has for the policies of single sockets.
    """

    number: int
    is_sub: bool = False
    """A policy of type SUB (XFRM_POLICY_TYPE_SUB), which the kernel looks up beside the main ones.
    """

    @property
    def is_of_socket(self) -> bool:
        """Whether it is of one socket only, as IKE daemons exempt theirs."""
        return self.number & 7 > max(PolicyDirection)


class KernelPolicy(NamedTuple):
    """A policy. The kernel takes the lowest `priority` first, among equals the oldest,
    which has the lowest index."""

    key: PolicyKey
    direction: PolicyDirection
    priority: int
    action: int
    selector: KernelSelector
    templates: tuple[Template, ...] = ()
    mark: Mark = NO_MARK
    if_id: int = 0


class Algorithm(NamedTuple):
    """An algorithm by the kernel's name, its key, and the length of its ICV in bits (0: none)."""

    name: str
    key: Key
    icv_bits: int = 0


class Encapsulation(NamedTuple):
    """struct xfrm_encap_tmpl: ESP in UDP (RFC 3948) is kind 2."""

    kind: int
    source_port: int
    destination_port: int


class StateKey(NamedTuple):
    """Identifies a state, as on the wire."""

    destination: Address
    spi: int
    protocol: int

    def __str__(self) -> str:
        return f"SPI {self.spi:#010x} to {format_address(self.destination)}"


class KernelState(NamedTuple):
    """A state. One without algorithms is larval: it stands for an SA that is being negotiated.

    `flags` are XFRM_STATE_*, `extra_flags` XFRM_SA_XFLAG_*. `others` are the numbers of attributes
    (XFRMA_*) that change what the SA does and are not decoded here.
    """

    key: StateKey
    source: Address
    reqid: int
    mode: int
    flags: int
    selector: KernelSelector
    soft: Limits
    hard: Limits
    usage: Usage
    replay_window: int
    sequence: int = 0
    """The last number sent (outbound) or the highest received (inbound)."""
    aead: Algorithm | None = None
    encryption: Algorithm | None = None
    integrity: Algorithm | None = None
    encapsulation: Encapsulation | None = None
    mark: Mark = NO_MARK
    if_id: int = 0
    extra_flags: int = 0
    tfc_pad: int = 0
    others: frozenset[int] = frozenset()

    @property
    def is_larval(self) -> bool:
        """Whether it has no keys yet."""
        return self.aead is None and self.encryption is None and self.integrity is None


class Defaults(NamedTuple):
    """The kernel's actions on packets that no policy matches (XFRM_MSG_GETDEFAULT)."""

    inbound: PolicyAction = PolicyAction.ALLOW
    forward: PolicyAction = PolicyAction.ALLOW
    outbound: PolicyAction = PolicyAction.ALLOW


# --- events --------------------------------------------------------------------------------------


class StateChanged(NamedTuple):
    """The state is there, new or changed."""

    state: KernelState


class StateGone(NamedTuple):
    """The state was deleted, or has reached a hard lifetime."""

    key: StateKey


class PolicyChanged(NamedTuple):
    """The policy is there, new or changed."""

    policy: KernelPolicy


class PolicyGone(NamedTuple):
    """The policy was deleted, or has reached a hard lifetime."""

    key: PolicyKey


class Flushed(NamedTuple):
    """All states, or all policies, are gone; the kernel is asked what is left."""


class DefaultsChanged(NamedTuple):
    """What happens to packets that no policy matches."""

    defaults: Defaults


XfrmEvent: TypeAlias = (
    StateChanged | StateGone | PolicyChanged | PolicyGone | Flushed | DefaultsChanged
)
