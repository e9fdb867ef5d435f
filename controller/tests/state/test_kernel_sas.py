# SPDX-License-Identifier: Apache-2.0
"""Tests how the kernel's states become SAs. Each state is assigned to a bundle, the newest outbound
state is used, and unsafe states are refused."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.model import Prefix, parse_address
from sluice.policy.model import Direction
from sluice.sa_model import DontFragment, Lifetime, Origin, UdpPorts
from sluice.sa_model import Mode as SaMode
from sluice.state.kernel_rules import KernelBundle, MirroredRules
from sluice.state.kernel_sas import BundleIds, MirroredStates, mirror_states
from sluice.xfrm_model import (
    Encapsulation,
    KernelAlgorithm,
    KernelLimits,
    KernelMode,
    KernelPolicy,
    KernelSelector,
    KernelState,
    Mark,
    PolicyDirection,
    PolicyKey,
    PortMatch,
    SecretKey,
    StateKey,
    Template,
    Usage,
)

HERE, THERE = parse_address("10.0.1.1"), parse_address("10.0.2.1")
OPEN = KernelSelector(Prefix(bytes(4), 0), Prefix(bytes(4), 0), 0)
BUNDLE = KernelBundle(HERE, THERE, 7, KernelMode.TUNNEL)
OUT = KernelState(
    StateKey(THERE, 0x1000, 50),
    HERE,
    7,
    KernelMode.TUNNEL,
    128,
    OPEN,
    KernelLimits(bytes=1000, seconds=60),
    KernelLimits(packets=5, seconds=3600),
    Usage(added=100),
    0,
    aead=KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(bytes(range(20))), 128),
)
IN = OUT._replace(
    key=StateKey(HERE, 0x2000, 50),
    source=THERE,
    replay_window=256,
    aead=KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(bytes(range(20, 40))), 128),
)


def mirrored(
    *states: KernelState,
    bundles: tuple[KernelBundle, ...] = (BUNDLE,),
    policies: dict[str, tuple[KernelPolicy, ...]] | None = None,
    inbound: dict[str, tuple[KernelPolicy, ...]] | None = None,
    fresh: tuple[KernelState, ...] = (),
) -> MirroredStates:
    numbers = BundleIds({one.name: 40 + at for at, one in enumerate(bundles)}, 3)
    keys = {one.key for one in fresh}
    by_name = {one.name: one for one in bundles}
    rules = MirroredRules({}, by_name, policies or {}, inbound or {}, ())
    return mirror_states(states, rules, {HERE}, numbers, fresh=keys)


def test_a_pair_of_states_is_an_sa_each_way() -> None:
    found = mirrored(OUT, IN)
    assert found.problems == ()
    out, back = (one.association for one in found.states)
    assert (out.origin, out.name) == (Origin.KERNEL, f"{BUNDLE.name}-outbound")
    sent = out.settings
    assert (sent.direction, sent.spi, sent.bundle, sent.vrf) == (Direction.OUTBOUND, 0x1000, 40, 3)
    assert (sent.algorithm, sent.mode, sent.esn) == ("aes-128-gcm", SaMode.TUNNEL, True)
    assert (sent.local, sent.remote, sent.ports) == (HERE, THERE, None)
    assert sent.df is DontFragment.COPY
    assert (sent.soft, sent.hard) == (Lifetime(bytes=1000), Lifetime(packets=5, seconds=3600))
    got = back.settings
    assert (got.direction, got.spi, got.replay_window) == (Direction.INBOUND, 0x2000, 256)
    assert (got.local, got.remote, got.in_udp) == (None, None, False)


def test_keys_are_given_as_the_engine_takes_them_and_not_shown() -> None:
    (one,) = mirrored(OUT).states
    keys = one.association.keys.read()
    assert bytes(keys.key) == bytes(range(20)).hex().encode()
    assert keys.fingerprint() == one.association.settings.fingerprint
    assert bytes(range(20)).hex() not in repr(mirrored(OUT))


@pytest.mark.parametrize(
    ("changes", "algorithm"),
    [
        ({"aead": KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(bytes(36)), 128)}, "aes-256-gcm"),
        (
            {"aead": KernelAlgorithm("rfc7539esp(chacha20,poly1305)", SecretKey(bytes(36)), 128)},
            "chacha20-poly1305",
        ),
        (
            {
                "aead": None,
                "encryption": KernelAlgorithm("cbc(aes)", SecretKey(bytes(32))),
                "integrity": KernelAlgorithm("hmac(sha256)", SecretKey(bytes(32)), 128),
            },
            "aes-256-cbc-hmac-sha-256-128",
        ),
        (
            {
                "aead": None,
                "encryption": KernelAlgorithm("ecb(cipher_null)", SecretKey(b"")),
                "integrity": KernelAlgorithm("hmac(sha256)", SecretKey(bytes(32)), 128),
            },
            "null-hmac-sha-256-128",
        ),
    ],
)
def test_algorithms_have_the_engines_names(changes: dict[str, Any], algorithm: str) -> None:
    (one,) = mirrored(OUT._replace(**changes)).states
    assert one.association.settings.algorithm == algorithm


def test_encapsulation_and_flags() -> None:
    in_udp = Encapsulation(2, 4500, 4501)
    out = OUT._replace(encapsulation=in_udp, flags=1 | 4, extra_flags=1, tfc_pad=1000)
    sent, got = (
        one.association.settings for one in mirrored(out, IN._replace(encapsulation=in_udp)).states
    )
    assert sent.ports == UdpPorts(4500, 4501)
    assert (sent.ecn, sent.df, sent.dscp, sent.tfc_pad_to) == (False, DontFragment.CLEAR, 0, 1000)
    assert got.in_udp


def test_of_a_bundles_outbound_states_the_newest_serves() -> None:
    newer = OUT._replace(key=StateKey(THERE, 0x1001, 50), usage=Usage(added=200))
    for order in ((OUT, newer), (newer, OUT)):
        found = mirrored(*order, IN)
        retiring = {one.state.key.spi: one.association.is_retiring for one in found.states}
        assert retiring == {0x1000: True, 0x1001: False, 0x2000: False}


def test_a_fresh_outbound_state_waits_behind_its_predecessor() -> None:
    """Checks that a new outbound state is not used at once, while its predecessor exists.

    As responder of a rekey, Libreswan adds the new state before it answers. So the peer may not
    have the SA yet.
    """
    newer = OUT._replace(key=StateKey(THERE, 0x1001, 50), usage=Usage(added=200))

    def roles(*fresh: KernelState, **rest: Any) -> list[tuple[int, bool, bool]]:
        found = [one.association for one in mirrored(OUT, newer, fresh=fresh, **rest).states]
        return [(one.settings.spi, one.is_retiring, one.is_coming) for one in found]

    waiting = [(0x1000, False, False), (0x1001, False, True)]
    taken_over = [(0x1000, True, False), (0x1001, False, False)]
    assert roles(newer) == waiting
    assert roles(OUT, newer) == waiting
    assert roles() == taken_over
    assert roles(newer, policies=naming(0x1001)) == taken_over, "the policies name the SA in use"
    (alone,) = mirrored(newer, fresh=(newer,)).states
    assert not alone.association.is_coming


def naming(spi: int) -> dict[str, tuple[KernelPolicy, ...]]:
    """Returns the policies of the bundle, with a template that names this SPI."""
    template = Template(HERE, THERE, 50, spi, 7, KernelMode.TUNNEL, False)
    return {
        BUNDLE.name: (KernelPolicy(PolicyKey(9), PolicyDirection.OUT, 1, 0, OPEN, (template,)),)
    }


def test_the_outbound_state_serves_whose_spi_the_policies_name() -> None:
    """Checks that the outbound state in use is the one whose SPI the policies name.

    A rekey has three steps: the daemon adds the new SA, changes the policy to name the new SA, and
    deletes the old SA.
    """
    newer = OUT._replace(key=StateKey(THERE, 0x1001, 50), usage=Usage(added=200))
    before = mirrored(OUT, newer, IN, policies=naming(0x1000))
    assert [(one.state.key.spi, one.association.is_retiring) for one in before.states] == [
        (0x1000, False),
        (0x2000, False),
    ]
    (problem,) = before.problems
    assert "0x00001001" in problem
    after = mirrored(OUT, newer, IN, policies=naming(0x1001))
    retiring = {one.state.key.spi: one.association.is_retiring for one in after.states}
    assert retiring == {0x1000: True, 0x1001: False, 0x2000: False}
    assert after.problems == ()


def test_without_the_state_that_policies_name_none_sends() -> None:
    found = mirrored(OUT, IN, policies=naming(0x1001))
    assert [one.state.key.spi for one in found.states] == [0x2000]
    (problem,) = found.problems
    assert "name the SPI 0x1001" in problem


def test_states_that_are_being_negotiated_are_none_yet() -> None:
    assert mirrored(OUT._replace(aead=None)) == MirroredStates((), ())


def test_a_template_without_a_reqid_takes_any_state_that_no_other_wants() -> None:
    any_reqid = BUNDLE._replace(reqid=0)
    bundles = (any_reqid, BUNDLE)
    found = mirrored(OUT, OUT._replace(key=StateKey(THERE, 9999, 50), reqid=8), bundles=bundles)
    assert [one.bundle for one in found.states] == [BUNDLE.name, any_reqid.name]


HOSTS = KernelSelector(Prefix.host(HERE), Prefix.host(THERE), 6)


@pytest.mark.parametrize("state", [OUT, IN])
@pytest.mark.parametrize(
    "selector",
    [HOSTS, OPEN._replace(destination_port=PortMatch(80, 0xFFFF))],
    ids=["hosts", "a port"],
)
def test_a_selector_of_its_own_is_that_of_all_its_policies(
    state: KernelState, selector: KernelSelector
) -> None:
    """Checks that a state with a selector is refused, and reported, unless all policies of its
    bundle have the same selector.

    An SA may carry only packets that match its selector (RFC 4301, section 5.2, step 4).
    """
    restricted = state._replace(selector=selector)
    key = PolicyKey(9)
    same = KernelPolicy(key, PolicyDirection.OUT, 1, 0, selector)
    other = KernelPolicy(key, PolicyDirection.OUT, 1, 0, OPEN._replace(protocol=17))

    def problems(*policies: KernelPolicy) -> tuple[str, ...]:
        by_bundle = {BUNDLE.name: policies}
        if state is OUT:
            return mirrored(restricted, policies=by_bundle).problems
        return mirrored(restricted, inbound=by_bundle).problems

    assert problems(same) == problems(same, same) == ()
    for policies in ((), (other,), (same, other)):
        (problem,) = problems(*policies)
        assert "selector" in problem


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"key": StateKey(THERE, 0x1000, 51)}, "protocol is 51"),
        ({"mark": Mark(1, 1)}, "mark"),
        ({"if_id": 5}, "if_id"),
        ({"others": frozenset({28})}, "28"),
        ({"flags": 2}, "DSCP"),
        ({"flags": 8}, "wildrecv"),
        ({"sequence": 1}, "sent packets with it"),
        ({"encapsulation": Encapsulation(1, 4500, 4500)}, "RFC 3948"),
        ({"mode": 4}, "mode 4"),
        ({"reqid": 8}, "no policy needs it"),
        ({"source": parse_address("192.0.2.1")}, "neither"),
        ({"key": StateKey(HERE, 0x1000, 50)}, "both"),
        ({"aead": KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(bytes(20)), 64)}, "ICV 64"),
        ({"aead": KernelAlgorithm("rfc4309(ccm(aes))", SecretKey(bytes(19)), 128)}, "ccm"),
        (
            {"aead": None, "encryption": KernelAlgorithm("cbc(aes)", SecretKey(bytes(16)))},
            "no integrity",
        ),
        (
            {
                "aead": None,
                "encryption": KernelAlgorithm("cbc(aes)", SecretKey(bytes(16))),
                "integrity": KernelAlgorithm("hmac(sha256)", SecretKey(bytes(32)), 96),
            },
            "ICV 96",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_state_that_cannot_be_mirrored_is_left_out_and_named(
    changes: dict[str, Any], why: str
) -> None:
    found = mirrored(OUT._replace(**changes))
    assert found.states == ()
    (problem,) = found.problems
    assert why in problem
    assert "SPI" in problem
