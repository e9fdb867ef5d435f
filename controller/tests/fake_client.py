# SPDX-License-Identifier: Apache-2.0
"""Provides a client of FakeSwitch that needs no network. It has the interface of the native
P4Runtime client.

As in the native module, events are queued and an eventfd becomes readable. `sent` holds the
packet-outs. A test sends packet-ins with `punt` and ends the session with `hang_up`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from finsy.proto import p4r

from fake_switch import NOT_FOUND, FakeSwitch
from sluice._native import FirstPacket

FLOW_BYTES = 100
"""Size of each packet that a flow's counter counts."""


class FakePart:
    """Holds a part of a read, like the native `ReadPart`."""

    def __init__(self, response: bytes) -> None:
        self._response = response

    def take(self) -> bytes:
        return self._response


class FakeClient:
    def __init__(
        self,
        switch: FakeSwitch,
        *,
        arbitration: list[Any] | None = None,
        election_id: tuple[int, int] = (0, 1),
    ) -> None:
        self.switch = switch
        self._elects = arbitration is None  # the client that arbitrates becomes primary
        self.sent: list[tuple[bytes, tuple[int, ...]]] = []
        self.packet_out_room = 1 << 30
        self.elections: list[tuple[int, int]] = []
        self.metadata: tuple[list[tuple[int, int]], list[tuple[int, int]]] | None = None
        self.pushed: list[p4r.SetForwardingPipelineConfigRequest] = []
        self.requests: list[p4r.WriteRequest] = []
        self.write_codes: list[int] | None = None
        # Link state by port; None: the switch does not report it.
        self.links: dict[int, bool] | None = None
        self.cpu_port: int | None = 510
        self.port_questions = 0
        self._unanswered: list[int] = []
        self._answers_ports = True
        self.steps: list[tuple[str, str, dict[str, str]]] | None = None
        """Trace that the switch reports for each dry run.

        None: the switch reports none.
        """
        self.runs: list[list[tuple[str, str, dict[str, str]]]] = []
        """Traces of the next dry runs, in order. `steps` is used after the last one."""
        self.dry_runs: list[tuple[int, bytes]] = []
        self._events: list[Any] = []
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.closed = False
        self._gone = False
        self._emit(("connected",))
        for answer in arbitration or [(True, 0, "", election_id)]:
            self._emit(("arbitration", *answer))

    def _emit(self, event: Any) -> None:
        self._events.append(event)
        os.eventfd_write(self._fd, 1)

    def punt(self, *packets: tuple[bytes, tuple[int, ...]]) -> None:
        self._emit(("packet_in", list(packets)))

    def arbitration(self, *answer: Any) -> None:
        self._emit(("arbitration", *answer))

    def hang_up(self, code: int = 14, message: str = "gone") -> None:
        self._gone = True
        self._emit(("closed", code, message))

    def _check_open(self) -> None:
        """Raises ConnectionError if the session has ended, like the real client.

        This also holds while the event "closed" is still queued.
        """
        if self._gone:
            raise ConnectionError("the P4Runtime session has ended")

    # -- the client's interface

    def fileno(self) -> int:
        return self._fd

    def poll(self, max_events: int) -> list[Any]:
        taken, self._events = self._events[:max_events], self._events[max_events:]
        if not self._events:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._fd)
        return taken

    def set_packet_metadata(
        self, packet_in: list[tuple[int, int]], packet_out: list[tuple[int, int]]
    ) -> None:
        self.metadata = (packet_in, packet_out)

    def packet_out(self, batch: list[tuple[bytes, tuple[int, ...]]]) -> int:
        self._check_open()
        assert self.metadata is not None
        room = batch[: self.packet_out_room]
        self.sent += room
        return len(room)

    def answer(self, batch: Sequence[tuple[FirstPacket, tuple[int, ...]]]) -> int:
        return self.packet_out(
            [(punt.packet().frame, punt.metadata(answer)) for punt, answer in batch]
        )

    def write(self, token: int, request: bytes) -> None:
        self._check_open()
        message = p4r.WriteRequest.FromString(request)
        self.requests.append(message)
        codes = self.write_codes
        if codes is None:
            codes = self.switch.take(message)
        bad = any(codes)
        errors = [(code, "") for code in codes] if bad else []
        self._emit(("write_done", token, 2 if bad else 0, "", errors))

    def read(self, token: int, request: bytes) -> None:
        self._check_open()
        wanted = p4r.ReadRequest.FromString(request)
        found = self._found(wanted)
        if found is None:
            self._emit(("read_done", token, NOT_FOUND, "no such table entry"))
            return
        for start in range(0, len(found), 5):
            response = p4r.ReadResponse(entities=found[start : start + 5])
            self._emit(("read_part", token, FakePart(response.SerializeToString())))
        self._emit(("read_done", token, 0, ""))

    def _found(self, wanted: p4r.ReadRequest) -> list[p4r.Entity] | None:
        """Returns the wanted entities. Returns None if the switch lacks one of them and so refuses
        the whole request."""
        first, codec = wanted.entities[0], self.switch.flow_codec
        if first.HasField("counter_entry"):
            return list(wanted.entities)
        if first.HasField("direct_counter_entry"):
            for entity in wanted.entities:
                counter = entity.direct_counter_entry
                known = codec._by_id.get(counter.table_entry.table_id)
                if known is not None:
                    slot = codec._slot(known, counter.table_entry)
                    if slot not in self.switch.flows:
                        return None
                    counter.data.packet_count = self.switch.flow_packets[slot]
                    counter.data.byte_count = FLOW_BYTES * counter.data.packet_count
            return list(wanted.entities)
        if first.table_entry.table_id in codec._by_id:
            return list(self.switch.raw_flows.values())
        return self.switch.found(wanted.entities)

    def set_pipeline(self, token: int, request: bytes) -> None:
        self._check_open()
        self.pushed.append(p4r.SetForwardingPipelineConfigRequest.FromString(request))
        self._emit(("pipeline_done", token, 0, "", b""))

    def get_pipeline(self, token: int, request: bytes) -> None:
        self._check_open()
        response = p4r.GetForwardingPipelineConfigResponse()
        if self.pushed:
            response.config.CopyFrom(self.pushed[-1].config)
        self._emit(("pipeline_done", token, 0, "", response.SerializeToString()))

    @property
    def answers_ports(self) -> bool:
        """Whether the switch answers queries about its ports.

        Queries that arrive while this is false are answered later.
        """
        return self._answers_ports

    @answers_ports.setter
    def answers_ports(self, answers: bool) -> None:
        self._answers_ports = answers
        waiting, self._unanswered = self._unanswered, []
        for token in waiting:
            self.ports(token)

    def ports(self, token: int) -> None:
        self._check_open()
        self.port_questions += 1
        if not self._answers_ports:
            self._unanswered.append(token)
            return
        code = 0 if self.links is not None else 12
        self._emit(("ports", token, code, "", dict(self.links or {}), self.cpu_port))

    def dry_run(self, token: int, port: int, packet: bytes) -> None:
        self._check_open()
        self.dry_runs.append((port, packet))
        steps = self.runs.pop(0) if self.runs else self.steps
        code = 0 if steps is not None else 12
        self._emit(("dry_run", token, code, "", list(steps or [])))

    def arbitrate(self, election_id: tuple[int, int]) -> None:
        self._check_open()
        self.elections.append(election_id)
        if self._elects:
            self.arbitration(True, 0, "", election_id)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.hang_up(1, "closed by us")
