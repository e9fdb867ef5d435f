// SPDX-License-Identifier: Apache-2.0
//! Holds a forwarding pipeline: a program, its P4Info and its state (P4Runtime specification, "P4 Forwarding-Pipeline
//! Configuration").

mod device_config;
pub(crate) mod reconcile;

use std::sync::Arc;

use bytes::Bytes;
use sluice_device::Device;
use sluice_program::{DigestId, Program};
use sluice_tables::Store;
use tonic::Status;

use crate::entity::Context;
use crate::proto::config::v1::P4Info;
use crate::proto::v1::ForwardingPipelineConfig;
use crate::proto::v1::forwarding_pipeline_config::Cookie;
use crate::proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use crate::schema::{DigestSchema, Plans, Schema};
use crate::stream::digest::DigestConfigs;

/// A pipeline that has been verified. It runs from the moment when the device loads its store.
pub struct Pipeline {
    /// The objects that clients can name.
    pub schema: Schema,
    /// For each suitable table, a plan to decode its entries in one step.
    pub plans: Plans,
    /// The tables, counters and other state of the program.
    pub store: Arc<Store>,
    /// The enabled digests, with their settings.
    pub digests: DigestConfigs,
    p4info: P4Info,
    device_config: Bytes,
    cookie: Option<u64>,
}

impl Pipeline {
    /// Verifies a configuration: the device config must hold p4c's BMv2 JSON, and P4Info must fit this program. Creates
    /// the tables and counters of the program, with the settings of `device`.
    pub fn new(config: ForwardingPipelineConfig, device: &Device) -> Result<Self, Status> {
        let Some(p4info) = config.p4info else {
            return Err(Status::invalid_argument(
                "the field `p4info` of the config is not set",
            ));
        };
        let program = Program::from_json(&device_config::json(&config.p4_device_config))
            .map_err(|error| Status::invalid_argument(format!("p4_device_config: {error}")))?;
        let schema = Schema::bind(&p4info, &program)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Self {
            plans: Plans::new(&schema, &program),
            schema,
            store: device.new_store(program),
            digests: DigestConfigs::default(),
            p4info,
            device_config: config.p4_device_config,
            cookie: config.cookie.map(|cookie| cookie.cookie),
        })
    }

    /// Returns the P4Info id and the schema of the digest with this id in the program.
    pub fn digest(&self, id: DigestId) -> Option<(u32, &DigestSchema)> {
        let digest = self.store.program().digests.get(id.index())?;
        self.schema.digest_named(&digest.name)
    }

    /// Returns what decoding and encoding need to know.
    pub fn context(&self) -> Context<'_> {
        let program = self.store.program();
        Context {
            schema: &self.schema,
            program,
            port_exists: &|_| true,
        }
    }

    /// Returns the configuration, or the requested part of it.
    pub fn config(&self, part: ResponseType) -> ForwardingPipelineConfig {
        let (p4info, device_config) = match part {
            ResponseType::All => (true, true),
            ResponseType::CookieOnly => (false, false),
            ResponseType::P4infoAndCookie => (true, false),
            ResponseType::DeviceConfigAndCookie => (false, true),
        };
        ForwardingPipelineConfig {
            p4info: p4info.then(|| self.p4info.clone()),
            p4_device_config: if device_config {
                self.device_config.clone()
            } else {
                Bytes::new()
            },
            cookie: self.cookie.map(|cookie| Cookie { cookie }),
        }
    }
}
