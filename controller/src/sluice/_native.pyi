# SPDX-License-Identifier: Apache-2.0
"""Declares the native extension `sluice._native` (source: controller/native/, Rust).

It contains the controller's I/O (P4Runtime, host TAPs, FPM framing), which passes data to Python in
batches, the table of all routes (RouteTable), the search of rules (RuleTree) and the record of the
switch's flows (FlowCache). It contains
neither policy nor P4 names. Its only decision is which frames pass between host and switch, by
tables from Python (FastPath).

These rules hold for all classes with `poll()` or `read()`:

- `fileno()` is an eventfd for `loop.add_reader`. It is readable exactly while `poll()`/`read()` has
  results (level-triggered).
- `poll()`/`read()` never block. They remove their results from the queue.
- Queues are bounded. Senders that can wait get backpressure (reads, FPM). Other data are dropped
  and counted by name in `stats()` (packets, host frames, digests, idle timeouts).
- Methods may be called from any thread. System calls and joins release the GIL.
- `ValueError`: a bad argument; the call has no effect. `OSError`: an errno of the kernel.
  `ConnectionError`: the object is closed. `BlockingIOError`: too many outstanding requests.
- The event types below exist for the type checker only. Import them under `TYPE_CHECKING`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from typing import Any, Literal, Protocol, Self, TypeAlias, final, overload

from sluice.model import PuntedPacket
from sluice.policy.model import FlowKey, Selectors
from sluice.state.flow_cache import (
    FlowOperation,
    FlowVerdict,
    FlowWrite,
    FlowWriteResult,
    OfferResult,
    RankedFlow,
)

__version__: str

_Status: TypeAlias = tuple[int, str]
"""Status: canonical gRPC code (0 is OK), message."""

P4RuntimeEvent: TypeAlias = (
    tuple[Literal["connected"]]
    | tuple[Literal["arbitration"], bool, int, str, tuple[int, int] | None]
    | tuple[Literal["packet_in"], list[tuple[bytes, tuple[int, ...]]]]
    | tuple[Literal["digest"], bytes]
    | tuple[Literal["idle_timeout"], bytes]
    | tuple[Literal["stream_error"], bytes]
    | tuple[Literal["write_done"], int, int, str, list[_Status]]
    | tuple[Literal["read_part"], int, ReadPart]
    | tuple[Literal["read_done"], int, int, str]
    | tuple[Literal["pipeline_done"], int, int, str, bytes]
    | tuple[Literal["capabilities"], int, int, str, bytes]
    | tuple[Literal["ports"], int, int, str, dict[int, bool], int | None]
    | tuple[Literal["dry_run"], int, int, str, list[tuple[str, str, dict[str, str]]]]
    | tuple[Literal["closed"], int, str]
)
"""Events of a P4RuntimeClient:

    ("connected",)                    the HTTP/2 connection is up, the arbitration is sent
    ("arbitration", is_primary, code, message, election)
                                      code 0: this session is primary; 6: another session is;
                                      5: no session is;
                                      election: the highest id that the switch knows
    ("packet_in", [(payload, metadata)])
                                      metadata is in the order of set_packet_metadata
    ("digest", DigestList)            a serialized message of p4.v1, as in the next two
    ("idle_timeout", IdleTimeoutNotification)
    ("stream_error", StreamError)
    ("write_done", token, code, message, errors)
                                      code 0: all updates are applied, errors is [];
                                      otherwise errors has one (code, message) for each update,
                                      in order, or is [] if the switch sent none
    ("read_part", token, part)        any number of these, then read_done
    ("read_done", token, code, message)
    ("pipeline_done", token, code, message, response)
                                      answer to set_pipeline or get_pipeline
    ("capabilities", token, code, message, response)
    ("ports", token, code, message, links, cpu_port)
                                      links: port number -> whether its link is up
    ("dry_run", token, code, message, steps)
                                      steps: [(kind, name, details)]
    ("closed", code, message)         the last event, after the answers to all requests
"""

PacketFilter: TypeAlias = tuple[int, Sequence[int]]
"""Selects packets whose metadata field of this id has one of these values."""

@final
class FirstPacket:
    """Holds a plain first packet (`native_punts`) that waits for its answer."""

    @property
    def reason(self) -> int:
        """The punt reason."""

    @property
    def list_id(self) -> int:
        """The list to search."""

    def selectors(self) -> Selectors:
        """Returns the packet's selectors."""

    def key(self) -> FlowKey:
        """Returns the key in the list's flow cache."""

    def packet(self) -> PuntedPacket:
        """Returns the packet-in."""

    def metadata(self, answer: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the metadata of the packet-out that re-injects the packet with this answer."""

@final
class FlowTypes:
    """Holds the Python types of flows, and the members of their enumerations.

    `fragments`, `actions`, `operations`, `offers` and `results` have the members of FragmentClass,
    Action, FlowOperation, OfferResult and FlowWriteResult in the order of their definition.
    """

    def __new__(
        cls,
        *,
        key: type[FlowKey],
        verdict: type[FlowVerdict],
        write: type[FlowWrite],
        ranked: type[RankedFlow],
        fragments: Sequence[object],
        actions: Sequence[object],
        operations: Sequence[object],
        offers: Sequence[object],
        results: Sequence[object],
    ) -> FlowTypes: ...

class FlowCache:
    """Records the flows of one list, like `state.flow_cache.FlowCache`, which has the reference.

    A verdict's epoch and rule have 32 bits, bundles and ports 16 bits, protocols 8 bits. Methods
    raise OverflowError for greater numbers, and ValueError for addresses that are neither both of
    IPv4 nor both of IPv6.
    """

    def __new__(cls, types: FlowTypes, capacity: int, epoch: int, enabled: bool) -> Self: ...
    @property
    def capacity(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def is_exact(self) -> bool: ...
    enabled: bool
    def __len__(self) -> int: ...
    def eviction_order(self, limit: int) -> FlowKeys: ...
    def ranked(self, keys: Iterable[FlowKey]) -> list[RankedFlow]: ...
    def flows(self) -> FlowItems: ...
    def live_flows(self) -> FlowItems: ...
    def count_live(self) -> int: ...
    def count_stale(self) -> int: ...
    def verdict_of(self, key: FlowKey) -> FlowVerdict | None: ...
    def offer(
        self, key: FlowKey, verdict: FlowVerdict, now: float
    ) -> tuple[OfferResult, list[FlowWrite]]: ...
    def retire(self, epoch: int) -> None: ...
    def written(self, write: FlowWrite, result: FlowWriteResult, now: float) -> list[FlowWrite]: ...
    def found(self, key: FlowKey, verdict: FlowVerdict, now: float) -> None: ...
    def agrees(self, key: FlowKey, found: FlowVerdict | None) -> bool: ...
    def correct(self, key: FlowKey, found: FlowVerdict | None, now: float) -> list[FlowWrite]: ...
    def discard(self, key: FlowKey) -> list[FlowWrite]: ...
    def keys(self) -> FlowKeys: ...
    def keys_unused_since(self, before: float) -> FlowKeys: ...
    def used(self, key: FlowKey, now: float) -> None: ...
    def counted(self, key: FlowKey, packets: int, now: float) -> bool: ...
    def expire(self, key: FlowKey, before: float) -> list[FlowWrite]: ...
    def idle_since(self, before: float) -> FlowKeys: ...
    def coldest_live(self, before: float, limit: int) -> FlowKeys: ...
    def is_nearly_full(self) -> bool: ...

@final
class FlowKeys(Sequence[FlowKey]):
    """Holds keys of flows in native code. A key is made when it is read."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> FlowKey: ...
    @overload
    def __getitem__(self, index: slice) -> list[FlowKey]: ...

@final
class FlowItems(Sequence[tuple[FlowKey, FlowVerdict]]):
    """Holds keys and verdicts of flows in native code. A pair is made when it is read."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> tuple[FlowKey, FlowVerdict]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[FlowKey, FlowVerdict]]: ...

@final
class FlowEncoder:
    """Encodes writes of flows as the field `updates` of a WriteRequest.

    - fields: the ids of the match fields for the two addresses, protocol and ports, below 128.
    - encode_head: returns the encoded fields of the TableEntry that the flows share which have the
      same list id, fragment class, `is_local` and bundle. These are the argument.
    - encode_action: returns the encoded action of a FlowVerdict.
    - limit: the greatest number of results of each function that are cached.
    """

    def __new__(
        cls,
        types: FlowTypes,
        fields: Sequence[int],
        encode_head: Callable[[tuple[int, int, bool, int]], bytes],
        encode_action: Callable[[FlowVerdict], bytes],
        limit: int,
    ) -> FlowEncoder: ...
    def encode(self, list_id: int, write: FlowWrite) -> bytes:
        """Encodes one write."""

@final
class FlowQueue:
    """Queues the writes of the flows of many lists, in order."""

    def __new__(cls, types: FlowTypes, caches: Mapping[int, FlowCache]) -> FlowQueue:
        """Creates an empty queue. `caches` are by list id."""

    def __len__(self) -> int:
        """Returns the number of writes that wait."""

    def unanswered(self, list_id: int) -> int:
        """Returns the number of writes of a list that wait or are in flight."""

    def push(self, list_id: int, writes: Iterable[FlowWrite]) -> None:
        """Queues writes of a list."""

    def offer(
        self, offers: Sequence[tuple[FirstPacket, FlowVerdict]], held: Set[int], now: float
    ) -> list[tuple[int, OfferResult, int, int]]:
        """Offers the flows of packets to the caches of their lists, and queues the writes.

        Flows of the lists `held` are not installed. Returns for each list and result the number of
        flows, and the number of flows evicted for them.
        """

    def first(self, limit: int) -> FlowBatch:
        """Returns the first writes, which stay in the queue until `sent`."""

    def sent(self, batch: FlowBatch) -> None:
        """Removes the writes of a batch from the queue, as they were sent to the switch."""

    def written(
        self, batch: FlowBatch, results: Sequence[FlowWriteResult], now: float
    ) -> list[tuple[FlowOperation, FlowWriteResult, int]]:
        """Reports the results of a batch to the caches, and queues the writes needed next.

        `results` is empty if all writes are done. Returns the number of each operation's results.
        """

@final
class FlowBatch:
    """Holds writes that go to the switch together. Immutable."""

    def __len__(self) -> int: ...
    def writes(self) -> list[tuple[int, FlowWrite]]:
        """Returns list id and write of each."""

    def list_ids(self) -> set[int]:
        """Returns the ids of the lists that have writes in the batch."""

    def updates(self, encoders: Mapping[int, tuple[FlowEncoder, FlowEncoder]]) -> list[bytes]:
        """Encodes the writes. `encoders` has those of IPv4 and IPv6 flows of each list."""

@final
class PuntQueue:
    """Queues packet-ins fairly between interfaces, sources and flows.

    `native_punts` and `sources.punt` describe the queue. The arguments up to `list_id` are
    positions in the metadata of packet-ins; `share` has those of ingress port, interface and punt
    reason. `misses` has the reasons of first packets, `inbound` and `outbound` the stages that punt
    them, and `own` the origin of packets that this router sends. `answer`: see
    `PacketSchema.reinjection`. The types are named tuples. Raises ValueError for a position that is
    not less than `count`.
    """

    def __new__(
        cls,
        *,
        count: int,
        share: tuple[int, int, int],
        stage: int,
        origin: int,
        is_local: int,
        bundle: int,
        list_id: int,
        misses: Sequence[int],
        inbound: int,
        outbound: int,
        own: int,
        answer: Sequence[tuple[str, int]],
        punted_type: type[PuntedPacket],
        selectors_type: type[Selectors],
        key_type: type[FlowKey],
        whole: int,
        limit: int,
        limit_each: int,
    ) -> PuntQueue: ...
    def fileno(self) -> int: ...
    def __len__(self) -> int: ...
    def set_limit(self, limit: int, limit_each: int) -> None: ...
    def dropped(self) -> dict[int, int]:
        """Returns the number of dropped packets of each punt reason."""

    def put(self, frame: bytes, metadata: tuple[int, ...]) -> bool:
        """Queues a packet. Returns False if the packet is dropped."""

    def take(self, limit: int) -> list[PuntedPacket | FirstPacket]:
        """Removes and returns at most `limit` packets."""

@final
class ReadPart:
    """Holds a part of a read. A read receives only a few parts that are not taken yet."""

    def take(self) -> bytes:
        """Returns the serialized ReadResponse. The read may then receive another part.

        Raises ValueError if the part was taken already.
        """

@final
class P4RuntimeClient:
    """Runs one P4Runtime session over one connection.

    Connects in the background and never reconnects: after ("closed", ...) make a new client.

    - address: "unix:path" ("unix:/run/sluice/switch.sock"), or "host:port" ("[::1]:9559" for IPv6).
    - device_id: not 0.
    - election_id: (high, low), not (0, 0).
    - role: its name, or None for the default role.
    - request_timeout: time after which a request without an answer fails with DEADLINE_EXCEEDED
      (4), in seconds.
    - tls: (CA certificate, client certificate with its chain, client key), all PEM, for TCP with
      mutual TLS. None for a Unix socket or for TCP without TLS.
    - server_name: the name that the switch's certificate must have; default: the host of the
      address.
    - fast_path: handles packets that it accepts, once set_packet_metadata was called.
    - punts: queue of the packet-ins that the fast path does not handle, once set_packet_metadata
      was called. None: these packet-ins are events. Needs fast_path.
    - packets_only: the packets that the role may receive, and those that it may send. sluice-switch
      permits nothing else to the role.

    Raises ValueError for other arguments.
    """

    def __new__(
        cls,
        address: str,
        device_id: int,
        election_id: tuple[int, int],
        role: str | None = None,
        *,
        request_timeout: float = 60.0,
        packet_in_limit: int = 4096,
        packet_out_limit: int = 4096,
        request_limit: int = 1024,
        tls: tuple[bytes, bytes, bytes] | None = None,
        server_name: str | None = None,
        fast_path: FastPath | None = None,
        packets_only: tuple[PacketFilter, PacketFilter] | None = None,
        punts: PuntQueue | None = None,
    ) -> P4RuntimeClient: ...
    def fileno(self) -> int: ...
    def poll(self, max_events: int) -> list[P4RuntimeEvent]:
        """Returns at most `max_events` events; each packet-in counts as one. Use 2 or more.

        Answers come first, then one batch of packet-ins. If more events wait, each of the two kinds
        gets at least half.
        """

    def set_packet_metadata(
        self, packet_in: Sequence[tuple[int, int]], packet_out: Sequence[tuple[int, int]]
    ) -> None:
        """Sets (metadata id, bit width 1..128) of the fields of P4Info's packet_in and packet_out.

        Metadata values have this order. Before this call, packet-ins are dropped
        (packet_in_unexpected).
        """

    def packet_out(self, batch: Sequence[tuple[bytes, tuple[int, ...]]]) -> int:
        """Queues (payload, metadata values) in order. Returns how many packets were queued.

        The others are dropped. Raises ValueError for a value that does not fit its field; then no
        packet is queued.
        """

    def answer(self, batch: Sequence[tuple[FirstPacket, tuple[int, ...]]]) -> int:
        """Queues first packets with their answers, like `packet_out`."""

    def write(self, token: int, request: bytes) -> None:
        """Sends a serialized WriteRequest.

        Writes and set_pipeline are sent in the order of the calls. Each is sent after the answer to
        the previous one.
        """

    def set_pipeline(self, token: int, request: bytes) -> None:
        """Sends a serialized SetForwardingPipelineConfigRequest, in order with write()."""

    def read(self, token: int, request: bytes) -> None:
        """Sends a serialized ReadRequest, concurrently with all other requests."""

    def get_pipeline(self, token: int, request: bytes) -> None:
        """Sends a serialized GetForwardingPipelineConfigRequest."""

    def capabilities(self, token: int) -> None: ...
    def ports(self, token: int) -> None:
        """Requests the switch's ports. Targets other than sluice-switch answer UNIMPLEMENTED
        (12)."""

    def dry_run(self, token: int, port: int, packet: bytes) -> None:
        """Requests the simulation of a packet that arrives on this port.

        Targets other than sluice-switch answer UNIMPLEMENTED (12).
        """

    def arbitrate(self, election_id: tuple[int, int]) -> None:
        """Arbitrates with another election id on the same stream."""

    def send(self, message: bytes) -> None:
        """Sends a serialized StreamMessageRequest (for example a digest acknowledgement)."""

    def stats(self) -> dict[str, int]:
        """Returns these counters.

        - Packet-ins: packet_in, packet_in_dropped (queue full), packet_in_malformed,
          packet_in_unexpected.
        - Packet-outs, including the fast path's: packet_out, packet_out_dropped (queue full).
        - Dropped events: digests_dropped, idle_timeouts_dropped, stream_errors_dropped.
        - Others: unknown_stream_messages, requests_pending.
        """

    def close(self) -> None:
        """Ends the stream and the connection. The event ("closed", 1, ...) follows. Idempotent."""

@final
class TapSet:
    """Holds TAP interfaces, identified by ifindex. A thread of the set reads them.

    A TAP is created in the network namespace of the thread that calls add().
    """

    def __new__(
        cls, *, queue_limit: int = 1024, fast_path: FastPath | None = None, rests: bool = False
    ) -> TapSet:
        """Creates an empty set.

        - queue_limit: maximum number of frames queued for Python, for each interface. Further
          frames are dropped and counted.
        - fast_path: frames that it handles are not queued for Python.
        - rests: this set's queues are detached until the fast path has a client with packet
          metadata. Meanwhile the queues of other processes, such as a stand-in, receive all frames.
        """

    def add(
        self,
        name: str,
        mtu: int,
        mac: str,
        persist: bool = False,
        base: int = 0,
        queue: int | None = None,
    ) -> int:
        """Creates the TAP or opens an existing one, and sets MTU and MAC.

        Returns its ifindex plus base, which identifies the TAP in this set. The TAP is down until
        set_up. Its carrier is on until set_carrier. It may have several queues, and exists as long
        as one of them.

        - mtu: 68 to 65535.
        - mac: like "02:00:00:00:01:01".
        - queue: descriptor of an open queue. The set duplicates it instead of opening another
          queue.
        """

    def join(self, name: str, index: int, queue: int) -> None:
        """Takes over a queue of an existing TAP with this name and ifindex.

        Duplicates the descriptor and attaches the queue. Does not change the TAP. Raises ValueError
        if there is no such TAP.
        """

    def queue(self, index: int) -> int:
        """Returns the descriptor of a TAP's queue, which the set still owns."""

    def remove(self, index: int) -> None:
        """Detaches and closes the interface's queue.

        The interface disappears unless it is persistent or another process has a queue of it.
        """

    def set_up(self, index: int, up: bool) -> None:
        """Sets the administrative state (IFF_UP)."""

    def set_carrier(self, index: int, up: bool) -> None:
        """Sets the carrier (TUNSETCARRIER)."""

    def fileno(self) -> int: ...
    def read(self, max_frames: int) -> list[tuple[int, bytes]]:
        """Returns (ifindex, Ethernet frame) pairs in order of arrival."""

    def write(self, frames: Sequence[tuple[int, bytes]]) -> int:
        """Sends frames to the host. Returns how many of them were accepted.

        The others are counted by reason: an interface that is down or not in the set, a full queue,
        an invalid size.
        """

    def stats(self) -> dict[int, dict[str, int]]:
        """Returns these counters by ifindex.

        rx_frames, rx_bytes, rx_dropped (queue full), rx_errors, tx_frames, tx_bytes,
        tx_dropped_down, tx_dropped_full, tx_errors. Index 0 has tx_unknown_interface.
        """

    def close(self) -> None:
        """Removes all interfaces like remove(), and ends the thread. Idempotent."""

@final
class FastPath:
    """Forwards frames between the TAPs of a TapSet and a P4RuntimeClient, without the GIL.

    TapSet and client get this object as an argument, and call it in their threads. A new client
    replaces the previous one. A frame passes if all tables allow it. Python handles all other
    frames; none is refused here.

    - reason_field, interface_field: indexes in the metadata of packet-ins.
    - for_the_host: punt reasons of packets for the host, and whether such packets are IP.
    - link_protocols: EtherTypes other than IP that the host may send. IS-IS passes too.
    - protocols: IP protocols that the host may send. For ICMP and ICMPv6, also the (protocol, type)
      must be in `icmp`.
    - withheld_ports: UDP ports; packets from the host with such a source or destination port go to
      Python.

    These apply in a VRF other than 0:

    - vrf_ports: (source range, destination range) of UDP ports that the host may send.
    - answered_in_place: protocols other than UDP that the host may send and receive.
    - answered_ports: destination UDP ports of datagrams that the host may receive.

    These control the copies of packets to the host:

    - remember: Python gets a copy of each IP packet, by told(), before the host gets the packet.
    - told_limit: limit of queued copies, half of it for one reason. At the limit, Python handles
      the packet itself.
    """

    def __new__(
        cls,
        *,
        reason_field: int,
        interface_field: int,
        for_the_host: Mapping[int, bool],
        link_protocols: Set[int],
        protocols: Set[int],
        icmp: Set[tuple[int, int]],
        withheld_ports: Set[int],
        vrf_ports: Sequence[tuple[tuple[int, int], tuple[int, int]]],
        answered_in_place: Set[int],
        answered_ports: Set[int],
        remember: bool,
        told_limit: int = 2048,
    ) -> FastPath: ...
    def set_interfaces(
        self,
        taps: Sequence[tuple[int, int, int, Sequence[bytes], tuple[int, ...], tuple[int, ...]]],
        sources: Mapping[int, Sequence[bytes]],
    ) -> None:
        """Replaces the tables of interfaces. Before the first call, no packet passes.

        - taps: (ifindex, layer-3 interface, VRF, the host's MAC addresses on it, packet-out
          metadata of frames other than IP, packet-out metadata of IP).
        - sources: by VRF, the host's addresses that are only in this VRF.
        """

    def would_send(self, index: int, frame: bytes) -> tuple[int, ...] | None:
        """Returns the metadata for sending a frame of the host, or None if Python must handle
        it."""

    def would_give(self, frame: bytes, metadata: tuple[int, ...]) -> tuple[int, bytes] | None:
        """Returns the ifindex and the frame that the host would get for a packet-in.

        Returns None if Python must handle the packet.
        """

    def fileno(self) -> int: ...
    def told(self, max_packets: int) -> list[tuple[bytes, tuple[int, ...]]]:
        """Returns IP packets (payload, metadata) that were delivered to the host, in order."""

    def by_reason(self) -> dict[int, int]:
        """Returns the numbers of packets delivered to the host, by reason."""

    def stats(self) -> dict[str, int]:
        """Returns these counters.

        from_host, from_host_dropped (packet-out queue full), to_host, to_host_refused (by the
        kernel), to_host_untold (left to Python at told_limit).
        """

FpmEvent: TypeAlias = (
    tuple[Literal["open"], int, str]
    | tuple[Literal["frames"], int, list[bytes]]
    | tuple[Literal["error"], int, str]
    | tuple[Literal["closed"], int, str]
)
"""Events of an FpmServer:

    ("open", connection, peer)       peer: "address:port"; connection numbers are never reused
    ("frames", connection, [bytes])  payloads (netlink messages) of whole FPM frames, in order
    ("error", connection, message)   a framing error with its byte offset; closed follows
    ("closed", connection, reason)
"""

@final
class FpmServer:
    """Listens for zebra's FPM client, and splits the stream into frames.

    A frame has version 1, type 1 (netlink), and a length that includes the 4-byte header. The
    server stops reading a connection while its queue is full, so no frame is dropped.

    - listen: "127.0.0.1:2620" or "[::1]:2620". Port 0 selects a free port.

    Raises OSError if it cannot listen.
    """

    def __new__(cls, listen: str, *, queue_bytes: int = 8388608) -> FpmServer: ...
    def port(self) -> int: ...
    def fileno(self) -> int: ...
    def poll(self, max_events: int) -> list[FpmEvent]:
        """Returns at most `max_events` events.

        One "frames" event has the frames of one read of the socket, about 256 KiB at most.
        """

    def disconnect(self, connection: int, reason: str) -> None:
        """Closes one connection. The event ("closed", connection, reason) follows.

        Does nothing if the connection has ended.
        """

    def stats(self) -> dict[str, int]:
        """Returns connections, connections_refused, frames, bytes, framing_errors,
        reads_paused."""

    def close(self) -> None:
        """Stops listening and closes every connection. Idempotent."""

_Slot: TypeAlias = Any
"""A prefix of one VRF: (vrf, (address, length)), in the tuple types of the RouteTable."""
_Target: TypeAlias = Any
"""The switch's action on packets; hashable. The table stores each target for ever."""
_Text: TypeAlias = Any
"""A tuple with the contents of a route message except the prefix."""

@final
class RouteMemo:
    """Decodes route messages (RTM_NEWROUTE, RTM_DELROUTE) whose text is known."""

    def __new__(cls, unusual_heads: bytes) -> RouteMemo:
        """Creates an empty memo. Prefixes whose first octet is in `unusual_heads` always miss."""

    def learn(self, data: bytes, offset: int, length: int, text: _Text) -> bool:
        """Learns the text of the message with this offset and length.

        Every message that differs only in the prefix has this text too. RTA_DST must occur only
        once in the message. Returns False if the message cannot be cut, so that it would never hit.
        """

    def read(self, payloads: list[bytes], start: int, limit: int) -> tuple[RouteRun, int]:
        """Reads payloads from `start` on. Returns their routes and the number of payloads read.

        Stops after the payload that reaches `limit` routes, or before a payload with a miss.
        """

@final
class RouteRun:
    """Holds routes with known texts, in order."""

    def __len__(self) -> int: ...
    def messages(self) -> list[tuple[_Text, bytes, int]]:
        """Returns text, address and prefix length of each route."""

class _RouteEncoding(Protocol):
    def route_head(self, size: int, vrf: int) -> tuple[bytes, bytes]: ...
    def route_tail(self, target: _Target) -> bytes: ...

@final
class RouteTable:
    """Holds all prefixes with their routes and targets.

    A prefix has the routing daemon's route, the target by the router's own links (`onlink`), the
    `desired` target, and the target `installed` in the switch. A route is the number of an *entry*,
    an object that many routes share. Methods raise ValueError for an invalid prefix.
    """

    def __new__(cls, slot: type, prefix: type) -> RouteTable:
        """`slot` and `prefix` are the tuple types of returned prefixes."""

    @property
    def desired(self) -> RouteColumn: ...
    @property
    def installed(self) -> RouteColumn: ...
    @property
    def upserts(self) -> RouteQueue:
        """Prefixes to insert or modify."""

    @property
    def deletes(self) -> RouteQueue:
        """Prefixes to delete."""

    def installed_uses(self, target: _Target) -> int:
        """Returns the number of installed prefixes with a target."""

    def add_entry(self, entry: object) -> int:
        """Stores an entry; returns its number."""

    def drop_entry(self, number: int) -> None:
        """Forgets an entry. Raises ValueError if a route still uses it."""

    def entry_of(self, number: int) -> Any:
        """Returns the entry of a number, or None if there is none."""

    def entry_uses(self, number: int) -> int:
        """Returns the number of routes that use an entry."""

    def entry(self, key: _Slot) -> Any:
        """Returns the entry of a prefix's route, or None if there is no route."""

    def set_entry(self, key: _Slot, number: int) -> None:
        """Sets the entry of a prefix's route; 0 removes the route."""

    def routes(self, vrf: int) -> int:
        """Returns the number of a VRF's routes."""

    def lengths(self, vrf: int, size: int) -> list[int]:
        """Returns the prefix lengths of a VRF's routes, longest first.

        `size` is the size of an address in octets.
        """

    def set_onlink(self, key: _Slot, target: _Target | None) -> None:
        """Sets the target by the router's own links. It is used while the prefix has no route."""

    def set_neighbors(self, ipv4: list[bytes], ipv6: list[bytes]) -> None:
        """Sets the neighbours' addresses. `apply` compares prefixes with them."""

    def walk(self, after: _Slot | None, limit: int) -> tuple[list[Any], Any]:
        """Returns at most `limit` prefixes after `after` that have a route or are on a link.

        The order is by VRF, IPv4 before IPv6, address and length. The second value is `after` of
        the next call, or None at the end.
        """

    def unwritten(self, start: int, limit: int) -> tuple[list[tuple[Any, Any]], int | None]:
        """Returns at most `limit` prefixes whose installed target differs from the desired one.

        Each has its desired target. The search begins at the record `start` (0 is the first). The
        second value is `start` of the next call, or None at the end. A step is bounded, so the list
        may be empty before the end.
        """

    def unwanted(self, start: int, limit: int) -> tuple[list[Any], int | None]:
        """Returns at most `limit` prefixes that are installed but not desired, as `unwritten`
        does."""

    def learn_form(
        self, entity: bytes, head: bytes, field: int, size: int, key: _Slot, target: _Target
    ) -> None:
        """Learns the form of an encoded Entity, which is the given route.

        Entities with the same bytes before and after the LPM match are routes to the same target.
        `head` has the fields of the TableEntry before the match, `field` is the match's id, `size`
        the address size in octets.
        """

    def forget_forms(self) -> None:
        """Forgets all forms."""

    def read_back(self, response: bytes, start: int, limit: int) -> tuple[int, int]:
        """Stores routes of an encoded ReadResponse in `installed`, from the entity at `start` on.

        Stops at the first entity of unknown form, or after `limit` routes. Returns the number of
        routes, and the offset where it stopped.
        """

    def unknown_texts(self, run: RouteRun) -> list[tuple[int, _Text]]:
        """Returns the numbers and texts in a run that have no meaning, or no longer have one."""

    def set_updated(self, text: int, vrf: int, entry: int, target: _Target) -> None:
        """Sets the meaning of a text: its routes are in this VRF, with this entry and target."""

    def set_deleted(self, text: int, vrf: int) -> None:
        """Sets the meaning of a text: its routes are deleted from this VRF."""

    def forget_texts(self) -> None:
        """Forgets the meanings of all texts, since they may have changed."""

    def apply(self, run: RouteRun) -> tuple[RouteBlock, list[int], bool]:
        """Applies the routes of a run.

        Returns the changes for the switch, the entries that lost their last route, and whether a
        prefix covers a neighbour. Raises ValueError without any change if a text has no meaning.
        """

    def take_in(self, block: RouteBlock) -> None:
        """Sets the desired targets of a run's changes. Queues the prefixes that are not installed
        so."""

    def in_flight(self) -> int:
        """Returns the number of prefixes with a write in flight."""

    def set_in_flight(self, keys: Iterable[_Slot], under_way: bool) -> None: ...
    def is_in_flight(self, key: object) -> bool: ...
    def clear_in_flight(self) -> None:
        """Forgets all writes in flight. Results of earlier RouteBatches are ignored from now on."""

    def next_upserts(
        self, limit: int, missing: Callable[[Any], object], encoding: _RouteEncoding
    ) -> RouteBatch:
        """Takes the newest prefixes of the queue, at most `limit`.

        `missing` returns a true value for a target that must not be written yet. Allowed targets
        are cached until `forget_ready`. `encoding` is called once for each VRF and target.
        """

    def next_deletes(self, limit: int, encoding: _RouteEncoding) -> RouteBatch:
        """Takes the newest prefixes of the queue of deletes, at most `limit`."""

    def requeue_postponed(self) -> None:
        """Queues the prefixes again that were skipped because of a write in flight."""

    def forget_ready(self) -> None:
        """Clears the cache of targets that `missing` allowed."""

@final
class RouteBlock:
    """Holds changes of many routes, for `take_in`."""

    def __len__(self) -> int: ...
    def items(self) -> list[tuple[Any, Any]]:
        """Returns prefixes and desired targets. None means a deletion. Empty after `take_in`."""

@final
class RouteBatch:
    """Holds updates that go to the switch together.

    Their prefixes are in flight until `landed` or `requeue` is called.
    """

    def __len__(self) -> int: ...
    def updates(self) -> list[bytes]:
        """Returns each update as a field of a WriteRequest."""

    def entries(self) -> list[tuple[Any, Any]]:
        """Returns prefixes and targets. None means a deletion."""

    def operations(self) -> list[int]:
        """Returns P4Runtime's Update.Type of each update."""

    def unready(self) -> list[tuple[Any, Any]]:
        """Returns prefixes and targets that were taken from the queue but not written.

        Their target is missing in the switch.
        """

    def absent(self) -> list[Any]:
        """Returns prefixes that were taken from the queue of deletes but are not installed."""

    def landed(self, applied: bool) -> None:
        """Ends the writes. `applied`: the switch has applied all updates."""

    def requeue(self) -> None:
        """Ends the writes, and queues the prefixes again."""

@final
class RuleBatch:
    """Holds rules in order, prepared for `RuleTree.replaced`."""

    def extend(self, rules: Iterable[tuple[Any, ...]]) -> None:
        """Appends rules. Holds the GIL for about a microsecond per rule."""

    def __len__(self) -> int: ...

@final
class RuleTree:
    """Finds the first rule of an ordered list that matches a packet. Immutable.

    A changed tree shares unchanged nodes with the tree before. Memory grows linearly with the
    number of rules: about 180 bytes for a rule with one range in each selector.
    """

    def __new__(
        cls, fields: tuple[str, ...], opaque: object, own: object, transit: object, bypass: int
    ) -> RuleTree:
        """Creates a tree without rules.

        `fields`: names of the fields of a rule, in order. `opaque`, `own`, `transit`, `bypass`:
        policy.model's OPAQUE, Scope.OWN, Scope.TRANSIT and Action.BYPASS.
        """

    def batch(self) -> RuleBatch:
        """Returns an empty batch for this tree and the trees made from it."""

    def replaced(self, start: int, removed: RuleBatch, added: RuleBatch) -> RuleTree:
        """Returns a tree in which `added` replaces the rules `removed`, which begin at `start`.

        Empties both batches. Releases the GIL. ValueError: the tree has no such rules.
        """

    def __len__(self) -> int: ...
    def memory_bytes(self) -> int:
        """Returns the number of allocated bytes, including those shared with other trees."""

    def first_match(
        self,
        source: bytes,
        destination: bytes,
        protocol: int | None,
        source_port: int | None,
        destination_port: int | None,
        icmp: int | None,
        is_own: bool,
        mobility_type: int | None,
    ) -> int | None:
        """Returns the position of the first rule that matches, or None."""

    def first_match_of(self, packet: FirstPacket) -> int | None:
        """Returns the same for the selectors of a first packet."""

    def has_other_effect(
        self,
        source: bytes,
        destination: bytes,
        protocol: int | None,
        is_own: bool,
        effect: tuple[int, str | None],
        limit: int | None,
    ) -> bool:
        """Returns whether a rule before position `limit` could match, and has another effect.

        Ports may have any value, and so may the protocol if it is None.
        """

    def restricts_to(self, destination: bytes, is_own: bool) -> bool:
        """Returns whether a rule that protects or discards could match a packet to a destination.

        Rules with `is_default` do not count.
        """

@final
class RouteColumn(MutableMapping[Any, Any]):
    """Maps prefixes to targets. It may change during an iteration, whose order is unspecified."""

    def __getitem__(self, key: object) -> Any: ...
    def __setitem__(self, key: _Slot, value: _Target) -> None: ...
    def __delitem__(self, key: _Slot) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def update(self, pairs: Iterable[tuple[_Slot, _Target]]) -> None: ...  # type: ignore[override]

@final
class RouteQueue(MutableMapping[Any, None]):
    """Holds queued prefixes as keys. `popitem` returns the newest."""

    def __getitem__(self, key: object) -> None: ...
    def __setitem__(self, key: _Slot, value: None) -> None: ...
    def __delitem__(self, key: _Slot) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def update(self, keys: Iterable[_Slot]) -> None: ...  # type: ignore[override]
