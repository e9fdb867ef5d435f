// SPDX-License-Identifier: Apache-2.0
//! Checks that both engines send the same output for the packets of every benchmark, in the same order and through the
//! same ports.

mod cases;
mod traces;

use sluice_engine::{Config, PacketIn, Sink};
use sluice_interpreter::Interpreter;
use sluice_native::{Lanes, Native};
use sluice_program::DigestId;
use sluice_tables::Store;

use cases::{Bench, Runs};
use traces::policy;

/// Numbers of routes and flows. They are so large that the tables use all their lookup algorithms, and so small that
/// the interpreter is fast enough.
const ROUTES: usize = 20_000;
const FLOWS: usize = 20_000;

/// A sink that collects the sent packets with their ports, and the digests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sent {
    packets: Vec<(u32, Vec<u8>)>,
    digests: Vec<(DigestId, Vec<u8>)>,
}

impl Sink for Sent {
    fn transmit(&mut self, port: u32, data: &[u8]) {
        self.packets.push((port, data.to_vec()));
    }

    fn digest(&mut self, digest: DigestId, fields: &[u8]) {
        self.digests.push((digest, fields.to_vec()));
    }
}

fn load<E: Runs>(tables: &str, fill: impl Fn(&Store)) -> Bench<E> {
    let bench = Bench::load(&traces::program());
    let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
    let run = bench.run_text(tables, "tables");
    run.unwrap_or_else(|error| panic!("{error}"));
    fill(&bench.store);
    bench
}

fn input(data: &[u8]) -> PacketIn<'_> {
    PacketIn {
        data,
        port: 1,
        now_us: 5,
    }
}

fn run<E: Runs>(bench: &mut Bench<E>, packets: &[Vec<u8>]) -> Sent {
    let mut sent = Sent::default();
    let tables = bench.reader.pin();
    for packet in packets {
        let externs = bench.store.externs();
        bench
            .switch
            .process(&tables, externs, input(packet), &mut sent);
    }
    sent
}

/// Checks that every packet is sent through port 2, and that native code, with and without lanes, sends the same output
/// as the interpreter.
fn agree(name: &str, tables: &str, fill: impl Fn(&Store), packets: &[Vec<u8>]) {
    let mut native = load::<Native>(tables, &fill);
    let oracle = run(&mut load::<Interpreter>(tables, &fill), packets);
    assert_eq!(oracle.packets.len(), packets.len(), "{name}");
    assert!(oracle.packets.iter().all(|(port, _)| *port == 2), "{name}");
    assert!(
        run(&mut native, packets) == oracle,
        "{name}: the engines differ"
    );
    let code = native.switch.engine().code();
    let lanes = Lanes::new(code, &Config::default(), 1).expect("there is memory for the stacks");
    let mut lanes = lanes.expect("the router draws no random numbers");
    let mut sent = Sent::default();
    let tables = native.reader.pin();
    lanes.batch(&tables, native.store.externs(), &mut sent, |batch| {
        packets
            .iter()
            .for_each(|packet| batch.process(input(packet)));
    });
    assert!(sent == oracle, "{name}: lanes differ");
}

#[test]
fn forwarding() {
    let tables = traces::router::tables();
    for packets in [
        traces::router::ipv4(),
        traces::router::through_a_group(),
        traces::router::ipv6(),
        traces::router::ipv6_through_a_group(),
    ] {
        agree("router", &tables, |_| {}, &packets);
    }
}

#[test]
fn multipath() {
    for (name, tables) in traces::multipath::cases() {
        agree(&name, &tables, |_| {}, &traces::multipath::packets());
    }
}

#[test]
fn full_tables() {
    let fill = |store: &Store| traces::full::fill_tables(store, ROUTES, FLOWS);
    let packets: Vec<_> = traces::full::packets(ROUTES, FLOWS).collect();
    agree("full", &traces::full::tables(), fill, &packets);
}

/// Checks that the packets of the trace match the rule that the benchmark expects, at any position of the list.
#[test]
fn outbound_policy() {
    const RULES: usize = 300;
    const FLOWS: usize = 50;
    let packets: Vec<_> = policy::packets(FLOWS).collect();
    for position in [1, 7, RULES] {
        let fill = |store: &Store| {
            policy::fill_rules(store, RULES, 2);
            policy::move_rule(store, RULES, 2, position);
            policy::fill_flows(store, FLOWS, position);
        };
        agree("cached", &policy::tables(), fill, &packets);
        let uncached = |store: &Store| {
            fill(store);
            policy::bind(store, policy::UNCACHED);
        };
        agree("rules", &policy::tables(), uncached, &packets);
        let mut bench = load::<Native>(&policy::tables(), fill);
        for (list, counted) in [(policy::CACHED, 1), (policy::UNCACHED, 0)] {
            policy::bind(&bench.store, list);
            let before = policy::counted_by_flow(&bench.store);
            let of_rule = policy::counted(&bench.store, position);
            run(&mut bench, &packets);
            let now = policy::counted(&bench.store, position);
            assert_eq!(now - of_rule, FLOWS as u64);
            assert_eq!(policy::counted_by_flow(&bench.store) - before, counted);
        }
    }
}

/// Checks that flows of an old epoch are not used, and that renewed flows are.
#[test]
fn retired_flows() {
    const FLOWS: usize = 20;
    let fill = |store: &Store| {
        policy::fill_rules(store, 10, 4);
        policy::fill_flows(store, FLOWS, 4);
    };
    let packets: Vec<_> = policy::packets(FLOWS).collect();
    let mut bench = load::<Native>(&policy::tables(), fill);
    let epoch = policy::EPOCH + 1;
    let mut transaction = bench.store.transaction();
    policy::set_epoch(&mut transaction, &bench.store, policy::CACHED, epoch);
    policy::delete_rule(&mut transaction, &bench.store, 10, 4);
    transaction.commit();
    // The packets match no rule and no flow, so they go to the CPU.
    let ports = |sent: Sent| {
        let ports = sent.packets.into_iter().map(|(port, _)| port);
        ports.collect::<std::collections::BTreeSet<_>>()
    };
    assert!(!ports(run(&mut bench, &packets)).contains(&2));
    policy::renew_flows(&bench.store, FLOWS, 4, epoch);
    assert_eq!(ports(run(&mut bench, &packets)), [2].into());
}

/// Checks the program with which the benchmark compares. In this program, the default action gives the verdict of all
/// packets.
#[test]
fn verdict_by_default() {
    let json = std::fs::read(traces::program()).expect("the program is compiled");
    let bench = Bench::<Native>::from_json(&policy::verdict_by_default(&json));
    let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
    let done = bench.run_text(&policy::tables(), "tables");
    done.unwrap_or_else(|error| panic!("{error}"));
    policy::set_verdict(&bench.store, 5);
    let packets: Vec<_> = policy::packets(10).collect();
    let sent = run(&mut bench, &packets);
    let oracle = load::<Native>(&policy::tables(), |store| policy::fill_rules(store, 10, 5));
    assert!(sent == run(&mut { oracle }, &packets));
    assert_eq!(policy::counted(&bench.store, 5), 10);
}
