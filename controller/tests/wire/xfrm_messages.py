# SPDX-License-Identifier: Apache-2.0
"""Encodes the kernel's messages from the model: the inverse of `sluice.wire.xfrm`.

The layouts are ctypes structures after linux/xfrm.h, so they do not depend on the decoder.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_char, c_int32, c_uint8, c_uint16, c_uint32, c_uint64

from sluice.wire.netlink import attribute
from sluice.xfrm_model import (
    NO_MARK,
    KernelAlgorithm,
    KernelPolicy,
    KernelSelector,
    KernelState,
    Template,
)

AF_INET, AF_INET6 = 2, 10
Address = c_uint8 * 16


class Be16(ctypes.BigEndianStructure):
    _fields_ = (("value", c_uint16),)


class Be32(ctypes.BigEndianStructure):
    _fields_ = (("value", c_uint32),)


class AddressUnion(ctypes.Union):
    _fields_ = (("a4", c_uint32), ("octets", Address))


class Id(Structure):
    _fields_ = (("daddr", AddressUnion), ("spi", Be32), ("proto", c_uint8))


class Selector(Structure):
    _fields_ = (
        ("daddr", AddressUnion),
        ("saddr", AddressUnion),
        ("dport", Be16),
        ("dport_mask", Be16),
        ("sport", Be16),
        ("sport_mask", Be16),
        ("family", c_uint16),
        ("prefixlen_d", c_uint8),
        ("prefixlen_s", c_uint8),
        ("proto", c_uint8),
        ("ifindex", c_int32),
        ("user", c_uint32),
    )


class LifetimeConfig(Structure):
    _fields_ = tuple(
        (f"{kind}_{of}", c_uint64)
        for of in ("byte_limit", "packet_limit", "add_expires_seconds", "use_expires_seconds")
        for kind in ("soft", "hard")
    )


class LifetimeCurrent(Structure):
    _fields_ = tuple((name, c_uint64) for name in ("bytes", "packets", "add_time", "use_time"))


class UserSaInfo(Structure):
    _fields_ = (
        ("sel", Selector),
        ("id", Id),
        ("saddr", AddressUnion),
        ("lft", LifetimeConfig),
        ("curlft", LifetimeCurrent),
        ("stats", c_uint32 * 3),
        ("seq", c_uint32),
        ("reqid", c_uint32),
        ("family", c_uint16),
        ("mode", c_uint8),
        ("replay_window", c_uint8),
        ("flags", c_uint8),
    )


class UserSaId(Structure):
    _fields_ = (
        ("daddr", AddressUnion),
        ("spi", Be32),
        ("family", c_uint16),
        ("proto", c_uint8),
    )


class UserExpire(Structure):
    _fields_ = (("state", UserSaInfo), ("hard", c_uint8))


class UserPolicyInfo(Structure):
    _fields_ = (
        ("sel", Selector),
        ("lft", LifetimeConfig),
        ("curlft", LifetimeCurrent),
        ("priority", c_uint32),
        ("index", c_uint32),
        ("dir", c_uint8),
        ("action", c_uint8),
        ("flags", c_uint8),
        ("share", c_uint8),
    )


class UserPolicyExpire(Structure):
    _fields_ = (("pol", UserPolicyInfo), ("hard", c_uint8))


class UserPolicyId(Structure):
    _fields_ = (("sel", Selector), ("index", c_uint32), ("dir", c_uint8))


class UserTemplate(Structure):
    _fields_ = (
        ("id", Id),
        ("family", c_uint16),
        ("saddr", AddressUnion),
        ("reqid", c_uint32),
        ("mode", c_uint8),
        ("share", c_uint8),
        ("optional", c_uint8),
        ("aalgos", c_uint32),
        ("ealgos", c_uint32),
        ("calgos", c_uint32),
    )


class EncapTemplate(Structure):
    _fields_ = (
        ("encap_type", c_uint16),
        ("encap_sport", Be16),
        ("encap_dport", Be16),
        ("encap_oa", AddressUnion),
    )


class ReplayEsn(Structure):
    _fields_ = tuple(
        (name, c_uint32)
        for name in ("bmp_len", "oseq", "seq", "oseq_hi", "seq_hi", "replay_window")
    )


class AlgorithmHeader(Structure):
    _fields_ = (("alg_name", c_char * 64), ("alg_key_len", c_uint32))


def family(address: bytes) -> int:
    return AF_INET if len(address) == 4 else AF_INET6


def union(address: bytes) -> AddressUnion:
    return AddressUnion(octets=Address(*address.ljust(16, b"\0")))


def selector(one: KernelSelector) -> Selector:
    return Selector(
        union(one.destination.address),
        union(one.source.address),
        Be16(one.destination_port.value),
        Be16(one.destination_port.mask),
        Be16(one.source_port.value),
        Be16(one.source_port.mask),
        family(one.source.address),
        one.destination.length,
        one.source.length,
        one.protocol,
        one.ifindex,
        one.user,
    )


def state_info(state: KernelState) -> UserSaInfo:
    limits = [number for pair in zip(state.soft, state.hard, strict=True) for number in pair]
    return UserSaInfo(
        sel=selector(state.selector),
        id=Id(union(state.key.destination), Be32(state.key.spi), state.key.protocol),
        saddr=union(state.source),
        lft=LifetimeConfig(*limits),
        curlft=LifetimeCurrent(*state.usage),
        reqid=state.reqid,
        family=family(state.key.destination),
        mode=state.mode,
        replay_window=min(state.replay_window, 32),
        flags=state.flags,
    )


def algorithm(one: KernelAlgorithm, *, with_icv: bool) -> bytes:
    key = one.key.reveal()
    header = bytes(AlgorithmHeader(one.name.encode(), len(key) * 8))
    return header + (bytes(c_uint32(one.icv_bits)) if with_icv else b"") + key


def u32(number: int) -> bytes:
    return bytes(c_uint32(number))


def mark_attribute(mark: tuple[int, int]) -> bytes:
    return b"" if mark == NO_MARK else attribute(21, u32(mark[0]) + u32(mark[1]))


def state_attributes(state: KernelState) -> bytes:
    found = b""
    if state.aead is not None:
        found += attribute(18, algorithm(state.aead, with_icv=True))
    if state.integrity is not None:
        # The kernel sends both attributes.
        plain = state.integrity._replace(icv_bits=0)
        found += attribute(1, algorithm(plain, with_icv=False))
        found += attribute(20, algorithm(state.integrity, with_icv=True))
    if state.encryption is not None:
        found += attribute(2, algorithm(state.encryption, with_icv=False))
    if state.encapsulation is not None:
        one = state.encapsulation
        encap = EncapTemplate(one.kind, Be16(one.source_port), Be16(one.destination_port))
        found += attribute(4, bytes(encap))
    low, high = state.sequence & 0xFFFFFFFF, state.sequence >> 32
    replay = ReplayEsn(0, low, 0, high, 0, state.replay_window)
    found += attribute(23, bytes(replay))
    found += mark_attribute(state.mark)
    for kind, number in ((31, state.if_id), (24, state.extra_flags), (22, state.tfc_pad)):
        if number:
            found += attribute(kind, u32(number))
    for kind in sorted(state.others):
        found += attribute(kind, u32(0))
    return found


def state(one: KernelState) -> bytes:
    """Encodes the body of XFRM_MSG_NEWSA."""
    return bytes(state_info(one)) + state_attributes(one)


def state_gone(one: KernelState) -> bytes:
    """Encodes the body of XFRM_MSG_DELSA."""
    identity = UserSaId(
        union(one.key.destination),
        Be32(one.key.spi),
        family(one.key.destination),
        one.key.protocol,
    )
    return bytes(identity) + attribute(6, bytes(state_info(one))) + state_attributes(one)


def state_expired(one: KernelState, *, hard: bool) -> bytes:
    """Encodes the body of XFRM_MSG_EXPIRE."""
    return bytes(UserExpire(state_info(one), hard)) + mark_attribute(one.mark)


def policy_info(policy: KernelPolicy) -> UserPolicyInfo:
    return UserPolicyInfo(
        sel=selector(policy.selector),
        priority=policy.priority,
        index=policy.key.number,
        dir=policy.direction,
        action=policy.action,
    )


def template(one: Template) -> bytes:
    return bytes(
        UserTemplate(
            Id(union(one.destination), Be32(one.spi), one.protocol),
            family(one.source),
            union(one.source),
            one.reqid,
            one.mode,
            0,
            one.is_optional,
            0xFFFFFFFF,
            0xFFFFFFFF,
            0xFFFFFFFF,
        )
    )


def policy_attributes(policy: KernelPolicy) -> bytes:
    found = b""
    if policy.templates:
        found += attribute(5, b"".join(map(template, policy.templates)))
    # struct xfrm_userpolicy_type
    found += attribute(16, bytes([policy.key.is_sub, 0, 0, 0, 0, 0]))
    found += mark_attribute(policy.mark)
    if policy.if_id:
        found += attribute(31, u32(policy.if_id))
    return found


def policy(one: KernelPolicy) -> bytes:
    """Encodes the body of XFRM_MSG_NEWPOLICY."""
    return bytes(policy_info(one)) + policy_attributes(one)


def policy_gone(one: KernelPolicy) -> bytes:
    """Encodes the body of XFRM_MSG_DELPOLICY, for a policy deleted by its selector."""
    identity = bytes(UserPolicyId(selector(one.selector), 0, one.direction))
    return identity + attribute(7, bytes(policy_info(one))) + policy_attributes(one)


def policy_expired(one: KernelPolicy, *, hard: bool) -> bytes:
    """Encodes the body of XFRM_MSG_POLEXPIRE."""
    return bytes(UserPolicyExpire(policy_info(one), hard)) + policy_attributes(one)
