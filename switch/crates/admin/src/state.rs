// SPDX-License-Identifier: Apache-2.0
//! Reads the state of the running program, of ports' queues and of registers for an operator. Also writes registers.

use std::ops::Range;

use sluice_device::{Device, QueueInfo};
use sluice_program::RegisterId;
use sluice_tables::{Replica as Copy, Store, TableError};
use tonic::Status;

use crate::proto::*;

/// Returns the clone sessions and multicast groups.
pub(crate) fn replication(store: &Store) -> ListReplicationResponse {
    let view = store.view();
    let replicas = |copies: &[Copy]| copies.iter().map(replica).collect();
    let sessions = view.clone_sessions().into_iter();
    let groups = view.multicast_groups().into_iter();
    ListReplicationResponse {
        clone_sessions: sessions
            .map(|(id, session)| CloneSession {
                id,
                replicas: replicas(&session.replicas),
                packet_length: session.packet_length,
                class_of_service: session.class_of_service,
            })
            .collect(),
        multicast_groups: groups
            .map(|(id, group)| MulticastGroup {
                id,
                replicas: replicas(&group.replicas),
            })
            .collect(),
    }
}

fn replica(copy: &Copy) -> Replica {
    Replica {
        port: copy.port,
        instance: u32::from(copy.instance),
        backups: copy.backups.iter().map(|backup| backup.port).collect(),
    }
}

/// Returns the queues that `wanted` selects.
pub(crate) fn queues(device: &Device, wanted: impl Fn(&QueueInfo) -> bool) -> ListQueuesResponse {
    let queue = |info: QueueInfo| Queue {
        port: u32::from(info.port),
        priority: info.priority,
        packets: info.packets,
        depth: info.depth,
        rate: info.rate,
        dropped: info.dropped,
    };
    let queues = device.queues().into_iter();
    ListQueuesResponse {
        queues: queues.filter(wanted).map(queue).collect(),
    }
}

/// Reads cells of a register.
pub(crate) fn read(
    store: &Store,
    request: &ReadRegisterRequest,
) -> Result<ReadRegisterResponse, Status> {
    let id = named(store, &request.register)?;
    let cells = cells(store, id, request.index)?;
    Ok(response(store, id, cells))
}

/// Writes cells of a register.
pub(crate) fn write(
    store: &Store,
    request: &WriteRegisterRequest,
) -> Result<ReadRegisterResponse, Status> {
    let id = named(store, &request.register)?;
    let value = number(&request.value)?;
    let cells = cells(store, id, request.index)?;
    for index in cells.clone() {
        let written = store.externs().register_write(id, index, &value);
        written.map_err(|error| match error {
            TableError::OutOfRange(_) => Status::out_of_range(error.to_string()),
            _ => Status::invalid_argument(error.to_string()),
        })?;
    }
    Ok(response(store, id, cells))
}

fn response(store: &Store, id: RegisterId, cells: Range<usize>) -> ReadRegisterResponse {
    let externs = store.externs();
    let cell = |index| {
        let value = externs.register_read(id, index)?;
        let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let digits = digits.trim_start_matches('0');
        Some(Cell {
            index: u32::try_from(index).ok()?,
            value: format!("0x{}", if digits.is_empty() { "0" } else { digits }),
        })
    };
    ReadRegisterResponse {
        register: store.program().register(id).name.clone(),
        cells: cells.filter_map(cell).collect(),
    }
}

fn cells(store: &Store, id: RegisterId, index: Option<u32>) -> Result<Range<usize>, Status> {
    let size = store.externs().register_size(id);
    match index.map(|index| index as usize) {
        None => Ok(0..size),
        Some(index) if index < size => Ok(index..index + 1),
        Some(index) => {
            let name = &store.program().register(id).name;
            let problem =
                format!("index {index} is beyond the end of {name}, which has {size} cells");
            Err(Status::out_of_range(problem))
        }
    }
}

/// Returns the register with this name. If there is none, returns the only register whose name ends with a dot and this
/// name.
fn named(store: &Store, name: &str) -> Result<RegisterId, Status> {
    let program = store.program();
    if let Some(id) = program.register_by_name(name) {
        return Ok(id);
    }
    let ending = format!(".{name}");
    let registers = program.registers.iter().enumerate();
    let mut found = registers.filter(|(_, register)| register.name.ends_with(&ending));
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Ok(RegisterId(index as u32)),
        (Some((_, one)), Some((_, other))) => {
            let (one, other) = (&one.name, &other.name);
            let problem = format!(
                "{name} is ambiguous: the names of several registers end with it, such as {one} and {other}"
            );
            Err(Status::invalid_argument(problem))
        }
        _ => Err(Status::not_found(format!("there is no register {name}"))),
    }
}

/// Parses a number into bytes. A hexadecimal number may have any length; a decimal number must fit in 128 bits.
fn number(text: &str) -> Result<Vec<u8>, Status> {
    let bad = || Status::invalid_argument(format!("{text:?} is not a number"));
    let Some(digits) = text.strip_prefix("0x") else {
        let number: u128 = text.parse().map_err(|_| bad())?;
        return Ok(number.to_be_bytes().to_vec());
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let even = format!("{}{digits}", if digits.len() % 2 == 1 { "0" } else { "" });
    let byte = |at| u8::from_str_radix(&even[at..at + 2], 16).map_err(|_| bad());
    (0..even.len()).step_by(2).map(byte).collect()
}
