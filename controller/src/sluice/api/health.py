# SPDX-License-Identifier: Apache-2.0
"""Lists the router's current problems as sentences for people.

A problem is a condition that now keeps the router from doing what its configuration says. Past
events, such as repairs, are not problems; other modules count them. Depends on controller and its
parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sluice.controller import Controller
from sluice.entity_text import text_of
from sluice.model import is_link_local
from sluice.namespaces import OWN_NAMESPACE
from sluice.progress import Phase

SHOWN = 3
"""Number of refused updates that are listed one by one."""


def problems(controller: Controller, phase: Phase) -> Iterator[str]:
    """Yields one sentence for each problem, causes before their consequences."""
    yield from _switch(controller, phase)
    yield from _host(controller)
    yield from _daemons(controller)
    yield from _contents(controller)
    if controller.reloads.refused is not None:
        yield f"the last reload was refused: {controller.reloads.refused}"


def _switch(controller: Controller, phase: Phase) -> Iterator[str]:
    connection = controller.connection
    if connection.primary is None:
        why = connection.last_error or connection.arbitration
        yield f"the switch at {controller.config.switch.address} is not connected: {why}"
    elif not controller.ready:
        yield f"not ready yet: {phase.value}"
    if not controller.policy.started:
        yield "the SPDs are not active yet: packets of the interfaces that they guard are dropped"
    yield from controller.port_watch.problems
    yield from controller.associations.problems()
    yield from controller.mirrors.problems()


def _host(controller: Controller) -> Iterator[str]:
    if not controller.sources.kernel.synced:
        yield "the kernel's links, addresses and neighbours are not all read yet"
    devices = controller.sources.vrf_devices
    for name in () if devices is None else devices.missing:
        yield f"VRF device {name} is gone: restart the controller"
    wanted = {one.l3_if: one.addresses for one in controller.config.interfaces}
    for l3_if, state in controller.fib.interfaces.by_l3_if.items():
        name = state.spec.name
        if not state.up:
            yield f"interface {name} is down"
            continue
        present = state.tap_addresses.sorted()
        for address in wanted.get(l3_if, ()) if controller.sources.kernel.synced else ():
            if address not in present:
                yield (
                    f"interface {name} lacks its address {address}: another program has removed the"
                    f" address, or another host has it; `ip address add {address} dev {name}`"
                )
        for address in present:
            if not is_link_local(address.address) and controller.fib.has_no_path(
                state.spec.vrf, address.prefix
            ):
                yield (
                    f"interface {name}: the routing daemon's route for its network"
                    f" {address.prefix} leads nowhere; restart zebra if the route names a link that"
                    " is gone"
                )


def _daemons(controller: Controller) -> Iterator[str]:
    listen, sessions = controller.config.fpm.listen, controller.fib.sessions
    for feed in controller.sources.feeds:
        if feed.namespace not in sessions:
            names = [
                vrf.name for vrf in controller.config.vrfs if vrf.namespace_number == feed.namespace
            ]
            of_vrf = "" if feed.namespace == OWN_NAMESPACE else f" in VRF {names[0]}"
            yield f"no routing daemon is connected to {listen} (FPM){of_vrf}"
        elif feed.routes.problem is not None:
            yield feed.routes.problem


def _contents(controller: Controller) -> Iterator[str]:
    failures = controller.reconciler.failures
    for (kind, key), failure in islice(failures.items(), SHOWN):
        yield f"the switch refused {kind.name.lower()} {text_of(key)}: {failure}"
    if len(failures) > SHOWN:
        yield f"the switch refused {len(failures) - SHOWN:,} more updates"
    for part, report in controller.auditor.reports.items():
        if report.problem:
            yield f"the audit of {part} stopped: {report.problem}"
