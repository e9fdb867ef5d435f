// SPDX-License-Identifier: Apache-2.0
//! "SetForwardingPipelineConfig RPC", "GetForwardingPipelineConfig RPC", "Capabilities RPC".

use sluice_p4runtime::error::batch_errors;
use sluice_p4runtime::proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn before_any_config_get_is_unset_and_reads_and_writes_fail() {
    let fixture = start().await;
    let mut client = fixture.primary().await;
    assert_eq!(client.pipeline().await, None);
    let status = client.write(vec![]).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let status = client
        .try_read(vec![wildcard(TableEntry::default())])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_set_is_what_is_got() {
    let (_fixture, mut client) = start_loaded().await;
    assert_eq!(client.pipeline().await, Some(pipeline_config()));
    for (part, p4info, device_config) in [
        (ResponseType::CookieOnly, false, false),
        (ResponseType::P4infoAndCookie, true, false),
        (ResponseType::DeviceConfigAndCookie, false, true),
    ] {
        let request = GetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            response_type: part.into(),
        };
        let response = client
            .rpc
            .get_forwarding_pipeline_config(request)
            .await
            .unwrap();
        let config = response.into_inner().config.unwrap();
        assert_eq!(config.cookie.unwrap().cookie, 77);
        assert_eq!(config.p4info.is_some(), p4info);
        assert_eq!(!config.p4_device_config.is_empty(), device_config);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_may_come_in_the_envelope_of_old() {
    let fixture = start().await;
    let mut client = fixture.primary().await;
    let mut config = pipeline_config();
    let program = config.p4_device_config.clone();
    let mut envelope = vec![0x08, 0x01, 0x1a]; // reassign = 1, device_data = 3
    prost::encode_length_delimiter(program.len(), &mut envelope).unwrap();
    envelope.extend(&program);
    config.p4_device_config = envelope.into();
    client
        .set_pipeline(Action::VerifyAndCommit, Some(config.clone()))
        .await
        .unwrap();
    assert_eq!(client.pipeline().await, Some(config));
    client.write(vec![]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_changes_nothing() {
    let fixture = start().await;
    let mut client = fixture.primary().await;
    client
        .set_pipeline(Action::Verify, Some(pipeline_config()))
        .await
        .unwrap();
    assert_eq!(client.pipeline().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_realized_is_refused_by_name() {
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
    for (config, said) in [
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
            assert!(status.message().contains(said), "{}", status.message());
        }
    }
    assert_eq!(client.pipeline().await, None);
}

/// p4c omits unreachable parts from the program, but keeps them in P4Info.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_program_does_not_use_has_no_state() {
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
    let status = client.try_read(vec![wildcard(entry)]).await.unwrap_err();
    let errors = batch_errors(&status);
    assert_eq!(errors[0].canonical_code, Code::InvalidArgument as i32);
    let message = &errors[0].message;
    assert!(message.contains("ingress.unreachable"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn not_found_comes_before_permission_denied() {
    let fixture = start().await;
    let mut client = fixture.client().await;
    let request = SetForwardingPipelineConfigRequest {
        device_id: 99,
        ..Default::default()
    };
    let status = client
        .rpc
        .set_forwarding_pipeline_config(request)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(
        client.commit().await.unwrap_err().code(),
        Code::PermissionDenied
    );
    client.role = "nobody".into();
    assert_eq!(client.commit().await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_and_commit_clears_the_forwarding_state() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[0, 0, 0, 1], 3)).await;
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 1], 0)), [3]);
    client.commit().await.unwrap();
    assert_eq!(
        client
            .read_entries(TableEntry {
                table_id: id("exact_table"),
                ..Default::default()
            })
            .await,
        []
    );
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 1], 0)), NOWHERE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_config_takes_writes_and_runs_when_committed() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 3)).await;
    client
        .set_pipeline(Action::VerifyAndSave, Some(pipeline_config()))
        .await
        .unwrap();
    assert_eq!(
        client.insert(exact_entry(&[1], 4)).await,
        Code::Ok,
        "of the saved config"
    );
    assert_eq!(
        fixture.forward(0, &frame([0, 0, 0, 1], 0)),
        [3],
        "of the running one"
    );
    client.set_pipeline(Action::Commit, None).await.unwrap();
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 1], 0)), [4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_needs_a_saved_config_and_takes_none() {
    let (_fixture, mut client) = start_loaded().await;
    let status = client.set_pipeline(Action::Commit, None).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let status = client
        .set_pipeline(Action::Commit, Some(pipeline_config()))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let status = client
        .set_pipeline(Action::Unspecified, Some(pipeline_config()))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcile_and_commit_keeps_the_forwarding_state() {
    let (fixture, mut client) = start_loaded().await;
    client.insert(exact_entry(&[1], 3)).await;
    let member = ActionProfileMember {
        action_profile_id: id("paths"),
        member_id: 1,
        action: Some(call("forward", &[&[5]])),
    };
    client.insert(member.clone()).await;
    let mut config = pipeline_config();
    config.cookie = Some(forwarding_pipeline_config::Cookie { cookie: 78 });
    client
        .set_pipeline(Action::ReconcileAndCommit, Some(config))
        .await
        .unwrap();
    assert_eq!(client.pipeline().await.unwrap().cookie.unwrap().cookie, 78);
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 1], 0)), [3]);
    assert_eq!(client.read(ActionProfileMember::default()).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcile_and_commit_without_a_running_config_is_a_commit() {
    let fixture = start().await;
    let mut client = fixture.primary().await;
    client
        .set_pipeline(Action::ReconcileAndCommit, Some(pipeline_config()))
        .await
        .unwrap();
    assert_eq!(client.insert(exact_entry(&[1], 3)).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_name_the_version() {
    let fixture = start().await;
    let mut client = fixture.client().await;
    for device_id in [0, DEVICE] {
        let response = client
            .rpc
            .capabilities(CapabilitiesRequest { device_id })
            .await
            .unwrap();
        assert_eq!(response.into_inner().p4runtime_api_version, "1.5.0");
    }
    let status = client
        .rpc
        .capabilities(CapabilitiesRequest { device_id: 2 })
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}
