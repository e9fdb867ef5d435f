// SPDX-License-Identifier: Apache-2.0
//! Tests requests that no correct client would send: valid updates that were damaged. The server must answer each
//! request with a code of the specification, and must not panic. The earlier state must stay readable and usable.

use prost::Message;
use sluice_p4runtime::proto::v1::*;
use sluice_random::Random;
use tonic::Code;

use crate::support::*;

fn seeds() -> Vec<Update> {
    let member = ActionProfileMember {
        action_profile_id: id("paths"),
        member_id: 1,
        action: Some(call("forward", &[&[1]])),
    };
    let group = ActionProfileGroup {
        action_profile_id: id("paths"),
        group_id: 1,
        members: vec![action_profile_group::Member {
            member_id: 1,
            weight: 1,
            watch_kind: None,
        }],
        max_size: 8,
    };
    let replicas = vec![Replica {
        port_kind: Some(replica::PortKind::Port(vec![1])),
        instance: 1,
        backup_replicas: vec![],
    }];
    let multicast = MulticastGroupEntry {
        multicast_group_id: 1,
        replicas,
        metadata: vec![],
    };
    let multicast = packet_replication_engine_entry::Type::MulticastGroupEntry(multicast);
    let config = MeterConfig {
        cir: 1,
        cburst: 1,
        pir: 2,
        pburst: 2,
        eburst: 0,
    };
    let index = Some(Index { index: 1 });
    let bits = P4Data {
        data: Some(p4_data::Data::Bitstring(vec![7])),
    };
    vec![
        insert(TableEntry {
            meter_config: Some(config),
            ..exact_entry(9, 1)
        }),
        insert(lpm_entry(10 << 24, 8, forward_to(1))),
        insert(TableEntry {
            table_id: id("ternary_table"),
            r#match: vec![ternary(1, 1, 0xff)],
            priority: 3,
            action: forward_to(1),
            ..TableEntry::default()
        }),
        insert(member),
        insert(group),
        insert(PacketReplicationEngineEntry {
            r#type: Some(multicast),
        }),
        modify(MeterEntry {
            meter_id: id("port_meter"),
            index,
            config: Some(config),
            counter_data: None,
        }),
        modify(RegisterEntry {
            register_id: id("last_source"),
            index,
            data: Some(bits),
        }),
        modify(CounterEntry {
            counter_id: id("port_counter"),
            index,
            data: None,
        }),
        modify(ValueSetEntry {
            value_set_id: id("keyed_kinds"),
            members: vec![ValueSetMember {
                r#match: vec![exact(1, 1)],
            }],
        }),
        insert(DigestEntry {
            digest_id: id("learned_t"),
            config: Some(digest_entry::Config::default()),
        }),
    ]
}

fn below(random: &mut Random, limit: usize) -> usize {
    random.below(limit as u64) as usize
}

/// Damages the encoded update: flips bits, changes, removes or duplicates bytes, or changes the update's type.
/// Repeats this until the result is a message that can be decoded.
fn mutate(random: &mut Random, seed: &Update) -> Update {
    loop {
        let mut bytes = seed.encode_to_vec();
        for _ in 0..=below(random, 3) {
            let at = below(random, bytes.len());
            match below(random, 5) {
                0 => bytes[at] ^= 1 << below(random, 8),
                1 => bytes[at] = below(random, 256) as u8,
                2 if bytes.len() > 1 => drop(bytes.remove(at)),
                3 => bytes.insert(at, bytes[at]),
                _ => bytes[1] = below(random, 5) as u8,
            }
        }
        if let Ok(update) = Update::decode(bytes.as_slice()) {
            return update;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_updates_are_answered_and_leave_the_switch_whole() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(1, 2)).await;
    let kept = exact_entry(1, 2);
    let mut random = Random::new(0x5eed);
    let seeds = seeds();
    for _ in 0..200 {
        let pick = |random: &mut Random| {
            let seed = below(random, seeds.len());
            mutate(random, &seeds[seed])
        };
        let batch: Vec<_> = (0..100).map(|_| pick(&mut random)).collect();
        // Skips updates of the entry that the test checks at the end.
        let batch: Vec<_> = batch
            .into_iter()
            .filter(|update| !concerns(&kept, update))
            .collect();
        let codes = client.write_codes(batch).await;
        assert!(!codes.contains(&Code::Internal) && !codes.contains(&Code::Unknown));
    }
    let everything = vec![
        TableEntry::default().into_entity(),
        ActionProfileMember::default().into_entity(),
        ActionProfileGroup::default().into_entity(),
        PacketReplicationEngineEntry::default().into_entity(),
        ValueSetEntry::default().into_entity(),
    ];
    for entity in client.try_read(everything).await.unwrap() {
        if let entity::Entity::TableEntry(entry) = &entity
            && !entry.is_const
        {
            let again = modify(entry.clone());
            assert_eq!(
                client.code(again).await,
                Code::Ok,
                "an entry that was read can be written: {entry:?}"
            );
        }
    }
    let still = client
        .read_entries(TableEntry {
            action: None,
            ..exact_entry(1, 2)
        })
        .await;
    assert_eq!(still, [exact_entry(1, 2)]);
    assert!(fixture.device.statistics().no_program == 0);
}

/// Returns whether an update concerns this entry, or the default entry of the entry's table.
fn concerns(kept: &TableEntry, update: &Update) -> bool {
    let entity = update
        .entity
        .as_ref()
        .and_then(|entity| entity.entity.as_ref());
    let Some(entity::Entity::TableEntry(entry)) = entity else {
        return false;
    };
    let value = |entry: &TableEntry| match entry.r#match.first()?.field_match_type.as_ref()? {
        field_match::FieldMatchType::Exact(exact) => exact.value.last().copied(),
        _ => None,
    };
    entry.table_id == kept.table_id && (entry.is_default_action || value(entry) == value(kept))
}
