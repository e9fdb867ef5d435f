// SPDX-License-Identifier: Apache-2.0
//! Who is primary: client arbitration (P4Runtime specification, "Client Arbitration and Controller Replication").
//!
//! A pure state machine for one device: it neither waits nor sends. It is told of updates and disconnections, and answers
//! with the notifications to send, in order. State is kept for each role. The primary of a role is the live controller
//! whose election id is the highest ever seen for it; when it leaves, nobody else becomes primary by itself.
//!
//! What is kept is bounded. A role whose streams have all ended is forgotten but for its name and its highest election id,
//! and of such roles the one that was left first is forgotten altogether when there are too many.
//!
//! A takeover has two steps, because writes of the old primary may be in flight: [`Arbiter::update`] stops accepting them
//! and notifies the others; once they have drained, [`Arbiter::complete`] accepts the new primary and notifies it.

use std::collections::{BTreeMap, HashMap};

use prost::Message;
use tonic::{Code, Status};

use crate::proto::rpc;
use crate::proto::v1::{MasterArbitrationUpdate, Role, Uint128};
use crate::role::{self, Rights};

/// Identifies a stream for as long as the server runs.
pub type ControllerId = u64;

/// The name of a role; empty for the default role.
pub type RoleName = String;

/// Streams that one role may have open at a time.
pub const MAX_CONTROLLERS: usize = 64;

/// Roles besides the default role that may have streams at a time.
pub const MAX_ROLES: usize = 32;

/// Roles whose highest election id is remembered.
const MAX_KNOWN_ROLES: usize = 256;

/// Bytes that a role's name may have.
pub const MAX_ROLE_NAME: usize = 256;

/// Bytes that a role's configuration may have. Each notification carries it, so it counts many times.
pub const MAX_ROLE_CONFIG: usize = 16 << 10;

/// A notification for one controller.
pub type Notification = (ControllerId, MasterArbitrationUpdate);

/// What an accepted update leads to.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// To be sent now.
    pub notifications: Vec<Notification>,
    /// To be completed when no write of this role is in flight any more.
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
    /// The role that changes hands.
    pub fn role(&self) -> &str {
        &self.role
    }
}

/// Arbitration state of one device.
#[derive(Debug)]
pub struct Arbiter {
    device_id: u64,
    roles: HashMap<RoleName, RoleState>,
    /// The role that each live controller has taken with its first update.
    controllers: HashMap<ControllerId, RoleName>,
    /// Counts the roles that were left.
    departures: u64,
}

#[derive(Debug, Default)]
struct RoleState {
    /// The highest election id that a primary of this role ever had.
    highest: Option<u128>,
    primary: Primary,
    /// What the last primary gave as its role's configuration, and what it means.
    config: Option<prost_types::Any>,
    rights: Rights,
    /// Live controllers and their election ids.
    controllers: BTreeMap<ControllerId, Option<u128>>,
    /// When the last of them left.
    left: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Primary {
    #[default]
    None,
    /// Chosen, but writes of its predecessor are in flight.
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
pub fn election_id(id: &Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

fn to_message(id: u128) -> Uint128 {
    Uint128 {
        high: (id >> 64) as u64,
        low: id as u64,
    }
}

/// The name that a role message means: names are what counts since 1.4, ids are what older clients send.
pub fn role_name(name: &str, deprecated_id: u64) -> RoleName {
    if name.is_empty() && deprecated_id != 0 {
        deprecated_id.to_string()
    } else {
        name.into()
    }
}

impl Arbiter {
    /// No controllers yet.
    pub fn new(device_id: u64) -> Self {
        // The default role exists from the start; others come with their first controller.
        let roles = HashMap::from([(RoleName::new(), RoleState::default())]);
        Self {
            device_id,
            roles,
            controllers: HashMap::new(),
            departures: 0,
        }
    }

    /// Handles an update from a controller. An error ends its stream (the caller then calls [`Self::disconnect`]).
    pub fn update(
        &mut self,
        controller: ControllerId,
        update: &MasterArbitrationUpdate,
    ) -> Result<Verdict, Status> {
        let (role, rights) = self.check(controller, update)?;
        let id = update.election_id.as_ref().map(election_id);
        self.controllers.insert(controller, role.clone());
        self.make_room_for(&role);
        let fresh = || RoleState {
            rights: Rights::new(&role, None),
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

    /// Accepts the new primary of a takeover, unless it has been overtaken itself; returns its notification.
    pub fn complete(&mut self, takeover: &Takeover) -> Vec<Notification> {
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

    /// Forgets a controller whose stream has ended; returns the notifications for those that remain.
    pub fn disconnect(&mut self, controller: ControllerId) -> Vec<Notification> {
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
            state.rights = Rights::new(&role, None);
            if state.highest.is_none() && !role.is_empty() {
                self.roles.remove(&role);
            }
        }
        if was_primary {
            return self.notify(&role, |_| true);
        }
        Vec::new()
    }

    /// Forgets the role that was left first, if one more would be too many.
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

    /// Checks that a request is the primary's of the role that it names; who that is and what it may do.
    pub fn authorize(
        &self,
        role: &str,
        id: Option<&Uint128>,
    ) -> Result<(ControllerId, &Rights), Status> {
        let Some(state) = self.roles.get(role) else {
            return Err(Status::not_found(format!(
                "no role {role:?} on this device"
            )));
        };
        if let Primary::Active(primary) = state.primary
            && id.is_some()
            && id.map(election_id) == state.highest
        {
            return Ok((primary, &state.rights));
        }
        Err(Status::permission_denied(
            "not the primary: the election id is not the primary's",
        ))
    }

    /// What the controller may do if it is the accepted primary of its role.
    pub fn rights_of(&self, controller: ControllerId) -> Option<&Rights> {
        let state = self.roles.get(self.controllers.get(&controller)?)?;
        (state.primary == Primary::Active(controller)).then_some(&state.rights)
    }

    /// What a role may do, whoever its primary is.
    pub fn rights(&self, role: &str) -> Rights {
        let known = self.roles.get(role).map(|state| state.rights.clone());
        known.unwrap_or_else(|| Rights::new(role, None))
    }

    /// The accepted primaries of all roles, and what they may do.
    pub fn primaries(&self) -> impl Iterator<Item = (ControllerId, &Rights)> + '_ {
        self.roles.values().filter_map(|state| match state.primary {
            Primary::Active(controller) => Some((controller, &state.rights)),
            _ => None,
        })
    }

    /// The rules by which an update is refused; the role that it is for and what that may do, if it is not.
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
            let message = format!("device {} is not this device", update.device_id);
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
            let message = "the default role has full access, and no configuration";
            return Err(Status::invalid_argument(message));
        }
        check_size("role.name", role.len(), MAX_ROLE_NAME)?;
        let length = config.map_or(0, Message::encoded_len);
        check_size("role.config", length, MAX_ROLE_CONFIG)?;
        let rights = Rights::new(&role, config.map(role::decode_config).transpose()?);
        let state = self.roles.get(&role);
        let is_live = |state: &RoleState| !state.controllers.is_empty();
        if !role.is_empty() && !state.is_some_and(is_live) {
            let mut live = self.roles.iter().filter(|(_, state)| is_live(state));
            if live.by_ref().filter(|(name, _)| !name.is_empty()).count() >= MAX_ROLES {
                let message = format!("{MAX_ROLES} roles have streams open: end those of another");
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
            let message = format!("{MAX_CONTROLLERS} streams are open for this role");
            return Err(Status::resource_exhausted(message));
        }
        Ok((role, rights))
    }

    /// Advisory messages for those live controllers of a role that `select` picks.
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
        "{what} has {length} bytes, at most {limit} are taken"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEVICE: u64 = 1;

    fn request(role: &str, id: Option<u128>) -> MasterArbitrationUpdate {
        MasterArbitrationUpdate {
            device_id: DEVICE,
            role: (!role.is_empty()).then(|| Role {
                name: role.into(),
                ..Role::default()
            }),
            election_id: id.map(to_message),
            status: None,
        }
    }

    /// Updates and completes the takeover at once; what everyone was told, as (controller, code, election id).
    fn update(
        arbiter: &mut Arbiter,
        controller: ControllerId,
        role: &str,
        id: impl Into<Option<u128>>,
    ) -> Result<Vec<(ControllerId, Code, Option<u128>)>, Code> {
        let verdict = arbiter
            .update(controller, &request(role, id.into()))
            .map_err(|status| status.code())?;
        let mut all = verdict.notifications;
        if let Some(takeover) = verdict.takeover {
            all.extend(arbiter.complete(&takeover));
        }
        Ok(told(all))
    }

    fn told(all: Vec<Notification>) -> Vec<(ControllerId, Code, Option<u128>)> {
        let code = |update: &MasterArbitrationUpdate| update.status.as_ref().unwrap().code;
        all.iter()
            .map(|(to, u)| {
                (
                    *to,
                    Code::from(code(u)),
                    u.election_id.as_ref().map(election_id),
                )
            })
            .collect()
    }

    fn may_write(arbiter: &Arbiter, role: &str, id: u128) -> Result<(), Code> {
        arbiter
            .authorize(role, Some(&to_message(id)))
            .map(drop)
            .map_err(|status| status.code())
    }

    #[test]
    fn the_first_controller_with_an_id_is_primary() {
        let mut arbiter = Arbiter::new(DEVICE);
        assert_eq!(
            update(&mut arbiter, 1, "", 0),
            Ok(vec![(1, Code::Ok, Some(0))])
        );
        assert!(arbiter.rights_of(1).is_some());
    }

    #[test]
    fn an_unset_id_is_never_primary_and_hears_not_found() {
        let mut arbiter = Arbiter::new(DEVICE);
        assert_eq!(
            update(&mut arbiter, 1, "", None),
            Ok(vec![(1, Code::NotFound, None)])
        );
        assert_eq!(
            update(&mut arbiter, 2, "", None),
            Ok(vec![(2, Code::NotFound, None)])
        );
        assert!(arbiter.authorize("", None).is_err());
    }

    #[test]
    fn a_higher_id_takes_over_and_the_others_hear_first() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "", 5).unwrap();
        let verdict = arbiter.update(2, &request("", Some(6))).unwrap();
        assert_eq!(
            told(verdict.notifications),
            [(1, Code::AlreadyExists, Some(6))]
        );
        assert_eq!(may_write(&arbiter, "", 5), Err(Code::PermissionDenied));
        assert_eq!(
            may_write(&arbiter, "", 6),
            Err(Code::PermissionDenied),
            "not yet"
        );
        let told = told(arbiter.complete(&verdict.takeover.unwrap()));
        assert_eq!(told, [(2, Code::Ok, Some(6))]);
        assert_eq!(may_write(&arbiter, "", 6), Ok(()));
    }

    #[test]
    fn a_takeover_that_is_overtaken_comes_to_nothing() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "", 5).unwrap();
        let first = arbiter
            .update(2, &request("", Some(6)))
            .unwrap()
            .takeover
            .unwrap();
        let second = arbiter
            .update(3, &request("", Some(7)))
            .unwrap()
            .takeover
            .unwrap();
        assert_eq!(told(arbiter.complete(&second)), [(3, Code::Ok, Some(7))]);
        assert_eq!(arbiter.complete(&first), []);
        assert!(arbiter.rights_of(3).is_some() && arbiter.rights_of(2).is_none());
    }

    #[test]
    fn the_highest_id_ever_seen_outlives_its_controller() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "", 9).unwrap();
        update(&mut arbiter, 2, "", 5).unwrap();
        assert_eq!(told(arbiter.disconnect(1)), [(2, Code::NotFound, Some(9))]);
        assert_eq!(
            update(&mut arbiter, 2, "", 8),
            Ok(vec![(2, Code::NotFound, Some(9))])
        );
        assert_eq!(
            update(&mut arbiter, 3, "", 9).unwrap().last(),
            Some(&(3, Code::Ok, Some(9)))
        );
    }

    #[test]
    fn a_primary_that_lowers_its_id_becomes_a_backup_and_all_hear_it() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "", 9).unwrap();
        update(&mut arbiter, 2, "", 5).unwrap();
        let all = vec![(1, Code::NotFound, Some(9)), (2, Code::NotFound, Some(9))];
        assert_eq!(update(&mut arbiter, 1, "", 4), Ok(all));
        assert_eq!(may_write(&arbiter, "", 9), Err(Code::PermissionDenied));
    }

    #[test]
    fn a_repeated_update_of_the_primary_is_answered_and_changes_nothing() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "", 9).unwrap();
        assert_eq!(
            update(&mut arbiter, 1, "", 9),
            Ok(vec![(1, Code::Ok, Some(9))])
        );
    }

    #[test]
    fn a_backup_leaving_is_nobodys_business() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "", 9).unwrap();
        update(&mut arbiter, 2, "", 5).unwrap();
        assert_eq!(arbiter.disconnect(2), []);
    }

    #[test]
    fn roles_do_not_know_each_other() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "", 9).unwrap();
        assert_eq!(
            update(&mut arbiter, 2, "routes", 9),
            Ok(vec![(2, Code::Ok, Some(9))])
        );
        assert_eq!(may_write(&arbiter, "routes", 9), Ok(()));
        assert_eq!(may_write(&arbiter, "flows", 9), Err(Code::NotFound));
        let mut primaries: Vec<_> = arbiter.primaries().map(|(id, _)| id).collect();
        primaries.sort_unstable();
        assert_eq!(primaries, [1, 2]);
    }

    #[test]
    fn what_ends_a_stream() {
        let mut arbiter = Arbiter::new(DEVICE);
        let wrong = MasterArbitrationUpdate {
            device_id: 2,
            ..request("", Some(1))
        };
        let code = |arbiter: &mut Arbiter, update| arbiter.update(1, update).unwrap_err().code();
        assert_eq!(code(&mut arbiter, &wrong), Code::NotFound);
        update(&mut arbiter, 1, "", 9).unwrap();
        assert_eq!(code(&mut arbiter, &wrong), Code::FailedPrecondition);
        assert_eq!(
            update(&mut arbiter, 1, "other", 9),
            Err(Code::FailedPrecondition)
        );
        assert_eq!(update(&mut arbiter, 2, "", 9), Err(Code::InvalidArgument));
        for controller in 2..=MAX_CONTROLLERS as u64 {
            update(&mut arbiter, controller, "", None).unwrap();
        }
        assert_eq!(
            update(&mut arbiter, 1000, "", None),
            Err(Code::ResourceExhausted)
        );
    }

    #[test]
    fn names_configurations_and_roles_are_bounded() {
        let mut arbiter = Arbiter::new(DEVICE);
        let long = "x".repeat(MAX_ROLE_NAME + 1);
        assert_eq!(
            update(&mut arbiter, 1, &long, 1),
            Err(Code::InvalidArgument)
        );
        assert!(update(&mut arbiter, 1, &long[1..], 1).is_ok());
        for role in 2..=MAX_ROLES as u64 {
            assert!(update(&mut arbiter, role, &format!("role {role}"), 1).is_ok());
        }
        assert_eq!(
            update(&mut arbiter, 100, "more", 1),
            Err(Code::ResourceExhausted)
        );
        assert!(
            update(&mut arbiter, 101, "role 2", 2).is_ok(),
            "a role that is there"
        );
        assert!(update(&mut arbiter, 102, "", 1).is_ok(), "the default role");
        arbiter.disconnect(1);
        assert!(update(&mut arbiter, 103, "more", 1).is_ok());
        let mut request = request("more", Some(2));
        request.role.as_mut().unwrap().config = Some(prost_types::Any {
            type_url: role::CONFIG_TYPE.into(),
            value: vec![0; MAX_ROLE_CONFIG],
        });
        let refused = arbiter.update(103, &request).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("role.config has"), "{refused}");
    }

    #[test]
    fn a_role_without_streams_is_forgotten_but_for_its_highest_id() {
        let mut arbiter = Arbiter::new(DEVICE);
        let mut request = request("r", Some(5));
        let config = crate::proto::role::RoleConfig::default();
        request.role.as_mut().unwrap().config = Some(prost_types::Any {
            type_url: role::CONFIG_TYPE.into(),
            value: config.encode_to_vec(),
        });
        let verdict = arbiter.update(1, &request).unwrap();
        arbiter.complete(&verdict.takeover.unwrap());
        assert_eq!(arbiter.rights("r"), Rights::new("r", Some(config)));
        arbiter.disconnect(1);
        assert!(arbiter.roles["r"].config.is_none());
        assert_eq!(arbiter.rights("r"), Rights::new("r", None));
        let told = update(&mut arbiter, 2, "r", 4);
        assert_eq!(told, Ok(vec![(2, Code::NotFound, Some(5))]));
        // Without a primary there is nothing to remember.
        update(&mut arbiter, 3, "never", None).unwrap();
        arbiter.disconnect(3);
        assert!(!arbiter.roles.contains_key("never"));
    }

    #[test]
    fn only_so_many_roles_are_remembered_and_live_ones_always() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "live", 7).unwrap();
        for role in 0..2 * MAX_KNOWN_ROLES as u64 {
            update(&mut arbiter, 2, &format!("role {role}"), 9).unwrap();
            arbiter.disconnect(2);
        }
        assert_eq!(arbiter.roles.len(), MAX_KNOWN_ROLES);
        assert!(may_write(&arbiter, "live", 7).is_ok());
        // The last is remembered, the first is not.
        let last = format!("role {}", 2 * MAX_KNOWN_ROLES - 1);
        assert_eq!(
            update(&mut arbiter, 2, &last, 8).unwrap()[0].1,
            Code::NotFound
        );
        arbiter.disconnect(2);
        assert_eq!(update(&mut arbiter, 2, "role 0", 8).unwrap()[0].1, Code::Ok);
    }

    #[test]
    fn the_largest_election_id_can_be_had_again_and_nothing_is_larger() {
        let mut arbiter = Arbiter::new(DEVICE);
        update(&mut arbiter, 1, "", u128::MAX).unwrap();
        assert!(may_write(&arbiter, "", u128::MAX).is_ok());
        arbiter.disconnect(1);
        let told = update(&mut arbiter, 2, "", u128::MAX - 1);
        assert_eq!(told, Ok(vec![(2, Code::NotFound, Some(u128::MAX))]));
        let told = update(&mut arbiter, 2, "", u128::MAX);
        assert_eq!(told, Ok(vec![(2, Code::Ok, Some(u128::MAX))]));
    }

    proptest! {
        /// Whatever controllers do, there is at most one primary, and it has the highest id ever seen.
        #[test]
        fn never_two_primaries(
            steps in proptest::collection::vec((0..8u64, proptest::option::of(0..6u128), any::<bool>()), 0..60)
        ) {
            let mut arbiter = Arbiter::new(DEVICE);
            let mut highest = None;
            for (controller, id, leave) in steps {
                if leave || update(&mut arbiter, controller, "", id).is_err() {
                    arbiter.disconnect(controller);
                } else {
                    highest = highest.max(id);
                }
                let primaries: Vec<_> = arbiter.primaries().map(|(id, _)| id).collect();
                prop_assert!(primaries.len() <= 1);
                if let Some(primary) = primaries.first() {
                    prop_assert_eq!(arbiter.roles[""].controllers[primary], highest);
                }
            }
        }
    }
}
