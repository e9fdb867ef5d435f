// SPDX-License-Identifier: Apache-2.0
//! Tests table entries: the texts of refusals, and behaviour that the specification leaves to the server.

use sluice_p4runtime::error::batch_errors;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

fn default_entry(table: &str, action: Option<TableAction>) -> TableEntry {
    TableEntry {
        is_default_action: true,
        action,
        ..all_of(table)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_table() {
    let (_fixture, mut client) = start_loaded().await;
    let twice = vec![insert(exact_entry(1, 1)), insert(exact_entry(1, 2))];
    let status = client.write(twice).await.unwrap_err();
    let message = &batch_errors(&status)[1].message;
    assert!(message.contains("exact_table"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_by_an_action_without_parameters_matches_any_parameters() {
    let (_fixture, mut client) = start_loaded().await;
    for (address, port) in [(10 << 24, 1), (11 << 24, 2)] {
        let entry = lpm_entry(address, 8, forward_to(port));
        assert_eq!(client.insert(entry).await, Code::Ok);
    }
    let drop_all = lpm_entry(0, 0, direct("drop", &[]));
    assert_eq!(client.insert(drop_all).await, Code::Ok);
    let forwarding = TableEntry {
        action: direct("forward", &[]),
        ..all_of("lpm_table")
    };
    assert_eq!(client.read_entries(forwarding).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_since_the_last_hit_of_a_default_entry_cannot_be_read() {
    let (_fixture, mut client) = start_loaded().await;
    let filter = TableEntry {
        time_since_last_hit: Some(table_entry::IdleTimeout::default()),
        ..default_entry("lpm_table", None)
    };
    assert_eq!(client.read_code(filter).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_cannot_be_set_to_a_negative_number() {
    let (_fixture, mut client) = start_loaded().await;
    let negative = CounterEntry {
        counter_id: id("port_counter"),
        index: Some(Index { index: 0 }),
        data: Some(CounterData {
            packet_count: -1,
            byte_count: 0,
        }),
    };
    assert_eq!(client.modify(negative).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_timeouts_are_refused_with_the_messages_of_pi() {
    let (_fixture, mut client) = start_loaded().await;
    let unsupported =
        "idle_timeout_ns must be set to 0 for tables which do not support idle timeout";
    let negative = "idle_timeout_ns must be a positive value";
    let without = exact_entry(1, 2);
    let with = lpm_entry(10 << 24, 8, forward_to(2));
    let default_with = default_entry("lpm_table", forward_to(5));
    let default_without = default_entry("exact_table", forward_to(5));
    for (entry, idle_timeout_ns, text) in [
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
        refused_with(&mut client, entry, text).await;
    }
    for entry in [
        lpm_entry(10 << 24, 8, forward_to(2)),
        default_entry("lpm_table", forward_to(5)),
        default_entry("exact_table", forward_to(5)),
    ] {
        let entry = TableEntry {
            time_since_last_hit: Some(table_entry::IdleTimeout { elapsed_ns: 1 }),
            ..entry
        };
        let text = "has_time_since_last_hit must not be set in WriteRequest";
        refused_with(&mut client, entry, text).await;
    }
}

/// Writes an entry, and expects INVALID_ARGUMENT with this text.
async fn refused_with(client: &mut Client, entry: TableEntry, text: &str) {
    let update = if entry.is_default_action {
        modify(entry)
    } else {
        insert(entry)
    };
    let refused = client.write(vec![update]).await.unwrap_err();
    let errors = batch_errors(&refused);
    assert_eq!(Code::from(errors[0].canonical_code), Code::InvalidArgument);
    assert_eq!(errors[0].message, text);
}
