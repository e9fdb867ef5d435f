// SPDX-License-Identifier: Apache-2.0
//! Tests pipeline configs: the forms that the server accepts, and the texts of its refusals.

use sluice_p4runtime::error::batch_errors;
use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

/// Tests that the server accepts a program inside `p4.tmp.P4DeviceConfig`. Older clients of BMv2 send this message.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_may_come_in_a_p4_device_config_message() {
    let fixture = start().await;
    let mut client = fixture.primary().await;
    let mut config = pipeline_config();
    let program = config.p4_device_config.clone();
    let mut message = vec![0x08, 0x01, 0x1a]; // reassign = 1, device_data = 3
    prost::encode_length_delimiter(program.len(), &mut message).unwrap();
    message.extend(&program);
    config.p4_device_config = message.into();
    client
        .set_pipeline(Action::VerifyAndCommit, Some(config.clone()))
        .await
        .unwrap();
    assert_eq!(client.pipeline().await, Some(config));
    client.write(vec![]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_what_cannot_be_realized() {
    let fixture = start().await;
    let mut client = fixture.primary().await;
    let mut other_name = pipeline_config();
    let table = &mut other_name.p4info.as_mut().unwrap().tables[0];
    table.preamble.as_mut().unwrap().name = "ingress.no_such_table".into();
    let mut other_width = pipeline_config();
    other_width.p4info.as_mut().unwrap().tables[0].match_fields[0].bitwidth = 31;
    let mut no_json = pipeline_config();
    no_json.p4_device_config = "{".into();
    let mut no_p4info = pipeline_config();
    no_p4info.p4info = None;
    for (config, named) in [
        (Some(other_name), "ingress.no_such_table"),
        (Some(other_width), "hdr.key.a"),
        (Some(no_json), "p4_device_config"),
        (Some(no_p4info), "p4info"),
        (None, "config"),
    ] {
        for action in [
            Action::Verify,
            Action::VerifyAndSave,
            Action::VerifyAndCommit,
        ] {
            let status = client
                .set_pipeline(action, config.clone())
                .await
                .unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(named), "{}", status.message());
        }
    }
    assert_eq!(client.pipeline().await, None);
}

/// Tests that reading a table is refused if P4Info lists the table but the program lacks it. p4c omits unreachable
/// tables from the program, but not from P4Info.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_the_program_omits_has_no_state() {
    let fixture = start().await;
    let mut client = fixture.primary().await;
    let mut config = pipeline_config();
    let p4info = config.p4info.as_mut().unwrap();
    let mut unused = p4info.tables[0].clone();
    let preamble = unused.preamble.as_mut().unwrap();
    (preamble.id, preamble.name) = (0x0200_4242, "ingress.unreachable".into());
    p4info.tables.push(unused);
    client
        .set_pipeline(Action::VerifyAndCommit, Some(config))
        .await
        .unwrap();
    let entry = TableEntry {
        table_id: 0x0200_4242,
        ..TableEntry::default()
    };
    let entities = vec![entry.into_entity()];
    let status = client.try_read(entities).await.unwrap_err();
    let errors = batch_errors(&status);
    assert_eq!(errors[0].canonical_code, Code::InvalidArgument as i32);
    let message = &errors[0].message;
    assert!(message.contains("ingress.unreachable"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_name_version_1_5_for_this_device_and_for_none() {
    let fixture = start().await;
    let mut client = fixture.client().await;
    for device_id in [0, DEVICE] {
        let request = CapabilitiesRequest { device_id };
        let response = client.rpc.capabilities(request).await.unwrap();
        assert_eq!(response.into_inner().p4runtime_api_version, "1.5.0");
    }
}
