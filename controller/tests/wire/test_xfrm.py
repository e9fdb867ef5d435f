# SPDX-License-Identifier: Apache-2.0
"""Tests XFRM decoding with random and damaged messages, and that keys are never shown."""

from __future__ import annotations

import ctypes
import pickle
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from sluice.model import Address, Prefix
from sluice.wire import xfrm
from sluice.wire.errors import WireError
from sluice.wire.netlink import HEADER, attributes, messages
from sluice.xfrm_model import (
    ANY_PORT,
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
)
from wire import xfrm_messages as kernel
from wire.strategies import damaged

U8, U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
SIZES = st.sampled_from([4, 16])


def addresses(size: int) -> SearchStrategy[Address]:
    return st.binary(min_size=size, max_size=size)


def prefixes(size: int) -> SearchStrategy[Prefix]:
    return st.builds(Prefix.of, addresses(size), st.integers(0, size * 8))


def selectors(size: int) -> SearchStrategy[KernelSelector]:
    ports = st.one_of(st.just(ANY_PORT), st.builds(PortMatch, U16, U16))
    return st.builds(
        KernelSelector,
        prefixes(size),
        prefixes(size),
        U8,
        ports,
        ports,
        st.integers(0, 1 << 30),
        U32,
    )


def keys(limit: int = 64) -> SearchStrategy[SecretKey]:
    return st.builds(SecretKey, st.binary(max_size=limit))


names = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=63)
marks = st.one_of(st.just(NO_MARK), st.builds(Mark, U32, U32))
limits = st.builds(KernelLimits, U64, U64, U64, U64)


@st.composite
def states(draw: st.DrawFn) -> KernelState:
    size = draw(SIZES)
    with_icv = st.builds(KernelAlgorithm, names, keys(), U32)
    return KernelState(
        StateKey(draw(addresses(size)), draw(U32), draw(U8)),
        draw(addresses(size)),
        draw(U32),
        draw(U8),
        draw(U8),
        draw(selectors(draw(SIZES))),
        draw(limits),
        draw(limits),
        draw(st.builds(Usage, U64, U64, U64, U64)),
        draw(U32),
        draw(U64),
        draw(st.none() | with_icv),
        draw(st.none() | st.builds(KernelAlgorithm, names, keys(), st.just(0))),
        draw(st.none() | with_icv),
        draw(st.none() | st.builds(Encapsulation, U16, U16, U16)),
        draw(marks),
        draw(U32),
        draw(U32),
        draw(U32),
        draw(st.frozensets(st.sampled_from(sorted(xfrm.NOT_MIRRORED)))),
    )


@st.composite
def templates(draw: st.DrawFn) -> Template:
    size = draw(SIZES)
    ends = addresses(size)
    return Template(
        draw(ends), draw(ends), draw(U8), draw(U32), draw(U32), draw(U8), draw(st.booleans())
    )


@st.composite
def policies(draw: st.DrawFn) -> KernelPolicy:
    direction = draw(st.sampled_from(PolicyDirection))
    return KernelPolicy(
        PolicyKey(draw(st.integers(0, (1 << 29) - 1)) << 3 | direction, draw(st.booleans())),
        direction,
        draw(U32),
        draw(U8),
        draw(selectors(draw(SIZES))),
        tuple(draw(st.lists(templates(), max_size=3))),
        draw(marks),
        draw(U32),
    )


# --- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "structure"),
    [
        (xfrm.SELECTOR_SIZE, kernel.Selector),
        (xfrm.STATE_SIZE, kernel.UserSaInfo),
        (xfrm.STATE_ID_SIZE, kernel.UserSaId),
        (xfrm.STATE_SIZE + xfrm.HARD.size, kernel.UserExpire),
        (xfrm.POLICY_SIZE, kernel.UserPolicyInfo),
        (xfrm.POLICY_SIZE + xfrm.HARD.size, kernel.UserPolicyExpire),
        (xfrm.POLICY_ID_SIZE, kernel.UserPolicyId),
        (xfrm.TEMPLATE_SIZE, kernel.UserTemplate),
        (xfrm.ENCAPSULATION_SIZE, kernel.EncapTemplate),
        (xfrm.REPLAY_ESN.size, kernel.ReplayEsn),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_structures_have_the_size_that_a_c_compiler_gives_them(
    size: int, structure: type[ctypes.Structure]
) -> None:
    assert size == ctypes.sizeof(structure)


# --- messages of the kernel ----------------------------------------------------------------------


@given(states())
def test_a_state_is_decoded_as_it_was_encoded(state: KernelState) -> None:
    expected = StateChanged(state)
    assert xfrm.decode(xfrm.XFRM_MSG_NEWSA, kernel.state(state), 0) == expected
    assert xfrm.decode(xfrm.XFRM_MSG_UPDSA, kernel.state(state), 0) == expected


@given(states())
def test_a_state_goes_by_deletion_and_by_its_hard_lifetime(state: KernelState) -> None:
    gone = StateGone(state.key)
    assert xfrm.decode(xfrm.XFRM_MSG_DELSA, kernel.state_gone(state), 0) == gone
    hard, soft = (kernel.state_expired(state, hard=hard) for hard in (True, False))
    assert xfrm.decode(xfrm.XFRM_MSG_EXPIRE, hard, 0) == gone
    assert xfrm.decode(xfrm.XFRM_MSG_EXPIRE, soft, 0) is None


@given(policies())
def test_a_policy_is_decoded_as_it_was_encoded(policy: KernelPolicy) -> None:
    expected = PolicyChanged(policy)
    assert xfrm.decode(xfrm.XFRM_MSG_NEWPOLICY, kernel.policy(policy), 0) == expected
    assert xfrm.decode(xfrm.XFRM_MSG_UPDPOLICY, kernel.policy(policy), 0) == expected


@given(policies())
def test_a_policy_goes_by_deletion_and_by_its_hard_lifetime(policy: KernelPolicy) -> None:
    gone = PolicyGone(policy.key)
    assert xfrm.decode(xfrm.XFRM_MSG_DELPOLICY, kernel.policy_gone(policy), 0) == gone
    hard, soft = (kernel.policy_expired(policy, hard=hard) for hard in (True, False))
    assert xfrm.decode(xfrm.XFRM_MSG_POLEXPIRE, hard, 0) == gone
    assert xfrm.decode(xfrm.XFRM_MSG_POLEXPIRE, soft, 0) is None


@given(policies(), st.integers(3, 7))
def test_policies_of_single_sockets_are_no_news(policy: KernelPolicy, direction: int) -> None:
    key = policy.key._replace(number=policy.key.number & ~7 | direction)
    policy = policy._replace(key=key)
    for kind, body in (
        (xfrm.XFRM_MSG_NEWPOLICY, kernel.policy(policy)),
        (xfrm.XFRM_MSG_DELPOLICY, kernel.policy_gone(policy)),
        (xfrm.XFRM_MSG_POLEXPIRE, kernel.policy_expired(policy, hard=True)),
    ):
        assert xfrm.decode(kind, body, 0) is None


def test_flushes_and_defaults() -> None:
    assert xfrm.decode(xfrm.XFRM_MSG_FLUSHSA, b"\0", 0) == Flushed()
    assert xfrm.decode(xfrm.XFRM_MSG_FLUSHPOLICY, b"", 0) == Flushed()
    blocked = Defaults(PolicyAction.BLOCK, PolicyAction.ALLOW, PolicyAction.BLOCK)
    assert xfrm.decode(xfrm.XFRM_MSG_GETDEFAULT, bytes([1, 2, 1]), 0) == DefaultsChanged(blocked)
    assert xfrm.decode(xfrm.XFRM_MSG_GETDEFAULT, bytes(3), 0) == DefaultsChanged(Defaults())


def test_messages_that_a_mirror_does_not_follow_are_no_news() -> None:
    for kind in (xfrm.XFRM_MSG_ACQUIRE, xfrm.XFRM_MSG_MIGRATE, xfrm.XFRM_MSG_MAPPING, 0xFF):
        assert xfrm.decode(kind, b"", 0) is None


# --- damage --------------------------------------------------------------------------------------

_TUNNEL = KernelState(
    StateKey(bytes([10, 0, 2, 1]), 0x1001, 50),
    bytes([10, 0, 1, 1]),
    7,
    1,
    0,
    KernelSelector(Prefix(bytes(4), 0), Prefix(bytes(4), 0), 0),
    KernelLimits(),
    KernelLimits(),
    Usage(),
    32,
    aead=KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(bytes(range(20))), 128),
    integrity=KernelAlgorithm("hmac(sha256)", SecretKey(bytes(32)), 128),
    encapsulation=Encapsulation(2, 4500, 4500),
)
_POLICY = KernelPolicy(
    PolicyKey(9),
    PolicyDirection.OUT,
    100,
    0,
    KernelSelector(Prefix(bytes([10, 1, 0, 0]), 16), Prefix(bytes([10, 2, 0, 0]), 16), 0),
    (Template(bytes([10, 0, 1, 1]), bytes([10, 0, 2, 1]), 50, 0, 7, 1, False),),
)
SAMPLES = {
    xfrm.XFRM_MSG_NEWSA: kernel.state(_TUNNEL),
    xfrm.XFRM_MSG_DELSA: kernel.state_gone(_TUNNEL),
    xfrm.XFRM_MSG_EXPIRE: kernel.state_expired(_TUNNEL, hard=True),
    xfrm.XFRM_MSG_NEWPOLICY: kernel.policy(_POLICY),
    xfrm.XFRM_MSG_DELPOLICY: kernel.policy_gone(_POLICY),
    xfrm.XFRM_MSG_POLEXPIRE: kernel.policy_expired(_POLICY, hard=True),
    xfrm.XFRM_MSG_GETDEFAULT: bytes([1, 2, 1]),
}
KINDS = st.sampled_from(sorted(SAMPLES))


@given(KINDS, st.data())
def test_any_body_decodes_or_raises_wire_error(kind: int, data: st.DataObject) -> None:
    body = data.draw(st.one_of(st.binary(max_size=300), damaged([SAMPLES[kind]])))
    offset, text = 16, ""
    try:
        xfrm.decode(kind, body, 16)
    except WireError as error:
        offset, text = error.offset, str(error)
    assert 16 <= offset <= 16 + len(body)
    assert str(bytes(range(20))) not in text


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ((xfrm.SELECTOR_SIZE + 24 + 16 + 64 + 32 + 20, b"\7\0"), "address_family"),
        ((42, b"\x21"), "prefix_length"),
    ],
)
def test_contradictions_have_names(change: tuple[int, bytes], name: str) -> None:
    at, octets = change
    body = bytearray(kernel.state(_TUNNEL))
    body[at : at + len(octets)] = octets
    with pytest.raises(WireError) as raised:
        xfrm.decode(xfrm.XFRM_MSG_NEWSA, bytes(body), 0)
    assert raised.value.name == name


def test_a_key_longer_than_its_attribute_is_refused() -> None:
    body = bytearray(kernel.state(_TUNNEL))
    at = body.index(b"rfc4106(gcm(aes))") + 64
    Struct("=I").pack_into(body, at, 0xFFFFFFF8)
    with pytest.raises(WireError, match="algorithm_key"):
        xfrm.decode(xfrm.XFRM_MSG_NEWSA, bytes(body), 0)


# --- keys ----------------------------------------------------------------------------------------


def test_keys_are_not_shown() -> None:
    key = SecretKey(b"\xaa\xbb" * 8)
    state = _TUNNEL._replace(aead=KernelAlgorithm("rfc4106(gcm(aes))", key, 128))
    for text in (repr(key), str(key), f"{key}", repr(state), str(StateChanged(state))):
        assert "aabb" not in text
        assert "\\xaa" not in text
        assert str(key.reveal()) not in text
    with pytest.raises(TypeError):
        pickle.dumps(key)
    assert key == SecretKey(b"\xaa\xbb" * 8)
    assert key != SecretKey(b"\xaa\xbb" * 7)


# --- requests ------------------------------------------------------------------------------------


@given(policies(), selectors(4), U32)
def test_an_acquire_carries_the_policy_the_template_and_the_packet(
    policy: KernelPolicy, flow: KernelSelector, sequence: int
) -> None:
    template = Template(bytes(4), bytes([1, 2, 3, 4]), 50, 0, 7, 1, False)
    policy = policy._replace(templates=(template,), key=PolicyKey(policy.key.number))
    (sent,) = messages(xfrm.acquire(sequence, policy, flow))
    assert (sent.type, sent.sequence) == (xfrm.XFRM_MSG_ACQUIRE, sequence)
    size = xfrm.ID.size + 16 + 56 + xfrm.POLICY_SIZE + 16
    assert attributes(sent.body, size) == {xfrm.XFRMA_TMPL: kernel.template(template)}
    flow_at = xfrm.ID.size + 16
    assert sent.body[flow_at : flow_at + 56] == bytes(kernel.selector(flow))
    as_policy = sent.body[flow_at + 56 : size - 16]
    expected = PolicyChanged(policy._replace(templates=(), mark=NO_MARK, if_id=0))
    assert xfrm.decode(xfrm.XFRM_MSG_NEWPOLICY, as_policy, 0) == expected


@given(states(), st.booleans())
def test_an_expiry_names_the_state(state: KernelState, hard: bool) -> None:
    (sent,) = messages(xfrm.expire(5, state, hard=hard))
    found = xfrm.decode(sent.type, sent.body, HEADER.size)
    assert found == (StateGone(state.key) if hard else None)


@given(states(), st.builds(Usage, U64, U64, U64, U64))
def test_a_report_of_usage_names_the_state(state: KernelState, usage: Usage) -> None:
    (sent,) = messages(xfrm.report_usage(5, state, usage))
    identity = kernel.UserSaId.from_buffer_copy(sent.body)
    assert identity.spi.value == state.key.spi
    assert bytes(identity.daddr)[: len(state.source)] == state.key.destination
    attrs = attributes(sent.body, xfrm.STATE_ID_SIZE + 16 + 8)
    assert attrs[xfrm.XFRMA_LTIME_VAL] == bytes(kernel.LifetimeCurrent(*usage))
