// SPDX-License-Identifier: Apache-2.0
//! Applies pipeline configurations, writes and reads to the device. Does not depend on gRPC. At any time, at most one
//! request changes the state.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;
use sluice_device::Device;
use tonic::Status;

use crate::error::{UpdateResult, batch_status};
use crate::pipeline::Pipeline;
use crate::proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use crate::proto::v1::set_forwarding_pipeline_config_request::Action;
use crate::proto::v1::write_request::Atomicity;
use crate::proto::v1::{ForwardingPipelineConfig, ReadRequest, SetForwardingPipelineConfigRequest};
use crate::read::{self, Reading};
use crate::stream::arbitration::{Takeover, role_name};
use crate::stream::hub::{ConnectionNumber, Hub};
use crate::write::batch::Batch;
use crate::write::request::Request;
use crate::{pipeline::reconcile, write};

/// A device, with its pipelines and the streams of its controllers.
pub struct Control {
    device_id: u64,
    device: Arc<Device>,
    hub: Arc<Hub>,
    /// Lock that every write and commit holds. When another controller becomes primary, the takeover also takes this
    /// lock, so it waits until the writes and commits of the old primary are done.
    writer: Mutex<()>,
    /// Pipeline that reads and writes use. If a saved pipeline waits for its commit, this is the saved pipeline;
    /// otherwise it is the running pipeline.
    current: ArcSwapOption<Pipeline>,
}

impl Control {
    /// Creates the control of a device. `hub` must be the device's handler, which receives its packets and digests.
    pub fn new(device_id: u64, device: Arc<Device>, hub: Arc<Hub>) -> Self {
        Self {
            device_id,
            device,
            hub,
            writer: Mutex::new(()),
            current: ArcSwapOption::empty(),
        }
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the hub with all streams.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Refuses requests for other devices.
    pub fn check_device(&self, device_id: u64) -> Result<(), Status> {
        if device_id == self.device_id {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "device_id {device_id} is not the id of this device"
        )))
    }

    /// Loads the pipeline that the command line names.
    pub fn load(&self, config: ForwardingPipelineConfig) -> Result<(), Status> {
        let pipeline = Arc::new(Pipeline::new(config, &self.device)?);
        let _writer = self.writer.lock();
        self.commit(pipeline);
        Ok(())
    }

    /// Completes a takeover. Blocks until no write of the old primary is in flight.
    pub fn complete(&self, takeover: &Takeover) {
        drop(self.writer.lock());
        self.hub.complete(takeover);
    }

    /// Handles a SetForwardingPipelineConfig request.
    pub fn set_pipeline(
        &self,
        request: SetForwardingPipelineConfigRequest,
        connection: ConnectionNumber,
    ) -> Result<(), Status> {
        self.check_device(request.device_id)?;
        let role = role_name(&request.role, request.role_id);
        let _writer = self.writer.lock();
        let rights = self
            .hub
            .authorize(&role, request.election_id.as_ref(), connection)?;
        rights.check_pipeline()?;
        let action = request.action();
        if action == Action::Commit {
            return match request.config {
                Some(_) => Err(Status::invalid_argument(
                    "COMMIT takes no config: leave out the field `config`",
                )),
                None => self.commit_saved(),
            };
        }
        let Some(config) = request.config else {
            return Err(Status::invalid_argument("the request has no config"));
        };
        let pipeline = match action {
            Action::Unspecified => {
                return Err(Status::invalid_argument("the field `action` is not set"));
            }
            _ => Arc::new(Pipeline::new(config, &self.device)?),
        };
        match action {
            Action::VerifyAndSave => self.current.store(Some(pipeline)),
            Action::VerifyAndCommit => self.commit(pipeline),
            Action::ReconcileAndCommit => {
                if let Some(old) = self.hub.running() {
                    reconcile::carry_over(&old, &pipeline, &|port| self.device.has_port(port))?;
                }
                self.commit(pipeline);
            }
            _ => {}
        }
        Ok(())
    }

    fn commit_saved(&self) -> Result<(), Status> {
        let running = self.hub.running();
        let saved = self.current.load_full().filter(|current| {
            running
                .as_ref()
                .is_none_or(|running| !Arc::ptr_eq(running, current))
        });
        let saved = saved.ok_or_else(|| {
            Status::not_found("there is no saved config: send VERIFY_AND_SAVE first")
        })?;
        self.commit(saved);
        Ok(())
    }

    /// Runs a pipeline. The hub changes before the device. In the short time between the two changes, packet-ins of
    /// the old pipeline are decoded with the header of the new one. In the reverse order, packet-ins of the new
    /// pipeline would be decoded with the old header, which is no better.
    fn commit(&self, pipeline: Arc<Pipeline>) {
        self.hub.set_running(Some(pipeline.clone()));
        self.device.load(Some(pipeline.store.clone()));
        self.current.store(Some(pipeline));
    }

    /// Handles a GetForwardingPipelineConfig request. Returns `None` if there is no configuration yet.
    pub fn pipeline_config(&self, part: ResponseType) -> Option<ForwardingPipelineConfig> {
        self.current
            .load()
            .as_ref()
            .map(|pipeline| pipeline.config(part))
    }

    fn pipeline(&self) -> Result<Arc<Pipeline>, Status> {
        let current = self.current.load_full();
        current.ok_or_else(|| Status::failed_precondition("no forwarding pipeline config is set"))
    }

    /// Handles a Write request. A request can be decoded while another request is applied. Only one request is applied
    /// at a time.
    pub fn write(&self, request: Bytes, connection: ConnectionNumber) -> Result<(), Status> {
        let request = Request::read(request)?;
        let head = &request.head;
        self.check_device(head.device_id)?;
        let role = role_name(&head.role, head.role_id);
        let authorize = || {
            let id = head.election_id.as_ref();
            self.hub.authorize(&role, id, connection)
        };
        authorize()?;
        loop {
            let pipeline = self.pipeline()?;
            let batch = Batch::decode(&pipeline.plans, &request)?;
            let _writer = self.writer.lock();
            let rights = authorize()?;
            if !Arc::ptr_eq(&pipeline, &self.pipeline()?) {
                continue;
            }
            let atomicity = Atomicity::try_from(head.atomicity).map_err(|_| {
                Status::invalid_argument("the field `atomicity` has an unknown value")
            })?;
            let port_exists = |port| self.device.has_port(port);
            pipeline
                .schema
                .names
                .sweep(|| reconcile::read_all(&pipeline));
            let results = write::apply(&pipeline, &port_exists, &rights, &batch, atomicity);
            return batch_status(&results);
        }
    }

    /// Handles a Read request. Returns the entities, and a result for each entity of the request.
    pub fn read(&self, request: &ReadRequest) -> Result<(Reading, Vec<UpdateResult>), Status> {
        self.check_device(request.device_id)?;
        let pipeline = self.pipeline()?;
        // The role in the request only filters the entities. Any client may name it, even one that is not a controller
        // of this role.
        let rights = self.hub.rights(&request.role);
        Ok(read::read(
            &pipeline,
            rights,
            &request.entities,
            self.device.clock().now_us(),
        ))
    }
}
