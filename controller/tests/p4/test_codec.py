# SPDX-License-Identifier: Apache-2.0
"""Tests for each kind of entity that decoding the encoded bytes returns the original entity.

The hand-written encoder must produce the bytes that the protobuf library produces.
"""

from __future__ import annotations

import pytest
from finsy.proto import p4i, p4r
from hypothesis import given
from hypothesis import strategies as st

from fake_switch import PIPELINE, load_codec
from sluice.entities import (
    ADMIT,
    AUDITED,
    BLACKHOLE,
    GROUP_OF_SAME_ID,
    HASH_SEED_KEY,
    LOCAL,
    MARTIAN,
    MAX_GROUP_WEIGHT,
    MEMBER,
    NO_POLICY,
    OF_BUNDLE,
    PROHIBITED,
    UNKNOWN,
    UNREACHABLE,
    WANTS_SA,
    Attachment,
    BundleInVrf,
    Decrypt,
    Egress,
    Encrypt,
    EnginePort,
    EntityKey,
    EntityKind,
    EntityValue,
    EspSource,
    HashSeed,
    InboundSpi,
    L3Interface,
    ListBinding,
    ListState,
    Nexthop,
    NexthopGroup,
    OwnAddress,
    PortRole,
    PuntLimit,
    ReassemblyEngine,
    RouterMac,
    RouteSlot,
    RouteTarget,
    RouteTargetKind,
)
from sluice.model import Prefix
from sluice.p4.codec import Codec
from sluice.p4.schema import Schema, SchemaError, load_pipeline
from sluice.p4runtime.messages import UpdateType, update, varint

CODEC = load_codec()
MAC = bytes.fromhex("020000000101")

prefixes = st.one_of(
    st.builds(Prefix.of, st.binary(min_size=4, max_size=4), st.integers(0, 32)),
    st.builds(Prefix.of, st.binary(min_size=16, max_size=16), st.integers(0, 128)),
)
targets = st.one_of(
    st.builds(
        RouteTarget,
        st.sampled_from([RouteTargetKind.NEXTHOP, RouteTargetKind.GROUP]),
        st.integers(1, 65535),
    ),
    st.sampled_from([BLACKHOLE, UNREACHABLE, PROHIBITED]),
)


def updates_of(data: bytes) -> list[p4r.Update]:
    return list(p4r.WriteRequest.FromString(data).updates)


@given(vrf=st.integers(0, 65535), prefix=prefixes, target=targets)
def test_a_route_is_encoded_as_protobuf_would(
    vrf: int, prefix: Prefix, target: RouteTarget
) -> None:
    slot = RouteSlot(vrf, prefix)
    data = CODEC.update(UpdateType.INSERT, EntityKind.ROUTE, slot, target)
    request = p4r.WriteRequest.FromString(data)
    assert request.SerializeToString(deterministic=True) == data
    assert CODEC.decode(request.updates[0].entity) == (EntityKind.ROUTE, slot, target)


@given(prefix=prefixes)
def test_deleting_a_route_names_its_key_only(prefix: Prefix) -> None:
    (deleted,) = updates_of(
        CODEC.update(UpdateType.DELETE, EntityKind.ROUTE, RouteSlot(1, prefix), None)
    )
    assert deleted.type == p4r.Update.DELETE
    assert not deleted.entity.table_entry.HasField("action")
    assert len(deleted.entity.table_entry.match) == (2 if prefix.length else 1)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (EntityKind.LOCAL_PREFIX, RouteSlot(0, Prefix.parse("10.0.0.1/32")), LOCAL),
        (EntityKind.LOCAL_PREFIX, RouteSlot(2, Prefix.parse("fe80::/10")), LOCAL),
        (EntityKind.L3_INTERFACE, Attachment(0, 0), L3Interface(1, 0)),
        (EntityKind.L3_INTERFACE, Attachment(509, 4094), L3Interface(65535, 7)),
        (EntityKind.ROUTER_MAC, RouterMac(1, MAC), ADMIT),
        (EntityKind.EGRESS_INTERFACE, 3, Egress(2, 100, MAC, 1500)),
        (EntityKind.NEXTHOP, 1, Nexthop(1, b"\x0a\0\0\1", MAC, True)),
        (EntityKind.NEXTHOP, 2, Nexthop(1, b"\0" * 16, None, True)),
        (EntityKind.NEXTHOP, 3, Nexthop(300, None, None, True)),
        (EntityKind.NEXTHOP, 65535, Nexthop(1, b"\x0a\0\0\1", None, False)),
        (EntityKind.GROUP_MEMBER, 9, MEMBER),
        (EntityKind.GROUP, 4, NexthopGroup(((1, 1), (2, 3)))),
        (EntityKind.GROUP_ENTRY, 4, GROUP_OF_SAME_ID),
        (EntityKind.L3_INTERFACE, Attachment(9, 0), L3Interface(8, 0, PortRole.ENGINE)),
        (EntityKind.ENGINE, 255, EnginePort(9)),
        (EntityKind.REASSEMBLY_ENGINE, 0, ReassemblyEngine(255)),
        (EntityKind.REASSEMBLY_ENGINE, 7, ReassemblyEngine(1)),
        (EntityKind.ESP_SOURCE, EspSource(0, 7, b"\0\0\0\1"), OF_BUNDLE),
        (EntityKind.ESP_SOURCE, EspSource(3, 65535, bytes(15) + b"\1"), OF_BUNDLE),
        (EntityKind.COPIED_DROP, "FORGED_SHIM", AUDITED),
        (EntityKind.COPIED_DROP, "NO_SA", WANTS_SA),
        (EntityKind.OWN_SOURCE, OwnAddress(0, b"\x0a\0\0\1"), MARTIAN),
        (EntityKind.OWN_SOURCE, OwnAddress(9, bytes(15) + b"\x09"), MARTIAN),
        (EntityKind.OUTBOUND_SA, BundleInVrf(0, 65535), Encrypt(1, 0xFFFFFFFF, 1500, 73)),
        (EntityKind.OUTBOUND_SA, BundleInVrf(5, 1), Encrypt(1, 2, 1500, 73)),
        (EntityKind.INBOUND_SA, InboundSpi(3, 0xFFFFFFFF), Decrypt(7, 1, 200)),
        (EntityKind.INBOUND_LIST, 1, ListState(0xFFFFFFFF, 1)),
        (EntityKind.OUTBOUND_LIST, 1023, ListState(2, 0xFFFFFFFF, 7)),
        (EntityKind.INBOUND_BINDING, 1, ListBinding(1)),
        (EntityKind.INBOUND_BINDING, 2, NO_POLICY),
        (EntityKind.OUTBOUND_BINDING, 1, ListBinding(2)),
        (EntityKind.OUTBOUND_BINDING, 2, NO_POLICY),
        (EntityKind.BUNDLE_BINDING, BundleInVrf(0, 7), ListBinding(1)),
        (EntityKind.BUNDLE_BINDING, BundleInVrf(7, 0xFFFF), ListBinding(1)),
    ],
)
def test_entities_survive(kind: EntityKind, key: EntityKey, value: EntityValue) -> None:
    (insert,) = updates_of(CODEC.update(UpdateType.INSERT, kind, key, value))
    assert CODEC.decode(insert.entity) == (kind, key, value)
    (delete,) = updates_of(CODEC.update(UpdateType.DELETE, kind, key, None))
    decoded = CODEC.decode(delete.entity)
    assert decoded is not None
    assert decoded[:2] == (kind, key)


def test_a_group_of_another_size_is_not_understood() -> None:
    """Checks that a group is decoded as UNKNOWN if its maximum size differs from the controller's.

    The maximum size of an existing group cannot be changed, so the controller must not adopt the
    group.
    """
    value = NexthopGroup(((1, 1), (2, 3)))
    (insert,) = updates_of(CODEC.update(UpdateType.INSERT, EntityKind.GROUP, 4, value))
    insert.entity.action_profile_group.max_size = 64
    assert CODEC.decode(insert.entity) == (EntityKind.GROUP, 4, UNKNOWN)


@pytest.mark.parametrize(
    ("size", "most", "expected"),
    [(65536, 0, MAX_GROUP_WEIGHT), (16384, 64, 64), (0, 0, MAX_GROUP_WEIGHT), (500, 0, 500)],
)
def test_a_group_is_as_large_as_p4info_lets_it_be(size: int, most: int, expected: int) -> None:
    """Checks that P4Info determines the maximum size of groups.

    For example, TNA's selector has groups of at most 64 members.
    """
    p4info = p4i.P4Info()
    p4info.CopyFrom(load_pipeline(PIPELINE).p4info)
    [selector] = p4info.action_profiles
    selector.size, selector.max_group_size = size, most
    codec = Codec(Schema(p4info))
    assert codec.group_size == expected
    value = NexthopGroup(((1, 1), (2, 3)))
    (insert,) = updates_of(codec.update(UpdateType.INSERT, EntityKind.GROUP, 4, value))
    assert insert.entity.action_profile_group.max_size == expected
    assert codec.decode(insert.entity) == (EntityKind.GROUP, 4, value)


def test_settings_are_written_and_not_read() -> None:
    (meter,) = updates_of(
        CODEC.update(UpdateType.MODIFY, EntityKind.PUNT_METER, "LOCAL", PuntLimit(1000, 200))
    )
    assert meter.entity.meter_entry.index.index == 6
    assert meter.entity.meter_entry.config.cir == meter.entity.meter_entry.config.pir == 1000
    (seed,) = updates_of(
        CODEC.update(UpdateType.MODIFY, EntityKind.HASH_SEED, HASH_SEED_KEY, HashSeed(77))
    )
    assert seed.entity.table_entry.is_default_action
    assert seed.entity.table_entry.action.action.params[0].value == b"\x4d"
    assert CODEC.decode(meter.entity) is None
    assert CODEC.decode(seed.entity) is None


def test_what_the_controller_never_writes_is_unknown() -> None:
    (route,) = updates_of(
        CODEC.update(
            UpdateType.INSERT,
            EntityKind.ROUTE,
            RouteSlot(0, Prefix.parse("10.0.0.0/8")),
            UNREACHABLE,
        )
    )
    route.entity.table_entry.action.action.params[0].value = b"\x01"  # punt_route(ARP)
    decoded = CODEC.decode(route.entity)
    assert decoded is not None
    assert decoded[2] == UNKNOWN


@given(st.integers(0, 1 << 60), st.binary(max_size=300))
def test_messages_are_protobuf(number: int, entity_bytes: bytes) -> None:
    reference = p4r.WriteRequest(device_id=number).SerializeToString()
    assert reference == (b"\x08" + varint(number) if number else b"")
    meta = p4r.Entity(table_entry=p4r.TableEntry(metadata=entity_bytes))
    data = update(UpdateType.MODIFY, meta.SerializeToString())
    assert updates_of(data) == [p4r.Update(type=p4r.Update.MODIFY, entity=meta)]


def test_another_pipeline_is_refused_with_all_that_it_lacks() -> None:
    with pytest.raises(SchemaError) as error:
        Codec(Schema(p4i.P4Info()))
    for name in ("table ipv4_fib", "table nexthop", "action profile nexthop_selector"):
        assert name in str(error.value)
