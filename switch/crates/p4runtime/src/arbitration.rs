// SPDX-License-Identifier: Apache-2.0
//! Who is primary: client arbitration (P4Runtime specification, "Client Arbitration and Controller Replication").
//!
//! A pure state machine for one device: it neither waits nor sends. It is told of updates and disconnections, and answers
//! with the notifications to send, in order. State is kept for each role. The primary of a role is the live controller
//! whose election id is the highest ever seen for it; when it leaves, nobody else becomes primary by itself.
//!
//! A takeover has two steps, because writes of the old primary may be in flight: [`Arbiter::update`] stops accepting them
//! and notifies the others; once they have drained, [`Arbiter::complete`] accepts the new primary and notifies it.

use std::collections::{BTreeMap, HashMap};

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
        let state = self.roles.entry(role.clone()).or_default();
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
        if state.primary_controller() != Some(controller) {
            return Vec::new();
        }
        state.primary = Primary::None;
        self.notify(&role, |_| true)
    }

    /// Checks that a request comes from the primary of the role that it names; what that may do.
    pub fn authorize(&self, role: &str, id: Option<&Uint128>) -> Result<Rights, Status> {
        let Some(state) = self.roles.get(role) else {
            return Err(Status::not_found(format!(
                "no role {role:?} on this device"
            )));
        };
        let primary = matches!(state.primary, Primary::Active(_));
        if primary && id.is_some() && id.map(election_id) == state.highest {
            return Ok(state.rights.clone());
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
        let rights = Rights::new(&role, config.map(role::decode_config).transpose()?);
        let Some(state) = self.roles.get(&role) else {
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
