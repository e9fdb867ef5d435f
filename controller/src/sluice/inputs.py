# SPDX-License-Identifier: Apache-2.0
"""What the controller needs of its sources: the interfaces that `sluice.sources` implements.

The controller does not import the sources; `app` puts the two together, and tests put fakes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
from sluice.namespaces import HOME
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
    """Routes and next-hop objects of the routing daemon (`sources.fpm.FpmSource`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What was refused or went wrong, by name."""

    @property
    def problem(self) -> str | None:
        """What the routing daemon does that makes routes be left out, as a sentence."""

    def fileno(self) -> int:
        """Readable while there may be events."""

    def poll(self, limit: int) -> Sequence[RoutesEvent]:
        """About `limit` events, or a run of routes; none: nothing is left for now."""

    def link_changed(self, event: LinkChanged) -> None:
        """Takes notice of a link: zebra's replay may have left out its legs of groups."""


class KernelInput(Protocol):
    """Links, addresses and neighbours (`sources.kernel.KernelMonitor`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What was refused or went wrong, by name."""

    @property
    def synced(self) -> bool:
        """Whether all that was there at start has been told."""

    def fileno(self) -> int:
        """Readable while there may be events."""

    def poll(self, limit: int) -> list[KernelEvent]:
        """About `limit` events; none: nothing is left for now."""

    def use_neighbor(self, ifindex: int, address: Address) -> None:
        """Has the kernel resolve or confirm a neighbour; leaves permanent entries, and those of
        other programs, alone."""


class HostInput(Protocol):
    """The host's interfaces (`sources.host.HostInterfaces`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What was refused or went wrong, by name."""

    def fileno(self) -> int:
        """Readable while there may be frames."""

    def poll(self, limit: int) -> list[HostFrame]:
        """Frames that the host sent; none: nothing is left for now."""

    def deliver(self, frames: Iterable[tuple[int, bytes]]) -> int:
        """Gives (l3_if, frame) pairs to the host."""

    def apply(self, event: KernelEvent) -> None:
        """Takes notice of links and addresses."""

    @property
    def vrf_devices(self) -> Mapping[int, str | None]:
        """The VRFs besides the default one, by number, each with its VRF device in the kernel; None
        where it shares the host's stack with the default VRF."""

    def publish(self) -> None:
        """Tells the fast path what `apply` has changed."""


class FastPathInput(Protocol):
    """What passes between host and switch by itself (`fast_path.FastPath`)."""

    def fileno(self) -> int:
        """Readable while `told` has something to give."""

    def told(self) -> list[PuntedPacket]:
        """IP packets that the host got and may answer with an error."""

    def handled(self) -> dict[int, int]:
        """Packets given to the host, by punt reason."""

    def counters(self) -> dict[str, dict[str, int]]:
        """What passed, by the group of counters that it belongs to."""

    def end_stand_ins(self) -> None:
        """Ends whoever carries packets for a controller before this one. Raises OSError."""

    def set_passing(self, primary: tuple[int, int] | None) -> None:
        """Takes notice of whether packets pass: this controller's election id; None: none do."""


class PuntInput(Protocol):
    """The queue of punted packets (`sources.punt.PuntQueue`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What was refused or went wrong, by name."""

    @property
    def dropped(self) -> Mapping[int, int]:
        """Packets for which there was no room, by punt reason."""

    def __len__(self) -> int:
        """How many wait."""

    def set_limit(self, limit: int) -> None:
        """Bounds the queue from the next packet on."""

    def offer(self, batch: Iterable[tuple[bytes, tuple[int, ...]]]) -> int:
        """Takes in (frame, metadata) pairs as far as there is room."""

    def take(self, limit: int) -> list[PuntedPacket]:
        """The next packets, in fair turns."""


class IkePortsInput(Protocol):
    """The source ports of IKE (`sources.ike_ports.IkePorts`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What was refused, by name."""


class XfrmInput(Protocol):
    """The IPsec databases of a kernel (`sources.xfrm.XfrmMonitor`)."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What was refused or went wrong, by name."""

    @property
    def synced(self) -> bool:
        """Whether what follows is what the kernel has."""

    @property
    def is_refused(self) -> bool:
        """Whether the kernel refused to be read, until `read_again`."""

    @property
    def policies(self) -> Mapping[PolicyKey, KernelPolicy]:
        """All policies but those of single sockets."""

    @property
    def states(self) -> Mapping[StateKey, KernelState]:
        """All states."""

    @property
    def defaults(self) -> Defaults:
        """What happens to packets that no policy matches."""

    def fileno(self) -> int:
        """Readable while the kernel has news."""

    def poll(self) -> bool:
        """Takes in what has come; whether anything has changed, or may have."""

    def read_again(self) -> None:
        """Asks anew for everything, after a refusal."""

    def acquire(self, policy: KernelPolicy, flow: KernelSelector) -> None:
        """Has key managers hear that a packet needs an SA of a policy's template."""

    def report_usage(self, state: KernelState, usage: Usage) -> None:
        """Tells the kernel what a state has carried."""

    def expire(self, state: KernelState, *, hard: bool) -> None:
        """Has key managers hear that a state has reached a lifetime."""


class VrfDevicesInput(Protocol):
    """The kernel's VRF devices (`sources.vrf_devices.VrfDevices`)."""

    @property
    def repairs(self) -> Mapping[str, int]:
        """What somebody else had changed about them, and how often."""

    @property
    def missing(self) -> Sequence[str]:
        """Devices that are gone."""


class ReplayGate(Protocol):
    """When the routing daemon's replay is over (`sources.replay.ReplayGate`)."""

    @property
    def takes_left_out(self) -> bool:
        """Whether `left_out` can have something to say."""

    def takes_from(self, table: int) -> bool:
        """Whether `left_out` takes the kernel's routes of a table."""

    @property
    def due(self) -> float | None:
        """When to compare with the kernel's routes."""

    def ask(self, now: float) -> None:
        """No session has come: the kernel alone is to say what is kept."""

    def note(self, event: RoutesEvent, now: float) -> None:
        """Takes notice of an event."""

    def unread(self, now: float) -> None:
        """Takes notice that events wait to be read."""

    def left_out(
        self, routes: Iterable[Route], is_current: Callable[[RouteKey], bool]
    ) -> list[RouteUpdated]:
        """Those of the kernel's routes that the replay did not name, though the daemon has them."""

    def settled(self, kept: int, now: float) -> None:
        """The comparison is done; so many routes were kept though they were not named again."""


class RouteDump(Protocol):
    """The kernel's routes (`sources.kernel_routes.KernelRouteDump`)."""

    @property
    def running(self) -> bool:
        """Whether a dump is under way."""

    def fileno(self) -> int:
        """Readable while part of a dump waits."""

    def start(self, wanted: Callable[[RouteKey], bool]) -> None:
        """Begins a dump, of the routes that are `wanted`."""

    def poll(self, datagrams: int) -> dict[RouteKey, Route] | None:
        """The routes, when the dump is complete; the dictionary is the caller's then."""


class EngineInput(Protocol):
    """An ESP engine that is told its SAs (`sources.esp_engine`).

    All calls raise EngineUnreachableError.
    """

    async def status(self) -> list[HeldSa]:
        """Returns the SAs that it holds."""

    async def add(
        self, settings: SaSettings, number: int, keys: KeyMaterial, *, resume: bool
    ) -> None:
        """Gives it an SA. Raises EngineRefusalError."""

    async def delete(self, settings: SaSettings, number: int) -> None:
        """Has it end an SA. Raises EngineRefusalError."""

    def close(self) -> None:
        """Lets go of the connection."""


@dataclass(frozen=True, slots=True)
class RouteFeed:
    """One routing daemon's routes and their witness, of a network namespace."""

    namespace: int
    routes: RouteInput
    gate: ReplayGate
    dump: RouteDump


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that the controller takes its events from."""

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
    """Of VRFs that have a network namespace for themselves."""
    engines: Mapping[int, EngineInput] = field(default_factory=dict)
    """The ESP engines that are told their SAs, by number."""
    xfrm: Mapping[str, XfrmInput] = field(default_factory=dict)
    """The kernels that SPDs are mirrored from, by SPD."""

    @property
    def feeds(self) -> tuple[RouteFeed, ...]:
        """All routing daemons, the default VRF's first."""
        return (RouteFeed(HOME, self.routes, self.gate, self.dump), *self.feeds_of_vrfs)
