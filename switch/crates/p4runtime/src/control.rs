// SPDX-License-Identifier: Apache-2.0
//! Applies requests to the device, without gRPC: pipeline configuration, writes and reads, one writer at a time.

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
use crate::stream::hub::{Connection, Hub};
use crate::write::batch::Batch;
use crate::write::request::Request;
use crate::{pipeline::reconcile, write};

/// One device with its pipelines and controllers.
pub struct Control {
    device_id: u64,
    device: Arc<Device>,
    hub: Arc<Hub>,
    /// Held while state changes: by writes, by commits, and by takeovers that wait for both.
    writer: Mutex<()>,
    /// The pipeline that reads and writes refer to: the saved one, or else the running one.
    current: ArcSwapOption<Pipeline>,
}

impl Control {
    /// Creates the control of a device whose handler is this hub.
    pub fn new(device_id: u64, device: Arc<Device>, hub: Arc<Hub>) -> Self {
        Self {
            device_id,
            device,
            hub,
            writer: Mutex::new(()),
            current: ArcSwapOption::empty(),
        }
    }

    /// The device.
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
            "device {device_id} is not this device"
        )))
    }

    /// Loads a pipeline that no client sent: the one from the command line.
    pub fn load(&self, config: ForwardingPipelineConfig) -> Result<(), Status> {
        let pipeline = Arc::new(Pipeline::new(config, &self.device)?);
        let _writer = self.writer.lock();
        self.commit(pipeline);
        Ok(())
    }

    /// Completes a takeover when no write is in flight any more. Blocks until then.
    pub fn complete(&self, takeover: &Takeover) {
        drop(self.writer.lock());
        self.hub.complete(takeover);
    }

    /// The SetForwardingPipelineConfig RPC.
    pub fn set_pipeline(
        &self,
        request: SetForwardingPipelineConfigRequest,
        connection: Connection,
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
                Some(_) => Err(Status::invalid_argument("COMMIT takes no config")),
                None => self.commit_saved(),
            };
        }
        let Some(config) = request.config else {
            return Err(Status::invalid_argument("the request has no config"));
        };
        let pipeline = match action {
            Action::Unspecified => return Err(Status::invalid_argument("no action")),
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
        let saved = saved.ok_or_else(|| Status::not_found("no config has been saved"))?;
        self.commit(saved);
        Ok(())
    }

    /// Runs a pipeline. Order: the hub switches first. Until the device has switched too, packets of the old pipeline
    /// are decoded by the new one's header. That is brief, and no worse than the reverse order.
    fn commit(&self, pipeline: Arc<Pipeline>) {
        self.hub.set_running(Some(pipeline.clone()));
        self.device.load(Some(pipeline.store.clone()));
        self.current.store(Some(pipeline));
    }

    /// The GetForwardingPipelineConfig RPC: `None` before there is a configuration.
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

    /// The Write RPC.
    ///
    /// A request is decoded while others are applied; concurrent requests wait for each other only to write.
    pub fn write(&self, request: Bytes, connection: Connection) -> Result<(), Status> {
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
            let atomicity = Atomicity::try_from(head.atomicity)
                .map_err(|_| Status::invalid_argument("no such atomicity"))?;
            let port_exists = |port| self.device.has_port(port);
            pipeline
                .schema
                .names
                .sweep(|| reconcile::read_all(&pipeline));
            let results = write::apply(&pipeline, &port_exists, &rights, &batch, atomicity);
            return batch_status(&results);
        }
    }

    /// The Read RPC: entities, and the outcome of each request.
    pub fn read(&self, request: &ReadRequest) -> Result<(Reading, Vec<UpdateResult>), Status> {
        self.check_device(request.device_id)?;
        let pipeline = self.pipeline()?;
        // The role here is a filter, not a claim about the sender.
        let rights = self.hub.rights(&request.role);
        Ok(read::read(
            &pipeline,
            rights,
            &request.entities,
            self.device.clock().now_us(),
        ))
    }
}
