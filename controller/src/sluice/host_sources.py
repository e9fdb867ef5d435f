# SPDX-License-Identifier: Apache-2.0
"""Opens the controller's event sources: TAPs, netlink sockets, FPM servers.

Opening the sources creates this router's interfaces on the host, with their addresses. So only a
primary controller opens the sources (`service`). Before a reload, `probe` checks that the new
sources can be opened. Depends on sources and `sluice._native`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sluice._native import FpmServer, TapSet
from sluice.config import Config, VrfConfig
from sluice.connection_config import HostPort
from sluice.fast_path import FastPath
from sluice.inputs import RouteFeed, Sources, XfrmInput
from sluice.model import MAIN_TABLE
from sluice.namespaces import OWN_NAMESPACE
from sluice.sources.device import Devices
from sluice.sources.esp_engine import EspEngine
from sluice.sources.fpm import FpmSource
from sluice.sources.fpm_senders import Senders, is_port_here
from sluice.sources.handover import Handover
from sluice.sources.host import HostInterfaces, TapNamespace
from sluice.sources.ike_ports import IkePorts, SeveralIkePorts
from sluice.sources.kernel import KernelMonitor
from sluice.sources.kernel_feed import KernelFeed
from sluice.sources.kernel_host import KernelHost
from sluice.sources.kernel_routes import KernelRouteDump
from sluice.sources.links import remove
from sluice.sources.namespace import NetworkNamespace
from sluice.sources.namespace_routes import NamespaceRoutes
from sluice.sources.neighbor_probe import NeighborProbe
from sluice.sources.peer import AllowedUsers
from sluice.sources.replay import ReplayGate
from sluice.sources.several_kernels import SeveralKernels
from sluice.sources.tap_keeper import TapKeeper
from sluice.sources.vrf_devices import VrfDevices
from sluice.sources.vrf_namespaces import VrfNamespaces
from sluice.sources.xfrm import XfrmMonitor
from sluice.state.kernel_table import KernelTable
from sluice.wire.steering_programs import PROBE_MARK

log = logging.getLogger(__name__)


def error_text(error: Exception) -> str:
    """Returns the text of an error. Leaves out the error number that OSError puts in front."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    text = re.sub(r" \(os error \d+\)", "", error.strerror)
    return text if error.filename is None else f"{error.filename}: {text}"


def with_context(what: str, error: OSError) -> OSError:
    """Returns the error with `what` prefixed to its text."""
    text = f"{what}: {error_text(error)}"
    return OSError(text) if error.errno is None else OSError(error.errno, text)


class StartResources:
    """Holds objects that are created at the start, before the daemon drops its privileges."""

    def __init__(self, state_dir: Path) -> None:
        self.vrf_devices = VrfDevices()
        self.vrf_namespaces = VrfNamespaces(state_dir)


def names_in(config: Config, namespace: int) -> list[str]:
    """Returns the names of the configured TAPs that are in a network namespace."""
    if config.is_taken_over:
        return []
    return [each.name for each in config.interfaces if each.vrf.namespace_number == namespace]


def open_sources(
    config: Config,
    start: StartResources,
    fast_path: FastPath,
    handover: Handover,
    stack: contextlib.AsyncExitStack,
) -> Sources:
    """Opens all sources. `stack` closes them. Raises OSError with a complete sentence."""
    if config.is_taken_over:
        return _open_kernel_sources(config, start, fast_path, stack)
    namespaces = start.vrf_namespaces.namespaces
    stacks = {OWN_NAMESPACE: _HostStack(config, lambda act: act(), stack)}
    # Order: OWN_NAMESPACE first, so that the threads of `native` start in this namespace.
    for number, namespace in namespaces.items():
        stacks[number] = _HostStack(config, namespace.call, stack)
    # Order: `stack` closes in reverse order. So a keeper, the process that keeps TAPs open over a
    # restart, is released only after this process has closed its TAP queues.
    keepers: dict[int, TapKeeper] = {}
    letting_go = stack.enter_context(contextlib.ExitStack())
    kernel = SeveralKernels({number: (one.kernel, one.probe) for number, one in stacks.items()})
    stack.callback(kernel.close)
    fast_path.punts.set_limit(config.limits.punt_queue)
    taps = TapSet(fast_path=fast_path.native, rests=True)
    stack.callback(taps.close)
    host = HostInterfaces(
        taps,
        kernel,
        stacks[OWN_NAMESPACE].devices,
        is_probe=kernel.is_probe,
        guard=stacks[OWN_NAMESPACE].guard,
        join=start.vrf_devices.join,
        tables={vrf.table: vrf.id for vrf in config.vrfs},
        on_change=fast_path.publish,
        vrf_namespaces={
            number: TapNamespace(one.inside, one.devices, one.guard)
            for number, one in stacks.items()
            if number != OWN_NAMESPACE
        },
    )
    stack.callback(host.close)
    queues: dict[str, int] = {}
    for interface in config.interfaces:
        place = interface.vrf.namespace_number
        try:
            queues[interface.name] = taps.queue(host.add(interface))
        except OSError as error:
            raise with_context(f"interface {interface.name}", error) from error
        if place not in keepers:  # the keeper's interpreter starts in parallel
            left = handover if place == OWN_NAMESPACE else None
            keepers[place] = stacks[place].inside(partial(TapKeeper.launch, handover=left))
            letting_go.callback(keepers[place].close)
    host.publish()
    for place, keeper in keepers.items():
        try:
            keeper.hold({name: queues[name] for name in names_in(config, place)})
        except OSError as error:
            raise with_context("the process that keeps the host interfaces", error) from error
        keeper.watch(_log_keeper_end)
    feeds = [
        _make_feed(config, vrf, stacks[vrf.namespace_number], stack)
        for vrf in config.vrfs
        if vrf.id == OWN_NAMESPACE or vrf.namespace_number != OWN_NAMESPACE
    ]
    kernel.start()
    engines = {
        one.id: EspEngine(one.admin) for one in config.policy.engines if one.admin is not None
    }
    for engine in engines.values():
        stack.callback(engine.close)
    xfrm = _open_xfrm(config, stacks, stack)
    ike_ports = [one.ike_ports for one in stacks.values() if one.ike_ports is not None]
    home = feeds[0]
    return Sources(
        routes=home.routes,
        gate=home.gate,
        dump=home.dump,
        kernel=kernel,
        host=host,
        punts=fast_path.punts,
        ike_ports=SeveralIkePorts(ike_ports) if ike_ports else None,
        fast_path=fast_path,
        vrf_devices=start.vrf_devices,
        feeds_of_vrfs=tuple(feeds[1:]),
        engines=engines,
        xfrm=xfrm,
    )


def _open_kernel_sources(
    config: Config, start: StartResources, fast_path: FastPath, stack: contextlib.AsyncExitStack
) -> Sources:
    """Opens the sources of a router whose interfaces and routes are the kernel's (`sluice up`)."""
    probe = NeighborProbe(PROBE_MARK)
    kernel = SeveralKernels({OWN_NAMESPACE: (KernelMonitor(probe=probe), probe)})
    stack.callback(kernel.close)
    host = KernelHost()
    stack.callback(host.close)
    feed = KernelFeed(KernelTable())
    stack.callback(feed.close)
    dump = KernelRouteDump()
    stack.callback(dump.close)
    fast_path.punts.set_limit(config.limits.punt_queue)
    kernel.start()
    return Sources(
        routes=feed,
        gate=ReplayGate(config.fpm.quiet_seconds),
        dump=dump,
        kernel=kernel,
        host=host,
        punts=fast_path.punts,
        fast_path=fast_path,
        vrf_devices=start.vrf_devices,
    )


def _open_xfrm(
    config: Config, stacks: Mapping[int, _HostStack], stack: contextlib.AsyncExitStack
) -> dict[str, XfrmInput]:
    """Opens and reads the kernel's IPsec databases from which mirrored SPDs get their rules.

    Raises OSError with a complete sentence.
    """
    found: dict[str, XfrmInput] = {}
    owners: dict[int, str] = {}
    for spd in config.policy.spds:
        if not spd.is_mirrored:
            continue
        place = next(one.vrf.namespace_number for one in config.interfaces if one.spd == spd.name)
        if owners.setdefault(place, spd.name) != spd.name:
            raise OSError(
                f"spds: {owners[place]} and {spd.name} would mirror the same kernel's policies;"
                " give the VRF a network namespace of its own (isolation: namespace)"
            )
        try:
            monitor: XfrmMonitor = stacks[place].inside(XfrmMonitor)
            stack.callback(monitor.close)
            monitor.start()
        except OSError as error:
            raise with_context(f"SPD {spd.name}", error) from error
        found[spd.name] = monitor
    return found


def _log_keeper_end() -> None:
    log.error(
        "the process that keeps the host interfaces has ended: when this controller ends, the"
        " interfaces are removed, and FRR's sessions end"
    )


class _HostStack:
    """Holds the sources of one network namespace.

    `inside` calls a function in a thread that is in the namespace.
    """

    def __init__(
        self,
        config: Config,
        inside: Callable[[Callable[[], Any]], Any],
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self.inside = inside
        self.devices = Devices()
        self.ike_ports: IkePorts | None = None
        if config.policy.spds:  # Order: before any interface exists by which packets could leave
            self.ike_ports = inside(partial(IkePorts, config.ike.users))
            stack.callback(self.ike_ports.close)
        self.probe: NeighborProbe = inside(NeighborProbe)
        self.kernel: KernelMonitor = inside(partial(KernelMonitor, probe=self.probe))

    def guard(self, device: str) -> None:
        """Restricts IKE's ports on a device to the users that may send IKE packets.

        Does nothing without SPDs, because there is then no policy that IKE packets could bypass.
        """
        if self.ike_ports is not None:
            self.ike_ports.guard(device)


def _make_feed(
    config: Config, vrf: VrfConfig, host_stack: _HostStack, stack: contextlib.AsyncExitStack
) -> RouteFeed:
    """Opens the route feed for the routing daemon in the network namespace of a VRF."""
    inside, listen, home = (
        host_stack.inside,
        str(config.fpm.listen),
        vrf.namespace_number == OWN_NAMESPACE,
    )
    tables = None if home else {MAIN_TABLE: vrf.table}
    dump: KernelRouteDump = inside(partial(KernelRouteDump, tables))
    stack.callback(dump.close)
    try:
        server: FpmServer = inside(partial(FpmServer, listen))
    except OSError as error:
        where = "" if home else f" in network namespace {vrf.namespace}"
        raise with_context(f"fpm.listen{where}", error) from error
    stack.callback(server.close)
    users = AllowedUsers(listen, config.fpm.users)
    source = FpmSource(
        server,
        lambda peer: str(inside(partial(users.admit, peer))),
        Senders(lambda port: bool(inside(partial(is_port_here, port)))),
        runs=home,
    )
    routes = source if home else NamespaceRoutes(source, vrf.namespace_number, vrf.table, vrf.name)
    left_out = frozenset(
        one.table for one in config.vrfs if one.namespace_number == OWN_NAMESPACE
    ) - {MAIN_TABLE}
    gate = ReplayGate(config.fpm.quiet_seconds, tables=left_out if home else frozenset())
    return RouteFeed(vrf.namespace_number, routes, gate, dump)


# --- before a start or a reload -------------------------------------------------------------------


def check(config: Config, namespaces: Mapping[int, NetworkNamespace]) -> None:
    """Checks at start, before this controller is primary, that FPM's address is available.

    Skips the check while another controller holds this host's interfaces, because that controller
    uses FPM's address until it ends. Raises OSError with a complete sentence.
    """
    if config.is_taken_over:
        return
    for one in config.interfaces:
        devices = Devices()
        try:
            _inside(one.vrf.namespace_number, namespaces, partial(devices.claim, one.name))
        except OSError as error:
            if error.errno == errno.EBUSY:
                return
            raise with_context(f"interface {one.name}", error) from error
        finally:
            devices.close()
    _try_to_listen(config.fpm.listen)


def probe(old: Config, new: Config, namespaces: Mapping[int, NetworkNamespace]) -> None:
    """Checks that the sources that `new` has in addition to `old` can be opened.

    Creates each missing TAP, down and without addresses, and removes it again. Raises OSError with
    a complete sentence.
    """
    if old.fpm.listen != new.fpm.listen:
        for vrf in new.vrfs:
            if vrf.id == OWN_NAMESPACE or vrf.namespace_number != OWN_NAMESPACE:
                _inside(vrf.namespace_number, namespaces, partial(_try_to_listen, new.fpm.listen))
    known = {(one.name, one.vrf.namespace_number) for one in old.interfaces}
    for one in new.interfaces:
        if (one.name, one.vrf.namespace_number) not in known:
            try:
                _inside(one.vrf.namespace_number, namespaces, partial(_try_to_make, one.name))
            except OSError as error:
                raise with_context(f"interface {one.name}", error) from error


def remove_taps(
    taps: Iterable[tuple[str, int]], namespaces: Mapping[int, NetworkNamespace]
) -> None:
    """Removes TAPs and their addresses. Each TAP is given by name and network namespace number.

    This is needed because the TAP keeper, a process that keeps TAPs open over a restart, would keep
    the removed ones for a while.
    """
    for name, place in taps:
        try:
            _inside(place, namespaces, partial(remove, name))
        except OSError as error:
            log.warning("interface %s is not removed: %s", name, error_text(error))


def _inside(
    place: int, namespaces: Mapping[int, NetworkNamespace], act: Callable[[], None]
) -> None:
    if place == OWN_NAMESPACE:
        act()
    else:
        namespaces[place].call(act)


def _try_to_listen(listen: HostPort) -> None:
    try:
        FpmServer(str(listen)).close()
    except OSError as error:
        raise with_context("fpm.listen", error) from error


def _try_to_make(name: str) -> None:
    devices = Devices()
    devices.claim(name)
    try:
        with devices.reserved(name):
            pass
    finally:
        devices.release(name)
