# SPDX-License-Identifier: Apache-2.0
"""Types of the native extension `sluice._native` (source: controller/native/, Rust).

What it is for: the byte-moving half of the controller (P4Runtime, host TAPs, FPM framing), handed
to Python in batches, and the table of all routes (RouteTable). It knows neither policy nor P4
names, and decides nothing but which frames pass between host and switch by tables that it was given
(FastPath).

Common to the classes that are read:
- `fileno()` is an eventfd that is readable exactly while `poll()`/`read()` has something to give
  (level triggered): give it to `loop.add_reader`.
- `poll()`/`read()` never block; what they return is removed from the queue.
- Queues are bounded. What can be asked again or slowed down waits (reads, FPM); what cannot is
  dropped and counted by name in `stats()` (packets, host frames, digests, idle timeouts).
- Methods may be called from any thread. System calls and joins release the GIL.
- Errors: `ValueError` for a bad argument (nothing of the call was done), `OSError` with errno from
  the kernel, `ConnectionError` once closed, `BlockingIOError` when too many requests are under way.
- The event types below exist for the type checker only: import them under `TYPE_CHECKING`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from typing import Any, Literal, Protocol, TypeAlias, final

__version__: str

_Status: TypeAlias = tuple[int, str]
"""(canonical gRPC code, message); 0 is OK."""

P4RuntimeEvent: TypeAlias = (
    tuple[Literal["connected"]]
    | tuple[Literal["arbitration"], bool, int, str, tuple[int, int] | None]
    | tuple[Literal["packet_in"], list[tuple[bytes, tuple[int, ...]]]]
    | tuple[Literal["digest"], bytes]
    | tuple[Literal["idle_timeout"], bytes]
    | tuple[Literal["stream_error"], bytes]
    | tuple[Literal["write_done"], int, int, str, list[_Status]]
    | tuple[Literal["read_part"], int, bytes]
    | tuple[Literal["read_done"], int, int, str]
    | tuple[Literal["pipeline_done"], int, int, str, bytes]
    | tuple[Literal["capabilities"], int, int, str, bytes]
    | tuple[Literal["ports"], int, int, str, dict[int, bool], int | None]
    | tuple[Literal["rehearsal"], int, int, str, list[tuple[str, str, dict[str, str]]]]
    | tuple[Literal["closed"], int, str]
)
"""
("connected",)                                        HTTP/2 connection up, arbitration sent
("arbitration", is_primary, code, message, election)  code 0 primary, 6 another is, 5 nobody is;
                                                      election: the highest the switch knows
("packet_in", [(payload, metadata)])                  metadata in the order of set_packet_metadata
("digest", DigestList) ("idle_timeout", IdleTimeoutNotification) ("stream_error", StreamError)
                                                      serialized messages of p4.v1
("write_done", token, code, message, errors)          code 0: all applied, errors is []; otherwise
                                                      errors has one (code, message) per update, in
                                                      order, when the switch gave them, else []
("read_part", token, ReadResponse)                    serialized, any number, then
("read_done", token, code, message)
("pipeline_done", token, code, message, response)     of set_pipeline and get_pipeline
("capabilities", token, code, message, response)
("ports", token, code, message, links, cpu_port)      links: port number -> whether its link is up
("rehearsal", token, code, message, steps)            steps: [(kind, name, particulars)]
("closed", code, message)                             last event; every request was answered before
"""

PacketFilter: TypeAlias = tuple[int, Sequence[int]]
"""Packets of which the metadata field with this id has one of these values."""

@final
class P4RuntimeClient:
    """One P4Runtime session over one connection. Connects in the background and never reconnects:
    after ("closed", ...) make a new one.

    address: "unix:path" ("unix:/run/sluice/switch.sock"), or "host:port" ("[::1]:9559" for IPv6).
    device_id: not 0. election_id: (high, low), not (0, 0). role: name, None for the default role.
    request_timeout: seconds without an answer before a request is given up as DEADLINE_EXCEEDED
    (4). tls: (CA certificate, client certificate with its chain, client key), PEM each, for TCP
    with mutual TLS; None for a Unix socket or for TCP in the clear. server_name: the name that the
    switch's certificate must have, by default the host of the address. fast_path: packets that it
    takes pass by it once set_packet_metadata was called. packets_only: the packets that the role
    may get, and those that it may send; sluice-switch lets it do nothing else. ValueError for other
    arguments."""

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
    ) -> P4RuntimeClient: ...
    def fileno(self) -> int: ...
    def poll(self, max_events: int) -> list[P4RuntimeEvent]:
        """At most `max_events`, each packet-in counting as one; use 2 or more. Answers come first,
        then one batch of packet-ins; each kind gets at least half of the room it needs."""

    def set_packet_metadata(
        self, packet_in: Sequence[tuple[int, int]], packet_out: Sequence[tuple[int, int]]
    ) -> None:
        """(metadata id, bit width 1..128) of the fields of P4Info's packet_in and packet_out, in
        the order the values travel. Until then packet-ins are dropped (packet_in_unexpected)."""

    def packet_out(self, batch: Sequence[tuple[bytes, tuple[int, ...]]]) -> int:
        """Queues (payload, metadata values) in order; returns how many fitted, the rest was not
        queued. ValueError names a value that does not fit, and then none of the batch is queued."""

    def write(self, token: int, request: bytes) -> None:
        """A serialized WriteRequest. Writes and set_pipeline go one after another, in call order:
        each is sent when the one before was answered."""

    def set_pipeline(self, token: int, request: bytes) -> None:
        """A serialized SetForwardingPipelineConfigRequest; in order with write()."""

    def read(self, token: int, request: bytes) -> None:
        """A serialized ReadRequest; concurrent with everything else."""

    def get_pipeline(self, token: int, request: bytes) -> None:
        """A serialized GetForwardingPipelineConfigRequest."""

    def capabilities(self, token: int) -> None: ...
    def ports(self, token: int) -> None:
        """Asks which ports the switch has. Of the targets sluice-switch tells; others answer
        UNIMPLEMENTED (12)."""

    def rehearse(self, token: int, port: int, packet: bytes) -> None:
        """Asks what would happen to a packet that came in by this port. Of the targets
        sluice-switch tells; others answer UNIMPLEMENTED (12)."""

    def arbitrate(self, election_id: tuple[int, int]) -> None:
        """Asks again with another election id, on the same stream."""

    def send(self, message: bytes) -> None:
        """A serialized StreamMessageRequest (a digest acknowledgement, for instance)."""

    def stats(self) -> dict[str, int]:
        """packet_in, packet_in_dropped (queue full), packet_in_malformed, packet_in_unexpected,
        packet_out and packet_out_dropped (queue full), both with the fast path's, digests_dropped,
        idle_timeouts_dropped, stream_errors_dropped, unknown_stream_messages, requests_pending."""

    def close(self) -> None:
        """Ends the stream and the connection; ("closed", 1, ...) follows. Idempotent."""

@final
class TapSet:
    """TAP interfaces, read by one thread of its own; an interface is named by its ifindex.

    They are made in the network namespace of the thread that calls add()."""

    def __new__(
        cls, *, queue_limit: int = 1024, fast_path: FastPath | None = None, rests: bool = False
    ) -> TapSet:
        """queue_limit: frames held for Python per interface; more are dropped and counted.
        fast_path: frames that it takes are not queued for Python. rests: this set's queues get
        nothing before the fast path has a client whose packet metadata are known; until then those
        get all that others have open, such as a stand-in."""

    def add(
        self,
        name: str,
        mtu: int,
        mac: str,
        persist: bool = False,
        base: int = 0,
        queue: int | None = None,
    ) -> int:
        """Creates the TAP, or opens one that is there (it may have several queues, one for each
        that has it open, and lives as long as one of them), sets MTU (68..65535) and MAC
        ("02:00:00:00:01:01") and returns its ifindex plus base, by which the set knows it. Down
        until set_up; carrier on until set_carrier. queue: the descriptor of a queue of it that is
        open, of which the set makes a copy, instead of opening another."""

    def join(self, name: str, index: int, queue: int) -> None:
        """Takes over a queue of a TAP that is there under this name and ifindex, of whose
        descriptor the set makes a copy; attaches it and leaves the TAP as it is. ValueError: it is
        not there."""

    def queue(self, index: int) -> int:
        """Returns the descriptor of a TAP's queue, which stays the set's."""

    def remove(self, index: int) -> None:
        """Lets the interface go, its queue detached; it disappears unless it is persistent or
        another process has a queue of it."""

    def set_up(self, index: int, up: bool) -> None:
        """Administrative state (IFF_UP)."""

    def set_carrier(self, index: int, up: bool) -> None:
        """Carrier (TUNSETCARRIER)."""

    def fileno(self) -> int: ...
    def read(self, max_frames: int) -> list[tuple[int, bytes]]:
        """(ifindex, Ethernet frame) in order of arrival."""

    def write(self, frames: Sequence[tuple[int, bytes]]) -> int:
        """Gives frames to the host; returns how many it took. The others are counted:
        an interface that is down or not in the set, a full queue, a frame of an impossible size."""

    def stats(self) -> dict[int, dict[str, int]]:
        """By ifindex: rx_frames, rx_bytes, rx_dropped (queue full), rx_errors, tx_frames, tx_bytes,
        tx_dropped_down, tx_dropped_full, tx_errors. Index 0: tx_unknown_interface."""

    def close(self) -> None:
        """Removes all interfaces, as remove() does, and ends the thread. Idempotent."""

@final
class FastPath:
    """What passes between the TAPs of a TapSet and a P4RuntimeClient in their own threads, without
    the GIL. Both are made with it; a new client takes the place of the one before.

    A frame passes if all tables say so, and is Python's otherwise: nothing is refused here.

    reason_field, interface_field: places in the metadata of packet-ins. for_the_host: reasons that
    are for the host, and whether what comes by them is IP. link_protocols: EtherTypes other than IP
    that the host sends (IS-IS passes, too). protocols: of IP; of ICMP and ICMPv6 the (protocol,
    type) must be in `icmp`. withheld_ports: UDP ports from and to which only Python lets the
    host send. In a VRF other than 0: vrf_ports, ranges of source and destination ports of UDP that
    the host may send; answered_in_place, protocols other than UDP that it may send and get;
    answered_ports, UDP ports that it may get datagrams to. remember: IP packets are told before
    the host gets them; told_limit: how many wait to be told, half of them for one reason; with more
    they are Python's."""

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
        """(ifindex, layer-3 interface, VRF, MAC addresses that the host has on it, packet-out
        metadata of frames other than IP, and of IP); by VRF the addresses that are the host's in
        this VRF alone. Replaces what was set before. None set: nothing passes."""

    def would_send(self, index: int, frame: bytes) -> tuple[int, ...] | None:
        """The metadata that a frame of the host's would be sent with; None: it is Python's."""

    def would_give(self, frame: bytes, metadata: tuple[int, ...]) -> tuple[int, bytes] | None:
        """The ifindex and frame that the host would get for a packet-in; None: it is Python's."""

    def fileno(self) -> int: ...
    def told(self, max_packets: int) -> list[tuple[bytes, tuple[int, ...]]]:
        """IP packets that the host has got (payload, metadata), in order."""

    def by_reason(self) -> dict[int, int]:
        """Packets given to the host, by reason."""

    def stats(self) -> dict[str, int]:
        """from_host, from_host_dropped (no room in the packet-out queue), to_host,
        to_host_refused (by the kernel), to_host_untold (Python's, because told_limit waited)."""

FpmEvent: TypeAlias = (
    tuple[Literal["open"], int, str]
    | tuple[Literal["frames"], int, list[bytes]]
    | tuple[Literal["error"], int, str]
    | tuple[Literal["closed"], int, str]
)
"""
("open", connection, peer)       peer "address:port"; connection numbers are never reused
("frames", connection, [bytes])  payloads (netlink messages) of whole FPM frames, in order
("error", connection, message)   bad framing: what and at which byte offset; closed follows
("closed", connection, reason)
"""

@final
class FpmServer:
    """Listens for zebra's FPM client. It only frames: version 1, type 1 (netlink), length including
    the 4-byte header. It stops reading a connection while its queue is full, so nothing is dropped.

    listen: "127.0.0.1:2620" or "[::1]:2620"; port 0 picks one. OSError when it cannot listen."""

    def __new__(cls, listen: str, *, queue_bytes: int = 8388608) -> FpmServer: ...
    def port(self) -> int: ...
    def fileno(self) -> int: ...
    def poll(self, max_events: int) -> list[FpmEvent]:
        """At most `max_events` events; one "frames" is what one read of the socket held (some
        256 KiB at most)."""

    def disconnect(self, connection: int, reason: str) -> None:
        """Closes one connection; ("closed", connection, reason) follows. No-op if it is gone."""

    def stats(self) -> dict[str, int]:
        """connections, connections_refused, frames, bytes, framing_errors, reads_paused."""

    def close(self) -> None:
        """Stops listening and closes every connection. Idempotent."""

_Slot: TypeAlias = Any
"""A prefix of one VRF: (vrf, (address, length)), of the types that the RouteTable was given."""
_Target: TypeAlias = Any
"""What the switch does with packets; hashable. The table keeps each that it has seen."""
_Text: TypeAlias = Any
"""What a route message says beside its prefix; a tuple."""

@final
class RouteMemo:
    """Route messages (RTM_NEWROUTE, RTM_DELROUTE) whose text is known."""

    def __new__(cls, unusual_heads: bytes) -> RouteMemo:
        """Prefixes whose first octet is in `unusual_heads` are never read."""

    def learn(self, data: bytes, offset: int, length: int, text: _Text) -> bool:
        """The message at `offset`, of this length, says `text` of its prefix, and so does every
        other that differs in nothing else. Returns whether it is of a form that can be cut. Of the
        message RTA_DST may occur once."""

    def read(self, payloads: list[bytes], start: int, limit: int) -> tuple[RouteRun, int]:
        """The routes of the payloads from `start` on, and how many payloads these are. Ends with
        the payload that reaches `limit` routes, or before one of which a message is not known."""

@final
class RouteRun:
    """Routes of known texts, in order."""

    def __len__(self) -> int: ...
    def messages(self) -> list[tuple[_Text, bytes, int]]:
        """Text, address and prefix length of each."""

class _RouteEncoding(Protocol):
    def route_head(self, size: int, vrf: int) -> tuple[bytes, bytes]: ...
    def route_tail(self, target: _Target) -> bytes: ...

@final
class RouteTable:
    """For each prefix: the routing daemon's route, what is known of it on the router's own links
    (`onlink`), and what the switch shall hold (`desired`) and holds (`installed`).

    A route is known by the number of an *entry*: an object that many routes lead by. Methods raise
    ValueError for a prefix that is none.
    """

    def __new__(cls, slot: type, prefix: type) -> RouteTable:
        """`slot` and `prefix` are the tuple types of what is given back."""

    @property
    def desired(self) -> RouteColumn: ...
    @property
    def installed(self) -> RouteColumn: ...
    @property
    def upserts(self) -> RouteQueue:
        """Prefixes to be inserted or modified."""

    @property
    def deletes(self) -> RouteQueue:
        """Prefixes to be deleted."""

    def installed_uses(self, target: _Target) -> int:
        """How many prefixes are installed with a target."""

    def add_entry(self, entry: object) -> int:
        """Keeps an entry; returns its number."""

    def drop_entry(self, number: int) -> None:
        """Forgets an entry. ValueError while a route leads by it."""

    def entry_of(self, number: int) -> Any:
        """The entry of a number; None if there is none."""

    def entry_uses(self, number: int) -> int:
        """How many routes lead by an entry."""

    def entry(self, key: _Slot) -> Any:
        """The entry by which a prefix's route leads; None where there is no route."""

    def set_entry(self, key: _Slot, number: int) -> None:
        """A prefix's route leads by this entry; 0: there is none any more."""

    def routes(self, vrf: int) -> int:
        """How many routes a VRF has."""

    def lengths(self, vrf: int, size: int) -> list[int]:
        """The prefix lengths of a VRF's routes with addresses of so many octets, longest first."""

    def set_onlink(self, key: _Slot, target: _Target | None) -> None:
        """What the router's own links want for a prefix that has no route."""

    def set_neighbors(self, ipv4: list[bytes], ipv6: list[bytes]) -> None:
        """The neighbours' addresses, for `apply` to say whether a prefix covers one."""

    def walk(self, after: _Slot | None, limit: int) -> tuple[list[Any], Any]:
        """At most `limit` prefixes behind `after` that have a route or are on a link, in order of
        VRF, IPv4 before IPv6, address and length; and behind which to go on, None at the end."""

    def unwritten(self, start: int, limit: int) -> tuple[list[tuple[Any, Any]], int | None]:
        """At most `limit` prefixes, with their targets, of which the switch does not hold what it
        shall, from the record `start` on (0 is the first); and where to go on, None at the end.
        There may be more where none was found: a step is bounded, too."""

    def unwanted(self, start: int, limit: int) -> tuple[list[Any], int | None]:
        """The same of prefixes that the switch holds and shall not."""

    def learn_form(
        self, entity: bytes, head: bytes, field: int, size: int, key: _Slot, target: _Target
    ) -> None:
        """The encoded Entity is this route; so is, for its prefix, every other that has the same
        bytes before and behind its LPM match. `head` are the fields of its TableEntry before that,
        `field` the match's id, `size` the octets of an address."""

    def forget_forms(self) -> None:
        """What was learnt holds no more."""

    def read_back(self, response: bytes, start: int, limit: int) -> tuple[int, int]:
        """Puts routes of an encoded ReadResponse into `installed`, from the entity that begins at
        `start` on, up to the first whose form was not learnt, and `limit` at most. Returns how many
        these are, and where they end."""

    def unknown_texts(self, run: RouteRun) -> list[tuple[int, _Text]]:
        """Numbers and texts of a run of which it has not been said what they mean, or no more."""

    def set_updated(self, text: int, vrf: int, entry: int, target: _Target) -> None:
        """Routes of this text are in this VRF and lead by this entry to this target."""

    def set_deleted(self, text: int, vrf: int) -> None:
        """Routes of this text are gone from this VRF."""

    def forget_texts(self) -> None:
        """Texts may mean something else by now."""

    def apply(self, run: RouteRun) -> tuple[RouteBlock, list[int], bool]:
        """Takes the routes of a run in. Returns what is to change in the switch, the entries that
        have lost their last route, and whether a prefix covers a neighbour. ValueError if it has
        not been said of all texts what they mean; then nothing is done."""

    def take_in(self, block: RouteBlock) -> None:
        """What a run changed is desired from now on, and queued where it is not installed."""

    def in_flight(self) -> int:
        """How many prefixes have a write under way."""

    def set_in_flight(self, keys: Iterable[_Slot], under_way: bool) -> None: ...
    def is_in_flight(self, key: object) -> bool: ...
    def clear_in_flight(self) -> None:
        """Nothing is under way any more; what a RouteBatch of before says is not believed."""

    def next_upserts(
        self, limit: int, missing: Callable[[Any], object], encoding: _RouteEncoding
    ) -> RouteBatch:
        """The newest of the queue, `limit` at most. `missing` is asked of a target whether it is
        not to be written (anything true); what it allowed is believed until `forget_ready`.
        `encoding` is asked once for each VRF and target."""

    def next_deletes(self, limit: int, encoding: _RouteEncoding) -> RouteBatch:
        """The same of those to be deleted."""

    def requeue_postponed(self) -> None:
        """Puts back those that were passed over, since a write of theirs was under way."""

    def forget_ready(self) -> None:
        """`missing` is to be asked again of all targets."""

@final
class RouteBlock:
    """Changes of many routes at a time, for `take_in`."""

    def __len__(self) -> int: ...
    def items(self) -> list[tuple[Any, Any]]:
        """Prefixes and targets; None: to be deleted. Empty once taken in."""

@final
class RouteBatch:
    """Updates that go to the switch together. Their prefixes are in flight until it is told what
    became of them, once."""

    def __len__(self) -> int: ...
    def updates(self) -> list[bytes]:
        """Each as a field of a WriteRequest."""

    def entries(self) -> list[tuple[Any, Any]]:
        """Prefixes and targets; None: deleted."""

    def operations(self) -> list[int]:
        """P4Runtime's Update.Type of each."""

    def unready(self) -> list[tuple[Any, Any]]:
        """Prefixes and targets that were taken from the queue and left out: their target is
        missing."""

    def absent(self) -> list[Any]:
        """Prefixes that were taken from the queue of deletes and are not installed."""

    def landed(self, applied: bool) -> None:
        """They are under way no more; `applied`: the switch has done all of it."""

    def requeue(self) -> None:
        """They are under way no more, and wait again."""

@final
class RouteColumn(MutableMapping[Any, Any]):
    """Prefixes and their targets. May change while it is walked, in the order of no one."""

    def __getitem__(self, key: object) -> Any: ...
    def __setitem__(self, key: _Slot, value: _Target) -> None: ...
    def __delitem__(self, key: _Slot) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def update(self, pairs: Iterable[tuple[_Slot, _Target]]) -> None: ...  # type: ignore[override]

@final
class RouteQueue(MutableMapping[Any, None]):
    """Prefixes that wait, as keys; `popitem` gives the newest."""

    def __getitem__(self, key: object) -> None: ...
    def __setitem__(self, key: _Slot, value: None) -> None: ...
    def __delitem__(self, key: _Slot) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def update(self, keys: Iterable[_Slot]) -> None: ...  # type: ignore[override]
