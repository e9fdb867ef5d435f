# SPDX-License-Identifier: Apache-2.0
"""Tests the tables that a controller leaves for its stand-in, the process that forwards the host's
packets after the controller's death.

The tables exist only while the controller itself passes packets, and are never out of date.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from fake_switch import PIPELINE
from sluice import primacy
from sluice._native import FastPath as Native
from sluice.connection import SwitchConnection
from sluice.connection_config import SwitchConfig, UnixAddress
from sluice.fast_path import FastPath
from sluice.model import parse_address, parse_mac
from sluice.p4.schema import load_pipeline
from sluice.p4runtime.session import P4RuntimeError
from sluice.primacy import Primacy
from sluice.sources.handover import Handover, Tables, tables_in
from sluice.sources.host import FrameFilter, FrameFilterTap
from test_punts import REASONS, SCHEMA

ELECTION_ID = (3, 99)
ARP = b"\xff" * 6 + parse_mac("02:00:00:00:01:01") + b"\x08\x06" + bytes(28)


def passing(*own: str) -> FrameFilter:
    tap = FrameFilterTap(11, 1, 0, frozenset({parse_mac("02:00:00:00:01:01")}))
    return FrameFilter([tap], {0: {parse_address(one) for one in own}})


@pytest.fixture
def handover() -> Iterator[Handover]:
    handover = Handover()
    yield handover
    os.close(handover.file)


@pytest.fixture
def fast_path(handover: Handover) -> FastPath:
    path = FastPath(SCHEMA, remembers=True, handover=handover, names=["eth1"])
    switch = SwitchConfig(UnixAddress(Path("/run/switch.sock")))
    path.connects(switch, (b"ca", b"certificate", b"key"))
    return path


def sources(tables: Tables | None) -> set[bytes]:
    assert tables is not None
    return set(tables["interfaces"][1][0])


def test_tables_are_left_only_while_packets_pass(handover: Handover, fast_path: FastPath) -> None:
    fast_path.publish(passing("10.0.1.1"))
    assert tables_in(handover.file) is None
    fast_path.set_passing(ELECTION_ID)
    tables = tables_in(handover.file)
    assert tables is not None
    assert tables["primary"] == ELECTION_ID
    assert tables["switch"][0] == "unix:/run/switch.sock"
    fast_path.set_passing(None)
    fast_path.publish(passing("10.0.1.2"))
    assert tables_in(handover.file) is None
    assert os.pread(handover.file, 10_000, 0) == b"", "the keys neither"


def test_an_address_that_is_withdrawn_is_not_left(handover: Handover, fast_path: FastPath) -> None:
    fast_path.set_passing(ELECTION_ID)
    assert tables_in(handover.file) is None, "no interface is known yet"
    fast_path.publish(passing("10.0.1.1", "10.0.1.77"))
    assert sources(tables_in(handover.file)) == {b"\n\0\1\1", b"\n\0\1M"}
    fast_path.publish(passing("10.0.1.1"))
    assert sources(tables_in(handover.file)) == {b"\n\0\1\1"}


def test_what_is_left_decides_as_the_controllers_own(
    handover: Handover, fast_path: FastPath
) -> None:
    fast_path.publish(passing("10.0.1.1"))
    fast_path.set_passing(ELECTION_ID)
    tables = tables_in(handover.file)
    assert tables is not None
    stand_in = Native(**tables["rules"])
    stand_in.set_interfaces(*tables["interfaces"])
    assert stand_in.would_send(11, ARP) == fast_path.native.would_send(11, ARP) is not None
    assert tables["rules"]["remember"] is False, "nobody would hear of it"


def test_its_role_is_for_the_hosts_packets_alone(handover: Handover, fast_path: FastPath) -> None:
    fast_path.publish(passing("10.0.1.1"))
    fast_path.set_passing(ELECTION_ID)
    tables = tables_in(handover.file)
    assert tables is not None
    p4info = load_pipeline(PIPELINE).p4info
    ids = {
        one.preamble.name: {field.name: field.id for field in one.metadata}
        for one in p4info.controller_packet_metadata
    }
    field, reasons = tables["packets_in"]
    assert field == ids["packet_in"]["reason"]
    names = {"ARP", "LINK_PROTOCOL", "NEIGHBOR_DISCOVERY", "ROUTING_PROTOCOL", "IKE", "LOCAL"}
    assert set(reasons) == {REASONS[name] for name in names}
    field, kinds = tables["packets_out"]
    assert field == ids["packet_out"]["kind"]
    assert set(kinds) == {SCHEMA.to_port(1)[0], SCHEMA.local_origin(1, 0)[0]}


class FakeSession:
    """Fakes a session that becomes primary at once. Records its calls."""

    log: list[str]
    election_id = ELECTION_ID

    def __init__(self, *_: object) -> None:
        pass

    async def become_primary(self) -> None:
        self.log.append("primary")

    async def ensure_pipeline(self, *_: object) -> bool:
        self.log.append("pipeline")
        return False

    def set_packet_metadata(self, *_: object) -> None:
        self.log.append("packets")

    def close(self) -> None:
        self.log.append("closed")


class FakeReconciler:
    """Fakes a reconciler that reads nothing back and fails before it writes."""

    async def read_back(self, _: object, close: Any) -> None:
        close({})

    async def compare(self) -> None:
        raise P4RuntimeError(14, "the end of this test")


class FakeStandIns:
    """Records its calls."""

    def __init__(self, log: list[str], problem: OSError | None = None) -> None:
        self._log, self._problem = log, problem

    def end_stand_ins(self) -> None:
        self._log.append("stand-ins ended")
        if self._problem is not None:
            raise self._problem

    def set_passing(self, primary: tuple[int, int] | None) -> None:
        self._log.append(f"passing {primary}")


def one_session(
    monkeypatch: pytest.MonkeyPatch, closing: object, problem: OSError | None = None
) -> list[str]:
    """Runs one session with the switch. Returns the recorded calls, in order."""
    log: list[str] = []
    monkeypatch.setattr(FakeSession, "log", log, raising=False)
    monkeypatch.setattr(primacy, "Session", FakeSession)

    class Config:
        address, device_id = "switch", 1

    async def nothing() -> None:
        pass

    arguments: dict[str, Any] = {
        "config": Config(),
        "pipeline": load_pipeline(PIPELINE),
        "packets": SCHEMA,
        "reconciler": FakeReconciler(),
        "primacy": Primacy(cast(Any, Config()), cast(Any, lambda _: None)),
        "on_packets": None,
        "closing": lambda _: closing,
        "on_read": nothing,
        "session_tasks": None,
        "measured": None,
        "stand_ins": FakeStandIns(log, problem),
    }
    with pytest.raises(P4RuntimeError):
        asyncio.run(SwitchConnection(**arguments)._one_session())
    return log


def test_stand_ins_end_before_a_primary_does_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    log = one_session(monkeypatch, closing=None)
    assert log[:3] == ["primary", "stand-ins ended", "pipeline"]
    assert log[3:5] == ["packets", f"passing {ELECTION_ID}"]
    assert log[-2:] == ["passing None", "closed"]


def test_while_one_stands_in_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    log = one_session(monkeypatch, None, OSError("process 7 does not end"))
    assert log == ["primary", "stand-ins ended", "passing None", "closed"]
