# SPDX-License-Identifier: Apache-2.0
"""Runs a second client of the switch, which changes all discarded flows of a table to bypass.

    python foreign_writer.py ADDRESS P4INFO ROLE ELECTION_ID TABLE

With its own role, the client coexists with the controller. Without a role and with a higher
election id, it replaces the controller as primary until the client ends. The client prints the
number of changed flows.
"""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r
from google.protobuf import text_format

SERVICE = "/p4.v1.P4Runtime/"
DISCARD, BYPASS = 2, 1


def main(address: str, p4info: str, role: str, election_id: str, name: str) -> None:
    """Connects, changes the flows, and disconnects."""
    info = text_format.Parse(Path(p4info).read_text(encoding="utf-8"), p4i.P4Info())
    (table,) = (one for one in info.tables if one.preamble.alias == name)
    election = p4r.Uint128(high=int(election_id) >> 64, low=int(election_id) & (1 << 64) - 1)
    asked = p4r.MasterArbitrationUpdate(device_id=1, election_id=election)
    if role:
        asked.role.name = role
    over = threading.Event()

    def requests() -> Iterator[p4r.StreamMessageRequest]:
        yield p4r.StreamMessageRequest(arbitration=asked)
        over.wait()

    # The default authority would be the path of the Unix socket, which HTTP/2 does not accept.
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(address, options=options) as channel:
        stream = channel.stream_stream(
            f"{SERVICE}StreamChannel",
            p4r.StreamMessageRequest.SerializeToString,
            p4r.StreamMessageResponse.FromString,
        )(requests())
        answer = next(stream)
        assert answer.arbitration.status.code == 0, answer
        changes = [
            p4r.Update(type=p4r.Update.MODIFY, entity=entity)
            for entity in read(channel, p4r.TableEntry(table_id=table.preamble.id), role)
            if turn(info, entity.table_entry)
        ]
        request = p4r.WriteRequest(device_id=1, election_id=election, role=role, updates=changes)
        unary(channel, "Write", request, p4r.WriteResponse)
        print(len(changes))
        over.set()


def read(channel: grpc.Channel, entry: Any, role: str) -> list[Any]:
    """Returns all entries of a table."""
    request = p4r.ReadRequest(device_id=1, role=role, entities=[p4r.Entity(table_entry=entry)])
    call = channel.unary_stream(
        f"{SERVICE}Read", p4r.ReadRequest.SerializeToString, p4r.ReadResponse.FromString
    )
    return [entity for response in call(request, timeout=20) for entity in response.entities]


def turn(info: Any, entry: Any) -> bool:
    """Changes the verdict of a flow from discard to bypass. Returns whether it was discard."""
    (action,) = (one for one in info.actions if one.preamble.id == entry.action.action.action_id)
    names = {one.id: one.name for one in action.params}
    for param in entry.action.action.params:
        if names[param.param_id] == "verdict" and param.value == bytes([DISCARD]):
            param.value = bytes([BYPASS])
            return True
    return False


def unary(channel: grpc.Channel, method: str, request: Any, response: Any) -> Any:
    """Sends one request and returns its answer."""
    call = channel.unary_unary(
        SERVICE + method, type(request).SerializeToString, response.FromString
    )
    return call(request, timeout=20)


if __name__ == "__main__":
    main(*sys.argv[1:])
