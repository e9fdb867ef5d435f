# SPDX-License-Identifier: Apache-2.0
"""Sets up the standard router with an engine, for tests of protected traffic.

The engine is at port 4, untagged. One bundle has an SA in each direction. `protected` also binds
the list OUT to interface B, and adds flows by which this bundle protects `udp_to(V4)` and
`udp_to(V6)`.
"""

from __future__ import annotations

from sluice_ptf.network import HOST4, HOST6
from sluice_ptf.policy import OUT, Flow, Policy, Sa, Verdict
from sluice_ptf.router import Router
from sluice_ptf.standard import B

V4, V6 = "10.2.0.9", "2001:db8:2::9"
OURS4, OURS6 = "10.1.0.1", "2001:db8:1::1"
FLOWS = {V4: Flow(HOST4, V4), V6: Flow(HOST6, V6)}
SPI, BUNDLE = 0x80C0FFEE, 0x4001
ESP_SOURCES = ("10.2.0.1", "2001:db8:2::1")
SA = Sa(bundle=BUNDLE)
PROTECT = Verdict("PROTECT", rule=5, sa_bundle=BUNDLE)


def with_engine(router: Router) -> Policy:
    """Configures an engine, and an SA in each direction."""
    policy = Policy(router)
    policy.engine()
    policy.spi(SPI, bundle=BUNDLE, sa=0x12345678)
    policy.reassembles()
    policy.protects(SA)
    policy.sends_from(BUNDLE, *ESP_SOURCES)
    return policy


def protected(router: Router) -> Policy:
    """Configures an engine, binds OUT to B and adds the protected flows."""
    policy = with_engine(router)
    policy.guard(B, OUT)
    for flow in FLOWS.values():
        policy.flow(OUT, flow, PROTECT)
    return policy
