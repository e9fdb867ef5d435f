# SPDX-License-Identifier: Apache-2.0
"""Translates the kernel's IPsec states into the SAs of bundles. The bundles come from the kernel's
policies (`kernel_rules`).

A state belongs to the bundle whose template matches its addresses, mode and reqid. A template
without a reqid matches any reqid.

A bundle sends with one outbound state, as the kernel does. It is the state whose SPI the policies
name, or else the newest state. Older states stay for packets in flight: rekeying is
make-before-break. A `fresh` state is not used yet if the policies name no SPI and the bundle has an
older state. The reason: a daemon that answers a rekey (Libreswan) installs the new state before the
peer has the new SA.

A state that cannot be mirrored is left out, and a problem names it. If it is inbound, its packets
are dropped, because their SPI is unknown. If it is outbound and the bundle has no other outbound
SA, the bundle's packets are dropped.

Invariant: a state is never mirrored if the kernel itself has sent packets with it. Otherwise the
kernel and the engine would use the same sequence numbers with one key, and so the same nonces.
Pure; depends on sa_model and xfrm_model.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from sluice.model import Address
from sluice.policy.model import Direction
from sluice.sa_model import (
    ALGORITHMS,
    MAX_REPLAY_WINDOW,
    DontFragment,
    KeyMaterial,
    Lifetime,
    Origin,
    SaSettings,
    SecurityAssociation,
    UdpPorts,
)
from sluice.sa_model import Mode as SaMode
from sluice.state.kernel_rules import KernelBundle, MirroredRules, named_spi
from sluice.xfrm_model import (
    ESP,
    NO_LIMIT,
    NO_MARK,
    KernelLimits,
    KernelMode,
    KernelPolicy,
    KernelState,
    SecretKey,
    StateKey,
)

UDP_ENCAP_ESPINUDP = 2
NO_ECN, DECAP_DSCP, NO_PMTU_DISCOVERY, WILD_RECEIVE, ESN = 1, 2, 4, 8, 128
DONT_ENCAP_DSCP = 1
AEADS = {
    ("rfc4106(gcm(aes))", 20): "aes-128-gcm",
    ("rfc4106(gcm(aes))", 36): "aes-256-gcm",
    ("rfc7539esp(chacha20,poly1305)", 36): "chacha20-poly1305",
}
CIPHERS = {
    ("cbc(aes)", 16): "aes-128-cbc-hmac-sha-256-128",
    ("cbc(aes)", 32): "aes-256-cbc-hmac-sha-256-128",
    ("ecb(cipher_null)", 0): "null-hmac-sha-256-128",
}
"""Encryption algorithms by the kernel's name and the key length in bytes. All are used with
HMAC-SHA-256-128."""
ICV_BITS = 128
MODES = {KernelMode.TUNNEL: SaMode.TUNNEL, KernelMode.TRANSPORT: SaMode.TRANSPORT}


class KernelKeys:
    """Holds the keys of a state. Valid until the state is deleted."""

    def __init__(self, key: SecretKey, integrity: SecretKey) -> None:
        self._key = key
        self._integrity = integrity

    def read(self) -> KeyMaterial:
        """Returns the keys; the caller must erase them."""
        return KeyMaterial(_hex_digits(self._key), _hex_digits(self._integrity))


class MirroredState(NamedTuple):
    """Holds a state and the SA that mirrors it."""

    state: KernelState
    bundle: str
    association: SecurityAssociation


class MirroredStates(NamedTuple):
    """Holds all mirrored states. `problems` has a sentence for each state that was left out.

    `used_by_kernel` has the states that were left out because the kernel itself has sent packets
    with them. These states need a rekey.
    """

    states: tuple[MirroredState, ...]
    problems: tuple[str, ...]
    used_by_kernel: tuple[KernelState, ...] = ()


class BundleIds(NamedTuple):
    """Holds the pipeline's number of each bundle, and the VRF to which all these bundles belong."""

    bundles: Mapping[str, int]
    vrf: int


class StateNotMirroredError(Exception):
    """Reports why a state cannot be mirrored."""


class UsedByKernelError(StateNotMirroredError):
    """Reports that the kernel itself has sent packets with a state. A second sender would repeat
    the nonces."""


def mirror_states(
    states: Iterable[KernelState],
    rules: MirroredRules,
    own: Container[Address],
    numbers: BundleIds,
    *,
    fresh: Container[StateKey] = frozenset(),
) -> MirroredStates:
    """Translates all states of a kernel, given its mirrored policies.

    Ignores bundles of `rules` that have no number. The direction of a state follows from `own`,
    which contains this router's addresses.
    """
    by_ends: dict[tuple[Address, Address, KernelMode], list[KernelBundle]] = {}
    for bundle in rules.bundles.values():
        if bundle.name not in numbers.bundles:
            continue
        by_ends.setdefault((bundle.local, bundle.remote, bundle.mode), []).append(bundle)
    found: list[MirroredState] = []
    problems: list[str] = []
    used: list[KernelState] = []
    for state in sorted(states, key=lambda one: one.usage.added):
        if state.is_larval:
            continue
        try:
            direction = _direction(state, own)
            bundle = _bundle_of(state, direction, by_ends)
            is_outbound = direction is Direction.OUTBOUND
            policies = rules.policies if is_outbound else rules.inbound_policies
            _refuse_unsupported(state, policies.get(bundle.name, ()))
            settings = _settings(state, direction, bundle, numbers)
            keys = _keys(state)
        except StateNotMirroredError as error:
            if isinstance(error, UsedByKernelError):
                used.append(state)
            problems.append(f"the SA {state.key} is not mirrored and carries no packets: {error}")
            continue
        material = keys.read()
        settings = settings._replace(fingerprint=material.fingerprint())
        material.erase()
        name = f"{bundle.name}-{direction.value}"
        association = SecurityAssociation(name, settings, Origin.KERNEL, keys)
        found.append(MirroredState(state, bundle.name, association))
    found = list(_with_selected_spi(found, rules.policies, problems))
    mirrored = tuple(_with_roles(found, rules.policies, fresh))
    return MirroredStates(mirrored, tuple(problems), tuple(used))


def _with_selected_spi(
    found: list[MirroredState],
    policies: Mapping[str, tuple[KernelPolicy, ...]],
    problems: list[str],
) -> Iterable[MirroredState]:
    """Removes the outbound SAs of bundles whose policies name another SPI.

    For such a bundle, keeps the SA with the named SPI and all older SAs, which are retiring.
    Removes all newer SAs. If no SA has the named SPI, removes all.
    """
    spis = {bundle: named_spi(asking) for bundle, asking in policies.items()}
    reached = {
        one.bundle: at
        for at, one in enumerate(found)
        if one.association.is_outbound and one.state.key.spi == spis.get(one.bundle)
    }
    for at, one in enumerate(found):
        spi = spis.get(one.bundle, 0)
        if one.association.is_outbound and spi and at > reached.get(one.bundle, -1):
            problems.append(
                f"the SA {one.state.key} is not mirrored and carries no packets: its policies name"
                f" the SPI {spi:#x}"
            )
        else:
            yield one


def _with_roles(
    found: list[MirroredState],
    policies: Mapping[str, tuple[KernelPolicy, ...]],
    fresh: Container[StateKey],
) -> Iterable[MirroredState]:
    """Marks the outbound SAs that their bundles do not send with.

    SAs that are older than the SA in use are retiring. Newer SAs are coming.
    """
    serving: dict[str, int] = {}
    for at, one in enumerate(found):
        if one.association.is_outbound:
            may_serve = one.state.key not in fresh or named_spi(policies.get(one.bundle, ()))
            if may_serve or one.bundle not in serving:
                serving[one.bundle] = at
    for at, one in enumerate(found):
        if one.association.is_outbound and at != serving[one.bundle]:
            is_older = at < serving[one.bundle]
            sa = replace(one.association, is_retiring=is_older, is_coming=not is_older)
            yield one._replace(association=sa)
        else:
            yield one


def _direction(state: KernelState, own: Container[Address]) -> Direction:
    inbound, outbound = state.key.destination in own, state.source in own
    if inbound == outbound:
        which = "both" if inbound else "neither"
        raise StateNotMirroredError(f"{which} of its addresses belong to this router")
    return Direction.INBOUND if inbound else Direction.OUTBOUND


def _bundle_of(
    state: KernelState,
    direction: Direction,
    by_ends: Mapping[tuple[Address, Address, KernelMode], list[KernelBundle]],
) -> KernelBundle:
    if state.mode not in MODES:
        raise StateNotMirroredError(f"its mode {state.mode} is neither tunnel nor transport")
    local, remote = state.source, state.key.destination
    if direction is Direction.INBOUND:
        local, remote = remote, local
    fitting = by_ends.get((local, remote, KernelMode(state.mode)), [])
    for reqid in (state.reqid, 0):
        for bundle in fitting:
            if bundle.reqid == reqid:
                return bundle
    raise StateNotMirroredError(f"no policy needs it (reqid {state.reqid})")


def _settings(
    state: KernelState,
    direction: Direction,
    bundle: KernelBundle,
    numbers: BundleIds,
) -> SaSettings:
    """Returns the SA settings that router and engine both need. Raises StateNotMirroredError."""
    settings = SaSettings(
        direction,
        state.key.spi,
        numbers.bundles[bundle.name],
        numbers.vrf,
        _algorithm(state),
        "",
        MODES[bundle.mode],
        esn=bool(state.flags & ESN),
        ecn=not state.flags & NO_ECN,
        # The kernel itself reports soft time limits to key managers, so the engine gets none.
        soft=_lifetime(state.soft)._replace(seconds=None),
        hard=_lifetime(state.hard),
    )
    encapsulation = state.encapsulation
    if direction is Direction.INBOUND:
        window = min(state.replay_window, MAX_REPLAY_WINDOW)
        return settings._replace(replay_window=window, in_udp=encapsulation is not None)
    ports = None
    if encapsulation is not None:
        ports = UdpPorts(encapsulation.source_port, encapsulation.destination_port)
    return settings._replace(
        local=bundle.local,
        remote=bundle.remote,
        ports=ports,
        # The kernel copies DF unless path MTU discovery is off for the state.
        df=DontFragment.CLEAR if state.flags & NO_PMTU_DISCOVERY else DontFragment.COPY,
        dscp=0 if state.extra_flags & DONT_ENCAP_DSCP else None,
        tfc_pad_to=state.tfc_pad,
    )


def _refuse_unsupported(state: KernelState, policies: tuple[KernelPolicy, ...]) -> None:
    """Raises StateNotMirroredError if a state cannot be mirrored.

    `policies` are the policies of the state's bundle and direction. The kernel uses a state only
    for packets that match the state's selector. The router uses an SA for all policies of its
    bundle. So the state's selector must equal the selector of each policy, or restrict nothing.
    """
    encapsulation = state.encapsulation
    is_restricted = not _selects_everything(state)
    fits = bool(policies) and all(policy.selector == state.selector for policy in policies)
    problems = {
        f"its IP protocol is {state.key.protocol}, not ESP": state.key.protocol != ESP,
        "it has a mark": state.mark != NO_MARK,
        "it is of an XFRM interface (if_id)": state.if_id != 0,
        f"no engine supports its attributes {_listed(state.others)}": bool(state.others),
        "it copies DSCP to the inner packet": bool(state.flags & DECAP_DSCP),
        "it accepts any source address (wildrecv)": bool(state.flags & WILD_RECEIVE),
        "its encapsulation is not that of RFC 3948": encapsulation is not None
        and encapsulation.kind != UDP_ENCAP_ESPINUDP,
        "its selector differs from that of a policy of its bundle": is_restricted and not fits,
    }
    for problem, is_so in problems.items():
        if is_so:
            raise StateNotMirroredError(problem)
    if state.sequence:
        raise UsedByKernelError("the kernel itself has sent packets with it; rekey it")


def _selects_everything(state: KernelState) -> bool:
    """Returns whether a state's selector restricts nothing."""
    selector = state.selector
    lengths = selector.source.length or selector.destination.length
    ports = selector.source_port.mask or selector.destination_port.mask
    return not (lengths or selector.protocol or ports or selector.ifindex or selector.user)


def _algorithm(state: KernelState) -> str:
    if (aead := state.aead) is not None:
        name = AEADS.get((aead.name, len(aead.key)))
        if name is None or aead.icv_bits != ICV_BITS:
            text = f"{aead.name} with a key of {len(aead.key)} bytes, ICV {aead.icv_bits} bits"
            raise StateNotMirroredError(f"no engine supports its algorithm: {text}")
        return name
    cipher, integrity = state.encryption, state.integrity
    if cipher is None or integrity is None:
        raise StateNotMirroredError("it has no integrity protection")
    name = CIPHERS.get((cipher.name, len(cipher.key)))
    is_known = integrity.name == "hmac(sha256)" and integrity.icv_bits == ICV_BITS
    if name is None or not is_known or len(integrity.key) != ALGORITHMS[name].integrity_key:
        text = f"{cipher.name} with {integrity.name}, ICV {integrity.icv_bits} bits"
        raise StateNotMirroredError(f"no engine supports its algorithms: {text}")
    return name


def _keys(state: KernelState) -> KernelKeys:
    cipher = state.aead or state.encryption
    if cipher is None:
        raise StateNotMirroredError("it has no key")
    integrity = state.integrity if state.aead is None else None
    return KernelKeys(cipher.key, SecretKey(b"") if integrity is None else integrity.key)


def _lifetime(limits: KernelLimits) -> Lifetime:
    """Returns the limits that the engine enforces. The time limit since first use is not among
    them: the kernel enforces it."""
    size, packets = (None if one == NO_LIMIT else one for one in limits[:2])
    return Lifetime(size, packets, None if limits.seconds in (0, NO_LIMIT) else limits.seconds)


def _hex_digits(key: SecretKey) -> bytearray:
    """Returns a key as hexadecimal digits, in a buffer that can be erased."""
    octets = key.reveal()
    digits = bytearray(2 * len(octets))
    for at, octet in enumerate(octets):
        digits[2 * at] = DIGITS[octet >> 4]
        digits[2 * at + 1] = DIGITS[octet & 15]
    return digits


DIGITS = b"0123456789abcdef"


def _listed(attributes: Iterable[int]) -> str:
    return ", ".join(str(one) for one in sorted(attributes))
