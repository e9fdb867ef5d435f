# SPDX-License-Identifier: Apache-2.0
"""Tests idle timeouts: the switch sends a notification about a flow that had no packet for the
flow's timeout.

Both targets look for idle flows by walks over their tables at intervals. So a notification may be
late, but never early.
"""

import time
from collections.abc import Sequence

from p4.v1 import p4runtime_pb2

from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST4, HOST6
from sluice_ptf.packets import udp_to
from sluice_ptf.policy import IN, OUT, Flow, Policy, PolicyList, Verdict, hit
from sluice_ptf.probe import FromPort
from sluice_ptf.router import Router, arriving
from sluice_ptf.standard import TO_B, A, B

IDLE_SECONDS = 3.0
DEADLINE_SECONDS = 20.0
BYPASS, DISCARD = Verdict("BYPASS", rule=2), Verdict("DISCARD", rule=4)
Key = tuple[int, frozenset[tuple[int, int]]]


def key(entry: p4runtime_pb2.TableEntry) -> Key:
    """Returns the identity of a flow's entry."""
    fields = ((one.field_id, int.from_bytes(one.exact.value, "big")) for one in entry.match)
    return entry.table_id, frozenset(fields)


def ageing(policy: Policy, of: PolicyList, flow: Flow, answer: Verdict) -> p4runtime_pb2.TableEntry:
    """Installs a flow with an idle timeout of IDLE_SECONDS."""
    entry = policy.flow_entry(of, flow, answer)
    entry.idle_timeout_ns = int(IDLE_SECONDS * 1e9)
    policy.router.insert(entry)
    return entry


def flow_to(dst: str) -> Flow:
    """Returns the flow to which the packets of `udp_to(dst)` belong."""
    return Flow(HOST6 if ":" in dst else HOST4, dst)


def idle_notifications(router: Router, wanted: Sequence[p4runtime_pb2.TableEntry]) -> set[Key]:
    """Reads notifications until they have named all wanted entries. Returns the keys of all entries
    named.
    """
    found: set[Key] = set()
    missing = {key(entry) for entry in wanted}
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not missing <= found:
        entries = router.client.next_idle_entries(deadline - time.monotonic())
        assert entries is not None, (
            f"no notification of {missing - found} in {DEADLINE_SECONDS:g} s"
        )
        found |= {key(entry) for entry in entries}
    return found


@ptf_test
def idle_flows_are_told_of(router: Router) -> None:
    """The switch sends notifications of idle flows of all four tables. The flows stay installed."""
    policy = Policy(router)
    policy.guard(A, IN)
    policy.guard(B, OUT)
    start = time.monotonic()
    entries = [
        ageing(policy, IN, flow_to("10.2.0.9"), BYPASS),
        ageing(policy, IN, flow_to("2001:db8:2::9"), BYPASS),
        ageing(policy, OUT, flow_to("10.2.0.9"), BYPASS),
        ageing(policy, OUT, flow_to("2001:db8:2::9"), DISCARD),
    ]
    assert idle_notifications(router, entries) == {key(entry) for entry in entries}
    assert time.monotonic() - start >= IDLE_SECONDS
    router.forwards(A, udp_to("10.2.0.9"), TO_B, rules=hit(IN, 2) | hit(OUT, 2))
    rules = hit(IN, 2) | hit(OUT, 4)
    router.drops(A, udp_to("2001:db8:2::9"), "OUTBOUND_DISCARD", rules=rules)


@ptf_test
def flows_that_serve_are_not_told_of(router: Router) -> None:
    """A packet restarts the timeout of its flow. A flow without a timeout is never in a
    notification.
    """
    policy = Policy(router)
    policy.guard(B, OUT)
    busy = ageing(policy, OUT, flow_to("10.2.0.20"), BYPASS)
    lasting = policy.flow(OUT, flow_to("10.2.0.22"), BYPASS)
    idle = ageing(policy, OUT, flow_to("10.2.0.21"), BYPASS)
    frame = arriving(A, udp_to("10.2.0.20"))
    found: set[Key] = set()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while key(idle) not in found:
        assert time.monotonic() < deadline, "there is no notification of the idle flow"
        router.exchange(FromPort(A.port, frame))
        found |= {key(entry) for entry in router.client.next_idle_entries(0.0) or ()}
    assert key(busy) not in found
    assert key(lasting) not in found | idle_notifications(router, [busy])
