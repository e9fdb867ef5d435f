# SPDX-License-Identifier: Apache-2.0
"""Describes a plan as text, for `sluice up --dry-run`."""

from __future__ import annotations

from sluice.model import format_mac
from sluice.state.router_plan import PlannedInterface, RouterPlan
from sluice.survey_model import HostSurvey

NEVER = "forwards nothing"


def preview(plan: RouterPlan, survey: HostSurvey, foreign: list[str]) -> list[str]:
    """Returns the lines of the text. `foreign` describes the routes that stay with the kernel."""
    lines = []
    for port in plan.ports:
        lines.append(f"port {port.number}: {port.link.name}")
        lines += [f"  {_interface(one)}" for one in plan.interfaces if one.port == port.number]
    lines.append(
        f"routes: {survey.route_count} of the kernel's main table; neighbours:"
        f" {survey.neighbor_count}"
    )
    if foreign:
        lines.append(f"the kernel goes on forwarding by these routes: {', '.join(foreign)}")
    lines += [f"note: {note}" for note in plan.notes]
    return lines


def _interface(one: PlannedInterface) -> str:
    families = [name for name, on in (("IPv4", one.ipv4), ("IPv6", one.ipv6)) if on]
    forwards = f"forwards {' and '.join(families)}" if families else NEVER
    vlan = f", VLAN {one.vlan}" if one.vlan else ""
    addresses = ", ".join(map(str, one.addresses)) or "no address"
    mac = format_mac(one.mac)
    return f"{one.name}{vlan}, {mac}, MTU {one.mtu}: {addresses}; {forwards}"
