// SPDX-License-Identifier: Apache-2.0
//! A lookup structure that follows a separate RIB. It holds the current algorithm, and decides when to replace it.
//!
//! Several followers of one RIB give the same answers when all have received the same changes. So two replicas of a
//! table need only one RIB.
//!
//! Invariant: a follower always has a structure that gives the answers of the RIB as of the last update.
//!
//! If an algorithm cannot follow a change, its structure is rebuilt. The rebuild is immediate if enough time has passed
//! since the last build. The required time is ten times the duration of that build, at most [`LONGEST_DELAY`]. Until
//! then a copy of the RIB answers. So the follower spends at most about a tenth of the time on builds, even if routes
//! change very fast.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::address::{Address, Prefix};
use crate::algorithm::{Algorithm, BuildError, NeedsRebuild};
use crate::answer::NONE;
use crate::change::Change;
use crate::lines::Lines;
use crate::named_algorithm::{Family, NamedAlgorithm};
use crate::rib::Rib;

/// Longest time for which a copy of the RIB answers before a structure is rebuilt.
pub const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// Number of changes above which a rebuild is considered instead of updates.
const MANY: usize = 1024;

/// Name of the algorithm in the status while a copy of the RIB answers.
const RIB: &str = "rib";

/// The reason why an algorithm cannot be pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinError {
    /// No algorithm has this name.
    Unknown {
        /// Names of all algorithms.
        known: Vec<&'static str>,
    },
    /// The algorithm cannot hold the routes.
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

/// Status of a FIB for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The algorithm that answers, or `rib` while a copy of the RIB answers until a structure is built.
    pub algorithm: &'static str,
    /// The algorithm that an operator has pinned, if any.
    pub pinned: Option<&'static str>,
    /// Number of routes.
    pub routes: usize,
    /// Number of distinct values.
    pub values: usize,
    /// Size of the lookup structure in bytes.
    pub bytes: usize,
    /// Size of the RIB in bytes.
    pub rib_bytes: usize,
    /// Number of builds so far.
    pub builds: u64,
    /// Duration of the last build.
    pub last_build: Duration,
    /// Whether a build is scheduled.
    pub pending: bool,
}

/// A copy of a RIB, which can follow every change.
#[derive(Debug)]
struct Copy<A>(Rib<A>);

impl<A: Address> Algorithm<A> for Copy<A> {
    fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        Ok(Self(rib.clone()))
    }

    fn lookup(&self, address: A) -> u32 {
        self.0.lookup(address).map_or(NONE, |(_, value)| value)
    }

    fn lookup_batch(&self, addresses: &[A], values: &mut [u32]) {
        assert_eq!(addresses.len(), values.len(), "one value for each address");
        for (address, value) in addresses.iter().zip(values) {
            *value = self.lookup(*address);
        }
    }

    fn refresh(&mut self, prefix: Prefix<A>, rib: &Rib<A>) -> Result<(), NeedsRebuild> {
        let mut old = Vec::new();
        self.0
            .for_each_under(prefix, &mut |route, _| old.push(route));
        for route in old {
            self.0.remove(route);
        }
        rib.for_each_under(prefix, &mut |route, value| {
            self.0.insert(route, value);
        });
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A lookup structure that follows a RIB; see the module. Order: fields that lookups read come first.
#[derive(Debug)]
#[repr(C)]
pub struct Follower<A: Family> {
    structure: Box<dyn Algorithm<A>>,
    /// The structure's algorithm, or `None` for a copy of the RIB.
    kind: Option<&'static NamedAlgorithm<A>>,
    pinned: Option<&'static NamedAlgorithm<A>>,
    /// Time of the scheduled build, if any.
    due: Option<Instant>,
    builds: u64,
    last_build: Duration,
    built_at: Option<Instant>,
}

impl<A: Family> Follower<A> {
    /// Creates a follower of a RIB in its current state.
    pub fn new(rib: &Rib<A>) -> Self {
        let nothing = Rib::new();
        let kind = &A::ALGORITHMS[0];
        let structure = kind.build(&nothing).ok();
        let mut follower = Self {
            kind: structure.is_some().then_some(kind),
            structure: structure.unwrap_or_else(|| Box::new(Copy(nothing))),
            pinned: None,
            due: None,
            builds: 0,
            last_build: Duration::ZERO,
            built_at: None,
        };
        follower.build(rib);
        // This build holds the initial routes. The first change need not wait for the delay after it.
        follower.built_at = None;
        follower
    }

    /// Returns the cache lines that [`lines`](Self::lines) dereferences; see [`Algorithm::index_lines`].
    #[inline]
    pub fn index_lines(&self, address: A) -> Lines {
        self.structure.index_lines(address)
    }

    /// Returns the cache lines that a lookup of this address reads; see [`Algorithm::lines`].
    #[inline]
    pub fn lines(&self, address: A) -> Lines {
        self.structure.lines(address)
    }

    /// Returns the value of the longest prefix that contains `address`, or [`NONE`].
    #[inline]
    pub fn lookup(&self, address: A) -> u32 {
        self.structure.lookup(address)
    }

    /// Looks up `addresses[i]` and writes the answer to `values[i]`, for every `i`.
    ///
    /// # Panics
    /// Panics if the slices have different lengths.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], values: &mut [u32]) {
        self.structure.lookup_batch(addresses, values);
    }

    /// Updates the structure from the RIB, and runs a build that is due. `changed` holds the changes since the last
    /// call, reduced by [`TrackedRib::reduce`](crate::TrackedRib::reduce). `now` is called only if needed. While
    /// [`is_pending`](Self::is_pending) returns true, the caller must call this function at least once every
    /// [`LONGEST_DELAY`], even without changes.
    pub fn follow(&mut self, changed: &[Change<A>], rib: &Rib<A>, now: impl FnOnce() -> Instant) {
        if changed.is_empty() {
            if self.due.is_some_and(|due| due <= now()) {
                self.build(rib);
            }
            return;
        }
        let suits = self.kind.is_some_and(|kind| self.suits(kind, rib.len()));
        let most = changed.len() > MANY && changed.len() > rib.len() / 2;
        let stays = suits && !most && self.due.is_none();
        if stays && self.structure.follow_all(changed, rib).is_ok() {
            return;
        }
        let now = now();
        if !suits && self.due.is_none() {
            self.schedule(now);
        }
        let is_due = self.due.is_some_and(|due| due <= now);
        if stays || most || is_due || self.structure.follow_all(changed, rib).is_err() {
            self.build_or_wait(most, rib, now);
        }
    }

    /// Replaces an unusable structure. Builds a new one if `at_once` is set or a build is due, else copies the RIB.
    fn build_or_wait(&mut self, at_once: bool, rib: &Rib<A>, now: Instant) {
        if self.due.is_none() {
            self.schedule(now);
        }
        if at_once || self.due.is_some_and(|due| due <= now) {
            self.build(rib);
        } else {
            self.copy(rib);
        }
    }

    /// Schedules a build for the time when the delay after the last build is over.
    fn schedule(&mut self, now: Instant) {
        let rest = (10 * self.last_build).min(LONGEST_DELAY);
        self.due = Some(self.built_at.map_or(now, |built| now.max(built + rest)));
    }

    /// Returns whether an algorithm may be kept for this number of routes. To avoid frequent switches, the number may
    /// exceed the algorithm's limit by a factor of two. It may also be as low as half the limit of an algorithm that
    /// comes earlier in the list.
    fn suits(&self, kind: &NamedAlgorithm<A>, routes: usize) -> bool {
        let before = A::ALGORITHMS
            .iter()
            .take_while(|other| other.name != kind.name);
        let bounds = before.map(|other| other.most_routes);
        let enough_for = |most| most == usize::MAX || routes >= most / 2;
        self.pinned.is_some()
            || routes / 2 <= kind.most_routes && bounds.into_iter().all(enough_for)
    }

    /// Returns whether a build is scheduled.
    pub fn is_pending(&self) -> bool {
        self.due.is_some()
    }

    /// Replaces the structure by a copy of the RIB.
    fn copy(&mut self, rib: &Rib<A>) {
        self.kind = None;
        self.structure = Box::new(Copy(rib.clone()));
    }

    fn build(&mut self, rib: &Rib<A>) {
        let start = Instant::now();
        let routes = rib.len();
        let chosen = |kind: &&NamedAlgorithm<A>| match self.pinned {
            Some(pinned) => pinned.name == kind.name,
            None => kind.most_routes >= routes,
        };
        let mut kinds = A::ALGORITHMS.iter().filter(chosen);
        let built = kinds.find_map(|kind| Some((kind, kind.build(rib).ok()?)));
        self.due = None;
        match built {
            Some((kind, structure)) => self.install(kind, structure, start),
            None => self.copy(rib),
        }
    }

    fn install(
        &mut self,
        kind: &'static NamedAlgorithm<A>,
        structure: Box<dyn Algorithm<A>>,
        start: Instant,
    ) {
        self.kind = Some(kind);
        self.structure = structure;
        self.due = None;
        self.builds += 1;
        self.last_build = start.elapsed();
        self.built_at = Some(Instant::now());
    }

    /// Pins an algorithm regardless of the number of routes. If `name` is `None`, returns to automatic choice.
    /// Afterwards the structure is up to date with the RIB.
    ///
    /// # Errors
    /// Fails, and changes nothing, if the algorithm does not exist or cannot hold the routes.
    pub fn pin(&mut self, name: Option<&str>, rib: &Rib<A>) -> Result<(), PinError> {
        let Some(name) = name else {
            self.pinned = None;
            self.build(rib);
            return Ok(());
        };
        let Some(kind) = A::ALGORITHMS.iter().find(|kind| kind.name == name) else {
            let known = A::ALGORITHMS.iter().map(|kind| kind.name).collect();
            return Err(PinError::Unknown { known });
        };
        let start = Instant::now();
        let structure = kind.build(rib).map_err(PinError::Build)?;
        self.pinned = Some(kind);
        self.install(kind, structure, start);
        Ok(())
    }

    /// Returns the size of the structure in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.structure.memory_bytes()
    }

    /// Returns the status. Takes time proportional to the number of routes.
    pub fn status(&self, rib: &Rib<A>) -> Status {
        let mut values = HashSet::new();
        rib.for_each(&mut |_, value| {
            values.insert(value);
        });
        Status {
            values: values.len(),
            ..self.brief_status(rib)
        }
    }

    /// Like [`status`](Self::status), but takes constant time. Does not count the distinct values, and reports their
    /// number as 0.
    pub fn brief_status(&self, rib: &Rib<A>) -> Status {
        Status {
            algorithm: self.kind.map_or(RIB, |kind| kind.name),
            pinned: self.pinned.map(|kind| kind.name),
            routes: rib.len(),
            values: 0,
            bytes: self.memory_bytes(),
            rib_bytes: rib.memory_bytes(),
            builds: self.builds,
            last_build: self.last_build,
            pending: self.is_pending(),
        }
    }
}
