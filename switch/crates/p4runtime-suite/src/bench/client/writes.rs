// SPDX-License-Identifier: Apache-2.0
//! Implements steps that write, and check the status of a batch and of each update in the batch.

use prost::Message;
use sluice_p4runtime::proto::rpc;
use sluice_p4runtime::proto::v1::write_request::Atomicity;
use sluice_p4runtime::proto::v1::*;
use tonic::{Code, Status};

use super::Client;
use super::expected::{Expected, check};
use crate::entity::{IntoEntity, delete, insert, modify};
use crate::outcome::{Failure, Outcome, failed, same};

impl Client {
    /// Calls the Write RPC.
    ///
    /// # Errors
    /// Fails with the status with which the server refuses the RPC.
    pub async fn write(
        &mut self,
        updates: Vec<Update>,
        atomicity: Atomicity,
    ) -> Result<(), Status> {
        let request = WriteRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            election_id: self.election_id,
            updates,
            atomicity: atomicity.into(),
            ..Default::default()
        };
        self.rpc.write(request).await.map(drop)
    }

    /// Expects that the whole Write RPC is refused with this code and without details.
    ///
    /// # Errors
    /// The server responds otherwise.
    pub async fn write_refused(
        &mut self,
        updates: Vec<Update>,
        expected: impl Expected,
    ) -> Outcome {
        let result = self.write(updates, Atomicity::ContinueOnError).await;
        let (code, message) = split(result);
        check(code, expected, || format!("the whole write: {message}"))
    }

    /// Writes a batch. Returns the server's `Error` message for each update, in order.
    ///
    /// # Errors
    /// The server's response does not have an `Error` message for each update.
    pub async fn errors(
        &mut self,
        updates: Vec<Update>,
        atomicity: Atomicity,
    ) -> Outcome<Vec<Error>> {
        let count = updates.len();
        let Err(status) = self.write(updates, atomicity).await else {
            return Ok(vec![Error::default(); count]);
        };
        if status.code() == Code::Unimplemented && atomicity != Atomicity::ContinueOnError {
            return Err(Failure::Skipped("optional, and UNIMPLEMENTED here".into()));
        }
        let errors = details(&status)?;
        same(
            status.code(),
            Code::Unknown,
            "the status of a batch that failed in part",
        )?;
        same(
            errors.len(),
            count,
            "the number of errors in the status' details",
        )?;
        Ok(errors)
    }

    /// Writes a batch. Returns the code of each update.
    ///
    /// # Errors
    /// The errors of [`errors`](Self::errors).
    pub async fn codes(&mut self, updates: Vec<Update>) -> Outcome<Vec<Code>> {
        self.codes_with(Atomicity::ContinueOnError, updates).await
    }

    /// Writes a batch with this atomicity. Returns the code of each update.
    ///
    /// # Errors
    /// The errors of [`errors`](Self::errors).
    pub async fn codes_with(
        &mut self,
        atomicity: Atomicity,
        updates: Vec<Update>,
    ) -> Outcome<Vec<Code>> {
        let errors = self.errors(updates, atomicity).await?;
        Ok(errors
            .iter()
            .map(|error| Code::from(error.canonical_code))
            .collect())
    }

    /// Writes an update, and expects this code.
    ///
    /// # Errors
    /// The code differs.
    pub async fn updates(&mut self, update: Update, expected: impl Expected) -> Outcome {
        let what = format!("{update:?}");
        let errors = self
            .errors(vec![update], Atomicity::ContinueOnError)
            .await?;
        let code = Code::from(errors[0].canonical_code);
        check(code, expected, || format!("{what}: {}", errors[0].message))
    }

    /// Inserts an entity, and expects this code.
    ///
    /// # Errors
    /// The code differs.
    pub async fn insert(&mut self, entity: impl IntoEntity, expected: impl Expected) -> Outcome {
        self.updates(insert(entity), expected).await
    }

    /// Modifies an entity, and expects this code.
    ///
    /// # Errors
    /// The code differs.
    pub async fn modify(&mut self, entity: impl IntoEntity, expected: impl Expected) -> Outcome {
        self.updates(modify(entity), expected).await
    }

    /// Deletes an entity, and expects this code.
    ///
    /// # Errors
    /// The code differs.
    pub async fn delete(&mut self, entity: impl IntoEntity, expected: impl Expected) -> Outcome {
        self.updates(delete(entity), expected).await
    }
}

pub(super) fn split<T>(result: Result<T, Status>) -> (Code, String) {
    match result {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().into()),
    }
}

/// Extracts the per-update errors from a status' details.
pub(super) fn details(status: &Status) -> Outcome<Vec<Error>> {
    let undecodable = || failed("the status has no decodable details", status);
    let inner = rpc::Status::decode(status.details()).map_err(|_| undecodable())?;
    let error =
        |any: &prost_types::Any| Error::decode(any.value.as_slice()).map_err(|_| undecodable());
    inner.details.iter().map(error).collect()
}
