// SPDX-License-Identifier: Apache-2.0
//! Multicast groups and clone sessions (P4Runtime specification, "PacketReplicationEngineEntry").

use sluice_tables::{BackupReplica, CloneSession, MulticastGroup, Replica, Transaction};

use super::Operation;
use crate::bytestring;
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::packet_replication_engine_entry::Type;
use crate::proto::v1::{
    self, CloneSessionEntry, MulticastGroupEntry, PacketReplicationEngineEntry, replica,
};

/// Applies an update of a multicast group or a clone session.
pub fn apply(
    transaction: &mut Transaction<'_>,
    operation: Operation,
    entry: &PacketReplicationEngineEntry,
) -> UpdateResult {
    match &entry.r#type {
        Some(Type::MulticastGroupEntry(group)) => apply_group(transaction, operation, group),
        Some(Type::CloneSessionEntry(session)) => apply_session(transaction, operation, session),
        None => Err(UpdateError::invalid(
            "neither a multicast group nor a clone session",
        )),
    }
}

fn apply_group(
    transaction: &mut Transaction<'_>,
    operation: Operation,
    group: &MulticastGroupEntry,
) -> UpdateResult {
    let id = group.multicast_group_id;
    if id == 0 {
        return Err(UpdateError::invalid("multicast group id 0"));
    }
    match operation {
        Operation::Insert => {
            transaction.multicast_insert(id, decode_group(group)?)?;
        }
        Operation::Modify => {
            transaction.multicast_modify(id, decode_group(group)?)?;
        }
        Operation::Delete => transaction.multicast_delete(id)?,
    }
    Ok(())
}

fn apply_session(
    transaction: &mut Transaction<'_>,
    operation: Operation,
    session: &CloneSessionEntry,
) -> UpdateResult {
    let id = session.session_id;
    if id == 0 {
        return Err(UpdateError::invalid("clone session id 0"));
    }
    match operation {
        Operation::Insert => transaction.clone_session_insert(id, decode_session(session)?)?,
        Operation::Modify => transaction.clone_session_modify(id, decode_session(session)?)?,
        Operation::Delete => transaction.clone_session_delete(id)?,
    }
    Ok(())
}

fn decode_group(group: &MulticastGroupEntry) -> UpdateResult<MulticastGroup> {
    Ok(MulticastGroup {
        replicas: decode_replicas(&group.replicas)?,
        metadata: group.metadata.clone(),
    })
}

fn decode_session(session: &CloneSessionEntry) -> UpdateResult<CloneSession> {
    if session.class_of_service != 0 {
        return Err(UpdateError::invalid("there is one class of service, 0"));
    }
    let packet_length = u32::try_from(session.packet_length_bytes)
        .map_err(|_| UpdateError::invalid("a negative packet length"))?;
    let replicas = decode_replicas(&session.replicas)?;
    Ok(CloneSession {
        replicas,
        class_of_service: session.class_of_service,
        packet_length,
    })
}

fn decode_replicas(replicas: &[v1::Replica]) -> UpdateResult<Vec<Replica>> {
    replicas.iter().map(decode_replica).collect()
}

fn decode_replica(replica: &v1::Replica) -> UpdateResult<Replica> {
    let port = match &replica.port_kind {
        Some(replica::PortKind::Port(port)) => decode_port(port)?,
        // Deprecated since 1.4, and what older clients send.
        Some(replica::PortKind::EgressPort(port)) => *port,
        None => return Err(UpdateError::invalid("a replica without port")),
    };
    let backup = |backup: &v1::BackupReplica| {
        Ok(BackupReplica {
            port: decode_port(&backup.port)?,
            instance: decode_instance(backup.instance)?,
        })
    };
    Ok(Replica {
        port,
        instance: decode_instance(replica.instance)?,
        backups: replica
            .backup_replicas
            .iter()
            .map(backup)
            .collect::<UpdateResult<_>>()?,
    })
}

fn decode_port(port: &[u8]) -> UpdateResult<u32> {
    bytestring::to_u32(port).map_err(|error| error.of("port of a replica"))
}

fn decode_instance(instance: u32) -> UpdateResult<u16> {
    u16::try_from(instance)
        .map_err(|_| UpdateError::invalid(format!("replica instance {instance} above 65535")))
}

fn encode_replicas(replicas: &[Replica]) -> Vec<v1::Replica> {
    let backup = |backup: &BackupReplica| v1::BackupReplica {
        port: bytestring::from_u32(backup.port),
        instance: u32::from(backup.instance),
    };
    let encode = |replica: &Replica| v1::Replica {
        port_kind: Some(replica::PortKind::Port(bytestring::from_u32(replica.port))),
        instance: u32::from(replica.instance),
        backup_replicas: replica.backups.iter().map(backup).collect(),
    };
    replicas.iter().map(encode).collect()
}

/// Writes a multicast group.
pub fn encode_group(id: u32, group: &MulticastGroup) -> Type {
    Type::MulticastGroupEntry(MulticastGroupEntry {
        multicast_group_id: id,
        replicas: encode_replicas(&group.replicas),
        metadata: group.metadata.clone(),
    })
}

/// Writes a clone session.
pub fn encode_session(id: u32, session: &CloneSession) -> Type {
    Type::CloneSessionEntry(CloneSessionEntry {
        session_id: id,
        replicas: encode_replicas(&session.replicas),
        class_of_service: session.class_of_service,
        packet_length_bytes: session.packet_length as i32,
    })
}
