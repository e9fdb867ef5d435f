// SPDX-License-Identifier: Apache-2.0
//! Tests the rules of arbitration, and the bounds on its state.

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

/// Sends an update and completes the takeover at once. Returns all notifications as (controller, code, election id).
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
        "the client may not write yet"
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
    assert!(arbiter.has_primary(DEFAULT_ROLE) && arbiter.has_primary("routes"));
    assert!(!arbiter.has_primary("flows"));
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
        "the role exists already"
    );
    assert!(
        update(&mut arbiter, 102, "", 1).is_ok(),
        "the default role exists"
    );
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
    // Before its first primary, the role has no election id that must be kept.
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
    // The last role is still known; the first role is not.
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
    /// Checks that there is at most one primary, and that its election id is the highest ever seen.
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
