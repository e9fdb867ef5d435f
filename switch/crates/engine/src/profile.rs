// SPDX-License-Identifier: Apache-2.0
//! Measures how much time packets spend in each parser state, table and condition.
//!
//! When a packet reaches a [`ProgramPoint`](crate::ProgramPoint), the [`Profile`] adds the elapsed time to the previous
//! point. So every moment between [`Profile::begin`] and [`Profile::end`] belongs to exactly one point. Reading the
//! clock takes time too. This time is measured beforehand, and [`Profile::rows`] subtracts it.
//!
//! The interpreter reports points through [`Trace`](crate::Trace). Native code reports points if the code was compiled
//! for profiling. Engines without a profile lose no time.

use std::time::{Duration, Instant};

use sluice_program::Program;
use sluice_program::control::Conditional;

use crate::engine::Engine;
use crate::program_point::COMMON;

/// An engine that records a profile.
pub trait Profiled: Engine {
    /// Returns the engine's profile.
    fn profile(&mut self) -> &mut Profile;
}

/// Number of clock readings in the calibration.
const TRIALS: u32 = 4096;

/// Number of visits and total time at one point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    visits: u64,
    time: Duration,
}

/// One program point in the output of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfiledPoint {
    /// `state`, `table`, `condition`, or `other`.
    pub kind: &'static str,
    /// The point's name in the program.
    pub name: String,
    /// Number of times that packets reached the point.
    pub visits: u64,
    /// Total time that packets spent at the point.
    pub time: Duration,
}

/// Number of visits and total time of all program points.
#[derive(Clone, Debug)]
pub struct Profile {
    tallies: Vec<Tally>,
    at: usize,
    since: Instant,
    packets: u64,
    /// Time that [`TRIALS`] clock readings take.
    looks: Duration,
}

impl Profile {
    /// Creates an empty profile of a program.
    pub fn new(program: &Program) -> Self {
        let nodes = program.tables.len() + program.conditionals.len();
        let places = COMMON + program.states.len() + nodes;
        let mut profile = Self {
            tallies: vec![Tally::default(); places],
            at: 0,
            since: Instant::now(),
            packets: 0,
            looks: Duration::ZERO,
        };
        profile.calibrate();
        profile
    }

    /// Measures the time that [`enter`](Self::enter) itself takes.
    fn calibrate(&mut self) {
        self.begin();
        (0..TRIALS).for_each(|_| self.enter(0));
        self.looks = self.tallies[0].time;
        self.tallies[0] = Tally::default();
        self.packets = 0;
    }

    /// Starts to measure the time of a received packet.
    pub fn begin(&mut self) {
        self.packets += 1;
        self.at = 0;
        self.tallies[0].visits += 1;
        self.since = Instant::now();
    }

    /// Adds the time since the packet reached its last point to that point. Ends the measurement of the packet.
    pub fn end(&mut self) {
        self.tallies[self.at].time += self.since.elapsed();
    }

    /// Records that the packet, or a copy of it, reaches the point with this [`index`](crate::ProgramPoint::index).
    #[inline]
    pub fn enter(&mut self, place: usize) {
        let now = Instant::now();
        self.tallies[self.at].time += now - self.since;
        self.since = now;
        self.at = place;
        self.tallies[place].visits += 1;
    }

    /// Returns the time that `looks` clock readings take.
    fn looking(&self, looks: u64) -> Duration {
        let nanoseconds = self.looks.as_nanos() * u128::from(looks) / u128::from(TRIALS);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Returns the number of received packets.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Adds another profile of the same program to this one.
    ///
    /// # Panics
    /// Panics if the other profile belongs to another program.
    pub fn add(&mut self, other: &Self) {
        assert_eq!(
            self.tallies.len(),
            other.tallies.len(),
            "of different programs"
        );
        for (ours, theirs) in self.tallies.iter_mut().zip(&other.tallies) {
            ours.visits += theirs.visits;
            ours.time += theirs.time;
        }
        self.packets += other.packets;
    }

    /// Returns the points that packets reached, in descending order of time. The time of clock readings is subtracted.
    pub fn rows(&self, program: &Program) -> Vec<ProfiledPoint> {
        let common = ["traffic manager", "checksums", "deparser"];
        let others = common.map(|name| ("other", name.to_owned()));
        let states = program.states.iter().map(|s| ("state", s.name.clone()));
        let tables = program.tables.iter().map(|t| ("table", t.name.clone()));
        let conditions = program.conditionals.iter();
        let conditions = conditions.map(|c| ("condition", condition(c)));
        let names = others
            .into_iter()
            .chain(states)
            .chain(tables)
            .chain(conditions);
        let row = |((kind, name), tally): ((&'static str, String), &Tally)| ProfiledPoint {
            kind,
            name,
            visits: tally.visits,
            time: tally.time.saturating_sub(self.looking(tally.visits)),
        };
        let rows = names.zip(&self.tallies).map(row);
        let mut rows: Vec<_> = rows.filter(|row| row.visits != 0).collect();
        rows.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}

/// Returns a condition's name in p4c's output, with the file and line of its source.
fn condition(conditional: &Conditional) -> String {
    let name = &conditional.name;
    match &conditional.source {
        Some(source) => format!("{name} ({}:{})", source.file, source.line),
        None => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program_point::ProgramPoint;
    use sluice_program::StateId;

    fn program() -> Program {
        let json = include_bytes!("../../../programs/build/control_flow.json");
        Program::from_json(json).expect("it loads")
    }

    #[test]
    fn every_moment_belongs_to_one_place() {
        let program = program();
        let mut profile = Profile::new(&program);
        let begin = Instant::now();
        profile.begin();
        profile.enter(ProgramPoint::State(StateId(0)).index(&program));
        while begin.elapsed() < Duration::from_millis(5) {}
        profile.enter(ProgramPoint::Manager.index(&program));
        profile.end();
        let all = begin.elapsed();
        let rows = profile.rows(&program);
        assert_eq!(rows[0].kind, "state");
        assert_eq!(rows[0].visits, 1);
        let time: Duration = rows.iter().map(|row| row.time).sum();
        assert!(
            rows[0].time >= Duration::from_millis(4) && time <= all,
            "{rows:?}"
        );
    }

    #[test]
    fn profiles_of_several_workers_add_up() {
        let program = program();
        let mut all = Profile::new(&program);
        for _ in 0..2 {
            let mut one = Profile::new(&program);
            one.begin();
            one.enter(ProgramPoint::Deparser.index(&program));
            one.end();
            all.add(&one);
        }
        assert_eq!(all.packets(), 2);
        let rows = all.rows(&program);
        let deparser = rows.iter().find(|row| row.name == "deparser");
        assert_eq!(deparser.map(|row| row.visits), Some(2));
        assert_eq!(rows.len(), 2);
    }
}
