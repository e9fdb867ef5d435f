# SPDX-License-Identifier: Apache-2.0
"""Tests guarantees about writes to the router's tables that a controller relies on."""

from p4.v1 import p4runtime_pb2

from sluice_ptf import standard
from sluice_ptf.case import bare_ptf_test, ptf_test, reload_pipeline
from sluice_ptf.packets import udp_to
from sluice_ptf.probe import SENTINEL_ID, SENTINEL_VRF
from sluice_ptf.router import Member, Router
from sluice_ptf.runtime import WriteError, update
from sluice_ptf.standard import TO_B, TO_C, TO_D, A

DST = "192.0.2.1"
PREFIX = "192.0.2.0/24"


def written(router: Router, table: str) -> list[p4runtime_pb2.TableEntry]:
    """Returns the entries of a table, except those of the probe's sentinels."""
    info = router.client.schema.tables[table]
    probes = {(SENTINEL_ID + port).to_bytes(2, "big") for port in range(1, 16)}
    probes |= {SENTINEL_VRF.to_bytes(2, "big"), (4094).to_bytes(2, "big")}
    return [
        entry
        for entry in router.client.table_entries(info.preamble.id)
        if not any(field.exact.value in probes for field in entry.match)
    ]


def codes(router: Router, *updates: p4runtime_pb2.Update) -> list[str]:
    """Returns the canonical code of each update of a Write, which must fail."""
    try:
        router.client.write(updates)
    except WriteError as error:
        return [code for code, _message in error.errors]
    raise AssertionError("the Write succeeded")


@bare_ptf_test
def tests_leave_nothing(router: Router) -> None:
    """A test's entries are deleted before the next test begins."""
    for table in ("l3_interface", "router_mac", "egress_interface", "nexthop", "nexthop_group"):
        assert written(router, table) == [], table
    for table in ("ipv4_fib", "ipv6_fib", "local_ipv4", "local_ipv6"):
        assert written(router, table) == [], table


@ptf_test
def what_is_written_is_read(router: Router) -> None:
    """A read returns an entry as it was written, in canonical form."""
    for prefix in (PREFIX, "2001:db9::/32"):
        entry = router.route(prefix, nexthop_id=TO_C.id)
        assert entry in written(router, "ipv6_fib" if ":" in prefix else "ipv4_fib")


@ptf_test
def the_default_route_is_read(router: Router) -> None:
    """A read returns a default route as an ordinary entry, with its match field omitted."""
    entry = router.route("0.0.0.0/0", nexthop_id=TO_C.id)
    assert entry in written(router, "ipv4_fib")


@ptf_test
def twice_is_an_error(router: Router) -> None:
    """INSERT of an existing entry fails, and so do MODIFY and DELETE of a missing one."""
    entry = router.route(PREFIX, nexthop_id=TO_C.id)
    other = router.route_entry("198.51.100.0/24", nexthop_id=TO_C.id)
    assert codes(router, update("INSERT", entry)) == ["ALREADY_EXISTS"]
    assert codes(router, update("MODIFY", other)) == ["NOT_FOUND"]
    assert codes(router, update("DELETE", other)) == ["NOT_FOUND"]
    router.forwards(A, udp_to(DST), TO_C)


@ptf_test
def one_bad_update_spoils_no_other(router: Router) -> None:
    """If one update of a Write fails, the answer has a status for each update, in order. The
    correct updates take effect.
    """
    good = [router.route_entry(f"192.0.2.{host}/32", nexthop_id=TO_B.id) for host in (1, 2)]
    bad = router.route_entry("10.2.0.0/16", nexthop_id=TO_B.id)
    changes = [update("INSERT", entry) for entry in (good[0], bad, good[1])]
    assert codes(router, *changes) == ["OK", "ALREADY_EXISTS", "OK"]
    router.forwards(A, udp_to("192.0.2.1"), TO_B)
    router.forwards(A, udp_to("192.0.2.2"), TO_B)
    router.delete(*good)


@ptf_test
def groups_are_read(router: Router) -> None:
    """Groups read back with members and weights; members read back with their next hops."""
    members = [Member(TO_B, weight=2), Member(TO_C, weight=1)]
    router.group(5, members)
    entity = p4runtime_pb2.Entity()
    profile = router.client.schema.profiles["nexthop_selector"].preamble.id
    entity.action_profile_group.action_profile_id = profile
    (found,) = router.client.read([entity])
    weights = {one.member_id: one.weight for one in found.action_profile_group.members}
    assert weights == {TO_B.id: 2, TO_C.id: 1}
    entity.action_profile_member.action_profile_id = profile
    assert {
        found.action_profile_member.member_id: found.action_profile_member
        for found in router.client.read([entity])
    } == {one.nexthop.id: router.member(one) for one in members}


@ptf_test
def a_group_needs_its_members(router: Router) -> None:
    """INSERT of a group with a missing member fails, and so does MODIFY of a missing member."""
    assert codes(router, update("INSERT", router.group_of(99, [Member(TO_B)]))) == ["NOT_FOUND"]
    assert codes(router, update("MODIFY", router.member(Member(TO_B)))) == ["NOT_FOUND"]


@ptf_test
def a_member_in_use_stays(router: Router) -> None:
    """DELETE of a member fails while a group has that member."""
    router.group(5, [Member(TO_B)])
    router.route(PREFIX, "set_nexthop_group", group_id=5)
    gone = update("DELETE", router.member(Member(TO_B)))
    assert codes(router, gone) != ["OK"]  # FAILED_PRECONDITION; BMv2 answers UNKNOWN
    router.forwards(A, udp_to(DST), TO_B)


@bare_ptf_test
def a_new_pipeline_forgets_everything(router: Router) -> None:
    """VERIFY_AND_COMMIT deletes the forwarding state."""
    standard.set_up(router)
    router.forwards(A, udp_to("10.2.0.9"), TO_B)
    reload_pipeline()
    router.forget()
    router.drops(A, udp_to("10.2.0.9"), "NO_INTERFACE")


@bare_ptf_test
def one_shot_groups(router: Router) -> None:
    """An entry with one-shot programming creates and deletes its members (P4Runtime 1.5, 9.2.3)."""
    reload_pipeline()  # a selector has members and groups, or one-shot programming, not both
    standard.set_up(router)
    schema = router.client.schema
    entry = schema.entry("nexthop_group", {"group_id": 6})
    for nexthop in (TO_C, TO_D):
        call = schema.action_call("set_group_nexthop", {"nexthop_id": nexthop.id})
        entry.action.action_profile_action_set.action_profile_actions.add(action=call, weight=1)
    router.insert(entry)
    router.route(PREFIX, "set_nexthop_group", group_id=6)
    del entry.action.action_profile_action_set.action_profile_actions[1]
    router.modify(entry)
    for host in range(1, 9):
        router.forwards(A, udp_to(f"192.0.2.{host}"), TO_C)
    router.undo()
    reload_pipeline()


@ptf_test
def constants_are_constant(router: Router) -> None:
    """A controller cannot change the martians, which are constant entries of the program."""
    info = router.client.schema.tables["ipv4_martian"]
    entry = router.client.table_entries(info.preamble.id)[0]
    assert codes(router, update("DELETE", entry)) != ["OK"]  # BMv2 answers NOT_FOUND
    router.drops(A, udp_to(DST, src="127.0.0.1"), "MARTIAN")


@ptf_test
def a_mistaken_entry_is_refused(router: Router) -> None:
    """INSERT fails if bits behind the prefix are set, and if the action belongs to another
    table.
    """
    entry = router.route_entry(PREFIX, nexthop_id=TO_B.id)
    entry.match[1].lpm.value = bytes([192, 0, 2, 1])
    assert codes(router, update("INSERT", entry)) == ["INVALID_ARGUMENT"]
    entry = router.route_entry(PREFIX, nexthop_id=TO_B.id)
    entry.action.action.CopyFrom(router.client.schema.action_call("admit_unicast"))
    assert len(codes(router, update("INSERT", entry))) == 1
    router.punts(A, udp_to(DST), "NO_ROUTE", stage="ROUTING")
