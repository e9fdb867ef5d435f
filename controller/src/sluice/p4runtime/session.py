# SPDX-License-Identifier: Apache-2.0
"""Runs one P4Runtime session: becomes primary, sets the switch's pipeline, writes and reads.

`Session` polls the native client's events. It completes the awaited requests with answers, and
passes packet-ins to a callback. The future `closed` is done once the session has ended. A session
never reconnects: its owner makes a new session. Depends on messages, client and election.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from sluice._native import FirstPacket
from sluice.p4messages import p4i, p4r
from sluice.p4runtime.client import Client, Metadata
from sluice.p4runtime.election import LARGEST, ElectionId, above, is_question
from sluice.p4runtime.messages import RequestFactory

if TYPE_CHECKING:
    from sluice._native import P4RuntimeEvent, ReadPart

POLL_SLICE = 512
"""Limit of events taken from the client in one iteration of the loop."""

OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED = 0, 3, 5, 6, 7
RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 8, 9
ABORTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 10, 12, 13, 14
CODE_NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)

# After the end of its session, the client refuses requests by ConnectionError. The event that
# reports the end may then still be queued. This event will fail all pending answers, so the
# ConnectionError itself is ignored.
ended = suppress(ConnectionError)

PacketInHandler = Callable[[list[tuple[bytes, Metadata]]], None]


class Status(tuple[int, str]):
    """Result of one update: (canonical gRPC code, message)."""

    __slots__ = ()

    @property
    def code(self) -> int:
        """The canonical gRPC code; 0 is OK."""
        return self[0]

    def __str__(self) -> str:
        return f"{code_name(self[0])}: {self[1]}" if self[1] else code_name(self[0])


class SwitchPorts(NamedTuple):
    """Holds the link state of each switch port, and the number of the CPU port or None."""

    links: dict[int, bool]
    cpu_port: int | None


class TraceStep(NamedTuple):
    """Describes one step of a packet's processing in the switch.

    `kind` is the type of the step: "table", "fate" and others. `name` is the name of the table or
    other object. `details` has named values of the step. Values of the P4 program are hexadecimal.
    """

    kind: str
    name: str
    details: dict[str, str]


class P4RuntimeError(Exception):
    """Raised when the switch refuses a request, or when the session has ended."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code_name(code)}: {message}" if message else code_name(code))
        self.code = code


WriteOutcome: TypeAlias = list[Status] | P4RuntimeError
"""[] if all updates were applied, else one status for each update. An error if the batch as a whole
got no answer."""


def code_name(code: int) -> str:
    """Returns the name of a canonical gRPC code."""
    return CODE_NAMES[code] if 0 <= code < len(CODE_NAMES) else f"code {code}"


class Session:
    """Represents a session over one connection. Call all methods from the event loop's thread.

    `election_id` is the id that the client sends in its first arbitration.
    """

    def __init__(
        self,
        client: Client,
        device_id: int,
        election_id: ElectionId,
        role: str | None,
        on_packets: PacketInHandler,
    ) -> None:
        self._client = client
        self._device_id = device_id
        self._role = role
        self._election_id = election_id
        self._requests = RequestFactory(device_id, election_id, role)
        self.on_packets = on_packets
        self._loop = asyncio.get_running_loop()
        self._token = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._posted: dict[int, tuple[int, Callable[[WriteOutcome], None]]] = {}
        self._parts: dict[int, asyncio.Queue[ReadPart | None]] = {}
        self._primary = asyncio.Event()
        self._takes_packets = False
        self.closed: asyncio.Future[P4RuntimeError] = self._loop.create_future()
        self.arbitration = "connecting"
        self.is_standby = False
        """Whether another controller is primary."""
        self.stream_errors = 0
        self._loop.add_reader(client.fileno(), self._drain)

    # -- session start and end

    async def become_primary(self) -> None:
        """Waits until this session may write. Raises P4RuntimeError if the session ends first."""
        await self._or_closed(self._primary.wait())

    def close(self) -> None:
        """Begins the end of the session. `closed` is done once it has ended."""
        self._client.close()

    @property
    def election_id(self) -> ElectionId:
        """The election id that this session last sent."""
        return self._election_id

    @property
    def is_primary(self) -> bool:
        """Whether the switch accepts writes from this session."""
        return self._primary.is_set() and not self.closed.done()

    async def ensure_pipeline(self, p4info: p4i.P4Info, device_config: bytes) -> bool:
        """Installs this pipeline unless the switch already runs it. Returns whether it did so.

        Raises P4RuntimeError.
        """
        cookie = pipeline_cookie(p4info, device_config)
        if await self._runs(p4info, device_config, cookie):
            return False
        config = p4r.ForwardingPipelineConfig(
            p4info=p4info,
            p4_device_config=device_config,
            cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=cookie),
        )
        token, answer = self._expect()
        with ended:
            self._client.set_pipeline(token, self._requests.set_pipeline(config))
        await answer
        return True

    async def _runs(self, p4info: p4i.P4Info, device_config: bytes, cookie: int) -> bool:
        for cookie_only in (True, False):
            token, answer = self._expect()
            with ended:
                self._client.get_pipeline(token, self._requests.get_pipeline(cookie_only))
            try:
                response = p4r.GetForwardingPipelineConfigResponse.FromString(await answer)
            except P4RuntimeError as error:
                if error.code in (NOT_FOUND, FAILED_PRECONDITION, UNIMPLEMENTED):
                    return False  # the switch has no pipeline or cannot tell: set this one
                raise
            if response.config.cookie.cookie == cookie:
                return True
            if response.config.cookie.cookie:
                return False
        # A switch that was started with a pipeline has no cookie. So compare the pipelines
        # themselves.
        return (
            response.config.p4_device_config == device_config and response.config.p4info == p4info
        )

    async def pipeline_cookie(self) -> int | None:
        """Returns the cookie of the switch's pipeline, or None if the switch has no pipeline.

        Raises P4RuntimeError.
        """
        token, answer = self._expect()
        with ended:
            self._client.get_pipeline(token, self._requests.get_pipeline(True))
        try:
            response = p4r.GetForwardingPipelineConfigResponse.FromString(await answer)
        except P4RuntimeError as error:
            if error.code in (NOT_FOUND, FAILED_PRECONDITION):
                return None
            raise
        return response.config.cookie.cookie

    async def ports(self) -> SwitchPorts | None:
        """Reads the switch's ports. Returns None if the switch cannot report its ports.

        Raises P4RuntimeError.
        """
        token, answer = self._expect()
        with ended:
            self._client.ports(token)
        try:
            links, cpu_port = await answer
        except P4RuntimeError as error:
            if error.code == UNIMPLEMENTED:
                return None
            raise
        return SwitchPorts(links, cpu_port)

    async def dry_run(self, port: int, packet: bytes) -> list[TraceStep] | None:
        """Makes the switch process a packet that arrives on `port`, without effect (a dry run).

        The switch neither sends nor counts the packet. Returns the steps of the packet's
        processing, or None if the switch does not support dry runs. Raises P4RuntimeError.
        """
        token, answer = self._expect()
        with ended:
            self._client.dry_run(token, port, packet)
        try:
            return [TraceStep(*step) for step in await answer]
        except P4RuntimeError as error:
            if error.code == UNIMPLEMENTED:
                return None
            raise

    # -- requests

    async def write(self, updates: list[bytes], *, atomic: bool = False) -> list[Status]:
        """Sends one batch of updates, encoded by `messages.update`.

        Returns [] if all updates were applied, else one status for each update. Raises
        P4RuntimeError if the switch did not answer the batch.

        `atomic` requests that either all updates are applied or none, and that no packet meets only
        some of them. Not every target supports atomic batches.
        """
        token, answer = self._expect()
        with ended:
            self._client.write(token, self._requests.write(updates, atomic=atomic))
        outcome = self._outcome(len(updates), *await answer)
        if isinstance(outcome, P4RuntimeError):
            raise outcome
        return outcome

    def post_write(self, updates: list[bytes], done: Callable[[WriteOutcome], None]) -> None:
        """Sends one batch like `write`, but does not wait. Calls `done` with the result.

        Meant for writes that packets trigger, where a task that waits for the answer would cost
        more than the write itself. Raises P4RuntimeError if the session has ended. If the session
        ends before the answer, `done` is called with the error.
        """
        if self.closed.done():
            raise self.closed.result()
        self._token += 1
        self._posted[self._token] = len(updates), done
        with ended:
            self._client.write(self._token, self._requests.write(updates))

    def _outcome(
        self, number: int, code: int, message: str, errors: Sequence[tuple[int, str]]
    ) -> WriteOutcome:
        if code == OK:
            return []
        if len(errors) == number:
            return [Status(error) for error in errors]
        if self.closed.done() or code == UNAVAILABLE:
            return P4RuntimeError(code, message)
        return [Status((code, message))] * number

    async def read(self, entities: list[p4r.Entity]) -> AsyncIterator[Sequence[p4r.Entity]]:
        """Yields all entities that match `entities`, in the parts that the switch sends.

        Raises P4RuntimeError.
        """
        async for part in self.read_parts(entities):
            yield _entities_of(part)

    async def read_parts(self, entities: list[p4r.Entity]) -> AsyncIterator[bytes]:
        """Yields the entities of `read` as encoded ReadResponses.

        The switch is read only as fast as the caller takes the parts.
        """
        token, answer = self._expect()
        parts = self._parts[token] = asyncio.Queue()
        answer.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            with ended:
                self._client.read(token, self._requests.read(entities))
            while (part := await parts.get()) is not None:
                yield part.take()
            await answer
        finally:
            del self._parts[token]

    def set_packet_metadata(
        self, packet_in: list[tuple[int, int]], packet_out: list[tuple[int, int]]
    ) -> None:
        """Sets the layout of packet metadata. Before this call, packet-ins are dropped."""
        self._client.set_packet_metadata(packet_in, packet_out)
        self._takes_packets = True

    def packet_out(self, batch: list[tuple[bytes, Metadata]]) -> int:
        """Queues packets for sending, in order. Returns how many of them the queue accepted.

        Before `set_packet_metadata` and after the session's end, no packet is accepted.
        """
        if not self._takes_packets or self.closed.done():
            return 0
        with ended:
            return self._client.packet_out(batch)
        return 0

    def answer(self, batch: Sequence[tuple[FirstPacket, tuple[int, ...]]]) -> int:
        """Queues first packets with their answers (`p4.packets.AnsweredPunt`), like
        `packet_out`."""
        if not self._takes_packets or self.closed.done():
            return 0
        with ended:
            return self._client.answer(batch)
        return 0

    def _expect(self) -> tuple[int, asyncio.Future[Any]]:
        if self.closed.done():
            raise self.closed.result()
        self._token += 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._answers[self._token] = answer
        return self._token, answer

    async def _or_closed(self, wanted: Any) -> None:
        task = asyncio.ensure_future(wanted)
        try:
            await asyncio.wait({task, self.closed}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self.closed.result()
        finally:
            task.cancel()

    # -- events

    def _drain(self) -> None:
        for event in self._client.poll(POLL_SLICE):
            self._take(event)

    def _take(self, event: P4RuntimeEvent) -> None:
        match event:
            case ("packet_in", packets):
                self.on_packets(packets)
            case ("write_done", token, code, message, errors):
                posted = self._posted.pop(token, None)
                if posted is None:
                    self._answer(token, (code, message, errors))
                else:
                    number, done = posted
                    done(self._outcome(number, code, message, errors))
            case ("read_part", token, part):
                self._add_part(token, part)
            case ("read_done", token, code, message):
                self._finish(token, code, message, None)
            case ("pipeline_done" | "dry_run", token, code, message, response):
                self._finish(token, code, message, response)
            case ("ports", token, code, message, links, cpu_port):
                self._finish(token, code, message, (links, cpu_port))
            case ("arbitration", is_primary, code, message, election):
                self._arbitrated(is_primary, code, message, election)
            case ("stream_error", _):
                self.stream_errors += 1
            case ("closed", code, message):
                self._closed(P4RuntimeError(code, message))
            case _:
                pass  # "connected"; capabilities, digests and idle timeouts were not requested

    def _answer(self, token: int, result: object) -> None:
        answer = self._answers.pop(token, None)
        if answer is not None and not answer.done():
            answer.set_result(result)

    def _finish(self, token: int, code: int, message: str, result: object) -> None:
        answer = self._answers.pop(token, None)
        if answer is None or answer.done():
            return
        if code == OK:
            answer.set_result(result)
        else:
            answer.set_exception(P4RuntimeError(code, message))

    def _add_part(self, token: int, part: ReadPart) -> None:
        if token in self._parts:
            self._parts[token].put_nowait(part)

    def _arbitrated(
        self, is_primary: bool, code: int, message: str, election: ElectionId | None
    ) -> None:
        highest = election or self._election_id
        if is_primary:
            if highest != self._election_id:
                return  # the answer to an arbitration with an earlier id
            if is_question(self._election_id):
                self._arbitrate_above(self._election_id)
                return
            self.arbitration, self.is_standby = "primary", False
            self._primary.set()
        elif self._primary.is_set():
            self._end(
                P4RuntimeError(
                    PERMISSION_DENIED, f"another controller took over (election id {highest})"
                )
            )
        elif code == NOT_FOUND and highest >= self._election_id:
            self._arbitrate_above(highest)  # no primary: the controller with the highest id is gone
        elif highest == LARGEST:
            self.is_standby = True
            self.arbitration = (
                "another controller is primary with the largest election id; stop it, then restart"
                " the switch"
            )
        else:
            self.is_standby = True
            self.arbitration = f"another controller is primary (election id {highest})"

    def _arbitrate_above(self, seen: ElectionId) -> None:
        """Arbitrates again on the same stream, with an id above `seen`.

        Ends the session if there is no higher id.
        """
        wanted = above(seen)
        if wanted is None:
            self._end(
                P4RuntimeError(
                    RESOURCE_EXHAUSTED,
                    "a controller that is gone had the largest election id (2^128 - 1), and the"
                    " switch accepts only higher ids: restart the switch",
                )
            )
            return
        self._election_id = wanted
        self._requests = RequestFactory(self._device_id, wanted, self._role)
        self.arbitration, self.is_standby = "asking to be primary", False
        with ended:
            self._client.arbitrate(wanted)

    def _end(self, error: P4RuntimeError) -> None:
        """Closes the client and ends the session with this error."""
        self._client.close()
        self._closed(error)

    def _closed(self, error: P4RuntimeError) -> None:
        if self.closed.done():
            return
        self._loop.remove_reader(self._client.fileno())
        self._primary.clear()
        self.arbitration = f"closed: {error}"
        self.closed.set_result(error)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(P4RuntimeError(UNAVAILABLE, f"the session ended: {error}"))
        self._answers.clear()
        posted, self._posted = self._posted, {}
        for _, done in posted.values():
            done(P4RuntimeError(UNAVAILABLE, f"the session ended: {error}"))


def pipeline_cookie(p4info: p4i.P4Info, device_config: bytes) -> int:
    """Returns a number that identifies a pipeline: 64 bits of a digest of its two files."""
    digest = hashlib.sha256(p4info.SerializeToString(deterministic=True))
    digest.update(device_config)
    return int.from_bytes(digest.digest()[:8], "big") or 1


def _entities_of(part: bytes) -> Sequence[p4r.Entity]:
    try:
        return p4r.ReadResponse.FromString(part).entities
    except DecodeError as error:
        raise P4RuntimeError(
            INTERNAL, f"the switch sent an invalid ReadResponse: {error}"
        ) from None
