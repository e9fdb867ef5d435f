# SPDX-License-Identifier: Apache-2.0
"""Decodes XFRM events of NETLINK_XFRM (linux/xfrm.h), and encodes requests.

Structures have the layout of 64-bit kernels: C structures with natural alignment. A message decodes
to an event of `xfrm_model`, or to None if the mirror of the databases does not need it. The caller
counts such messages. An inconsistent message raises WireError.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from sluice.model import Address, Prefix
from sluice.wire.errors import WireError
from sluice.wire.netlink import (
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
    U32,
    attribute,
    attributes,
    fixed,
    message,
)
from sluice.xfrm_model import (
    NO_LIMIT,
    NO_MARK,
    Defaults,
    DefaultsChanged,
    Encapsulation,
    Flushed,
    KernelAlgorithm,
    KernelLimits,
    KernelPolicy,
    KernelSelector,
    KernelState,
    Mark,
    PolicyAction,
    PolicyChanged,
    PolicyDirection,
    PolicyGone,
    PolicyKey,
    PortMatch,
    SecretKey,
    StateChanged,
    StateGone,
    StateKey,
    Template,
    Usage,
    XfrmEvent,
)

XFRM_MSG_NEWSA, XFRM_MSG_DELSA, XFRM_MSG_GETSA = 0x10, 0x11, 0x12
XFRM_MSG_NEWPOLICY, XFRM_MSG_DELPOLICY, XFRM_MSG_GETPOLICY = 0x13, 0x14, 0x15
XFRM_MSG_ACQUIRE, XFRM_MSG_EXPIRE = 0x17, 0x18
XFRM_MSG_UPDPOLICY, XFRM_MSG_UPDSA, XFRM_MSG_POLEXPIRE = 0x19, 0x1A, 0x1B
XFRM_MSG_FLUSHSA, XFRM_MSG_FLUSHPOLICY = 0x1C, 0x1D
XFRM_MSG_NEWAE = 0x1E
XFRM_MSG_MIGRATE, XFRM_MSG_MAPPING = 0x21, 0x26
XFRM_MSG_GETDEFAULT = 0x28

# Multicast groups for NETLINK_ADD_MEMBERSHIP.
XFRMNLGRP_EXPIRE, XFRMNLGRP_SA, XFRMNLGRP_POLICY, XFRMNLGRP_MIGRATE = 2, 3, 4, 7

XFRMA_ALG_AUTH, XFRMA_ALG_CRYPT, XFRMA_ALG_COMP, XFRMA_ENCAP, XFRMA_TMPL = 1, 2, 3, 4, 5
XFRMA_SA, XFRMA_POLICY, XFRMA_LTIME_VAL, XFRMA_REPLAY_VAL = 6, 7, 9, 10
XFRMA_COADDR, XFRMA_POLICY_TYPE, XFRMA_ALG_AEAD, XFRMA_ALG_AUTH_TRUNC = 14, 16, 18, 20
XFRMA_MARK, XFRMA_TFCPAD, XFRMA_REPLAY_ESN_VAL, XFRMA_SA_EXTRA_FLAGS = 21, 22, 23, 24
XFRMA_OFFLOAD_DEV, XFRMA_SET_MARK, XFRMA_IF_ID = 28, 29, 31
NOT_MIRRORED = frozenset({XFRMA_ALG_COMP, XFRMA_COADDR, XFRMA_OFFLOAD_DEV, XFRMA_SET_MARK})
"""Attributes that change a state's behaviour but are not mirrored. `KernelState.others` lists
them."""

XFRM_POLICY_TYPE_SUB = 1
XFRM_STATE_ESN = 128
XFRM_USERPOLICY_BLOCK = 1
AF_INET, AF_INET6 = 2, 10
ADDRESS_BYTES = {AF_INET: 4, AF_INET6: 16}
UNION_BYTES = 16
"""Size of xfrm_address_t, for either family."""

# destination, source, destination port and mask, source port and mask | the rest of the selector
SELECTOR_PORTS = Struct("!16s16sHHHH")
# family, prefix lengths of destination and source, protocol, interface, user
SELECTOR_REST = Struct("=HBBB3xiI")
SELECTOR_SIZE = SELECTOR_PORTS.size + SELECTOR_REST.size
# destination, SPI, protocol
ID = Struct("!16sIB3x")
# soft and hard limits of: bytes, packets, seconds since added, seconds since first use
LIFETIMES = Struct("=8Q")
# bytes, packets, added, first used
USAGE = Struct("=4Q")
# window, replayed, integrity failed | sequence, reqid, family, mode, window, flags
STATE_REST = Struct("=III IIHBBB7x")
STATE_SIZE = SELECTOR_SIZE + ID.size + UNION_BYTES + LIFETIMES.size + USAGE.size + STATE_REST.size
# priority, index, direction, action, flags, share
POLICY_REST = Struct("=IIBBBB4x")
POLICY_SIZE = SELECTOR_SIZE + LIFETIMES.size + USAGE.size + POLICY_REST.size
# index, direction
POLICY_ID_REST = Struct("=IB3x")
POLICY_ID_SIZE = SELECTOR_SIZE + POLICY_ID_REST.size
# destination, SPI | family, protocol
STATE_ID_WIRE = Struct("!16sI")
STATE_ID_REST = Struct("=HBx")
STATE_ID_SIZE = STATE_ID_WIRE.size + STATE_ID_REST.size
# family | source | reqid, mode, share, optional, three masks of algorithms
TEMPLATE_REST = Struct("=H2x16sIBBBxIII")
TEMPLATE_SIZE = ID.size + TEMPLATE_REST.size
# name, key length in bits; the second structure also has the length of the ICV or of the truncated
# hash in bits
ALGORITHM = Struct("=64sI")
ALGORITHM_WITH_ICV = Struct("=64sII")
ENCAPSULATION_KIND = Struct("=H")
ENCAPSULATION_PORTS = Struct("!HH")
ENCAPSULATION_SIZE = 24
# 32-bit words of the bitmap, outbound and inbound sequence, their upper halves, window
REPLAY_ESN = Struct("=6I")
# outbound sequence, inbound sequence, bitmap
REPLAY = Struct("=3I")
MARK = Struct("=II")
HARD = Struct("=B7x")
DEFAULTS = Struct("=BBB")
# masks of authentication, encryption and compression algorithms; sequence
ACQUIRE_REST = Struct("=IIII")
ANY_ALGORITHM = 0xFFFFFFFF
# flags, reqid
AE_REST = Struct("=II")


def decode(kind: int, body: bytes, base: int) -> XfrmEvent | None:
    """Returns the event in the body of a message of type `kind`.

    `base` is the body's position in the received data, for the offsets in WireErrors. Returns None
    for message types that the mirror ignores, for soft lifetimes, and for policies of single
    sockets.
    """
    decoder = _DECODERS.get(kind)
    return None if decoder is None else decoder(body, base)


# --- states --------------------------------------------------------------------------------------


def _state_changed(body: bytes, base: int) -> StateChanged:
    _require(body, STATE_SIZE, "state", base)
    return StateChanged(_state(body, attributes(body, STATE_SIZE, base), base))


def _state_gone(body: bytes, base: int) -> StateGone:
    _require(body, STATE_ID_SIZE, "state_id", base)
    destination, spi = STATE_ID_WIRE.unpack_from(body)
    family, protocol = STATE_ID_REST.unpack_from(body, STATE_ID_WIRE.size)
    return StateGone(StateKey(_address(destination, family, base), spi, protocol))


def _state_expired(body: bytes, base: int) -> StateGone | None:
    _require(body, STATE_SIZE + HARD.size, "expire", base)
    (hard,) = HARD.unpack_from(body, STATE_SIZE)
    return StateGone(_state_fixed(body, base).key) if hard else None


def _state(body: bytes, attrs: dict[int, bytes], base: int) -> KernelState:
    state = _state_fixed(body, base)
    window, sequences = _replay(state, attrs, base)
    integrity = None
    if XFRMA_ALG_AUTH_TRUNC in attrs:
        integrity = _algorithm(attrs[XFRMA_ALG_AUTH_TRUNC], ALGORITHM_WITH_ICV, base)
    elif XFRMA_ALG_AUTH in attrs:
        integrity = _algorithm(attrs[XFRMA_ALG_AUTH], ALGORITHM, base)
    return state._replace(
        replay_window=window,
        sequence=max(sequences),
        aead=_optional(attrs, XFRMA_ALG_AEAD, ALGORITHM_WITH_ICV, base),
        encryption=_optional(attrs, XFRMA_ALG_CRYPT, ALGORITHM, base),
        integrity=integrity,
        encapsulation=_encapsulation(attrs, base),
        mark=_mark(attrs, base),
        if_id=_number(attrs, XFRMA_IF_ID, "XFRMA_IF_ID", base),
        extra_flags=_number(attrs, XFRMA_SA_EXTRA_FLAGS, "XFRMA_SA_EXTRA_FLAGS", base),
        tfc_pad=_number(attrs, XFRMA_TFCPAD, "XFRMA_TFCPAD", base),
        others=frozenset(NOT_MIRRORED & attrs.keys()),
    )


def _state_fixed(body: bytes, base: int) -> KernelState:
    """Decodes the fixed part, struct xfrm_usersa_info."""
    at = SELECTOR_SIZE
    destination, spi, protocol = ID.unpack_from(body, at)
    at += ID.size
    source = body[at : at + UNION_BYTES]
    at += UNION_BYTES
    soft, hard = _limits(body, at)
    usage = Usage(*USAGE.unpack_from(body, at + LIFETIMES.size))
    *_, reqid, family, mode, window, flags = STATE_REST.unpack_from(
        body, at + LIFETIMES.size + USAGE.size
    )
    return KernelState(
        StateKey(_address(destination, family, base), spi, protocol),
        _address(source, family, base),
        reqid,
        mode,
        flags,
        _selector(body, 0, family, base),
        soft,
        hard,
        usage,
        window,
    )


def _replay(state: KernelState, attrs: dict[int, bytes], base: int) -> tuple[int, tuple[int, int]]:
    """Returns the anti-replay window, and the outbound and inbound sequence numbers."""
    if (value := attrs.get(XFRMA_REPLAY_ESN_VAL)) is not None:
        _require(value, REPLAY_ESN.size, "replay_esn", base)
        _, out_low, in_low, out_high, in_high, window = REPLAY_ESN.unpack_from(value)
        return window, (out_high << 32 | out_low, in_high << 32 | in_low)
    if (value := attrs.get(XFRMA_REPLAY_VAL)) is not None:
        _require(value, REPLAY.size, "replay", base)
        outbound, inbound, _ = REPLAY.unpack_from(value)
        return state.replay_window, (outbound, inbound)
    return state.replay_window, (0, 0)


def _optional(
    attrs: dict[int, bytes], kind: int, form: Struct, base: int
) -> KernelAlgorithm | None:
    return _algorithm(attrs[kind], form, base) if kind in attrs else None


def _algorithm(value: bytes, form: Struct, base: int) -> KernelAlgorithm:
    _require(value, form.size, "algorithm", base)
    name, key_bits, *icv_bits = form.unpack_from(value)
    key = value[form.size :]
    if key_bits % 8 or len(key) < key_bits // 8:
        raise WireError("algorithm_key", base, f"a key of {key_bits} bits in {len(key)} bytes")
    text = name.partition(b"\0")[0].decode("ascii", "backslashreplace")
    return KernelAlgorithm(text, SecretKey(key[: key_bits // 8]), *icv_bits)


def _encapsulation(attrs: dict[int, bytes], base: int) -> Encapsulation | None:
    if (value := attrs.get(XFRMA_ENCAP)) is None:
        return None
    _require(value, ENCAPSULATION_SIZE, "encapsulation", base)
    (kind,) = ENCAPSULATION_KIND.unpack_from(value)
    return Encapsulation(kind, *ENCAPSULATION_PORTS.unpack_from(value, ENCAPSULATION_KIND.size))


# --- policies ------------------------------------------------------------------------------------


def _policy_changed(body: bytes, base: int) -> PolicyChanged | None:
    _require(body, POLICY_SIZE, "policy", base)
    attrs = attributes(body, POLICY_SIZE, base)
    key = _policy_key(body, attrs)
    if key.is_of_socket:
        return None
    return PolicyChanged(_policy(body, key, attrs, base))


def _policy_gone(body: bytes, base: int) -> PolicyGone | None:
    """Decodes a deleted policy from XFRMA_POLICY, which has the whole policy.

    The fixed part of the message lacks either the index or the selector.
    """
    _require(body, POLICY_ID_SIZE, "policy_id", base)
    attrs = attributes(body, POLICY_ID_SIZE, base)
    whole = attrs.get(XFRMA_POLICY)
    if whole is None:
        raise WireError("policy_without_body", base, "a deletion without XFRMA_POLICY")
    _require(whole, POLICY_SIZE, "policy", base)
    key = _policy_key(whole, attrs)
    return None if key.is_of_socket else PolicyGone(key)


def _policy_expired(body: bytes, base: int) -> PolicyGone | None:
    _require(body, POLICY_SIZE + HARD.size, "policy_expire", base)
    (hard,) = HARD.unpack_from(body, POLICY_SIZE)
    key = _policy_key(body, attributes(body, POLICY_SIZE + HARD.size, base))
    return PolicyGone(key) if hard and not key.is_of_socket else None


def _policy_key(body: bytes, attrs: dict[int, bytes]) -> PolicyKey:
    _, index, *_ = POLICY_REST.unpack_from(body, POLICY_SIZE - POLICY_REST.size)
    kind = attrs.get(XFRMA_POLICY_TYPE, b"\0")[:1]
    return PolicyKey(index, kind == bytes([XFRM_POLICY_TYPE_SUB]))


def _policy(body: bytes, key: PolicyKey, attrs: dict[int, bytes], base: int) -> KernelPolicy:
    at = POLICY_SIZE - POLICY_REST.size
    priority, _, direction, action, _, _ = POLICY_REST.unpack_from(body, at)
    if direction > max(PolicyDirection):
        raise WireError("policy_direction", base + at, f"direction {direction}")
    return KernelPolicy(
        key,
        PolicyDirection(direction),
        priority,
        action,
        _selector(body, 0, None, base),
        _templates(attrs.get(XFRMA_TMPL, b""), base),
        _mark(attrs, base),
        _number(attrs, XFRMA_IF_ID, "XFRMA_IF_ID", base),
    )


def _templates(value: bytes, base: int) -> tuple[Template, ...]:
    if len(value) % TEMPLATE_SIZE:
        raise WireError("template_truncated", base, f"{len(value)} bytes of {TEMPLATE_SIZE} each")
    return tuple(_template(value, at, base) for at in range(0, len(value), TEMPLATE_SIZE))


def _template(value: bytes, at: int, base: int) -> Template:
    destination, spi, protocol = ID.unpack_from(value, at)
    family, source, reqid, mode, _, optional, *_ = TEMPLATE_REST.unpack_from(value, at + ID.size)
    return Template(
        _address(source, family, base),
        _address(destination, family, base),
        protocol,
        spi,
        reqid,
        mode,
        bool(optional),
    )


# --- parts ---------------------------------------------------------------------------------------


def _selector(body: bytes, at: int, family: int | None, base: int) -> KernelSelector:
    """Decodes a selector. A state's selector may have family 0, which means the state's family."""
    destination, source, dport, dmask, sport, smask = SELECTOR_PORTS.unpack_from(body, at)
    own, dlength, slength, protocol, ifindex, user = SELECTOR_REST.unpack_from(
        body, at + SELECTOR_PORTS.size
    )
    if own == 0 and family is not None:
        own = family
    return KernelSelector(
        _prefix(source, slength, own, base),
        _prefix(destination, dlength, own, base),
        protocol,
        PortMatch(sport, smask),
        PortMatch(dport, dmask),
        ifindex,
        user,
    )


def _prefix(union: bytes, length: int, family: int, base: int) -> Prefix:
    address = _address(union, family, base)
    if length > len(address) * 8:
        raise WireError("prefix_length", base, f"/{length} of {len(address)} bytes")
    return Prefix.of(address, length)


def _address(union: bytes, family: int, base: int) -> Address:
    size = ADDRESS_BYTES.get(family)
    if size is None:
        raise WireError("address_family", base, f"family {family} is neither IPv4 nor IPv6")
    return union[:size]


def _limits(body: bytes, at: int) -> tuple[KernelLimits, KernelLimits]:
    numbers = LIFETIMES.unpack_from(body, at)
    return KernelLimits(*numbers[0::2]), KernelLimits(*numbers[1::2])


def _mark(attrs: dict[int, bytes], base: int) -> Mark:
    value = attrs.get(XFRMA_MARK)
    if value is None:
        return NO_MARK
    _require(value, MARK.size, "mark", base)
    return Mark(*MARK.unpack_from(value))


def _number(attrs: dict[int, bytes], kind: int, what: str, base: int) -> int:
    return fixed(attrs[kind], what, U32, base) if kind in attrs else 0


def _require(value: bytes, size: int, what: str, base: int) -> None:
    if len(value) < size:
        raise WireError(f"{what}_truncated", base, f"{len(value)} bytes of {size}")


def _flushed(body: bytes, base: int) -> Flushed:
    return Flushed()


def _defaults_changed(body: bytes, base: int) -> DefaultsChanged:
    _require(body, DEFAULTS.size, "defaults", base)
    inbound, forward, outbound = (
        PolicyAction.BLOCK if value == XFRM_USERPOLICY_BLOCK else PolicyAction.ALLOW
        for value in DEFAULTS.unpack_from(body)
    )
    return DefaultsChanged(Defaults(inbound, forward, outbound))


_DECODERS: dict[int, Callable[[bytes, int], XfrmEvent | None]] = {
    XFRM_MSG_NEWSA: _state_changed,
    XFRM_MSG_UPDSA: _state_changed,
    XFRM_MSG_DELSA: _state_gone,
    XFRM_MSG_EXPIRE: _state_expired,
    XFRM_MSG_NEWPOLICY: _policy_changed,
    XFRM_MSG_UPDPOLICY: _policy_changed,
    XFRM_MSG_DELPOLICY: _policy_gone,
    XFRM_MSG_POLEXPIRE: _policy_expired,
    XFRM_MSG_FLUSHSA: _flushed,
    XFRM_MSG_FLUSHPOLICY: _flushed,
    XFRM_MSG_GETDEFAULT: _defaults_changed,
}


# --- requests ------------------------------------------------------------------------------------


def dump_states(sequence: int) -> bytes:
    """Encodes a dump request for all states, which arrive as XFRM_MSG_NEWSA."""
    return message(XFRM_MSG_GETSA, NLM_F_REQUEST | NLM_F_DUMP, sequence, b"")


def dump_policies(sequence: int) -> bytes:
    """Encodes a dump request for all policies, which arrive as XFRM_MSG_NEWPOLICY."""
    return message(XFRM_MSG_GETPOLICY, NLM_F_REQUEST | NLM_F_DUMP, sequence, b"")


def get_defaults(sequence: int) -> bytes:
    """Encodes a request for the default actions of packets without a policy (since Linux 5.15)."""
    return message(XFRM_MSG_GETDEFAULT, NLM_F_REQUEST, sequence, DEFAULTS.pack(0, 0, 0))


def acquire(sequence: int, policy: KernelPolicy, flow: KernelSelector) -> bytes:
    """Encodes a message that makes the kernel request an SA from its key managers.

    The kernel forwards XFRM_MSG_ACQUIRE from user space to all listeners (xfrm_add_acquire), such
    as IKE daemons, just as it notifies them for its own packets. The message changes no state in
    the kernel.
    """
    (template, *_) = policy.templates
    body = ID.pack(_union(template.destination), 0, template.protocol)
    body += _union(template.source)
    body += encode_selector(flow)
    body += encode_policy(policy)
    body += ACQUIRE_REST.pack(ANY_ALGORITHM, ANY_ALGORITHM, ANY_ALGORITHM, 0)
    body += attribute(XFRMA_TMPL, b"".join(map(encode_template, policy.templates)))
    return message(XFRM_MSG_ACQUIRE, NLM_F_REQUEST | NLM_F_ACK, sequence, body)


def report_usage(sequence: int, state: KernelState, usage: Usage) -> bytes:
    """Encodes an update of a state's usage counters (XFRM_MSG_NEWAE with XFRMA_LTIME_VAL)."""
    body = _state_id(state.key) + _union(state.source) + AE_REST.pack(0, state.reqid)
    body += attribute(XFRMA_LTIME_VAL, USAGE.pack(*usage))
    body += _mark_attribute(state.mark)
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE
    return message(XFRM_MSG_NEWAE, flags, sequence, body)


def expire(sequence: int, state: KernelState, *, hard: bool) -> bytes:
    """Encodes a message that makes the kernel notify its key managers that a state has reached a
    lifetime limit.

    A hard limit ends the state.
    """
    body = bytearray(STATE_SIZE)
    ID.pack_into(
        body, SELECTOR_SIZE, _union(state.key.destination), state.key.spi, state.key.protocol
    )
    rest = (0, 0, 0, 0, state.reqid, _family(state.key.destination), state.mode, 0, 0)
    STATE_REST.pack_into(body, STATE_SIZE - STATE_REST.size, *rest)
    whole = bytes(body) + HARD.pack(hard) + _mark_attribute(state.mark)
    return message(XFRM_MSG_EXPIRE, NLM_F_REQUEST | NLM_F_ACK, sequence, whole)


def encode_policy(policy: KernelPolicy) -> bytes:
    """Returns struct xfrm_userpolicy_info, without lifetimes."""
    limits = LIFETIMES.pack(*(NO_LIMIT,) * 8)
    rest = (policy.priority, policy.key.number, policy.direction, policy.action, 0, 0)
    return (
        encode_selector(policy.selector) + limits + USAGE.pack(0, 0, 0, 0) + POLICY_REST.pack(*rest)
    )


def encode_selector(selector: KernelSelector) -> bytes:
    """Returns struct xfrm_selector."""
    return SELECTOR_PORTS.pack(
        _union(selector.destination.address),
        _union(selector.source.address),
        *selector.destination_port,
        *selector.source_port,
    ) + SELECTOR_REST.pack(
        _family(selector.source.address),
        selector.destination.length,
        selector.source.length,
        selector.protocol,
        selector.ifindex,
        selector.user,
    )


def encode_template(template: Template) -> bytes:
    """Returns struct xfrm_user_tmpl."""
    return ID.pack(_union(template.destination), template.spi, template.protocol) + (
        TEMPLATE_REST.pack(
            _family(template.source),
            _union(template.source),
            template.reqid,
            template.mode,
            0,
            template.is_optional,
            *(ANY_ALGORITHM,) * 3,
        )
    )


def _state_id(key: StateKey) -> bytes:
    return STATE_ID_WIRE.pack(_union(key.destination), key.spi) + STATE_ID_REST.pack(
        _family(key.destination), key.protocol
    )


def _mark_attribute(mark: Mark) -> bytes:
    return b"" if mark == NO_MARK else attribute(XFRMA_MARK, MARK.pack(*mark))


def _union(address: Address) -> bytes:
    return address.ljust(UNION_BYTES, b"\0")


def _family(address: Address) -> int:
    return AF_INET if len(address) == 4 else AF_INET6
