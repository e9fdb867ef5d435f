// SPDX-License-Identifier: Apache-2.0
//! A look-up structure that follows a RIB which is kept elsewhere: the algorithm of the moment, and
//! when it gives way to another.
//!
//! Several followers of one RIB give the same answers once each has been told of the same changes; so
//! two versions of a table need one RIB. A follower always has a structure that answers as the RIB did
//! when it was last told: where an algorithm cannot follow, it is built anew, at once if the last build
//! was long enough ago; otherwise a copy of the RIB answers for a delay of ten times what that build
//! took, at most [`LONGEST_DELAY`], so that building takes at most about a tenth of the time however
//! fast routes change.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::algorithm::{Algorithm, BuildError, NeedsRebuild};
use crate::kinds::{Family, Kind};
use crate::{Address, Change, Lines, NONE, Prefix, Rib};

/// How long a copy of the RIB answers at most before a structure is built again.
pub const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// Changes from which on it is asked whether a build would cost less.
const MANY: usize = 1024;

/// Name of what answers where no algorithm does.
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
    /// The algorithm that answers; `rib` while a copy of the RIB does because a structure is to be built.
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

/// A copy of a RIB, which can follow whatever happens.
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

/// See the module. What look-ups read comes first.
#[derive(Debug)]
#[repr(C)]
pub struct Follower<A: Family> {
    structure: Box<dyn Algorithm<A>>,
    /// What the structure is; none if it is a copy of the RIB.
    kind: Option<&'static Kind<A>>,
    pinned: Option<&'static Kind<A>>,
    /// When a structure is to be built.
    due: Option<Instant>,
    builds: u64,
    last_build: Duration,
    built_at: Option<Instant>,
}

impl<A: Family> Follower<A> {
    /// A follower of a RIB as it is now.
    pub fn new(rib: &Rib<A>) -> Self {
        let nothing = Rib::new();
        let kind = &A::KINDS[0];
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
        // The first change is no reason to wait.
        follower.built_at = None;
        follower
    }

    /// What [`lines`](Self::lines) will read.
    #[inline]
    pub fn way(&self, address: A) -> Lines {
        self.structure.way(address)
    }

    /// What a look-up of this address will read: see [`Algorithm::lines`].
    #[inline]
    pub fn lines(&self, address: A) -> Lines {
        self.structure.lines(address)
    }

    /// The value of the longest prefix that contains `address`, or [`NONE`].
    #[inline]
    pub fn lookup(&self, address: A) -> u32 {
        self.structure.lookup(address)
    }

    /// Looks up `addresses[i]` into `values[i]`, for every `i`.
    ///
    /// # Panics
    /// If the slices are not equally long.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], values: &mut [u32]) {
        self.structure.lookup_batch(addresses, values);
    }

    /// Brings the structure in line with the RIB, where `changed` (made by [`outermost`](crate::outermost)) is what
    /// has changed since it last was; and builds one that is due `now`, which is asked
    /// only if it matters. Call it without changes, too, at least every [`LONGEST_DELAY`] while
    /// [`is_pending`](Self::is_pending).
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

    /// The structure is of no use any more.
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

    /// Has a structure built as soon as the last build is long enough ago.
    fn schedule(&mut self, now: Instant) {
        let rest = (10 * self.last_build).min(LONGEST_DELAY);
        self.due = Some(self.built_at.map_or(now, |built| now.max(built + rest)));
    }

    /// Whether an algorithm may go on with so many routes: up to twice as many as it is chosen for, and
    /// down to half as many as the one before it is chosen for.
    fn suits(&self, kind: &Kind<A>, routes: usize) -> bool {
        let before = A::KINDS.iter().take_while(|other| other.name != kind.name);
        let bounds = before.map(|other| other.most_routes);
        let enough_for = |most| most == usize::MAX || routes >= most / 2;
        self.pinned.is_some()
            || routes / 2 <= kind.most_routes && bounds.into_iter().all(enough_for)
    }

    /// Whether a structure waits to be built.
    pub fn is_pending(&self) -> bool {
        self.due.is_some()
    }

    /// Lets a copy of the RIB answer.
    fn copy(&mut self, rib: &Rib<A>) {
        self.kind = None;
        self.structure = Box::new(Copy(rib.clone()));
    }

    fn build(&mut self, rib: &Rib<A>) {
        let start = Instant::now();
        let routes = rib.len();
        let chosen = |kind: &&Kind<A>| match self.pinned {
            Some(pinned) => pinned.name == kind.name,
            None => kind.most_routes > 0 && kind.most_routes >= routes,
        };
        let mut kinds = A::KINDS.iter().filter(chosen);
        let built = kinds.find_map(|kind| Some((kind, kind.build(rib).ok()?)));
        self.due = None;
        match built {
            Some((kind, structure)) => self.install(kind, structure, start),
            None => self.copy(rib),
        }
    }

    fn install(
        &mut self,
        kind: &'static Kind<A>,
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

    /// Has an algorithm used from now on whatever the routes, or (with `None`) lets the framework
    /// choose again. The structure is in line with the RIB afterwards.
    ///
    /// # Errors
    /// There is no such algorithm, or it cannot hold the routes; nothing has changed then.
    pub fn pin(&mut self, name: Option<&str>, rib: &Rib<A>) -> Result<(), PinError> {
        let Some(name) = name else {
            self.pinned = None;
            self.build(rib);
            return Ok(());
        };
        let Some(kind) = A::KINDS.iter().find(|kind| kind.name == name) else {
            let known = A::KINDS.iter().map(|kind| kind.name).collect();
            return Err(PinError::Unknown { known });
        };
        let start = Instant::now();
        let structure = kind.build(rib).map_err(PinError::Build)?;
        self.pinned = Some(kind);
        self.install(kind, structure, start);
        Ok(())
    }

    /// Bytes of the structure.
    pub fn memory_bytes(&self) -> usize {
        self.structure.memory_bytes()
    }

    /// How things are. Takes time proportional to the number of routes.
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

    /// Likewise, in no time: values are not counted, and said to be 0.
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
