// SPDX-License-Identifier: Apache-2.0
//! Measures the outbound policy when the matching rule is at position 1 to 100,000 of a list: `make bench-spd-cache`.
//!
//! Runs the router program as native code on one core, with packets of 60 bytes in memory, from 1 to 1,000,000 flows.
//! All packets match the same rule. The benchmark moves this rule through a list of 100,000 rules, and measures in turn:
//!
//! - *ours*: the flow cache. Each flow has an entry in the flow table. The rule table holds the whole list.
//! - *rules-tier*: the rule table. The flow table has as many entries, but they belong to another list, so packets miss
//!   them.
//! - *linear-N*: a linear search that finds the rule at position N, with rules laid out like VPP's (`linear`).
//! - *compact-linear-N*: the same search, with rules in a compact layout.
//!
//! In the linear cases, the search reads the frame, and then a program processes it. This program is the router program
//! without the lookups of flows and rules. Instead, the default action of a table without a key gives the verdict. The
//! flow table is empty. So the linear cases do less work than a router program with a linear search inside. Such a
//! program would also have to pass a key to the search, and to read the verdict of the rule that was found.
//!
//! In all cases, the program looks up the binding and the list's state, counts the packet at the rule, and applies the
//! verdict. After each measurement, the counter of the rule at this position must have counted all packets.
//!
//! The case *edits* gives the rate while another thread changes rules ten times a second. Its value `alone` is the rate
//! without changes.
//!
//! Each round creates new switches, because the result depends on the memory addresses of code and data. Packets are
//! processed in lanes (several concurrently) where sluice-switch would do so. Prints every round as JSON, as
//! `sluice-bench` does.
//!
//! `cargo bench -p sluice-native --bench spd_cache -- [--rounds N] [--quick] [--only ours|rules-tier|linear|compact-linear]
//! [--position N] [--flows N] [--length N]`. With `--only`, prints nanoseconds a packet and no JSON.

#[path = "../tests/cases/mod.rs"]
mod cases;
mod common;
#[path = "common/linear.rs"]
mod linear;
#[path = "../tests/traces/mod.rs"]
mod traces;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_engine::{Config, PacketIn};
use sluice_native::{Lanes, Native};
use sluice_tables::Store;

use common::{Count, cpu_time};
use linear::{CompactList, LinearList, PolicyPool};
use traces::policy;

const BATCH: usize = 64;
const FRAME: usize = 60;
const ROUNDS: usize = 11;
/// CPU time of one measurement in nanoseconds.
const TIME: u64 = 60_000_000;
/// CPU time of one measurement while rules change. Long enough for several changes.
const LONG_TIME: u64 = 1_000_000_000;
const POSITIONS: [usize; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
const FLOWS: [usize; 3] = [1, 1_000, 1_000_000];
/// Number of flows while rules change.
const FLOWS_UNDER_EDITS: usize = 1_000;
/// Interval between two changes.
const INTERVAL: Duration = Duration::from_millis(100);

/// A way to find the verdict of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Contender {
    FlowCache,
    RulesTier,
    Linear,
    CompactLinear,
}

const CONTENDERS: [Contender; 4] = [
    Contender::FlowCache,
    Contender::RulesTier,
    Contender::Linear,
    Contender::CompactLinear,
];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::FlowCache => "ours",
            Self::RulesTier => "rules-tier",
            Self::Linear => "linear",
            Self::CompactLinear => "compact-linear",
        }
    }
}

/// A switch and its lanes.
struct Switch {
    bench: cases::Bench<Native>,
    lanes: Lanes,
}

impl Switch {
    fn new(json: &[u8]) -> Self {
        let bench = cases::Bench::<Native>::from_json(json);
        let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
        let run = bench.run_text(&policy::tables(), "tables");
        run.unwrap_or_else(|error| panic!("{error}"));
        let code = Arc::clone(bench.switch.engine().code());
        let lanes = Lanes::new(&code, &Config::default(), Lanes::FAR);
        let lanes = lanes.expect("there is memory for the stacks");
        let lanes = lanes.expect("the router draws no random numbers");
        Self { bench, lanes }
    }

    /// Processes batches of packets. `before` gets each frame first. Returns nanoseconds of CPU time.
    #[inline(always)]
    fn run(&mut self, frames: &[u8], batches: usize, mut before: impl FnMut(&[u8])) -> u64 {
        let Self { bench, lanes } = self;
        let mut sink = Count::default();
        let mut frames = frames.chunks(FRAME).cycle();
        let start = cpu_time();
        for batch in 0..batches {
            let (port, now_us) = (1, batch as u64);
            let tables = bench.reader.pin();
            let externs = bench.store.externs();
            let batch = frames.by_ref().take(BATCH);
            if lanes.are_worthwhile(&tables) {
                lanes.batch(&tables, externs, &mut sink, |lanes| {
                    for data in batch {
                        before(data);
                        lanes.process(PacketIn { data, port, now_us });
                    }
                });
            } else {
                for data in batch {
                    before(data);
                    let input = PacketIn { data, port, now_us };
                    bench.switch.process(&tables, externs, input, &mut sink);
                }
            }
        }
        let elapsed = cpu_time() - start;
        assert_eq!(sink.0, batches * BATCH, "a packet was not sent");
        elapsed
    }
}

/// The two switches that are compared, with the same list. `router` runs the router program, `scanned` runs the program
/// for the linear search.
struct Contest {
    router: Switch,
    scanned: Switch,
    linear: PolicyPool,
    compact: CompactList,
    frames: Arc<[u8]>,
    length: usize,
    flows: usize,
    position: usize,
}

impl Contest {
    fn new(json: &[u8], frames: &Arc<[u8]>, length: usize, position: usize) -> Self {
        let router = Switch::new(json);
        let scanned = Switch::new(&policy::verdict_by_default(json));
        let flows = frames.len() / FRAME;
        policy::fill_rules(&router.bench.store, length, position);
        policy::fill_flows(&router.bench.store, flows, position);
        policy::set_verdict(&scanned.bench.store, position);
        let rules = || {
            let others = (0..length - 1).map(policy::other_rule);
            [policy::matching_rule()].into_iter().chain(others)
        };
        let (mut linear, mut compact) = (PolicyPool::new(rules()), CompactList::new(rules()));
        linear.move_rule(1, position);
        compact.move_rule(1, position);
        Self {
            router,
            scanned,
            linear,
            compact,
            frames: Arc::clone(frames),
            length,
            flows,
            position,
        }
    }

    fn store(&self, contender: Contender) -> &Store {
        match contender {
            Contender::Linear | Contender::CompactLinear => &self.scanned.bench.store,
            Contender::FlowCache | Contender::RulesTier => &self.router.bench.store,
        }
    }

    /// Moves the matching rule to a position. Writes the flows again, because each flow contains the rule's number.
    fn move_to(&mut self, position: usize) {
        let from = std::mem::replace(&mut self.position, position);
        if from == position {
            return;
        }
        let store = &self.router.bench.store;
        policy::move_rule(store, self.length, from, position);
        policy::delete_flows(store, self.flows);
        policy::fill_flows(store, self.flows, position);
        policy::set_verdict(&self.scanned.bench.store, position);
        self.linear.move_rule(from, position);
        self.compact.move_rule(from, position);
    }

    /// Processes batches of packets. Returns nanoseconds of CPU time.
    fn run(&mut self, contender: Contender, batches: usize) -> u64 {
        let list = match contender {
            Contender::RulesTier => policy::UNCACHED,
            _ => policy::CACHED,
        };
        policy::bind(self.store(contender), list);
        let rule = self.position;
        let before = policy::counted(self.store(contender), rule);
        let (frames, scanned) = (&self.frames, &mut self.scanned);
        let elapsed = match contender {
            Contender::Linear => run_scanned(scanned, frames, batches, &self.linear, rule),
            Contender::CompactLinear => run_scanned(scanned, frames, batches, &self.compact, rule),
            Contender::FlowCache | Contender::RulesTier => self.router.run(frames, batches, |_| ()),
        };
        let counted = policy::counted(self.store(contender), rule) - before;
        assert_eq!(counted, (batches * BATCH) as u64, "{contender:?}");
        elapsed
    }

    /// Warms up, and returns the number of batches that take `time`. Computes the number from the fastest run, because
    /// another run may include time in which the machine was stopped.
    fn calibrate(&mut self, contender: Contender, time: u64) -> usize {
        let (mut batches, mut fastest) = (1, f64::INFINITY);
        loop {
            let elapsed = self.run(contender, batches).max(1);
            fastest = fastest.min(elapsed as f64 / batches as f64);
            let wanted = (time as f64 / fastest).max(1.0) as usize;
            if wanted <= 2 * batches {
                return wanted;
            }
            batches = wanted.min(8 * batches);
        }
    }

    /// Returns packets per second of CPU time.
    fn rate(&mut self, contender: Contender, time: u64) -> f64 {
        let batches = self.calibrate(contender, time);
        let elapsed = self.run(contender, batches);
        (batches * BATCH) as f64 * 1e9 / elapsed.max(1) as f64
    }
}

/// Searches the list linearly for each packet, and then processes the packet. Panics if a search does not find `rule`.
/// Returns nanoseconds of CPU time.
fn run_scanned(
    switch: &mut Switch,
    frames: &[u8],
    batches: usize,
    list: &impl LinearList,
    rule: usize,
) -> u64 {
    let mut sum = 0;
    let elapsed = switch.run(frames, batches, |frame| sum += list.search(frame));
    assert_eq!(sum, batches * BATCH * rule, "the search found another rule");
    elapsed
}

/// A change of rules ten times a second.
#[derive(Clone, Copy)]
enum Edit {
    /// Adds or removes a rule. No list changes its epoch, as if the rule belonged to another list.
    OfAnotherList,
    /// Adds or removes a rule, retires all flows of the list by a new epoch, and writes the flows again. Packets find
    /// their verdict in the rule table meanwhile.
    OfTheList,
}

impl Edit {
    fn name(self) -> &'static str {
        match self {
            Self::OfAnotherList => "edits of another list",
            Self::OfTheList => "edits of the list",
        }
    }
}

/// Changes rules until `stop` is set. Returns the number of changes.
fn edit(store: &Store, edit: Edit, position: usize, length: usize, stop: &AtomicBool) -> u64 {
    let table = policy::rule_table(store);
    let extra = policy::rule_entry(store, &policy::other_rule(length), 1, length as u64 + 1);
    let (mut edits, mut next) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let mut transaction = store.transaction();
        let written = if edits % 2 == 0 {
            transaction.insert(table, extra.clone())
        } else {
            transaction.delete(table, &extra.key, extra.priority)
        };
        written.expect("the rule is added and removed in turn");
        edits += 1;
        match edit {
            Edit::OfAnotherList => transaction.commit(),
            Edit::OfTheList => {
                let epoch = policy::EPOCH + edits;
                policy::set_epoch(&mut transaction, store, policy::CACHED, epoch);
                transaction.commit();
                policy::renew_flows(store, FLOWS_UNDER_EDITS, position, epoch);
            }
        }
        next += INTERVAL;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    if edits % 2 == 1 {
        let mut transaction = store.transaction();
        let deleted = transaction.delete(table, &extra.key, extra.priority);
        deleted.expect("the rule was added last");
        transaction.commit();
    }
    edits
}

/// Returns two rates, with changes and without, in packets per second of the forwarding thread's CPU time. Also returns
/// the number of changes.
fn rates_under_edits(contest: &mut Contest, kind: Edit, time: u64) -> (f64, f64, u64) {
    let batches = contest.calibrate(Contender::FlowCache, time);
    let rate = |elapsed: u64| (batches * BATCH) as f64 * 1e9 / elapsed.max(1) as f64;
    let alone = rate(contest.run(Contender::FlowCache, batches));
    let store = Arc::clone(&contest.router.bench.store);
    let (position, length) = (contest.position, contest.length);
    let stop = AtomicBool::new(false);
    let (edited, edits) = std::thread::scope(|scope| {
        let editor = scope.spawn(|| edit(&store, kind, position, length, &stop));
        let elapsed = contest.run(Contender::FlowCache, batches);
        stop.store(true, Ordering::Relaxed);
        (rate(elapsed), editor.join().expect("the editor has ended"))
    });
    (edited, alone, edits)
}

/// Returns the word that follows a flag on the command line.
fn word(flag: &str) -> Option<String> {
    std::env::args().skip_while(|word| word != flag).nth(1)
}

/// Returns the number that follows a flag on the command line.
fn number(flag: &str) -> Option<usize> {
    word(flag)?.parse().ok()
}

fn frames(flows: usize) -> Arc<[u8]> {
    policy::packets(flows).flatten().collect()
}

/// Measures one contender in one case, and prints nanoseconds a packet.
fn measure_one(json: &[u8], name: &str, rounds: usize) {
    let contender = CONTENDERS.into_iter().find(|known| known.name() == name);
    let contender = contender.expect("--only names a contender");
    let position = number("--position").unwrap_or(1);
    let length = number("--length").unwrap_or(position);
    let frames = frames(number("--flows").unwrap_or(1));
    let mut contest = Contest::new(json, &frames, length, position);
    for _ in 0..rounds {
        println!("{:.1}", 1e9 / contest.rate(contender, TIME));
    }
}

/// Rates of all rounds: by position and contender.
type Rates = BTreeMap<(usize, Contender), Vec<f64>>;

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Returns the cases of one number of flows, for the report.
fn cases_of(flows: usize, rates: &Rates) -> Vec<serde_json::Value> {
    let of = |position, contender| &rates[&(position, contender)];
    let ours = |position| of(position, Contender::FlowCache);
    let positions = || rates.keys().map(|(position, _)| *position);
    let best = positions().max_by(|one, two| median(ours(*one)).total_cmp(&median(ours(*two))));
    let best = best.expect("there are rates");
    let mut cases = Vec::new();
    let mut positions: Vec<usize> = positions().collect();
    positions.dedup();
    for position in positions {
        let peers = BTreeMap::from([
            (
                format!("linear-{position}"),
                of(position, Contender::Linear),
            ),
            (
                format!("compact-linear-{position}"),
                of(position, Contender::CompactLinear),
            ),
            ("rules-tier".into(), of(position, Contender::RulesTier)),
            ("best-position".into(), ours(best)),
        ]);
        cases.push(json!({
            "workload": format!("rule {position}, {flows} {}", if flows == 1 { "flow" } else { "flows" }),
            "kind": "position",
            "ours": ours(position),
            "peers": peers,
            "details": {"rule": position, "flows": flows},
        }));
    }
    cases
}

fn main() {
    let quick = std::env::args().any(|word| word == "--quick");
    let rounds = number("--rounds").unwrap_or(ROUNDS);
    let json = std::fs::read(traces::program()).expect("the program is compiled");
    if let Some(name) = word("--only") {
        return measure_one(&json, &name, rounds);
    }
    let (time, long_time) = if quick {
        (1_000_000, 200_000_000)
    } else {
        (TIME, LONG_TIME)
    };
    let (positions, flows): (&[usize], &[usize]) = if quick {
        (&POSITIONS[..4], &FLOWS[..2])
    } else {
        (&POSITIONS, &FLOWS)
    };
    let length = *positions.last().expect("there are positions");
    let mut rates: BTreeMap<usize, Rates> = BTreeMap::new();
    let mut edited: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
    let mut edits = 0;
    let frames: Vec<Arc<[u8]>> = flows.iter().map(|flows| frames(*flows)).collect();
    for round in 0..rounds {
        eprintln!("spd-cache: round {} of {rounds}", round + 1);
        for frames in &frames {
            let first = positions[round % positions.len()];
            let mut contest = Contest::new(&json, frames, length, first);
            let rates = rates.entry(contest.flows).or_default();
            for turn in 0..positions.len() {
                contest.move_to(positions[(round + turn) % positions.len()]);
                for turn in 0..CONTENDERS.len() {
                    let contender = CONTENDERS[(round + turn) % CONTENDERS.len()];
                    let rate = contest.rate(contender, time);
                    let rates = rates.entry((contest.position, contender)).or_default();
                    rates.push(rate);
                }
            }
            if contest.flows == FLOWS_UNDER_EDITS {
                for kind in [Edit::OfAnotherList, Edit::OfTheList] {
                    let (with, alone, count) = rates_under_edits(&mut contest, kind, long_time);
                    let rounds = edited.entry(kind.name()).or_default();
                    rounds[0].push(with);
                    rounds[1].push(alone);
                    edits += count;
                }
            }
        }
    }
    let mut cases: Vec<_> = rates
        .iter()
        .flat_map(|(flows, rates)| cases_of(*flows, rates))
        .collect();
    cases.extend(edited.iter().map(|(name, [with, alone])| {
        json!({
            "workload": name,
            "kind": "edits",
            "ours": with,
            "peers": {"alone": alone},
            "details": {"flows": FLOWS_UNDER_EDITS},
        })
    }));
    let report = json!({
        "unit": "packets per second of one core",
        "cases": cases,
        "memory": [],
        "missing": {},
        "input": {
            "packets": "60 bytes, IPv4, UDP, one route",
            "rules": length.to_string(),
            "rounds": rounds.to_string(),
            "edits": edits.to_string(),
        },
        "versions": {},
    });
    println!("{report}");
}
