// SPDX-License-Identifier: Apache-2.0
//! Tests `Follower` with `TrackedRib`. A follower's answers must always match the routes as of its last update.
//! Algorithms must be selected, pinned and built with delay as documented.

mod common;

use std::time::{Duration, Instant};

use common::{Naive, Step, clustered4, clustered6, steps};
use proptest::prelude::*;
use sluice_fib::{Family, Follower, LONGEST_DELAY, NONE, PinError, Prefix, Status, TrackedRib};

/// Routes with one follower.
struct Followed<A: Family> {
    routes: TrackedRib<A>,
    follower: Follower<A>,
}

impl<A: Family> Followed<A> {
    fn new() -> Self {
        let routes = TrackedRib::new();
        Self {
            follower: Follower::new(routes.rib()),
            routes,
        }
    }

    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        self.routes.insert(prefix, value, 0)
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        self.routes.remove(prefix)
    }

    fn lookup(&self, address: A) -> u32 {
        self.follower.lookup(address)
    }

    fn settle(&mut self, now: impl FnOnce() -> Instant) {
        self.routes.reduce();
        let (changes, rib) = (self.routes.changes(), self.routes.rib());
        self.follower.follow(changes, rib, now);
        self.routes.forget();
    }

    fn is_pending(&self) -> bool {
        !self.routes.changes().is_empty() || self.follower.is_pending()
    }

    fn pin(&mut self, name: Option<&str>) -> Result<(), PinError> {
        self.settle(Instant::now);
        self.follower.pin(name, self.routes.rib())
    }

    fn status(&self) -> Status {
        self.follower.status(self.routes.rib())
    }
}

fn always_answers_rightly<A: Family>(steps: &[Step<A>], pins: &[usize]) {
    let (mut fib, mut naive) = (Followed::new(), Naive::default());
    let mut settled = naive.clone();
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Insert(prefix, value) => {
                assert_eq!(fib.insert(prefix, value), naive.insert(prefix, value));
            }
            Step::Remove(prefix) => assert_eq!(fib.remove(prefix), naive.remove(prefix)),
        }
        if index % 7 == 3 {
            fib.settle(Instant::now);
            settled = naive.clone();
        }
        if index % 11 == 5 {
            let pin = pins[index % pins.len()];
            let name = A::ALGORITHMS.get(pin).map(|kind| kind.name);
            fib.pin(name).expect("small values");
            settled = naive.clone();
        }
        let edges = naive.edges();
        let mut values = vec![0; edges.len()];
        fib.follower.lookup_batch(&edges, &mut values);
        for (address, value) in edges.into_iter().zip(values) {
            let expected = settled.lookup(address).unwrap_or(NONE);
            assert_eq!((value, fib.lookup(address)), (expected, expected));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 16 }))]
    #[test]
    fn ipv4_answers_rightly_at_every_moment(
        steps in steps(clustered4(), 0..9, 60),
        pins in prop::collection::vec(0usize..4, 1..5),
    ) {
        always_answers_rightly(&steps, &pins);
    }

    #[test]
    fn ipv6_answers_rightly_at_every_moment(
        steps in steps(clustered6(), 0..9, 150),
        pins in prop::collection::vec(0usize..4, 1..5),
    ) {
        always_answers_rightly(&steps, &pins);
    }
}

/// Checks two followers of one RIB. They get the same changes one after the other, like the two replicas of a table.
/// Each follower must answer according to the changes that it has received.
fn followers_agree<A: Family>(steps: &[Step<A>], batch: usize) {
    let (mut routes, mut naive) = (TrackedRib::new(), Naive::default());
    let mut followers = [Follower::new(routes.rib()), Follower::new(routes.rib())];
    for steps in steps.chunks(batch) {
        for step in steps {
            match *step {
                Step::Insert(prefix, value) => {
                    assert_eq!(routes.insert(prefix, value, 0), naive.insert(prefix, value));
                }
                Step::Remove(prefix) => assert_eq!(routes.remove(prefix), naive.remove(prefix)),
            }
        }
        routes.reduce();
        for follower in &mut followers {
            follower.follow(routes.changes(), routes.rib(), Instant::now);
            for address in naive.edges() {
                let expected = naive.lookup(address).unwrap_or(NONE);
                assert_eq!(follower.lookup(address), expected);
            }
        }
        routes.forget();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 16 }))]
    #[test]
    fn followers_of_one_rib_answer_alike(
        narrow in steps(clustered4(), 0..9, 60),
        wide in steps(clustered6(), 0..9, 150),
        batch in 1usize..60,
    ) {
        followers_agree(&narrow, batch);
        followers_agree(&wide, batch);
    }
}

/// Returns a time at which every delay is over.
fn later() -> Instant {
    Instant::now() + LONGEST_DELAY + Duration::from_secs(1)
}

fn route(index: u32) -> Prefix<u32> {
    Prefix::new(index << 12, 24)
}

#[test]
fn the_choice_follows_the_number_of_routes_with_hysteresis() {
    let mut fib = Followed::new();
    let mut chosen = Vec::new();
    for index in 0..100 {
        fib.insert(route(index), index % 5);
        fib.settle(later);
        chosen.push(fib.status().algorithm);
    }
    let up = chosen
        .iter()
        .position(|name| *name == "rank16")
        .expect("many routes");
    assert!(chosen[..up].iter().all(|name| *name == "ranges"));
    assert!(chosen[up..].iter().all(|name| *name == "rank16"));
    let mut down = 100;
    while fib.status().algorithm == "rank16" {
        down -= 1;
        fib.remove(route(down));
        fib.settle(later);
    }
    assert!(
        (0..up as u32 / 2).contains(&down),
        "up at {up}, down at {down}"
    );
}

#[test]
fn a_value_that_does_not_fit_brings_a_wider_structure() {
    let mut fib = Followed::new();
    for index in 0..100 {
        fib.insert(route(index), index);
    }
    fib.settle(later);
    assert_eq!(fib.status().algorithm, "rank16");
    fib.insert(route(7), 70_000);
    assert_eq!(fib.lookup(7 << 12), 7, "it is not settled");
    fib.settle(later);
    assert_eq!(
        (fib.status().algorithm, fib.lookup(7 << 12)),
        ("rank32", 70_000)
    );
}

#[test]
fn a_batch_that_changes_most_routes_is_a_build() {
    let mut fib = Followed::new();
    for index in 0..4000 {
        fib.insert(route(index), index);
    }
    fib.settle(later);
    let builds = fib.status().builds;
    for index in 0..1000 {
        fib.insert(route(index), index + 1);
    }
    assert_eq!((fib.is_pending(), fib.lookup(5 << 12)), (true, 5));
    fib.settle(later);
    assert_eq!((fib.is_pending(), fib.lookup(5 << 12)), (false, 6));
    assert_eq!(fib.status().builds, builds, "few changes are followed");
    for index in 0..4000 {
        fib.insert(route(index), index + 2);
    }
    fib.settle(Instant::now);
    assert_eq!(fib.status().builds, builds + 1);
    for index in 0..4000 {
        assert_eq!(fib.lookup(index << 12), index + 2);
    }
}

#[test]
fn builds_are_put_off_in_proportion_to_what_they_take() {
    let mut fib = Followed::new();
    for index in 0..1000 {
        fib.insert(route(index), index);
    }
    let start = Instant::now();
    fib.settle(later);
    let (builds, took) = (fib.status().builds, fib.status().last_build);
    fib.insert(route(1), 70_000);
    assert!(fib.is_pending());
    // Nothing must happen before the delay is over, however slowly this test runs.
    fib.settle(|| start + took);
    assert_eq!(
        (fib.status().builds, fib.status().algorithm),
        (builds, "rib")
    );
    assert_eq!(fib.lookup(1 << 12), 70_000, "the RIB's copy answers");
    fib.settle(later);
    assert_eq!((fib.status().builds, fib.is_pending()), (builds + 1, false));
}

#[test]
fn what_is_pinned_stays_and_what_cannot_be_is_refused() {
    let mut fib = Followed::new();
    fib.insert(route(1), 40_000);
    let error = fib.pin(Some("rank16")).expect_err("too large a value");
    assert!(error.to_string().contains("40000"), "{error}");
    assert_eq!(
        (fib.status().algorithm, fib.status().pinned),
        ("ranges", None)
    );
    let error = fib.pin(Some("nonsense")).expect_err("no such name");
    assert!(error.to_string().contains("rank16"), "{error}");

    fib.insert(route(1), 4);
    fib.pin(Some("rank16")).expect("fits");
    assert_eq!(fib.status().pinned, Some("rank16"));
    fib.insert(route(2), 40_000);
    fib.settle(later);
    let status = fib.status();
    assert_eq!((status.algorithm, status.pinned), ("rib", Some("rank16")));
    assert_eq!(fib.lookup(2 << 12), 40_000);
    fib.insert(route(2), 5);
    fib.settle(later);
    assert_eq!(fib.status().algorithm, "rank16", "it fits again");
    fib.pin(None).expect("the choice is free");
    assert_eq!(
        (fib.status().algorithm, fib.status().pinned),
        ("ranges", None)
    );
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn every_algorithm_is_tried() {
    let mut fib = Followed::new();
    for index in 0..1000 {
        fib.insert(route(index), index * 40);
    }
    for trial in fib.routes.rib().try_algorithms() {
        match trial.outcome {
            Ok(rates) => assert!(rates.batch > 0.0 && rates.dependent > 0.0 && rates.bytes > 0),
            Err(_) => assert!(trial.algorithm.ends_with("16"), "{}", trial.algorithm),
        }
    }
}
