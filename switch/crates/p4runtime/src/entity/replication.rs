// SPDX-License-Identifier: Apache-2.0
//! Translates multicast groups and clone sessions (P4Runtime specification, "PacketReplicationEngineEntry").

use sluice_tables::{BackupReplica, CloneSession, MulticastGroup, Replica, Transaction};

use super::{Context, Operation};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::packet_replication_engine_entry::Type;
use crate::proto::v1::{
    self, CloneSessionEntry, MulticastGroupEntry, PacketReplicationEngineEntry, replica,
};
use crate::schema::PortType;

/// Applies an update of a multicast group or a clone session.
pub(crate) fn apply(
    context: &Context<'_>,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    entry: &PacketReplicationEngineEntry,
) -> UpdateResult {
    let ports = &context.schema.ports;
    match &entry.r#type {
        Some(Type::MulticastGroupEntry(group)) => apply_group(ports, transaction, operation, group),
        Some(Type::CloneSessionEntry(session)) => {
            apply_session(ports, transaction, operation, session)
        }
        None => Err(UpdateError::invalid(
            "the entry is neither a multicast group nor a clone session",
        )),
    }
}

fn apply_group(
    ports: &PortType,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    group: &MulticastGroupEntry,
) -> UpdateResult {
    let id = group.multicast_group_id;
    if id == 0 {
        return Err(UpdateError::invalid("multicast group id 0 is not valid"));
    }
    match operation {
        Operation::Insert => {
            transaction.multicast_insert(id, decode_group(ports, group)?)?;
        }
        Operation::Modify => {
            transaction.multicast_modify(id, decode_group(ports, group)?)?;
        }
        Operation::Delete => transaction.multicast_delete(id)?,
    }
    Ok(())
}

fn apply_session(
    ports: &PortType,
    transaction: &mut Transaction<'_>,
    operation: Operation,
    session: &CloneSessionEntry,
) -> UpdateResult {
    let id = session.session_id;
    if id == 0 {
        return Err(UpdateError::invalid("clone session id 0 is not valid"));
    }
    match operation {
        Operation::Insert => {
            transaction.clone_session_insert(id, decode_session(ports, session)?)?
        }
        Operation::Modify => {
            transaction.clone_session_modify(id, decode_session(ports, session)?)?
        }
        Operation::Delete => transaction.clone_session_delete(id)?,
    }
    Ok(())
}

fn decode_group(ports: &PortType, group: &MulticastGroupEntry) -> UpdateResult<MulticastGroup> {
    Ok(MulticastGroup {
        replicas: decode_replicas(ports, &group.replicas)?,
        metadata: group.metadata.clone(),
    })
}

fn decode_session(ports: &PortType, session: &CloneSessionEntry) -> UpdateResult<CloneSession> {
    if session.class_of_service != 0 {
        return Err(UpdateError::invalid(
            "class_of_service must be 0, the only class",
        ));
    }
    let packet_length = u32::try_from(session.packet_length_bytes)
        .map_err(|_| UpdateError::invalid("packet_length_bytes is negative"))?;
    let replicas = decode_replicas(ports, &session.replicas)?;
    Ok(CloneSession {
        replicas,
        class_of_service: session.class_of_service,
        packet_length,
    })
}

fn decode_replicas(ports: &PortType, replicas: &[v1::Replica]) -> UpdateResult<Vec<Replica>> {
    let decode = |replica| decode_replica(ports, replica);
    replicas.iter().map(decode).collect()
}

fn decode_replica(ports: &PortType, replica: &v1::Replica) -> UpdateResult<Replica> {
    let port = match &replica.port_kind {
        Some(replica::PortKind::Port(port)) => decode_port(ports, port)?,
        // This field is deprecated since 1.4, but older clients send it.
        Some(replica::PortKind::EgressPort(port)) => *port,
        None => return Err(UpdateError::invalid("a replica has no port")),
    };
    let backup = |backup: &v1::BackupReplica| {
        Ok(BackupReplica {
            port: decode_port(ports, &backup.port)?,
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

fn decode_port(ports: &PortType, port: &[u8]) -> UpdateResult<u32> {
    let decoded = ports.decode(port);
    decoded.map_err(|error| error.of("port of a replica"))
}

fn decode_instance(instance: u32) -> UpdateResult<u16> {
    u16::try_from(instance)
        .map_err(|_| UpdateError::invalid(format!("replica instance {instance} is above 65535")))
}

fn encode_replicas(ports: &PortType, replicas: &[Replica]) -> Vec<v1::Replica> {
    let backup = |backup: &BackupReplica| v1::BackupReplica {
        port: ports.encode(backup.port),
        instance: u32::from(backup.instance),
    };
    let encode = |replica: &Replica| v1::Replica {
        port_kind: Some(replica::PortKind::Port(ports.encode(replica.port))),
        instance: u32::from(replica.instance),
        backup_replicas: replica.backups.iter().map(backup).collect(),
    };
    replicas.iter().map(encode).collect()
}

/// Encodes a multicast group.
pub(crate) fn encode_group(ports: &PortType, id: u32, group: &MulticastGroup) -> Type {
    Type::MulticastGroupEntry(MulticastGroupEntry {
        multicast_group_id: id,
        replicas: encode_replicas(ports, &group.replicas),
        metadata: group.metadata.clone(),
    })
}

/// Encodes a clone session.
pub(crate) fn encode_session(ports: &PortType, id: u32, session: &CloneSession) -> Type {
    Type::CloneSessionEntry(CloneSessionEntry {
        session_id: id,
        replicas: encode_replicas(ports, &session.replicas),
        class_of_service: session.class_of_service,
        packet_length_bytes: session.packet_length as i32,
    })
}
