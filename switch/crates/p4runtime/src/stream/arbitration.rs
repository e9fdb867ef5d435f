// SPDX-License-Identifier: Apache-2.0
//! Elects the primary of each role (P4Runtime specification, "Client Arbitration and Controller Replication").
//!
//! [`Arbiter`] is the state machine of one device, and does no I/O. It takes updates and disconnections, and returns
//! the notifications to send, in order. The primary of a role is the connected controller that sent the highest
//! election id the role has ever had. When the primary leaves, the role has no primary until a controller sends this
//! id or a higher one.
//!
//! Invariant: the state is bounded. When all streams of a role have ended, only the role's name and highest election
//! id are kept. When there are too many such roles, the role that has been without streams for the longest time is
//! deleted.
//!
//! A takeover has two steps, because writes of the old primary may be in flight. [`Arbiter::update`] stops accepting
//! the old primary's writes and notifies the other controllers. When no write is in flight any more,
//! [`Arbiter::complete`] accepts the new primary and notifies this controller.

use std::collections::{BTreeMap, HashMap};

use prost::Message;
use tonic::{Code, Status};

use crate::proto::rpc;
use crate::proto::v1::{MasterArbitrationUpdate, Role, Uint128};
use crate::role::{self, Annotations, Rights};

/// Identifies a stream for as long as the server runs.
pub(crate) type ControllerId = u64;

/// The name of a role; empty for the default role.
pub(crate) type RoleName = String;

/// The name of the default role, for messages without a role.
pub(crate) const DEFAULT_ROLE: &str = "";

/// Largest number of streams that one role may have open.
pub(crate) const MAX_CONTROLLERS: usize = 64;

/// Largest number of roles, besides the default role, that may have open streams.
pub const MAX_ROLES: usize = 32;

/// Largest number of roles whose highest election id is remembered.
const MAX_KNOWN_ROLES: usize = 256;

/// Largest length of a role's name, in bytes.
pub const MAX_ROLE_NAME: usize = 256;

/// Largest length of a role's configuration, in bytes. Each notification to a controller of the role contains the
/// configuration.
pub const MAX_ROLE_CONFIG: usize = 16 << 10;

/// A notification for one controller.
pub(crate) type Notification = (ControllerId, MasterArbitrationUpdate);

/// The result of an accepted update.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Notifications to send now.
    pub notifications: Vec<Notification>,
    /// Takeover that the caller must complete when no write of this role is in flight any more.
    pub takeover: Option<Takeover>,
}

/// A takeover that waits for the old primary's writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    role: RoleName,
    controller: ControllerId,
    election_id: u128,
}

impl Takeover {
    /// Returns the role whose primary changes.
    pub fn role(&self) -> &str {
        &self.role
    }
}

/// Arbitration state of one device.
#[derive(Debug)]
pub(crate) struct Arbiter {
    device_id: u64,
    roles: HashMap<RoleName, RoleState>,
    /// The role of each connected controller, from its first update.
    controllers: HashMap<ControllerId, RoleName>,
    /// How often a role has lost its last controller, counted over all roles.
    departures: u64,
    /// Effect of `@p4runtime_role` on roles without a configuration.
    annotations: Annotations,
}

#[derive(Debug, Default)]
struct RoleState {
    /// The highest election id that a primary of this role ever had.
    highest: Option<u128>,
    primary: Primary,
    /// The role's configuration, as the last primary sent it. `rights` is derived from it.
    config: Option<prost_types::Any>,
    rights: Rights,
    /// Connected controllers and their election ids.
    controllers: BTreeMap<ControllerId, Option<u128>>,
    /// The value of `departures` when the last controller left.
    left: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Primary {
    #[default]
    None,
    /// The controller is elected, but writes of the old primary may still be in flight.
    Pending(ControllerId),
    Active(ControllerId),
}

impl RoleState {
    fn primary_controller(&self) -> Option<ControllerId> {
        match self.primary {
            Primary::None => None,
            Primary::Pending(controller) | Primary::Active(controller) => Some(controller),
        }
    }
}

/// Reads an election id.
pub(crate) fn election_id(id: &Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

fn to_message(id: u128) -> Uint128 {
    Uint128 {
        high: (id >> 64) as u64,
        low: id as u64,
    }
}

/// Returns the name of a role. P4Runtime 1.4 and later name it in `name`. Older clients send the deprecated id, which
/// is used in decimal.
pub(crate) fn role_name(name: &str, deprecated_id: u64) -> RoleName {
    if name.is_empty() && deprecated_id != 0 {
        deprecated_id.to_string()
    } else {
        name.into()
    }
}

impl Arbiter {
    /// Creates the state without controllers.
    pub(crate) fn new(device_id: u64) -> Self {
        // The default role exists from the start. Any other role is created with its first controller.
        let roles = HashMap::from([(RoleName::new(), RoleState::default())]);
        Self {
            device_id,
            roles,
            controllers: HashMap::new(),
            departures: 0,
            annotations: Annotations::default(),
        }
    }

    /// From now on, restricts roles without a configuration to objects that the program assigns to them or to no role.
    pub(crate) fn enforce_annotations(&mut self) {
        self.annotations = Annotations::Enforced;
    }

    fn rights_without_config(&self, role: &str) -> Rights {
        Rights::new(role, None).with_annotations(self.annotations)
    }

    /// Handles an update from a controller. After an error, the caller ends the stream and calls [`Self::disconnect`].
    pub(crate) fn update(
        &mut self,
        controller: ControllerId,
        update: &MasterArbitrationUpdate,
    ) -> Result<Verdict, Status> {
        let (role, rights) = self.check(controller, update)?;
        let id = update.election_id.as_ref().map(election_id);
        self.controllers.insert(controller, role.clone());
        self.make_room_for(&role);
        let unrestricted = self.rights_without_config(&role);
        let fresh = || RoleState {
            rights: unrestricted,
            ..RoleState::default()
        };
        let state = self.roles.entry(role.clone()).or_insert_with(fresh);
        state.controllers.insert(controller, id);
        let was_primary = state.primary_controller() == Some(controller);
        match id {
            Some(id) if state.highest.is_none_or(|highest| id >= highest) => {
                state.config = update.role.as_ref().and_then(|role| role.config.clone());
                state.rights = rights;
                Ok(self.take_over(role, controller, id))
            }
            _ if was_primary => {
                state.primary = Primary::None;
                Ok(Verdict {
                    notifications: self.notify(&role, |_| true),
                    takeover: None,
                })
            }
            _ => {
                let notifications = self.notify(&role, |other| other == controller);
                Ok(Verdict {
                    notifications,
                    takeover: None,
                })
            }
        }
    }

    fn take_over(&mut self, role: RoleName, controller: ControllerId, id: u128) -> Verdict {
        if let Some(state) = self.roles.get_mut(&role) {
            state.primary = Primary::Pending(controller);
            state.highest = Some(id);
        }
        Verdict {
            notifications: self.notify(&role, |other| other != controller),
            takeover: Some(Takeover {
                role,
                controller,
                election_id: id,
            }),
        }
    }

    /// Accepts the new primary, unless a later takeover has replaced this one. Returns the notification for the new
    /// primary.
    pub(crate) fn complete(&mut self, takeover: &Takeover) -> Vec<Notification> {
        let Some(state) = self.roles.get_mut(&takeover.role) else {
            return Vec::new();
        };
        if state.primary != Primary::Pending(takeover.controller)
            || state.highest != Some(takeover.election_id)
        {
            return Vec::new();
        }
        state.primary = Primary::Active(takeover.controller);
        self.notify(&takeover.role, |other| other == takeover.controller)
    }

    /// Removes a controller whose stream has ended. Returns the notifications for the remaining controllers.
    pub(crate) fn disconnect(&mut self, controller: ControllerId) -> Vec<Notification> {
        let Some(role) = self.controllers.remove(&controller) else {
            return Vec::new();
        };
        let Some(state) = self.roles.get_mut(&role) else {
            return Vec::new();
        };
        state.controllers.remove(&controller);
        let was_primary = state.primary_controller() == Some(controller);
        if was_primary {
            state.primary = Primary::None;
        }
        if state.controllers.is_empty() {
            self.departures += 1;
            state.left = self.departures;
            state.config = None;
            state.rights = Rights::new(&role, None).with_annotations(self.annotations);
            if state.highest.is_none() && !role.is_empty() {
                self.roles.remove(&role);
            }
        }
        if was_primary {
            return self.notify(&role, |_| true);
        }
        Vec::new()
    }

    /// If the limit of known roles is reached, deletes the role that has had no controller for the longest time, to
    /// make room for `role`.
    fn make_room_for(&mut self, role: &str) {
        if self.roles.contains_key(role) || self.roles.len() < MAX_KNOWN_ROLES {
            return;
        }
        let left = self
            .roles
            .iter()
            .filter(|(name, state)| !name.is_empty() && state.controllers.is_empty());
        let first = left.min_by_key(|(_, state)| state.left);
        if let Some(name) = first.map(|(name, _)| name.clone()) {
            self.roles.remove(&name);
        }
    }

    /// Checks that a request comes from the primary of the role that the request names. Returns the primary and its
    /// rights.
    pub(crate) fn authorize(
        &self,
        role: &str,
        id: Option<&Uint128>,
    ) -> Result<(ControllerId, &Rights), Status> {
        let Some(state) = self.roles.get(role) else {
            return Err(Status::not_found(format!(
                "no controller has used role {role:?} on this device"
            )));
        };
        if let Primary::Active(primary) = state.primary
            && id.is_some()
            && id.map(election_id) == state.highest
        {
            return Ok((primary, &state.rights));
        }
        Err(Status::permission_denied(
            "not the primary: the election id of the request is not the current primary's",
        ))
    }

    /// Returns the rights of the controller if it is the accepted primary of its role.
    pub(crate) fn rights_of(&self, controller: ControllerId) -> Option<&Rights> {
        let state = self.roles.get(self.controllers.get(&controller)?)?;
        (state.primary == Primary::Active(controller)).then_some(&state.rights)
    }

    /// Returns the rights of a role. The role need not have a primary.
    pub(crate) fn rights(&self, role: &str) -> Rights {
        let known = self.roles.get(role).map(|state| state.rights.clone());
        known.unwrap_or_else(|| self.rights_without_config(role))
    }

    /// Returns the accepted primaries of all roles with their rights.
    pub(crate) fn primaries(&self) -> impl Iterator<Item = (ControllerId, &Rights)> + '_ {
        self.roles.values().filter_map(|state| match state.primary {
            Primary::Active(controller) => Some((controller, &state.rights)),
            _ => None,
        })
    }

    /// Returns whether a role has an accepted primary.
    pub(crate) fn has_primary(&self, role: &str) -> bool {
        let state = self.roles.get(role);
        state.is_some_and(|state| matches!(state.primary, Primary::Active(_)))
    }

    /// Checks an update against the rules of arbitration. Returns the update's role and the rights of this role.
    fn check(
        &self,
        controller: ControllerId,
        update: &MasterArbitrationUpdate,
    ) -> Result<(RoleName, Rights), Status> {
        let role = update
            .role
            .as_ref()
            .map_or_else(RoleName::new, |r| role_name(&r.name, r.id));
        let known = self.controllers.get(&controller);
        if update.device_id != self.device_id {
            let message = format!(
                "device_id {} is not the id of this device",
                update.device_id
            );
            return Err(match known {
                Some(_) => Status::failed_precondition(message),
                None => Status::not_found(message),
            });
        }
        if known.is_some_and(|known| *known != role) {
            return Err(Status::failed_precondition(
                "a stream cannot change its role",
            ));
        }
        let config = update.role.as_ref().and_then(|role| role.config.as_ref());
        if config.is_some() && role.is_empty() {
            let message = "the default role has full access and takes no configuration";
            return Err(Status::invalid_argument(message));
        }
        check_size("role.name", role.len(), MAX_ROLE_NAME)?;
        let length = config.map_or(0, Message::encoded_len);
        check_size("role.config", length, MAX_ROLE_CONFIG)?;
        let rights = Rights::new(&role, config.map(role::decode_config).transpose()?)
            .with_annotations(self.annotations);
        let state = self.roles.get(&role);
        let is_live = |state: &RoleState| !state.controllers.is_empty();
        if !role.is_empty() && !state.is_some_and(is_live) {
            let mut live = self.roles.iter().filter(|(_, state)| is_live(state));
            if live.by_ref().filter(|(name, _)| !name.is_empty()).count() >= MAX_ROLES {
                let message = format!(
                    "{MAX_ROLES} roles have open streams, the maximum: close the streams of another role first"
                );
                return Err(Status::resource_exhausted(message));
            }
        }
        let Some(state) = state else {
            return Ok((role, rights));
        };
        let id = update.election_id.as_ref().map(election_id);
        let taken = |(other, other_id): (&ControllerId, &Option<u128>)| {
            *other != controller && id.is_some() && *other_id == id
        };
        if state.controllers.iter().any(taken) {
            return Err(Status::invalid_argument(
                "another controller has this election id",
            ));
        }
        if known.is_none() && state.controllers.len() >= MAX_CONTROLLERS {
            let message = format!("{MAX_CONTROLLERS} streams are open for this role, the maximum");
            return Err(Status::resource_exhausted(message));
        }
        Ok((role, rights))
    }

    /// Builds notifications for those connected controllers of a role for which `select` returns true.
    fn notify(&self, role: &str, select: impl Fn(ControllerId) -> bool) -> Vec<Notification> {
        let Some(state) = self.roles.get(role) else {
            return Vec::new();
        };
        let primary = state.primary_controller();
        let status = |controller| match primary {
            Some(primary) if primary == controller => (Code::Ok, "you are the primary"),
            Some(_) => (Code::AlreadyExists, "another controller is the primary"),
            None => (Code::NotFound, "there is no primary"),
        };
        let role_message = (!role.is_empty()).then(|| Role {
            name: role.into(),
            config: state.config.clone(),
            ..Role::default()
        });
        let selected = state
            .controllers
            .keys()
            .filter(|controller| select(**controller));
        selected
            .map(|&controller| {
                let (code, message) = status(controller);
                let update = MasterArbitrationUpdate {
                    device_id: self.device_id,
                    role: role_message.clone(),
                    election_id: state.highest.map(to_message),
                    status: Some(rpc::Status {
                        code: code.into(),
                        message: message.into(),
                        details: Vec::new(),
                    }),
                };
                (controller, update)
            })
            .collect()
    }
}

fn check_size(what: &str, length: usize, limit: usize) -> Result<(), Status> {
    if length <= limit {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "{what} has {length} bytes; the maximum is {limit}"
    )))
}

#[cfg(test)]
mod tests;
