// SPDX-License-Identifier: Apache-2.0
//! Runs the server in this process: the real control plane of a device with eight ports, without gRPC.

use std::sync::Arc;

use prost::Message;
use sluice_device::{Config, Device, memory_port};
use sluice_p4runtime::Hub;
use sluice_p4runtime::control::Control;
use sluice_p4runtime::error::batch_errors;
use sluice_p4runtime::hub::{DigestMessage, Outbound};
use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action;
use sluice_p4runtime::proto::v1::*;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::generate::LAST_PORT;
use super::info::Info;

pub(super) const DEVICE: u64 = 1;
pub(super) const ELECTION: Uint128 = Uint128 { high: 0, low: 5 };

/// The server; see the module's documentation.
pub(super) struct Server {
    control: Control,
    /// Kept open, because the client is the primary only while its stream is open.
    _stream: Outbound,
    _digests: mpsc::Receiver<DigestMessage>,
}

impl Server {
    /// Starts a server without a program, and makes its client the primary.
    pub(super) fn start() -> Self {
        let (hub, digests) = Hub::new(DEVICE);
        let config = Config {
            cpu_port: Some(510),
            ..Config::default()
        };
        let device = Arc::new(Device::start(config, hub.clone()).expect("the device starts"));
        for number in 0..=LAST_PORT {
            let (port, _) = memory_port(number.into(), 1).expect("the port can be made");
            device.add_port(port).expect("the port is new");
        }
        let control = Control::new(DEVICE, device, hub);
        let (id, stream) = control
            .hub()
            .connect(None)
            .expect("the first stream connects");
        let update = MasterArbitrationUpdate {
            device_id: DEVICE,
            role: None,
            election_id: Some(ELECTION),
            status: None,
        };
        let takeover = control
            .hub()
            .arbitrate(id, &update)
            .expect("the first client becomes primary");
        control.complete(&takeover.expect("the first client is the primary"));
        Self {
            control,
            _stream: stream,
            _digests: digests,
        }
    }

    /// Loads a program in its initial state.
    pub(super) fn load(&self, config: ForwardingPipelineConfig) {
        let request = SetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            election_id: Some(ELECTION),
            action: Action::VerifyAndCommit.into(),
            config: Some(config),
            ..SetForwardingPipelineConfigRequest::default()
        };
        self.control
            .set_pipeline(request, None)
            .expect("the program loads");
    }

    /// Writes a batch. Returns the code of each update, or the status of a request that was refused as a whole.
    pub(super) fn write(&self, request: &WriteRequest) -> Result<Vec<Code>, Status> {
        let Err(status) = self.control.write(request.encode_to_vec().into(), None) else {
            return Ok(vec![Code::Ok; request.updates.len()]);
        };
        if status.code() != Code::Unknown {
            return Err(status);
        }
        let errors = batch_errors(&status);
        assert_eq!(
            errors.len(),
            request.updates.len(),
            "there must be one error for each update"
        );
        let codes = errors.iter().map(|error| Code::from(error.canonical_code));
        Ok(codes.collect())
    }

    /// Reads all entities except the cells of large arrays.
    pub(super) fn read(&self, info: &Info) -> Vec<entity::Entity> {
        let request = ReadRequest {
            device_id: DEVICE,
            role: String::new(),
            entities: everything(info),
        };
        let (reading, results) = self.control.read(&request).expect("a program is loaded");
        results
            .iter()
            .for_each(|result| assert_eq!(*result, Ok(()), "a wildcard is refused"));
        reading
            .map(|entity| entity.entity.expect("an entity is of some kind"))
            .collect()
    }
}

fn everything(info: &Info) -> Vec<Entity> {
    use entity::Entity as EntityKind;
    let entries = |is_default_action| {
        EntityKind::TableEntry(TableEntry {
            is_default_action,
            counter_data: Some(CounterData::default()),
            meter_config: Some(MeterConfig::default()),
            ..TableEntry::default()
        })
    };
    let mut kinds = vec![
        entries(false),
        entries(true),
        EntityKind::ActionProfileMember(ActionProfileMember::default()),
        EntityKind::ActionProfileGroup(ActionProfileGroup::default()),
        EntityKind::PacketReplicationEngineEntry(PacketReplicationEngineEntry::default()),
        EntityKind::ValueSetEntry(ValueSetEntry::default()),
        EntityKind::DigestEntry(DigestEntry::default()),
    ];
    kinds.extend(info.counters.iter().map(|array| {
        EntityKind::CounterEntry(CounterEntry {
            counter_id: array.id,
            ..CounterEntry::default()
        })
    }));
    kinds.extend(info.meters.iter().map(|array| {
        EntityKind::MeterEntry(MeterEntry {
            meter_id: array.id,
            ..MeterEntry::default()
        })
    }));
    kinds.extend(info.registers.iter().map(|array| {
        EntityKind::RegisterEntry(RegisterEntry {
            register_id: array.id,
            ..RegisterEntry::default()
        })
    }));
    let entity = |kind| Entity { entity: Some(kind) };
    kinds.into_iter().map(entity).collect()
}
