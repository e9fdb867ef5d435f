# SPDX-License-Identifier: Apache-2.0
"""Tests the record of the SAs that an ESP engine holds, and of resources that only one of its SAs
may use, such as a key.
"""

from __future__ import annotations

import pytest

from sluice.entities import (
    BundleInVrf,
    Decrypt,
    Encrypt,
    EntityKey,
    EntityKind,
    EntityValue,
    InboundSpi,
)
from sluice.policy.model import Direction
from sluice.sa_model import HeldSa, SaSettings
from sluice.state.sa_engines import EngineState, exclusive_resources, is_referred_to

ENGINE, OTHER_ENGINE, BUNDLE, VRF = 1, 2, 5, 3
OUT, IN = Direction.OUTBOUND, Direction.INBOUND


def settings(direction: Direction, spi: int, fingerprint: str = "key") -> SaSettings:
    return SaSettings(direction, spi, BUNDLE, VRF, "aes-128-gcm", fingerprint)


def excluded(state: EngineState, wanted: SaSettings) -> bool:
    return not state.resources_in_use().isdisjoint(exclusive_resources(wanted, held=False))


def test_a_list_of_all_sas_replaces_what_was_known() -> None:
    first, second = HeldSa(settings(OUT, 0x100), 1), HeldSa(settings(OUT, 0x101, "other"), 2)
    state = EngineState()
    state.add(first)
    state.idle_since = {first.key: 1.0, second.key: 2.0}
    state.replace([second])
    assert state.held == {second.key: second}
    assert state.by_settings == {second.settings: second}
    assert state.idle_since == {second.key: 2.0}
    state.remove(second)
    assert (state.held, state.by_settings, state.idle_since) == ({}, {}, {})


@pytest.mark.parametrize(
    ("held", "wanted", "is_excluded"),
    [
        (settings(OUT, 0x100), settings(OUT, 0x101), True),
        (settings(OUT, 0x100), settings(IN, 0x101), True),
        (settings(IN, 0x100), settings(OUT, 0x101), True),
        (settings(IN, 0x100), settings(IN, 0x101), False),
        (settings(IN, 0x100), settings(IN, 0x100, "other"), True),
        (settings(OUT, 0x100), settings(OUT, 0x100, "other"), False),
        (settings(IN, 0x100), settings(IN, 0x100, "other")._replace(vrf=VRF + 1), False),
    ],
    ids=[
        "a key encrypts once",
        "an encrypting key does not decrypt",
        "a decrypting key does not encrypt",
        "a key may decrypt twice",
        "one inbound SA for each SPI",
        "outbound SPIs are the peer's",
        "an SPI is of a VRF",
    ],
)
def test_resources_of_one_sa(held: SaSettings, wanted: SaSettings, is_excluded: bool) -> None:
    state = EngineState()
    assert not excluded(state, wanted)
    state.add(HeldSa(held, 1))
    assert excluded(state, wanted) == is_excluded


def test_the_switch_refers_to_an_outbound_sa_by_engine_and_number() -> None:
    held = HeldSa(settings(OUT, 0x100), 7)
    installed: dict[EntityKind, dict[EntityKey, EntityValue]] = {EntityKind.OUTBOUND_SA: {}}
    assert not is_referred_to(installed, ENGINE, held)
    for value, expected in (
        (Encrypt(ENGINE, 7, 1500, 57), True),
        (Encrypt(ENGINE, 8, 1500, 57), False),
        (Encrypt(OTHER_ENGINE, 7, 1500, 57), False),
    ):
        installed[EntityKind.OUTBOUND_SA][BundleInVrf(VRF, BUNDLE)] = value
        assert is_referred_to(installed, ENGINE, held) == expected


def test_the_switch_refers_to_an_inbound_sa_by_spi_and_engine() -> None:
    held = HeldSa(settings(IN, 0x100), 7)
    installed: dict[EntityKind, dict[EntityKey, EntityValue]] = {EntityKind.INBOUND_SA: {}}
    assert not is_referred_to(installed, ENGINE, held)
    installed[EntityKind.INBOUND_SA][InboundSpi(VRF, 0x100)] = Decrypt(BUNDLE, ENGINE, 7)
    assert is_referred_to(installed, ENGINE, held)
    assert not is_referred_to(installed, OTHER_ENGINE, held)
