# SPDX-License-Identifier: Apache-2.0
"""Tests the lines of an engine's admin socket: requests, and the SA settings in its status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sluice.model import parse_address
from sluice.policy.model import Direction
from sluice.sa_model import (
    DontFragment,
    KeyMaterial,
    Lifetime,
    LifetimeState,
    Mode,
    SaSettings,
    UdpPorts,
)
from sluice.wire.esp_admin import (
    EngineAnswerError,
    add_request,
    delete_request,
    held_sas,
    parse_answer,
)

OUT = SaSettings(
    Direction.OUTBOUND,
    0x1001,
    5,
    3,
    "aes-128-cbc-hmac-sha-256-128",
    "f00d",
    esn=True,
    local=parse_address("2001:db8::1"),
    remote=parse_address("2001:db8::2"),
    ports=UdpPorts(4500, 1024),
    ttl=7,
    dscp=46,
    df=DontFragment.COPY,
    ecn=False,
    tfc_pad_to=512,
    soft=Lifetime(bytes=10),
    hard=Lifetime(packets=20, seconds=30),
)
IN = SaSettings(
    Direction.INBOUND, 0x2001, 5, 0, "aes-128-gcm", "beef", Mode.TRANSPORT, replay_window=128
)


def keys() -> KeyMaterial:
    return KeyMaterial(bytearray(b"0011"), bytearray(b"aabb"))


def told(settings: SaSettings, line: bytes | bytearray) -> dict[str, Any]:
    """Returns an engine's report about the SA that this request line has added."""
    spec = json.loads(line)["add"]
    spec = {key: value for key, value in spec.items() if key not in ("key", "integrity_key")}
    spec = {"encapsulated": False, "df": "set", "tfc_pad_to": 0} | spec
    return {
        "spec": spec,
        "key_fingerprint": settings.fingerprint,
        "age": "soft",
        "sequence": 9,
        "counters": {"packets": 7, "bytes": 700, "peer_moved": 0, "drops": {"replayed": 1}},
    }


@pytest.mark.parametrize("settings", [OUT, IN])
def test_an_engine_tells_the_sa_that_it_was_given(settings: SaSettings) -> None:
    line = add_request(settings, 12, keys(), resume=False)
    assert line.endswith(b"\n")
    assert json.loads(line)["add"]["key"] == "0011"
    (held,) = held_sas({"sas": [told(settings, line)]})
    assert held.settings == settings
    assert (held.number, held.age, held.sequence, held.packets, held.bytes) == (
        *(12, LifetimeState.SOFT, 9, 7),
        700,
    )
    assert held.drops == {"replayed": 1}


def test_a_request_says_all_that_the_engine_must_know() -> None:
    line = add_request(OUT, 12, keys(), resume=True)
    assert json.loads(line) == {
        "add": {
            "direction": "out",
            "sa": 12,
            "spi": 0x1001,
            "bundle": 5,
            "vrf": 3,
            "mode": "tunnel",
            "algorithm": "aes-128-cbc-hmac-sha-256-128",
            "key": "0011",
            "integrity_key": "aabb",
            "esn": True,
            "ecn": False,
            "soft": {"bytes": 10},
            "hard": {"packets": 20, "seconds": 30},
            "local": "2001:db8::1",
            "remote": "2001:db8::2",
            "df": "copy",
            "tfc_pad_to": 512,
            "encapsulation": {"local_port": 4500, "remote_port": 1024},
            "ttl": 7,
            "dscp": 46,
            "resume": True,
        }
    }


def test_an_sa_is_ended_by_its_number_or_spi() -> None:
    assert json.loads(delete_request(OUT, 12)) == {"delete": {"direction": "out", "sa": 12}}
    inbound = {"delete": {"direction": "in", "spi": 0x2001, "vrf": 0}}
    assert json.loads(delete_request(IN, 12)) == inbound


@pytest.mark.parametrize("line", [b"", b"no", b"[]", b"{}", b'{"a": 1, "b": 2}', b"7", b"\xff"])
def test_what_is_no_answer_is_refused(line: bytes) -> None:
    with pytest.raises(EngineAnswerError):
        parse_answer(line)


@pytest.mark.parametrize(
    "change",
    [
        {"age": "old"},
        {"counters": None},
        {"spec": {}},
        {"spec": {"direction": "up"}},
        {"sequence": None},
    ],
)
def test_an_sa_that_is_not_understood_is_refused(change: dict[str, Any]) -> None:
    good = told(IN, add_request(IN, 1, keys()))
    assert len(held_sas({"sas": [good]})) == 1
    with pytest.raises(EngineAnswerError):
        held_sas({"sas": [good | change]})
    wrong: list[Any] = [None, [], {}, {"sas": {}}, {"sas": [1]}]
    for status in wrong:
        with pytest.raises(EngineAnswerError):
            held_sas(status)


def test_keys_are_told_apart_as_the_engine_does_and_erased() -> None:
    """Checks that the fingerprint of a key equals the one that the engine computes
    (`reservation.rs`).

    Also checks that a key is never shown, and that it can be erased.
    """
    material = KeyMaterial(bytearray(b"00Ff"), bytearray())
    same = KeyMaterial(bytearray(b"00fF"), bytearray())
    moved = KeyMaterial(bytearray(b"00"), bytearray(b"ff"))
    assert material.fingerprint() == same.fingerprint() != moved.fingerprint()
    assert material.fingerprint() == "aa6ddb337d11cd3203b2d79532915ec3"
    assert "00Ff" not in repr(material)
    material.erase()
    assert material.key == bytearray(4)
