# SPDX-License-Identifier: Apache-2.0
"""Makes the view `status` of a standby controller.

The view has the same keys as that of a primary controller, mostly with empty values.

Depends on config, primacy and reload.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sluice import __version__
from sluice.config import Config
from sluice.namespaces import OWN_NAMESPACE
from sluice.primacy import Primacy
from sluice.reload import ReloadReport

PRIMARY, STANDBY, WAITING = "primary", "standby", "waiting for the switch"


def standby_status(
    config: Config, primacy: Primacy, reloads: ReloadReport, uptime: float
) -> dict[str, Any]:
    """Returns the view `status`.

    A missing connection to the switch is a problem in the view. The standby role is not.
    """
    session = primacy.session
    problems = []
    if not primacy.is_standby:
        why = primacy.last_error or "connecting"
        problems.append(f"the switch at {config.switch.address} is not connected: {why}")
    if reloads.refused is not None:
        problems.append(f"the last reload was refused: {reloads.refused}")
    return {
        "version": __version__,
        "router": config.router,
        "role": STANDBY if primacy.is_standby else WAITING,
        "configuration": asdict(reloads),
        "uptime": round(uptime, 1),
        "counters_cleared": None,
        "ready": False,
        "synced": False,
        "switch": {
            "target": config.switch.target,
            "address": str(config.switch.address),
            "transport": config.switch.transport,
            "connected": False,
            "arbitration": "not connected" if session is None else session.arbitration,
            "last_error": primacy.last_error,
            "installed": {},
        },
        "fpm": {
            "peer": None,
            "refused": 0,
            "routes": 0,
            "stale_routes": 0,
            "kept_routes": 0,
            "settled": False,
            "not_installed": {},
            "waiting_for_objects": {},
        },
        "progress": {
            "phase": STANDBY if primacy.is_standby else WAITING,
            "routes_read_back": None,
            "routes_per_second": 0,
        },
        "reconciler": {"pending": 0, "orphans": 0, "failed": 0, "failures": []},
        "vrfs": [
            {
                "name": vrf.name,
                "table": vrf.table,
                "device": None,
                "namespace": vrf.namespace if vrf.namespace_number != OWN_NAMESPACE else None,
                "fpm": None,
            }
            for vrf in config.vrfs
        ],
        "auditor": {},
        "loop": {},
        "problems": problems,
        "remarks": {},
    }
