// SPDX-License-Identifier: Apache-2.0
//! Implements steps that read entities and compare them with the expected ones.

use sluice_p4runtime::proto::v1::*;
use tonic::{Code, Status};

use super::Client;
use super::expected::{Expected, check};
use super::writes::details;
use crate::entity::IntoEntity;
use crate::outcome::{Failure, Outcome, same};

impl Client {
    /// Calls the Read RPC. Returns the entities that were read before the RPC ended, and the RPC's status.
    pub async fn try_read(&mut self, entities: Vec<Entity>) -> (Vec<Entity>, Result<(), Status>) {
        let request = ReadRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            entities,
        };
        let mut read = Vec::new();
        let mut stream = match self.rpc.read(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => return (read, Err(status)),
        };
        loop {
            match stream.message().await {
                Ok(Some(response)) => read.extend(response.entities),
                Ok(None) => return (read, Ok(())),
                Err(status) => return (read, Err(status)),
            }
        }
    }

    /// Reads the requested entities.
    ///
    /// # Errors
    /// The server refuses the request.
    pub async fn read(&mut self, request: impl IntoEntity) -> Outcome<Vec<Entity>> {
        let request = request.into_entity();
        let what = format!("read of {request:?}");
        let (read, result) = self.try_read(vec![request]).await;
        match result {
            Ok(()) => Ok(read),
            Err(status) => {
                let code = refusal(&status);
                Err(Failure::Failed(format!(
                    "{what}: {code:?}: {}",
                    status.message()
                )))
            }
        }
    }

    /// Expects that a read returns exactly these entities, in any order.
    ///
    /// # Errors
    /// The result differs.
    pub async fn reads(&mut self, request: impl IntoEntity, expected: Vec<Entity>) -> Outcome {
        let mut found = self.read(request).await?;
        let mut expected = expected;
        let by_text = |entity: &Entity| format!("{entity:?}");
        found.sort_by_key(by_text);
        expected.sort_by_key(by_text);
        same(found, expected, "the entities read")
    }

    /// Expects that a read returns exactly the entity `written`.
    ///
    /// # Errors
    /// The result differs.
    pub async fn reads_back(
        &mut self,
        request: impl IntoEntity,
        written: impl IntoEntity,
    ) -> Outcome {
        self.reads(request, vec![written.into_entity()]).await
    }

    /// Reads table entries.
    ///
    /// # Errors
    /// The server refuses, or returns other entities.
    pub async fn entries(&mut self, request: TableEntry) -> Outcome<Vec<TableEntry>> {
        let entry = |entity: Entity| match entity.entity {
            Some(entity::Entity::TableEntry(entry)) => Ok(entry),
            other => Err(Failure::Failed(format!("not a table entry: {other:?}"))),
        };
        self.read(request).await?.into_iter().map(entry).collect()
    }

    /// Expects that a read request is refused with this code, in the status or in its details.
    ///
    /// # Errors
    /// The server responds otherwise.
    pub async fn read_refused(
        &mut self,
        request: impl IntoEntity,
        expected: impl Expected,
    ) -> Outcome {
        let request = request.into_entity();
        let what = format!("read of {request:?}");
        let (_, result) = self.try_read(vec![request]).await;
        let code = result.as_ref().err().map_or(Code::Ok, refusal);
        check(code, expected, || what)
    }
}

/// Returns the code of a single refused read request.
fn refusal(status: &Status) -> Code {
    match (status.code(), details(status)) {
        (Code::Unknown, Ok(errors)) if errors.len() == 1 => Code::from(errors[0].canonical_code),
        (code, _) => code,
    }
}
