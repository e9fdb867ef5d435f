// SPDX-License-Identifier: Apache-2.0
//! "TableEntry": match format, actions, default entries, constant tables, direct resources.

use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

fn ternary_entry(priority: i32, matches: Vec<FieldMatch>, port: u8) -> TableEntry {
    TableEntry {
        table_id: id("ternary_table"),
        r#match: matches,
        priority,
        action: forward_to(port),
        ..TableEntry::default()
    }
}

fn default_entry(table: &str, action: Option<TableAction>) -> TableEntry {
    TableEntry {
        table_id: id(table),
        is_default_action: true,
        action,
        ..TableEntry::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn insert_modify_delete_and_what_packets_see_of_it() {
    let (fixture, mut client) = start_loaded().await;
    let packet = frame([0, 0, 0, 1], 0);
    assert_eq!(fixture.forward(0, &packet), NOWHERE);
    assert_eq!(client.modify(exact_entry(&[1], 2)).await, Code::NotFound);
    assert_eq!(client.insert(exact_entry(&[1], 2)).await, Code::Ok);
    assert_eq!(
        client.insert(exact_entry(&[0, 1], 3)).await,
        Code::AlreadyExists
    );
    assert_eq!(fixture.forward(0, &packet), [2]);
    assert_eq!(client.modify(exact_entry(&[1], 3)).await, Code::Ok);
    assert_eq!(fixture.forward(0, &packet), [3]);
    let key_only = TableEntry {
        action: None,
        ..exact_entry(&[1], 0)
    };
    assert_eq!(client.delete(key_only.clone()).await, Code::Ok);
    assert_eq!(fixture.forward(0, &packet), NOWHERE);
    assert_eq!(client.delete(key_only).await, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_looks_at_the_key_only() {
    let (_fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 2)).await;
    let nonsense = TableEntry {
        idle_timeout_ns: -5,
        action: direct("drop", &[&[1], &[2]]),
        ..exact_entry(&[1], 0)
    };
    assert_eq!(client.delete(nonsense).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_timeouts_are_refused_in_the_words_of_pi() {
    let (_fixture, mut client) = start_loaded().await;
    let unsupported =
        "idle_timeout_ns must be set to 0 for tables which do not support idle timeout";
    let negative = "idle_timeout_ns must be a positive value";
    let without = exact_entry(&[1], 2);
    let with = lpm_entry(&[10, 0, 0, 0], 8, forward_to(2));
    let default_with = default_entry("lpm_table", forward_to(5));
    let default_without = default_entry("exact_table", forward_to(5));
    for (entry, idle_timeout_ns, said) in [
        (without.clone(), 5, unsupported),
        (without, -5, negative),
        (with, -5, negative),
        (default_without.clone(), 5, unsupported),
        (default_without, -5, negative),
        (default_with.clone(), -5, negative),
        (
            default_with,
            5,
            "idle_timeout_ns must be set to 0 for default entries",
        ),
    ] {
        let entry = TableEntry {
            idle_timeout_ns,
            ..entry
        };
        refused_with(&mut client, entry, said).await;
    }
    for entry in [
        lpm_entry(&[10, 0, 0, 0], 8, forward_to(2)),
        default_entry("lpm_table", forward_to(5)),
        default_entry("exact_table", forward_to(5)),
    ] {
        let entry = TableEntry {
            time_since_last_hit: Some(table_entry::IdleTimeout { elapsed_ns: 1 }),
            ..entry
        };
        let said = "has_time_since_last_hit must not be set in WriteRequest";
        refused_with(&mut client, entry, said).await;
    }
}

/// Writes an entry, and expects INVALID_ARGUMENT with this text.
async fn refused_with(client: &mut Client, entry: TableEntry, said: &str) {
    let update = if entry.is_default_action {
        modify(entry)
    } else {
        insert(entry)
    };
    let refused = client.write(vec![update]).await.unwrap_err();
    let errors = sluice_p4runtime::error::batch_errors(&refused);
    assert_eq!(Code::from(errors[0].canonical_code), Code::InvalidArgument);
    assert_eq!(errors[0].message, said);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_is_what_was_written_in_its_shortest_form() {
    let (_fixture, mut client) = start_loaded().await;
    let entry = TableEntry {
        metadata: b"opaque".to_vec(),
        controller_metadata: 42,
        idle_timeout_ns: 5_000_000_000,
        ..lpm_entry(&[10, 0, 0, 0], 8, forward_to(2))
    };
    let padded = TableEntry {
        r#match: vec![lpm(2, &[0, 0, 10, 0, 0, 0], 8), exact(1, &[0, 0])],
        ..entry.clone()
    };
    assert_eq!(client.insert(padded).await, Code::Ok);
    let read = client
        .read_entries(TableEntry {
            table_id: entry.table_id,
            ..Default::default()
        })
        .await;
    assert_eq!(read, [entry]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytestrings_that_do_not_fit_are_out_of_range() {
    let (_fixture, mut client) = start_loaded().await;
    assert_eq!(client.insert(exact_entry(&[], 1)).await, Code::OutOfRange);
    assert_eq!(
        client.insert(exact_entry(&[1, 0, 0, 0, 0], 1)).await,
        Code::OutOfRange
    );
    let wide = TableEntry {
        action: direct("mark", &[&[2, 0]]),
        ..exact_entry(&[1], 1)
    };
    assert_eq!(client.insert(wide).await, Code::OutOfRange);
}

#[tokio::test(flavor = "multi_thread")]
async fn match_fields_must_be_those_of_the_table_and_canonical() {
    let (_fixture, mut client) = start_loaded().await;
    let base = exact_entry(&[1], 1);
    for matches in [
        vec![],
        vec![exact(1, &[1]), exact(1, &[1])],
        vec![exact(2, &[1])],
        vec![ternary(1, &[1], &[1])],
        vec![FieldMatch {
            field_id: 1,
            field_match_type: None,
        }],
    ] {
        let entry = TableEntry {
            r#match: matches.clone(),
            ..base.clone()
        };
        assert_eq!(
            client.insert(entry).await,
            Code::InvalidArgument,
            "{matches:?}"
        );
    }
    let host_bits = lpm_entry(&[10, 0, 0, 1], 8, forward_to(1));
    assert_eq!(client.insert(host_bits).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn longest_prefix_wins_and_dont_care_is_a_prefix_of_zero() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(lpm_entry(&[], 0, forward_to(1))).await;
    client
        .insert(lpm_entry(&[10, 0, 0, 0], 8, forward_to(2)))
        .await;
    client
        .insert(lpm_entry(&[10, 1, 0, 0], 16, forward_to(3)))
        .await;
    assert_eq!(fixture.forward(0, &frame([11, 0, 0, 0], 0)), [1]);
    assert_eq!(fixture.forward(0, &frame([10, 0, 0, 1], 0)), [2]);
    assert_eq!(fixture.forward(0, &frame([10, 1, 0, 1], 0)), [3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_is_needed_exactly_where_keys_can_overlap_and_the_highest_wins() {
    let (fixture, mut client) = start_loaded().await;
    let any = vec![ternary(1, &[0], &[0x80, 0, 0, 0])];
    let one = vec![ternary(1, &[1], &[0xff])];
    assert_eq!(
        client.insert(ternary_entry(0, any.clone(), 1)).await,
        Code::InvalidArgument
    );
    assert_eq!(
        client.insert(ternary_entry(-1, any.clone(), 1)).await,
        Code::InvalidArgument
    );
    let prioritized = TableEntry {
        priority: 1,
        ..exact_entry(&[1], 1)
    };
    assert_eq!(client.insert(prioritized).await, Code::InvalidArgument);
    assert_eq!(client.insert(ternary_entry(10, any, 1)).await, Code::Ok);
    assert_eq!(client.insert(ternary_entry(20, one, 2)).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 1], 0)), [2]);
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 2], 0)), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn optional_and_range_fields() {
    let (fixture, mut client) = start_loaded().await;
    let optional = FieldMatch {
        field_id: 3,
        field_match_type: Some(field_match::FieldMatchType::Optional(
            field_match::Optional { value: vec![7] },
        )),
    };
    let range = FieldMatch {
        field_id: 2,
        field_match_type: Some(field_match::FieldMatchType::Range(field_match::Range {
            low: vec![0],
            high: vec![5],
        })),
    };
    let entry = ternary_entry(1, vec![range, optional], 4);
    assert_eq!(client.insert(entry.clone()).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame([9, 9, 9, 9], 7)), [4]);
    assert_eq!(fixture.forward(0, &frame([9, 9, 9, 9], 8)), NOWHERE);
    let filter = TableEntry {
        table_id: entry.table_id,
        ..TableEntry::default()
    };
    assert_eq!(client.read_entries(filter).await, [entry]);
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_must_be_those_of_the_table_with_every_parameter_once() {
    let (_fixture, mut client) = start_loaded().await;
    for action in [
        None,
        Some(TableAction { r#type: None }),
        forward_to(1),
        direct("mark", &[]),
        direct("mark", &[&[1], &[1]]),
        Some(TableAction {
            r#type: Some(table_action::Type::ActionProfileMemberId(1)),
        }),
    ] {
        let entry = TableEntry {
            action: action.clone(),
            ..exact_entry(&[1], 1)
        };
        assert_eq!(
            client.insert(entry).await,
            Code::InvalidArgument,
            "{action:?}"
        );
    }
    let mut doubled = call("mark", &[&[1]]);
    doubled.params.push(doubled.params[0].clone());
    let doubled = Some(TableAction {
        r#type: Some(table_action::Type::Action(doubled)),
    });
    let entry = TableEntry {
        action: doubled,
        ..exact_entry(&[1], 1)
    };
    assert_eq!(client.insert(entry).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_outside_of_its_scope_is_denied() {
    let (_fixture, mut client) = start_loaded().await;
    let default_only = TableEntry {
        action: direct("NoAction", &[]),
        ..exact_entry(&[1], 1)
    };
    assert_eq!(client.insert(default_only).await, Code::PermissionDenied);
    let table_only = default_entry("exact_table", direct("reset", &[&[1]]));
    assert_eq!(client.modify(table_only).await, Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn modify_without_action_keeps_the_action() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 2)).await;
    let entry = TableEntry {
        action: None,
        metadata: vec![1],
        ..exact_entry(&[1], 0)
    };
    assert_eq!(client.modify(entry).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 1], 0)), [2]);
    let read = client
        .read_entries(TableEntry {
            table_id: id("exact_table"),
            ..Default::default()
        })
        .await;
    assert_eq!(read[0].metadata, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_only_the_server_sets_are_refused() {
    let (_fixture, mut client) = start_loaded().await;
    let constant = TableEntry {
        is_const: true,
        ..exact_entry(&[1], 1)
    };
    assert_eq!(client.insert(constant).await, Code::InvalidArgument);
    let since = Some(table_entry::IdleTimeout { elapsed_ns: 0 });
    let entry = lpm_entry(&[10], 32, forward_to(1));
    let hit = TableEntry {
        time_since_last_hit: since,
        ..entry
    };
    assert_eq!(client.insert(hit).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_table_is_resource_exhausted_and_keeps_what_it_has() {
    let (_fixture, mut client) = start_loaded().await;
    let updates = (1..=17).map(|n| insert(exact_entry(&[n], 1))).collect();
    let codes = client.write_codes(updates).await;
    assert_eq!(codes[..16], [Code::Ok; 16]);
    assert_eq!(codes[16], Code::ResourceExhausted);
    let filter = TableEntry {
        table_id: id("exact_table"),
        ..TableEntry::default()
    };
    assert_eq!(client.read_entries(filter).await.len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_entry_can_only_be_modified_and_resets_to_the_programs() {
    let (fixture, mut client) = start_loaded().await;
    let packet = frame([0, 0, 0, 1], 0);
    let given = default_entry("lpm_table", forward_to(5));
    assert_eq!(client.insert(given.clone()).await, Code::InvalidArgument);
    assert_eq!(client.delete(given.clone()).await, Code::InvalidArgument);
    assert_eq!(client.modify(given.clone()).await, Code::Ok);
    assert_eq!(fixture.forward(0, &packet), [5]);
    assert_eq!(
        client.read_entries(default_entry("lpm_table", None)).await,
        [given]
    );
    assert_eq!(
        client.modify(default_entry("lpm_table", None)).await,
        Code::Ok
    );
    assert_eq!(fixture.forward(0, &packet), NOWHERE);
    let read = client.read_entries(default_entry("lpm_table", None)).await;
    assert_eq!(read, [default_entry("lpm_table", direct("NoAction", &[]))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_entry_has_neither_key_nor_timeout() {
    let (_fixture, mut client) = start_loaded().await;
    let entry = default_entry("lpm_table", forward_to(5));
    for wrong in [
        TableEntry {
            r#match: vec![exact(1, &[0])],
            ..entry.clone()
        },
        TableEntry {
            priority: 1,
            ..entry.clone()
        },
        TableEntry {
            idle_timeout_ns: 1,
            ..entry
        },
    ] {
        assert_eq!(client.modify(wrong).await, Code::InvalidArgument);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_entry_keeps_metadata_until_it_is_reset() {
    let (_fixture, mut client) = start_loaded().await;
    let entry = TableEntry {
        metadata: b"opaque".to_vec(),
        controller_metadata: 42,
        ..default_entry("lpm_table", forward_to(5))
    };
    assert_eq!(client.modify(entry.clone()).await, Code::Ok);
    let filter = default_entry("lpm_table", None);
    assert_eq!(client.read_entries(filter.clone()).await, [entry]);
    assert_eq!(client.modify(filter.clone()).await, Code::Ok);
    let reset = default_entry("lpm_table", direct("NoAction", &[]));
    assert_eq!(client.read_entries(filter).await, [reset]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constant_default_is_denied() {
    let (_fixture, mut client) = start_loaded().await;
    let entry = default_entry("ternary_table", forward_to(5));
    assert_eq!(client.modify(entry).await, Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyless_table_has_a_default_and_nothing_else() {
    let (fixture, mut client) = start_loaded().await;
    let table_id = id("keyless_table");
    let entry = TableEntry {
        table_id,
        action: forward_to(1),
        ..TableEntry::default()
    };
    assert_eq!(client.insert(entry).await, Code::InvalidArgument);
    assert_eq!(
        client
            .modify(default_entry("keyless_table", forward_to(6)))
            .await,
        Code::Ok
    );
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 1], 0)), [6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constant_table_refuses_writes_and_can_be_read() {
    let (fixture, mut client) = start_loaded().await;
    let entry = TableEntry {
        table_id: id("const_table"),
        r#match: vec![exact(1, &[0x11, 0x11])],
        action: forward_to(3),
        ..TableEntry::default()
    };
    assert_eq!(client.insert(entry.clone()).await, Code::PermissionDenied);
    assert_eq!(client.modify(entry.clone()).await, Code::PermissionDenied);
    assert_eq!(client.delete(entry.clone()).await, Code::PermissionDenied);
    assert_eq!(
        client
            .modify(default_entry("const_table", forward_to(4)))
            .await,
        Code::Ok
    );
    let read = client
        .read_entries(TableEntry {
            table_id: entry.table_id,
            ..Default::default()
        })
        .await;
    assert_eq!(read.len(), 2);
    assert!(read.iter().all(|entry| entry.is_const));
    assert_eq!(read[0].action, forward_to(1));
    let mut packet = frame([0, 0, 0, 0], 0);
    packet[12..14].copy_from_slice(&[0x22, 0x22]);
    assert_eq!(fixture.forward(0, &packet), [2]);
}

fn counted(packets: i64, bytes: i64) -> Option<CounterData> {
    Some(CounterData {
        packet_count: packets,
        byte_count: bytes,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_counters_count_and_can_be_set() {
    let (fixture, mut client) = start_loaded().await;
    let entry = exact_entry(&[1], 2);
    let preset = TableEntry {
        counter_data: counted(100, 1000),
        ..entry.clone()
    };
    assert_eq!(client.insert(preset).await, Code::Ok);
    let packet = frame([0, 0, 0, 1], 0);
    fixture.forward(0, &packet);
    let filter = TableEntry {
        counter_data: counted(0, 0),
        action: None,
        ..entry.clone()
    };
    let read = client.read_entries(filter.clone()).await;
    assert_eq!(
        read[0].counter_data,
        counted(101, 1000 + packet.len() as i64)
    );
    client.modify(entry.clone()).await;
    let read = client.read_entries(filter.clone()).await;
    assert_eq!(
        read[0].counter_data.unwrap().packet_count,
        101,
        "MODIFY without data keeps it"
    );
    let counter = |data| DirectCounterEntry {
        table_entry: Some(TableEntry {
            action: None,
            ..entry.clone()
        }),
        data,
    };
    assert_eq!(client.modify(counter(counted(7, 8))).await, Code::Ok);
    assert_eq!(
        client.modify(counter(None)).await,
        Code::Ok,
        "changes nothing"
    );
    let read = client.read(counter(None)).await;
    assert_eq!(
        read,
        [entity::Entity::DirectCounterEntry(counter(counted(7, 8)))]
    );
    assert_eq!(client.insert(counter(None)).await, Code::InvalidArgument);
    assert_eq!(client.delete(counter(None)).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_resources_of_absent_entries_and_tables_without_any() {
    let (_fixture, mut client) = start_loaded().await;
    let table_entry = Some(TableEntry {
        action: None,
        ..exact_entry(&[9], 1)
    });
    let absent = DirectCounterEntry {
        table_entry,
        data: counted(1, 1),
    };
    assert_eq!(client.modify(absent.clone()).await, Code::NotFound);
    assert_eq!(client.read_code(absent).await, Code::NotFound);
    let entry = lpm_entry(&[1], 32, forward_to(1));
    let with_counter = TableEntry {
        counter_data: counted(1, 1),
        ..entry.clone()
    };
    assert_eq!(
        client.insert(with_counter.clone()).await,
        Code::InvalidArgument
    );
    assert_eq!(
        client.insert(entry).await,
        Code::Ok,
        "nothing of the refused one is left"
    );
    assert_eq!(client.read_code(with_counter).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_meters_are_green_until_configured_and_reset_by_modify() {
    let (fixture, mut client) = start_loaded().await;
    let config = MeterConfig {
        cir: 1,
        cburst: 1,
        pir: 1,
        pburst: 1,
        eburst: 0,
    };
    let entry = exact_entry(&[1], 2);
    let metered = TableEntry {
        meter_config: Some(config),
        ..entry.clone()
    };
    assert_eq!(client.insert(metered.clone()).await, Code::Ok);
    let packet = frame([0, 0, 0, 1], 0);
    assert_eq!(fixture.forward(0, &packet), [2]);
    assert_eq!(fixture.forward(0, &packet), NOWHERE, "red");
    let meter = |config| DirectMeterEntry {
        table_entry: Some(TableEntry {
            action: None,
            ..entry.clone()
        }),
        config,
        counter_data: None,
    };
    let read = client.read(meter(None)).await;
    assert_eq!(
        read,
        [entity::Entity::DirectMeterEntry(meter(Some(config)))]
    );
    assert_eq!(client.modify(entry.clone()).await, Code::Ok);
    assert_eq!(
        fixture.forward(0, &packet),
        [2],
        "MODIFY without config is the default"
    );
    let filter = TableEntry {
        action: None,
        ..metered
    };
    assert_eq!(client.read_entries(filter).await[0].meter_config, None);
    assert_eq!(client.modify(meter(Some(config))).await, Code::Ok);
    assert_eq!(
        client.insert(meter(Some(config))).await,
        Code::InvalidArgument
    );
    let wrong = MeterConfig {
        eburst: 1,
        ..config
    };
    assert_eq!(
        client.modify(meter(Some(wrong))).await,
        Code::InvalidArgument
    );
}
