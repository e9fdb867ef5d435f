// SPDX-License-Identifier: Apache-2.0
//! A RIB and the look-up algorithm of the moment.
//!
//! Every change goes into the RIB at once, which answers (correct, but slower) until [`Fib::settle`]
//! brings the algorithm's structure in line: call it after a batch of changes, and now and then. What
//! lies under another changed prefix is not looked at twice, and where most routes have changed the
//! structure is built anew instead; so a batch costs no more than a build, whatever is in it.
//!
//! Where the structure cannot follow, it is built anew: at once if the last build was long enough ago,
//! otherwise after a delay of ten times what that took, at most [`LONGEST_DELAY`], so that building
//! takes at most about a tenth of the time however fast routes change.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::algorithm::{Algorithm, BuildError, NONE};
use crate::kinds::{Family, Kind};
use crate::{Prefix, Rib};

/// How long the RIB answers at most before a structure is built again.
pub const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// Changes from which on it is asked whether a build would cost less, and room that is kept for them.
const MANY: usize = 1024;

/// Name of what answers while there is no structure.
const RIB: &str = "rib";

/// Why an algorithm cannot be pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinError {
    /// There is none of this name.
    Unknown {
        /// The names that there are.
        known: Vec<&'static str>,
    },
    /// It cannot hold the routes.
    Build(BuildError),
}

impl std::fmt::Display for PinError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown { known } => {
                write!(
                    formatter,
                    "no such algorithm; there are {}",
                    known.join(", ")
                )
            }
            Self::Build(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for PinError {}

/// What an operator wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The algorithm that answers; `rib` while its structure is to be brought in line or built.
    pub algorithm: &'static str,
    /// The algorithm that was asked for, if one was.
    pub pinned: Option<&'static str>,
    /// Number of routes.
    pub routes: usize,
    /// Number of distinct values.
    pub values: usize,
    /// Bytes of the look-up structure.
    pub bytes: usize,
    /// Bytes of the RIB.
    pub rib_bytes: usize,
    /// How often a structure was built.
    pub builds: u64,
    /// What the last build took.
    pub last_build: Duration,
    /// Whether the structure is to be brought in line or built.
    pub pending: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Fib<A: Family> {
    rib: Rib<A>,
    /// What answers; without it, the RIB does.
    structure: Option<Box<dyn Algorithm<A>>>,
    /// What answered before the routes to these prefixes changed.
    outdated: Option<Box<dyn Algorithm<A>>>,
    changed: Vec<Prefix<A>>,
    kind: &'static Kind<A>,
    pinned: Option<&'static Kind<A>>,
    /// When the missing structure is to be built.
    due: Option<Instant>,
    builds: u64,
    last_build: Duration,
    built_at: Option<Instant>,
}

impl<A: Family> Default for Fib<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Family> Fib<A> {
    /// No routes.
    pub fn new() -> Self {
        let mut fib = Self {
            rib: Rib::new(),
            structure: None,
            outdated: None,
            changed: Vec::new(),
            kind: &A::KINDS[0],
            pinned: None,
            due: None,
            builds: 0,
            last_build: Duration::ZERO,
            built_at: None,
        };
        fib.build();
        fib
    }

    /// The routes.
    pub fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    /// Adds a route, or gives it another value (anything but [`NONE`]); returns the value it had.
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        debug_assert_ne!(value, NONE, "that is the answer where no route matches");
        let old = self.rib.insert(prefix, value);
        if old != Some(value) {
            self.follow(prefix);
        }
        old
    }

    /// Removes a route; returns the value it had.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let old = self.rib.remove(prefix);
        if old.is_some() {
            self.follow(prefix);
        }
        old
    }

    /// Asks for the memory that [`prefetch`](Self::prefetch) will read.
    #[inline]
    pub fn approach(&self, address: A) {
        if let Some(structure) = &self.structure {
            structure.approach(address);
        }
    }

    /// Asks for the memory that a look-up of this address will read.
    #[inline]
    pub fn prefetch(&self, address: A) {
        if let Some(structure) = &self.structure {
            structure.prefetch(address);
        }
    }

    /// The value of the longest prefix that contains `address`, or [`NONE`].
    #[inline]
    pub fn lookup(&self, address: A) -> u32 {
        match &self.structure {
            Some(structure) => structure.lookup(address),
            None => self.rib.lookup(address).map_or(NONE, |(_, value)| value),
        }
    }

    /// Looks up `addresses[i]` into `values[i]`, for every `i`.
    ///
    /// # Panics
    /// If the slices are not equally long.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], values: &mut [u32]) {
        if let Some(structure) = &self.structure {
            return structure.lookup_batch(addresses, values);
        }
        assert_eq!(addresses.len(), values.len(), "one value for each address");
        for (address, value) in addresses.iter().zip(values) {
            *value = self.lookup(*address);
        }
    }

    /// Notes that the structure is to be brought in line with a change of the RIB.
    fn follow(&mut self, prefix: Prefix<A>) {
        if let Some(structure) = self.structure.take() {
            self.outdated = Some(structure);
        }
        if self.outdated.is_some() {
            self.changed.push(prefix);
        } else if self.due.is_none() {
            self.schedule(Instant::now());
        }
    }

    /// Brings the structure in line with all changes since it was, or schedules a build.
    fn catch_up(&mut self, now: Instant) {
        let Some(mut structure) = self.outdated.take() else {
            return;
        };
        let mut changed = std::mem::take(&mut self.changed);
        if !self.suits(self.kind) && self.due.is_none() {
            self.schedule(now);
        }
        if changed.len() > MANY && changed.len() > self.rib.len() / 2 {
            return self.build();
        }
        changed.sort_unstable();
        let mut outer: Option<Prefix<A>> = None;
        for prefix in &changed {
            if outer.is_some_and(|outer| outer.covers(*prefix)) {
                continue;
            }
            if structure.refresh(*prefix, &self.rib).is_err() {
                return self.schedule(now);
            }
            outer = Some(*prefix);
        }
        self.structure = Some(structure);
        changed.clear();
        changed.shrink_to(MANY);
        self.changed = changed;
    }

    /// Has a structure built as soon as the last build is long enough ago.
    fn schedule(&mut self, now: Instant) {
        let rest = (10 * self.last_build).min(LONGEST_DELAY);
        self.due = Some(self.built_at.map_or(now, |built| now.max(built + rest)));
    }

    /// Whether an algorithm may go on with the present routes: up to twice as many as it is chosen
    /// for, and down to half as many as the one before it is chosen for.
    fn suits(&self, kind: &Kind<A>) -> bool {
        let routes = self.rib.len();
        let before = A::KINDS.iter().take_while(|other| other.name != kind.name);
        let bounds = before.map(|other| other.most_routes);
        let enough_for = |most| most == usize::MAX || routes >= most / 2;
        self.pinned.is_some()
            || routes / 2 <= kind.most_routes && bounds.into_iter().all(enough_for)
    }

    /// Brings the structure in line with the changes, or builds one that is due at `now`. Call it
    /// after a batch of changes, and at least every [`LONGEST_DELAY`] while [`Status::pending`] is set.
    pub fn settle(&mut self, now: Instant) {
        self.catch_up(now);
        if self.due.is_some_and(|due| due <= now) {
            self.build();
        }
    }

    /// Whether the structure is to be brought in line or built.
    pub fn is_pending(&self) -> bool {
        self.due.is_some() || self.outdated.is_some()
    }

    fn build(&mut self) {
        let start = Instant::now();
        let routes = self.rib.len();
        let chosen = |kind: &&Kind<A>| match self.pinned {
            Some(pinned) => pinned.name == kind.name,
            None => kind.most_routes > 0 && kind.most_routes >= routes,
        };
        let mut kinds = A::KINDS.iter().filter(chosen);
        let built = kinds.find_map(|kind| Some((kind, kind.build(&self.rib).ok()?)));
        self.due = None;
        if let Some((kind, structure)) = built {
            self.install(kind, structure, start);
        }
    }

    fn install(
        &mut self,
        kind: &'static Kind<A>,
        structure: Box<dyn Algorithm<A>>,
        start: Instant,
    ) {
        self.kind = kind;
        self.structure = Some(structure);
        self.outdated = None;
        self.changed = Vec::new();
        self.due = None;
        self.builds += 1;
        self.last_build = start.elapsed();
        self.built_at = Some(Instant::now());
    }

    /// Has an algorithm used from now on whatever the routes, or (with `None`) lets the framework
    /// choose again.
    ///
    /// # Errors
    /// There is no such algorithm, or it cannot hold the routes; nothing has changed then.
    pub fn pin(&mut self, name: Option<&str>) -> Result<(), PinError> {
        self.catch_up(Instant::now());
        let Some(name) = name else {
            self.pinned = None;
            self.build();
            return Ok(());
        };
        let Some(kind) = A::KINDS.iter().find(|kind| kind.name == name) else {
            let known = A::KINDS.iter().map(|kind| kind.name).collect();
            return Err(PinError::Unknown { known });
        };
        let start = Instant::now();
        let structure = kind.build(&self.rib).map_err(PinError::Build)?;
        self.pinned = Some(kind);
        self.install(kind, structure, start);
        Ok(())
    }

    /// Bytes of the structure and the RIB.
    pub fn memory_bytes(&self) -> usize {
        self.structure_bytes()
            + self.changed.capacity() * size_of::<Prefix<A>>()
            + self.rib.memory_bytes()
    }

    fn structure_bytes(&self) -> usize {
        let structure = self.structure.as_ref().or(self.outdated.as_ref());
        structure.map_or(0, |structure| structure.memory_bytes())
    }

    /// How things are. Takes time proportional to the number of routes.
    pub fn status(&self) -> Status {
        let mut values = HashSet::new();
        self.rib.for_each(&mut |_, value| {
            values.insert(value);
        });
        Status {
            algorithm: self.structure.as_ref().map_or(RIB, |_| self.kind.name),
            pinned: self.pinned.map(|kind| kind.name),
            routes: self.rib.len(),
            values: values.len(),
            bytes: self.structure_bytes(),
            rib_bytes: self.rib.memory_bytes(),
            builds: self.builds,
            last_build: self.last_build,
            pending: self.is_pending(),
        }
    }
}
