# SPDX-License-Identifier: Apache-2.0
"""Provides wrong writes, as another client of the switch could make them, and an auditor without
SPDs that repairs them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from finsy.proto import p4r

from fake_switch import PIPELINE, load_codec
from scenes import slot
from sluice.auditor import Auditor, Codecs
from sluice.config import load_config
from sluice.entities import (
    HASH_SEED_KEY,
    UNREACHABLE,
    EntityKey,
    EntityKind,
    EntityValue,
    HashSeed,
    Nexthop,
    NexthopGroup,
    PuntLimit,
)
from sluice.p4.flows import FlowCodec
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4.settings import SettingsCodec
from sluice.p4runtime.messages import UpdateType, update
from sluice.policy.enforcement import Policy
from sluice.policy.flow_tables import FlowTables
from sluice.reconciler import Reconciler

CODEC = load_codec()
CONFIG = """\
router: r1
interfaces: [{name: eth1, port: 1, mac: "02:00:00:00:01:01"}]
"""


def audit_of(reconciler: Reconciler, directory: Path) -> Auditor:
    """Returns an auditor without SPDs that begins a new round every 50 ms."""
    path = directory / "r1.yaml"
    path.write_text(f"{CONFIG}state_dir: {directory}\n")
    schema = Schema(load_pipeline(PIPELINE).p4info)
    flows = FlowCodec(schema)
    tables = FlowTables(flows, time.monotonic)
    policy = Policy(load_config(path), reconciler, tables, flows, lambda _: ())
    policy.standing.set()
    codecs = Codecs(CODEC, flows, SettingsCodec(schema))
    return Auditor(
        codecs,
        reconciler,
        policy,
        routes=lambda: iter([[*reconciler.desired[EntityKind.ROUTE]]]),  # type: ignore[list-item]
        rate=1_000_000,
        interval=0.05,
        clock=time.monotonic,
    )


def copies() -> list[bytes]:
    """Returns updates that insert a multicast group and a clone session."""
    entry = p4r.PacketReplicationEngineEntry
    group = p4r.MulticastGroupEntry(
        multicast_group_id=7, replicas=[p4r.Replica(egress_port=1, instance=1)]
    )
    session = p4r.CloneSessionEntry(session_id=5, replicas=[p4r.Replica(egress_port=2, instance=1)])
    return [
        update(
            UpdateType.INSERT,
            p4r.Entity(packet_replication_engine_entry=one).SerializeToString(),
        )
        for one in (entry(multicast_group_entry=group), entry(clone_session_entry=session))
    ]


Tampered = tuple[UpdateType, EntityKind, EntityKey, EntityValue | None]


def tampered(reconciler: Reconciler) -> list[Tampered]:
    """Returns wrong writes of different kinds: changed, deleted and added entries."""
    held = reconciler.installed.by_kind
    group, value = next(iter(held[EntityKind.GROUP].items()))
    assert isinstance(value, NexthopGroup)
    return [
        (UpdateType.MODIFY, EntityKind.PUNT_METER, "LOCAL", PuntLimit(1, 1)),
        (UpdateType.MODIFY, EntityKind.HASH_SEED, HASH_SEED_KEY, HashSeed(1)),
        (UpdateType.MODIFY, EntityKind.ROUTE, slot("20.0.5.0/24"), UNREACHABLE),
        (UpdateType.DELETE, EntityKind.ROUTE, slot("20.0.6.0/24"), None),
        (UpdateType.INSERT, EntityKind.ROUTE, slot("99.0.0.0/8"), UNREACHABLE),
        (UpdateType.INSERT, EntityKind.NEXTHOP, 60000, Nexthop(1, b"\x0a\0\1\x63", None, True)),
        (UpdateType.MODIFY, EntityKind.GROUP, group, NexthopGroup(value.members[:1])),
    ]


def repaired(auditor: Auditor) -> Counter[str]:
    return sum((report.repairs for report in auditor.reports.values()), Counter())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)
