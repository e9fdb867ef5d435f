# SPDX-License-Identifier: Apache-2.0
"""Encodes requests to an ESP engine's admin socket, and decodes its status (docs/esp.md).

Each request and each answer is a line. The line of a request with keys is in one buffer, which the
sender must erase. An engine's answers are checked like all external input. Pure; depends on
sa_model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sluice.model import Address, format_address, parse_address
from sluice.policy.model import Direction
from sluice.sa_model import (
    DontFragment,
    HeldSa,
    KeyMaterial,
    Lifetime,
    LifetimeState,
    Mode,
    SaSettings,
    UdpPorts,
)

DIRECTIONS = {Direction.OUTBOUND: "out", Direction.INBOUND: "in"}
STATUS = b'{"status":{}}\n'


class EngineAnswerError(Exception):
    """Reports an answer that violates the protocol."""


def add_request(
    settings: SaSettings, number: int, keys: KeyMaterial, *, resume: bool = False
) -> bytearray:
    """Returns the line that adds an SA to an engine. It contains the keys."""
    spec = _spec(settings) | {"sa": number}
    if resume:
        spec["resume"] = True
    text = json.dumps({"add": spec}, separators=(",", ":")).encode()
    line = bytearray(len(text) + len(keys.key) + len(keys.integrity_key) + 64)
    end = 0
    for part in (
        *(memoryview(text)[:-2],),
        *((b',"key":"', keys.key, b'"') if keys.key else ()),
        *((b',"integrity_key":"', keys.integrity_key, b'"') if keys.integrity_key else ()),
        b"}}\n",
    ):
        line[end : end + len(part)] = part
        end += len(part)
    del line[end:]
    return line


def delete_request(settings: SaSettings, number: int) -> bytes:
    """Returns the line that deletes an SA from an engine."""
    if settings.direction is Direction.OUTBOUND:
        which: dict[str, Any] = {"direction": "out", "sa": number}
    else:
        which = {"direction": "in", "spi": settings.spi, "vrf": settings.vrf}
    return json.dumps({"delete": which}).encode() + b"\n"


def _spec(settings: SaSettings) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "direction": DIRECTIONS[settings.direction],
        "spi": settings.spi,
        "bundle": settings.bundle,
        "vrf": settings.vrf,
        "mode": settings.mode.value,
        "algorithm": settings.algorithm,
        "esn": settings.esn,
        "ecn": settings.ecn,
        "soft": _limits(settings.soft),
        "hard": _limits(settings.hard),
    }
    if settings.direction is Direction.INBOUND:
        return spec | {"replay_window": settings.replay_window, "encapsulated": settings.in_udp}
    spec |= {"local": _text(settings.local), "remote": _text(settings.remote)}
    spec |= {"df": settings.df.value, "tfc_pad_to": settings.tfc_pad_to}
    if settings.ports is not None:
        ports = settings.ports
        spec["encapsulation"] = {"local_port": ports.local, "remote_port": ports.remote}
    for name in ("ttl", "dscp"):
        if (value := getattr(settings, name)) is not None:
            spec[name] = value
    return spec


def _limits(lifetime: Lifetime) -> dict[str, int]:
    return {name: value for name, value in lifetime._asdict().items() if value is not None}


def _text(address: Address | None) -> str:
    return "" if address is None else format_address(address)


def parse_answer(line: bytes) -> dict[str, Any]:
    """Parses an answer, a JSON object with one key. Raises EngineAnswerError."""
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise EngineAnswerError(f"not JSON: {error}") from error
    if not isinstance(answer, dict) or len(answer) != 1:
        raise EngineAnswerError("the answer is not an object with one key")
    return answer


def held_sas(status: object) -> list[HeldSa]:
    """Returns the SAs of an engine's status. Raises EngineAnswerError."""
    sas = status.get("sas") if isinstance(status, Mapping) else None
    if not isinstance(sas, list):
        raise EngineAnswerError("the status has no list of SAs")
    try:
        return [_held(one) for one in sas]
    except (KeyError, TypeError, ValueError) as error:
        raise EngineAnswerError(f"an SA cannot be decoded: {error!r}") from error


def _held(told: Mapping[str, Any]) -> HeldSa:
    spec, counters = told["spec"], told["counters"]
    return HeldSa(
        _settings(spec, str(told["key_fingerprint"])),
        int(spec["sa"]),
        LifetimeState(told["age"]),
        int(told["sequence"]),
        int(counters["packets"]),
        int(counters["bytes"]),
        {str(name): int(count) for name, count in counters["drops"].items()},
    )


def _settings(spec: Mapping[str, Any], fingerprint: str) -> SaSettings:
    direction = {text: one for one, text in DIRECTIONS.items()}[spec["direction"]]
    outbound = direction is Direction.OUTBOUND
    ports = spec.get("encapsulation")
    return SaSettings(
        direction,
        spi=int(spec["spi"]),
        bundle=int(spec["bundle"]),
        vrf=int(spec["vrf"]),
        algorithm=str(spec["algorithm"]),
        fingerprint=fingerprint,
        mode=Mode(spec["mode"]),
        esn=bool(spec["esn"]),
        replay_window=0 if outbound else int(spec.get("replay_window", 64)),
        local=parse_address(spec["local"]) if outbound else None,
        remote=parse_address(spec["remote"]) if outbound else None,
        ports=None if ports is None else UdpPorts(ports["local_port"], ports["remote_port"]),
        in_udp=bool(spec["encapsulated"]),
        ttl=spec.get("ttl"),
        dscp=spec.get("dscp"),
        df=DontFragment(spec["df"]),
        ecn=bool(spec["ecn"]),
        tfc_pad_to=int(spec["tfc_pad_to"]),
        soft=Lifetime(**spec["soft"]),
        hard=Lifetime(**spec["hard"]),
    )
