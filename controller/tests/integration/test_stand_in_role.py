# SPDX-License-Identifier: Apache-2.0
"""Tests the P4Runtime role of a stand-in on a real switch: it permits only packets of the host.

A stand-in is the process that forwards the host's packets while no controller runs. BMv2
(TARGET=bmv2) has no roles. On BMv2, a stand-in's first session carries the packets, and any
controller displaces the stand-in.
"""

from __future__ import annotations

import os
import select
import shutil
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from sluice_testkit.namespaces import Lab
from sluice_testkit.target import Target

from fake_switch import PIPELINE
from real_switch import address_in, connected, run_scenario
from sluice._native import P4RuntimeClient
from sluice.fast_path import FastPath
from sluice.p4.packets import PACKET_IN, PACKET_OUT, PacketSchema
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4messages import p4r
from sluice.p4runtime.session import PERMISSION_DENIED
from sluice.sources.stand_in import ROLE

pytestmark = [
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs Linux namespaces"),
    pytest.mark.skipif(os.environ.get("TARGET") == "bmv2", reason="BMv2 has no roles"),
]
P4INFO = Schema(load_pipeline(PIPELINE).p4info)
SCHEMA = PacketSchema(P4INFO)
REINJECT = P4INFO.member("packet_out_kind_t", "REINJECT")
SECONDS = 10


@pytest.fixture(scope="module")
def target(module_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Target:
    namespace = module_lab.namespace("switch")
    address = address_in(tmp_path_factory.mktemp("switch"))
    target = Target(namespace, {}, module_lab.supervisor, address=address)
    target.start()
    return target


def next_event(client: P4RuntimeClient, wanted: Callable[[Any], bool]) -> Any:
    while True:
        assert select.select([client.fileno()], [], [], SECONDS)[0], "no such event"
        for event in client.poll(2):
            if wanted(event):
                return event


def bounded(target: Target, election_id: tuple[int, int]) -> P4RuntimeClient:
    rules = FastPath(SCHEMA, remembers=False).rules
    reason, kind = PACKET_IN.index("reason"), PACKET_OUT.index("kind")
    return P4RuntimeClient(
        target.grpc,
        target.device_id,
        election_id,
        ROLE,
        packets_only=(
            (SCHEMA.packet_in[reason][0], list(rules["for_the_host"])),
            (SCHEMA.packet_out[kind][0], list(SCHEMA.kinds_of_the_host)),
        ),
    )


def test_it_writes_nothing_and_gives_no_verdicts(target: Target) -> None:
    async def scenario() -> None:
        async with connected(target) as router:
            with closing(bounded(target, (1, 1))) as client:
                assert next_event(client, lambda one: one[0] == "arbitration")[1]
                assert router.session.is_primary, "the controller is primary of the default role"
                refused = p4r.WriteRequest(device_id=target.device_id, role=ROLE)
                refused.election_id.high, refused.election_id.low = 1, 1
                entry = refused.updates.add(type=p4r.Update.DELETE).entity.table_entry
                entry.table_id = load_pipeline(PIPELINE).p4info.tables[0].preamble.id
                client.write(1, refused.SerializeToString())
                _, _, code, message, errors = next_event(client, lambda one: one[0] == "write_done")
                codes = {code for code, _ in errors} or {code}
                assert codes == {PERMISSION_DENIED}, (code, message, errors)
                client.set_packet_metadata(SCHEMA.packet_in, SCHEMA.packet_out)
                metadata = list(SCHEMA.to_port(1))
                metadata[PACKET_OUT.index("kind")] = REINJECT
                assert client.packet_out([(bytes(60), tuple(metadata))]) == 1
                next_event(client, lambda one: one[0] == "stream_error")

    run_scenario(scenario)


def test_it_takes_nothing_from_the_controller(target: Target) -> None:
    async def scenario() -> None:
        with closing(bounded(target, (2, 1))) as client:
            assert next_event(client, lambda one: one[0] == "arbitration")[1]
            async with connected(target) as router:
                assert router.session.is_primary

    run_scenario(scenario)
