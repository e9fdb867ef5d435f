// SPDX-License-Identifier: Apache-2.0
//! "CounterEntry", "MeterEntry", "RegisterEntry", "ValueSetEntry".

use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

fn counter(index: Option<i64>, data: Option<(i64, i64)>) -> CounterEntry {
    CounterEntry {
        counter_id: id("port_counter"),
        index: index.map(|index| Index { index }),
        data: data.map(|(packet_count, byte_count)| CounterData {
            packet_count,
            byte_count,
        }),
    }
}

fn meter(index: Option<i64>, config: Option<MeterConfig>) -> MeterEntry {
    let index = index.map(|index| Index { index });
    MeterEntry {
        meter_id: id("port_meter"),
        index,
        config,
        counter_data: None,
    }
}

fn register(index: Option<i64>, value: Option<&[u8]>) -> RegisterEntry {
    let data = |value: &[u8]| P4Data {
        data: Some(p4_data::Data::Bitstring(value.into())),
    };
    RegisterEntry {
        register_id: id("last_source"),
        index: index.map(|index| Index { index }),
        data: value.map(data),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_count_packets_and_bytes_and_can_be_set() {
    let (fixture, mut client) = start_loaded().await;
    let packet = frame([0, 0, 0, 1], 0);
    fixture.forward(3, &packet);
    let read = client.read(counter(Some(3), None)).await;
    let counted = counter(Some(3), Some((1, packet.len() as i64)));
    assert_eq!(read, [entity::Entity::CounterEntry(counted)]);
    assert_eq!(
        client.modify(counter(Some(3), Some((40, 50)))).await,
        Code::Ok
    );
    assert_eq!(
        client.modify(counter(Some(3), None)).await,
        Code::Ok,
        "changes nothing"
    );
    let read = client.read(counter(Some(3), None)).await;
    assert_eq!(
        read,
        [entity::Entity::CounterEntry(counter(
            Some(3),
            Some((40, 50))
        ))]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wildcards_read_and_write_all_cells() {
    let (_fixture, mut client) = start_loaded().await;
    assert_eq!(client.modify(counter(None, Some((7, 8)))).await, Code::Ok);
    let all = client.read(CounterEntry::default()).await;
    assert_eq!(all.len(), 8);
    assert_eq!(
        all[7],
        entity::Entity::CounterEntry(counter(Some(7), Some((7, 8))))
    );
    assert_eq!(client.read(counter(None, None)).await.len(), 8);
    assert_eq!(client.read(MeterEntry::default()).await.len(), 4);
    assert_eq!(client.read(RegisterEntry::default()).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_can_only_be_modified_and_must_exist() {
    let (_fixture, mut client) = start_loaded().await;
    let data = Some((0, 0));
    assert_eq!(
        client.insert(counter(Some(0), data)).await,
        Code::InvalidArgument
    );
    assert_eq!(
        client.delete(counter(Some(0), data)).await,
        Code::InvalidArgument
    );
    assert_eq!(
        client.modify(counter(Some(-1), data)).await,
        Code::InvalidArgument
    );
    assert_eq!(
        client.modify(counter(Some(8), data)).await,
        Code::OutOfRange
    );
    assert_eq!(
        client.modify(counter(Some(0), Some((-1, 0)))).await,
        Code::InvalidArgument
    );
    assert_eq!(
        client.read_code(counter(Some(8), None)).await,
        Code::OutOfRange
    );
    assert_eq!(
        client.insert(meter(Some(0), None)).await,
        Code::InvalidArgument
    );
    assert_eq!(client.modify(meter(Some(4), None)).await, Code::OutOfRange);
    let unknown = CounterEntry {
        counter_id: 1,
        ..CounterEntry::default()
    };
    assert_eq!(client.modify(unknown).await, Code::InvalidArgument);
    assert_eq!(client.read_code(unknown).await, Code::InvalidArgument);
    assert_eq!(
        client.modify(CounterEntry::default()).await,
        Code::InvalidArgument
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn meters_are_green_until_configured() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 2)).await;
    let packet = frame([0, 0, 0, 1], 0);
    let config = MeterConfig {
        cir: 1,
        cburst: 1,
        pir: 1,
        pburst: 1,
        eburst: 0,
    };
    assert_eq!(client.modify(meter(Some(1), Some(config))).await, Code::Ok);
    let read = client.read(meter(Some(1), None)).await;
    assert_eq!(
        read,
        [entity::Entity::MeterEntry(meter(Some(1), Some(config)))]
    );
    let read = client.read(meter(Some(2), None)).await;
    assert_eq!(read, [entity::Entity::MeterEntry(meter(Some(2), None))]);
    fixture.forward(1, &packet);
    assert_eq!(client.modify(meter(Some(1), None)).await, Code::Ok);
    assert_eq!(fixture.forward(1, &packet), [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn meters_count_by_colour() {
    let (fixture, mut client) = start_loaded().await;
    let packet = frame([0, 0, 0, 1], 0);
    let config = MeterConfig {
        cir: 1,
        cburst: 1,
        pir: 1,
        pburst: 2,
        eburst: 0,
    };
    assert_eq!(client.modify(meter(Some(1), Some(config))).await, Code::Ok);
    for _ in 0..3 {
        fixture.forward(1, &packet);
    }
    let counted = |packets: i64| {
        Some(CounterData {
            packet_count: packets,
            byte_count: packets * packet.len() as i64,
        })
    };
    let with = |colors: [i64; 3]| MeterEntry {
        counter_data: Some(MeterCounterData {
            green: counted(colors[0]),
            yellow: counted(colors[1]),
            red: counted(colors[2]),
        }),
        ..meter(Some(1), Some(config))
    };
    let read = client.read(with([0, 0, 0])).await;
    assert_eq!(read, [entity::Entity::MeterEntry(with([1, 1, 1]))]);
    assert_eq!(client.modify(with([1, 0, 0])).await, Code::InvalidArgument);
    assert_eq!(client.modify(with([0, 0, 0])).await, Code::Ok);
    let read = client.read(with([0, 0, 0])).await;
    assert_eq!(read, [entity::Entity::MeterEntry(with([0, 0, 0]))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn registers_are_written_by_packets_and_by_clients() {
    let (fixture, mut client) = start_loaded().await;
    fixture.forward(2, &frame([0, 0, 0, 1], 0));
    let read = client.read(register(Some(2), None)).await;
    assert_eq!(
        read,
        [entity::Entity::RegisterEntry(register(Some(2), Some(&[1])))]
    );
    assert_eq!(
        client
            .modify(register(Some(2), Some(&[0, 1, 2, 3, 4, 5])))
            .await,
        Code::Ok
    );
    let read = client.read(register(Some(2), None)).await;
    assert_eq!(
        read,
        [entity::Entity::RegisterEntry(register(
            Some(2),
            Some(&[1, 2, 3, 4, 5])
        ))]
    );
    assert_eq!(
        client
            .modify(register(Some(2), Some(&[1, 2, 3, 4, 5, 6])))
            .await,
        Code::OutOfRange
    );
    assert_eq!(
        client.modify(register(Some(2), None)).await,
        Code::InvalidArgument
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn value_sets_are_replaced_as_a_whole() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 2)).await;
    let mut packet = frame([0, 0, 0, 1], 0);
    packet[12..14].copy_from_slice(&[0x12, 0x34]);
    assert_eq!(fixture.forward(0, &packet), NOWHERE);
    let set = |kinds: &[u16]| ValueSetEntry {
        value_set_id: id("keyed_kinds"),
        members: kinds
            .iter()
            .map(|kind| ValueSetMember {
                r#match: vec![exact(1, &kind.to_be_bytes())],
            })
            .collect(),
    };
    assert_eq!(client.insert(set(&[0x1234])).await, Code::InvalidArgument);
    assert_eq!(client.modify(set(&[0x1234, 0x4321])).await, Code::Ok);
    assert_eq!(fixture.forward(0, &packet), [2]);
    let read = client.read(ValueSetEntry::default()).await;
    assert_eq!(
        read,
        [entity::Entity::ValueSetEntry(set(&[0x1234, 0x4321]))]
    );
    assert_eq!(
        client.modify(set(&[1, 2, 3, 4, 5])).await,
        Code::ResourceExhausted
    );
    assert_eq!(client.modify(set(&[])).await, Code::Ok);
    assert_eq!(fixture.forward(0, &packet), NOWHERE);
}
