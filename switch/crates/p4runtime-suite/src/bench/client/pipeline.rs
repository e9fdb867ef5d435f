// SPDX-License-Identifier: Apache-2.0
//! Implements steps that set and get the forwarding pipeline config.

use sluice_p4runtime::proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action as PipelineAction;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use super::Client;
use super::expected::{Expected, check};
use super::writes::split;
use crate::outcome::Outcome;
use crate::program;

impl Client {
    /// Calls the SetForwardingPipelineConfig RPC, and expects this code.
    ///
    /// # Errors
    /// The code differs.
    pub async fn sets(
        &mut self,
        action: PipelineAction,
        config: Option<ForwardingPipelineConfig>,
        expected: impl Expected,
    ) -> Outcome {
        let request = SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            election_id: self.election_id,
            action: action.into(),
            config,
            ..Default::default()
        };
        let result = self.rpc.set_forwarding_pipeline_config(request).await;
        let (code, message) = split(result);
        check(code, expected, || format!("{action:?}: {message}"))
    }

    /// Sets the suite's pipeline.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn commit(&mut self) -> Outcome {
        let config = Some(program::config());
        self.sets(PipelineAction::VerifyAndCommit, config, Code::Ok)
            .await
    }

    /// Calls the GetForwardingPipelineConfig RPC.
    ///
    /// # Errors
    /// The RPC fails.
    pub async fn pipeline(
        &mut self,
        part: ResponseType,
    ) -> Outcome<Option<ForwardingPipelineConfig>> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: part.into(),
        };
        let response = self.rpc.get_forwarding_pipeline_config(request).await?;
        Ok(response.into_inner().config)
    }
}
