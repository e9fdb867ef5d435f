# SPDX-License-Identifier: Apache-2.0
"""Declares the interfaces of the controller's event sources. `sluice.sources` implements them.

The controller does not import the sources: `app` passes them in, and tests pass fakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sluice._native import FirstPacket
from sluice.model import (
    Address,
    HostFrame,
    KernelEvent,
    LinkChanged,
    PuntedPacket,
    Route,
    RouteKey,
    RouteUpdated,
)
from sluice.namespaces import OWN_NAMESPACE
from sluice.sa_model import HeldSa, KeyMaterial, SaSettings
from sluice.state.route_runs import RoutesEvent
from sluice.xfrm_model import (
    Defaults,
    KernelPolicy,
    KernelSelector,
    KernelState,
    PolicyKey,
    StateKey,
    Usage,
)


class RouteInput(Protocol):
    """Provides routes and next-hop objects of the routing daemon (`sources.fpm.FpmSource`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Counts of refusals and errors, by name."""

    @property
    def problem(self) -> str | None:
        """Explains why routes of the routing daemon are missing, as a sentence. None if none are
        missing."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable while there may be events."""

    def poll(self, limit: int) -> Sequence[RoutesEvent]:
        """Returns about `limit` events, and possibly a `RouteRun` (many routes in one event). If
        the result is empty, events still wait if the descriptor is readable."""

    def link_changed(self, event: LinkChanged) -> None:
        """Handles a link change. zebra's replay omits next hops on links that are down, so a link
        that comes up may complete a next-hop group."""


class KernelInput(Protocol):
    """Provides links, addresses and neighbours (`sources.kernel.KernelMonitor`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Counts of refusals and errors, by name."""

    @property
    def synced(self) -> bool:
        """Whether the initial dump has been delivered."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable while there may be events."""

    def poll(self, limit: int) -> list[KernelEvent]:
        """Returns about `limit` events. Empty if no event waits."""

    def use_neighbor(self, ifindex: int, address: Address) -> None:
        """Makes the kernel resolve or confirm a neighbour.

        Leaves permanent entries and entries of other programs unchanged.
        """


class HostInput(Protocol):
    """Provides the host's interfaces (`sources.host.HostInterfaces`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Counts of refusals and errors, by name."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable while there may be frames."""

    def poll(self, limit: int) -> list[HostFrame]:
        """Returns frames that the host sent. Empty if no frame waits."""

    def deliver(self, frames: Iterable[tuple[int, bytes]]) -> int:
        """Delivers (l3_if, frame) pairs to the host."""

    def apply(self, event: KernelEvent) -> None:
        """Applies a change of a kernel link or address to the host interfaces."""

    @property
    def vrf_devices(self) -> Mapping[int, str | None]:
        """The kernel's VRF device of each VRF except the default VRF, by the VRF's number.

        The device is None if the VRF shares the host's stack with the default VRF.
        """

    def publish(self) -> None:
        """Publishes the changes made by `apply` to the fast path."""


class FastPathInput(Protocol):
    """Controls the packet path between host and switch that bypasses Python
    (`fast_path.FastPath`)."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable while `delivered_packets` has packets to return."""

    def delivered_packets(self) -> list[PuntedPacket]:
        """Returns IP packets that were delivered to the host. The host may answer them with an ICMP
        error."""

    def handled(self) -> dict[int, int]:
        """Returns the number of packets delivered to the host, by punt reason."""

    def counters(self) -> dict[str, dict[str, int]]:
        """Returns the packet counts, by counter group and name."""

    def end_stand_ins(self) -> None:
        """Ends the stand-in that carries packets for an earlier controller. Raises OSError."""

    def set_passing(self, primary: tuple[int, int] | None) -> None:
        """Sets the election id of the session on which packets pass between switch and host. None:
        no packets pass."""


class PuntInput(Protocol):
    """Queues punted packets (`native_punts.NativePunts`, `sources.punt.PuntQueue`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Counts of refusals and errors, by name."""

    @property
    def dropped(self) -> Mapping[int, int]:
        """Packets dropped because the queue was full, by punt reason."""

    def __len__(self) -> int:
        """Returns the number of queued packets."""

    def set_limit(self, limit: int) -> None:
        """Sets the maximum length of the queue, from the next packet on."""

    def offer(self, batch: Iterable[tuple[bytes, tuple[int, ...]]]) -> int:
        """Enqueues (frame, metadata) pairs while there is room."""

    def take(self, limit: int) -> Sequence[PuntedPacket | FirstPacket]:
        """Dequeues up to `limit` packets, by fair queueing."""

    def fileno(self) -> int | None:
        """Returns a descriptor that is readable while packets wait. Returns None if no session
        fills the queue, but only `offer`."""


class IkePortsInput(Protocol):
    """Reserves the UDP source ports of IKE for the IKE daemon (`sources.ike_ports.IkePorts`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Counts of refusals, by name."""


class XfrmInput(Protocol):
    """Mirrors the IPsec databases of a kernel (`sources.xfrm.XfrmMonitor`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Counts of refusals and errors, by name."""

    @property
    def synced(self) -> bool:
        """Whether `policies`, `states` and `defaults` match the kernel."""

    @property
    def is_refused(self) -> bool:
        """Whether the kernel has refused a dump. `read_again` resets this."""

    @property
    def policies(self) -> Mapping[PolicyKey, KernelPolicy]:
        """All policies except those of single sockets."""

    @property
    def states(self) -> Mapping[StateKey, KernelState]:
        """All states."""

    @property
    def defaults(self) -> Defaults:
        """The actions for packets that no policy matches."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable while kernel notifications wait."""

    def poll(self) -> bool:
        """Reads the waiting notifications. Returns whether the databases may have changed."""

    def read_again(self) -> None:
        """Requests a new dump of everything, after a refusal."""

    def acquire(self, policy: KernelPolicy, flow: KernelSelector) -> None:
        """Notifies key managers that a packet needs an SA of a policy's template."""

    def report_usage(self, state: KernelState, usage: Usage) -> None:
        """Writes a state's traffic counts to the kernel."""

    def expire(self, state: KernelState, *, hard: bool) -> None:
        """Notifies key managers that a state has reached a lifetime limit."""


class VrfDevicesInput(Protocol):
    """Manages the kernel's VRF devices (`sources.vrf_devices.VrfDevices`)."""

    @property
    def repairs(self) -> Mapping[str, int]:
        """Number of changes by other programs that were undone, by type of change."""

    @property
    def missing(self) -> Sequence[str]:
        """Names of devices that are gone."""


class ReplayGate(Protocol):
    """Detects the end of the routing daemon's replay (`sources.replay.ReplayGate`)."""

    @property
    def takes_left_out(self) -> bool:
        """Whether `left_out` can return routes."""

    def takes_from(self, table: int) -> bool:
        """Returns whether `left_out` accepts kernel routes of this table."""

    @property
    def due(self) -> float | None:
        """Time of the next comparison with the kernel's routes, or None if none is due."""

    def ask(self, now: float) -> None:
        """Requests a comparison although no session is open. The comparison then removes all routes
        that the kernel lacks."""

    def note(self, event: RoutesEvent, now: float) -> None:
        """Records an event of the daemon, which may schedule, postpone or cancel the comparison."""

    def unread(self, now: float) -> None:
        """Postpones the comparison, because events of the daemon wait to be read and the replay may
        not be over."""

    def left_out(
        self, routes: Iterable[Route], is_current: Callable[[RouteKey], bool]
    ) -> list[RouteUpdated]:
        """Returns those of the kernel's `routes` that the daemon has but did not replay."""

    def settled(self, kept: int, now: float) -> None:
        """Ends the comparison. `kept` is the number of routes that the replay omitted but the
        kernel has."""


class RouteDump(Protocol):
    """Dumps the kernel's routes (`sources.kernel_routes.KernelRouteDump`)."""

    @property
    def running(self) -> bool:
        """Whether a dump is under way."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable while part of a dump waits."""

    def start(self, wanted: Callable[[RouteKey], bool]) -> None:
        """Begins a dump of the routes that are `wanted`."""

    def poll(self, datagrams: int) -> dict[RouteKey, Route] | None:
        """Reads up to `datagrams` datagrams.

        Returns the routes once the dump is complete, else None. The caller owns the dictionary.
        """


class EngineInput(Protocol):
    """Installs SAs in an ESP engine (`sources.esp_engine`).

    Every method except `close` raises EngineUnreachableError if the engine does not answer.
    """

    async def status(self) -> list[HeldSa]:
        """Returns the SAs that the engine holds."""

    async def add(
        self, settings: SaSettings, number: int, keys: KeyMaterial, *, resume: bool
    ) -> None:
        """Installs an SA. Raises EngineRefusalError."""

    async def delete(self, settings: SaSettings, number: int) -> None:
        """Deletes an SA. Raises EngineRefusalError."""

    def close(self) -> None:
        """Closes the connection."""


@dataclass(frozen=True, slots=True)
class RouteFeed:
    """Holds the sources for one routing daemon's routes: its input, and the kernel's dump with
    which the routes are compared."""

    namespace: int
    routes: RouteInput
    gate: ReplayGate
    dump: RouteDump


@dataclass(frozen=True, slots=True)
class Sources:
    """Holds all event sources of the controller."""

    routes: RouteInput
    gate: ReplayGate
    dump: RouteDump
    kernel: KernelInput
    host: HostInput
    punts: PuntInput
    ike_ports: IkePortsInput | None = None
    fast_path: FastPathInput | None = None
    vrf_devices: VrfDevicesInput | None = None
    feeds_of_vrfs: tuple[RouteFeed, ...] = ()
    """Feeds of the VRFs that have a network namespace of their own."""
    engines: Mapping[int, EngineInput] = field(default_factory=dict)
    """The ESP engines whose SAs the controller installs, by number."""
    xfrm: Mapping[str, XfrmInput] = field(default_factory=dict)
    """The kernels whose policies are mirrored, by the name of the SPD that mirrors them."""

    @property
    def feeds(self) -> tuple[RouteFeed, ...]:
        """The feeds of all routing daemons, the default VRF's first."""
        return (RouteFeed(OWN_NAMESPACE, self.routes, self.gate, self.dump), *self.feeds_of_vrfs)
