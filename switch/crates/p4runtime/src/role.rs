// SPDX-License-Identifier: Apache-2.0
//! Holds the rights of a role, and checks them (P4Runtime specification, "Role Config").
//!
//! The default role has full access. Any other role has the rights that its configuration gives it;
//! `proto/sluice/p4runtime/v1/role.proto` defines the format. A role without a configuration has full access, too.
//!
//! The program can assign objects to roles by `@p4runtime_role("NAME")`. A restricted role has no access to the
//! objects of other roles. A role is restricted if its configuration says so (`by_annotation`). With
//! [`Annotations::Enforced`], every role without a configuration is also restricted.

use prost::Message;
use tonic::Status;

use crate::error::{UpdateError, UpdateResult};
use crate::proto::role::{PacketFilter, RoleConfig};
use crate::proto::v1::PacketMetadata;
use crate::proto::v1::entity::Entity;
use crate::schema::Schema;

/// Message type of `role.config`.
pub const CONFIG_TYPE: &str = "sluice.p4runtime.v1.RoleConfig";

/// Decodes `role.config`.
pub(crate) fn decode_config(config: &prost_types::Any) -> Result<RoleConfig, Status> {
    let refused = |why: &str| {
        Status::invalid_argument(format!(
            "role.config must hold a {CONFIG_TYPE}; this message {why}"
        ))
    };
    let type_name = config.type_url.rsplit('/').next().unwrap_or_default();
    if type_name != CONFIG_TYPE {
        return Err(refused(&format!("is {type_name:?}")));
    }
    RoleConfig::decode(config.value.as_slice()).map_err(|error| refused(&error.to_string()))
}

/// What the annotation `@p4runtime_role` means for roles without a configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Annotations {
    /// No effect.
    #[default]
    Ignored,
    /// They have no access to objects of other roles.
    Enforced,
}

/// A role and its configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rights {
    role: String,
    config: Option<RoleConfig>,
    annotations: Annotations,
}

/// The object to which an entity belongs.
enum Object {
    /// The object with this P4Info id.
    Id(u32),
    /// The packet replication engine.
    Replication,
}

fn object(entity: &Entity) -> Object {
    Object::Id(match entity {
        Entity::TableEntry(entry) => entry.table_id,
        Entity::ActionProfileMember(member) => member.action_profile_id,
        Entity::ActionProfileGroup(group) => group.action_profile_id,
        Entity::MeterEntry(entry) => entry.meter_id,
        Entity::DirectMeterEntry(entry) => entry.table_entry.as_ref().map_or(0, |e| e.table_id),
        Entity::CounterEntry(entry) => entry.counter_id,
        Entity::DirectCounterEntry(entry) => entry.table_entry.as_ref().map_or(0, |e| e.table_id),
        Entity::ValueSetEntry(entry) => entry.value_set_id,
        Entity::RegisterEntry(entry) => entry.register_id,
        Entity::DigestEntry(entry) => entry.digest_id,
        Entity::ExternEntry(entry) => entry.extern_id,
        Entity::PacketReplicationEngineEntry(_) => return Object::Replication,
    })
}

impl Rights {
    /// Returns the rights of a role with this configuration.
    pub fn new(role: &str, config: Option<RoleConfig>) -> Self {
        Self {
            role: role.into(),
            config,
            annotations: Annotations::Ignored,
        }
    }

    /// Sets the effect of annotations on a role without a configuration.
    pub fn with_annotations(self, annotations: Annotations) -> Self {
        Self {
            annotations,
            ..self
        }
    }

    fn is_others(&self, schema: &Schema, id: u32) -> bool {
        let owners = schema.roles.get(&id);
        owners.is_some_and(|owners| !owners.contains(&self.role))
    }

    /// Returns whether the role may access the object with this P4Info id.
    pub fn covers_id(&self, schema: &Schema, id: u32) -> bool {
        if self.role.is_empty() {
            return true;
        }
        match &self.config {
            Some(config) if config.by_annotation => {
                config.p4_ids.contains(&id) || !self.is_others(schema, id)
            }
            Some(config) => config.p4_ids.contains(&id),
            None => self.annotations == Annotations::Ignored || !self.is_others(schema, id),
        }
    }

    /// Returns whether the role may access the entity.
    pub fn covers(&self, schema: &Schema, entity: &Entity) -> bool {
        match (object(entity), &self.config) {
            (Object::Id(id), _) => self.covers_id(schema, id),
            (Object::Replication, config) => config.as_ref().is_none_or(|c| c.replication),
        }
    }

    /// Refuses a write to an entity that the role may not access.
    pub fn check(&self, schema: &Schema, entity: &Entity) -> UpdateResult {
        self.must(self.covers(schema, entity))
    }

    /// Refuses a write to an object that the role may not access.
    pub fn check_id(&self, schema: &Schema, id: u32) -> UpdateResult {
        self.must(self.covers_id(schema, id))
    }

    fn must(&self, covered: bool) -> UpdateResult {
        if covered {
            return Ok(());
        }
        let message = format!("role {:?} does not permit writes to this entity", self.role);
        Err(UpdateError::permission_denied(message))
    }

    /// Refuses a new pipeline if the role's configuration does not allow the role to set one.
    pub fn check_pipeline(&self) -> Result<(), Status> {
        match &self.config {
            Some(config) if !config.pipeline => Err(Status::permission_denied(format!(
                "role {:?} does not permit setting the forwarding pipeline config",
                self.role
            ))),
            _ => Ok(()),
        }
    }

    /// Returns whether the role may receive any packet-in.
    pub fn receives_packets(&self) -> bool {
        self.config
            .as_ref()
            .is_none_or(|config| config.packet_in.is_some())
    }

    /// Returns whether the role receives all packet-ins.
    pub fn receives_all(&self) -> bool {
        self.config.is_none()
    }

    /// Returns whether the role may send all packet-outs.
    pub fn sends_all(&self) -> bool {
        self.config.is_none()
    }

    /// Returns whether the role receives a packet-in with this metadata.
    pub fn receives(&self, metadata: &[PacketMetadata]) -> bool {
        self.config.as_ref().is_none_or(|config| {
            let filter = config.packet_in.as_ref();
            filter.is_some_and(|filter| passes(filter, metadata))
        })
    }

    /// Returns whether the role may send a packet-out with this metadata.
    pub fn sends(&self, metadata: &[PacketMetadata]) -> bool {
        self.config.as_ref().is_none_or(|config| {
            let filter = config.packet_out.as_ref();
            filter.is_some_and(|filter| passes(filter, metadata))
        })
    }
}

fn passes(filter: &PacketFilter, metadata: &[PacketMetadata]) -> bool {
    let same =
        |a: &[u8], b: &[u8]| crate::bytestring::canonical(a) == crate::bytestring::canonical(b);
    filter.metadata_id == 0
        || metadata
            .iter()
            .filter(|field| field.metadata_id == filter.metadata_id)
            .any(|field| filter.values.iter().any(|value| same(value, &field.value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn a_configuration_of_another_scheme_is_refused() {
        let mut config = prost_types::Any {
            type_url: format!("type.googleapis.com/{CONFIG_TYPE}"),
            value: RoleConfig::default().encode_to_vec(),
        };
        assert_eq!(decode_config(&config).unwrap(), RoleConfig::default());
        config.value = vec![0xff];
        assert_eq!(
            decode_config(&config).unwrap_err().code(),
            Code::InvalidArgument
        );
        config.type_url = "type.googleapis.com/other.Config".into();
        let error = decode_config(&config).unwrap_err();
        assert!(error.message().contains("other.Config"), "{error}");
    }

    #[test]
    fn packets_pass_by_one_metadata_field() {
        let filter = PacketFilter {
            metadata_id: 2,
            values: vec![vec![0, 7]],
        };
        let packet = |metadata_id, value| {
            [PacketMetadata {
                metadata_id,
                value: vec![value],
            }]
        };
        let config = RoleConfig {
            packet_in: Some(filter),
            ..RoleConfig::default()
        };
        let rights = Rights::new("r", Some(config));
        assert!(rights.receives(&packet(2, 7)));
        assert!(!rights.receives(&packet(2, 8)));
        assert!(!rights.receives(&packet(1, 7)));
        assert!(!rights.sends(&packet(2, 7)));
        assert!(Rights::new("r", None).sends(&packet(2, 7)));
    }
}
