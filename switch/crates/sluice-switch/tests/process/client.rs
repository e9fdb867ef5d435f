// SPDX-License-Identifier: Apache-2.0
//! Provides a P4Runtime client that writes one entry.

use std::fs;

use sluice_p4runtime::p4info;
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::proto::v1::*;
use tokio_stream::StreamExt;

use crate::running::PROGRAM;

pub(crate) fn id(name: &str) -> u32 {
    let text = fs::read_to_string(format!("{PROGRAM}.p4info.txtpb")).unwrap();
    let info = p4info::from_text(&text).unwrap();
    let tables = info.tables.into_iter().map(|table| table.preamble.unwrap());
    let actions = info
        .actions
        .into_iter()
        .map(|action| action.preamble.unwrap());
    tables
        .chain(actions)
        .find(|preamble| preamble.alias == name)
        .unwrap()
        .id
}

/// Returns an entry of `selector_table` for b = 0. The entry selects ports 1 and 2, each only while its link is up.
pub(crate) fn two_paths() -> TableEntry {
    let path = |port: u8| ActionProfileAction {
        action: Some(Action {
            action_id: id("forward"),
            params: vec![action::Param {
                param_id: 1,
                value: vec![port],
            }],
        }),
        weight: 1,
        watch_kind: Some(action_profile_action::WatchKind::WatchPort(vec![port])),
    };
    let set = ActionProfileActionSet {
        action_profile_actions: vec![path(1), path(2)],
        ..ActionProfileActionSet::default()
    };
    let exact = field_match::FieldMatchType::Exact(field_match::Exact { value: vec![0] });
    TableEntry {
        table_id: id("selector_table"),
        r#match: vec![FieldMatch {
            field_id: 1,
            field_match_type: Some(exact),
        }],
        action: Some(TableAction {
            r#type: Some(table_action::Type::ActionProfileActionSet(set)),
        }),
        ..TableEntry::default()
    }
}

/// Becomes the primary of a switch whose program is already loaded, writes an entry, and disconnects.
pub(crate) async fn write(address: &str, entry: TableEntry) {
    let mut client = P4RuntimeClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let election_id = Some(Uint128 { high: 0, low: 1 });
    let arbitration = MasterArbitrationUpdate {
        device_id: 7,
        election_id,
        ..Default::default()
    };
    let update = Some(stream_message_request::Update::Arbitration(arbitration));
    let requests =
        tokio_stream::once(StreamMessageRequest { update }).chain(tokio_stream::pending());
    let mut stream = client.stream_channel(requests).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    let entity = Some(Entity {
        entity: Some(entity::Entity::TableEntry(entry)),
    });
    let updates = vec![Update {
        r#type: update::Type::Insert.into(),
        entity,
    }];
    let request = WriteRequest {
        device_id: 7,
        election_id,
        updates,
        ..Default::default()
    };
    client.write(request).await.unwrap();
}
