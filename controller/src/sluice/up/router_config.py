# SPDX-License-Identifier: Apache-2.0
"""Makes the controller's configuration from a plan. Nothing is written to a file."""

from __future__ import annotations

from sluice.config import AuditConfig, Config, InterfaceConfig
from sluice.connection_config import FpmConfig, SwitchConfig, UnixAddress
from sluice.limits_config import DEFAULT_PUNT_RATES
from sluice.model import MAIN_TABLE
from sluice.state.router_plan import RouterPlan
from sluice.up.run_files import RunFiles
from sluice.vrf_config import DEFAULT_VRF, VrfConfig

QUIET_SECONDS = 0.1
"""The kernel's dump has an end, so the controller need not wait for a silence of zebra."""
AUDIT_RATE = 100


def configuration(plan: RouterPlan, files: RunFiles) -> Config:
    """Returns the configuration of the controller for the planned interfaces."""
    vrf = VrfConfig(DEFAULT_VRF, 0, MAIN_TABLE)
    interfaces = tuple(
        InterfaceConfig(
            name=one.name,
            l3_if=number,
            port=one.port,
            vlan=one.vlan,
            mac=one.mac,
            mtu=one.mtu,
            addresses=one.addresses,
            vrf=vrf,
            device=None,
        )
        for number, one in enumerate(plan.interfaces, 1)
    )
    return Config(
        router=files.name,
        switch=SwitchConfig(address=UnixAddress(files.p4runtime)),
        fpm=FpmConfig(quiet_seconds=QUIET_SECONDS),
        api_socket=files.api,
        state_dir=files.state,
        audit=AuditConfig(files.state / "audit.log", AUDIT_RATE),
        vrfs=(vrf,),
        interfaces=interfaces,
        punt_rates=dict(DEFAULT_PUNT_RATES),
        is_taken_over=True,
    )
