// SPDX-License-Identifier: Apache-2.0
//! Runs every benchmark in its quick form, without DPDK. Checks that all contenders agree and that the report is
//! complete.

use super::*;

const ROUNDS: usize = 2;

fn quick(name: Name) -> Report {
    let setting = Setting::new(true, ROUNDS, None, None, 0);
    run(name, &setting).unwrap_or_else(|why| panic!("{name:?}: {why:#}"))
}

fn is_complete(report: &Report, peers: &[&str], missing: &[&str]) {
    assert!(!report.cases.is_empty());
    for case in &report.cases {
        assert_eq!(case.ours.len(), ROUNDS, "{}", case.workload);
        assert!(
            case.ours.iter().all(|rate| *rate > 0.0),
            "{}",
            case.workload
        );
        assert!(case.peers.values().all(|rounds| rounds.len() == ROUNDS));
    }
    for peer in peers {
        let measured = report
            .cases
            .iter()
            .any(|case| case.peers.contains_key(*peer));
        assert!(measured, "no case measures {peer}");
    }
    let named: Vec<_> = report.missing.keys().collect();
    assert_eq!(named, missing, "peers that are not installed are named");
}

#[test]
fn lpm4_full() {
    let report = quick(Name::Lpm4Full);
    is_complete(&report, &["prefix-trie"], &["rte_fib", "rte_lpm"]);
    assert_eq!(report.cases.len(), 6);
    assert!(report.memory.iter().all(|memory| memory.ours > 0));
    assert!(report.memory[0].peers["dir-24-8"] >= 2 << 24);
}

#[test]
fn lpm6_full() {
    let report = quick(Name::Lpm6Full);
    is_complete(&report, &["prefix-trie"], &["rte_fib6", "rte_lpm6"]);
}

#[test]
fn exact() {
    let report = quick(Name::Exact);
    is_complete(&report, &["hashbrown", "random-read"], &["rte_hash"]);
}

#[test]
fn lpm_auto() {
    let report = quick(Name::LpmAuto);
    is_complete(
        &report,
        &["best-own", "without-updates"],
        &["rte_fib", "rte_fib6"],
    );
    let kinds: Vec<_> = report.cases.iter().map(|case| case.kind).collect();
    for kind in ["size", "updates", "churn"] {
        assert!(kinds.contains(&kind), "{kind}");
    }
}

#[test]
fn ternary() {
    let report = quick(Name::Ternary);
    is_complete(&report, &[], &["rte_acl"]);
    assert_eq!(report.cases.len(), 2);
}

#[test]
fn esp() {
    let report = quick(Name::Esp);
    is_complete(&report, &["aead-64", "aead-1350", "aead-one-key"], &[]);
    let kinds: Vec<_> = report.cases.iter().map(|case| case.kind).collect();
    for kind in ["encrypt", "decrypt", "copied"] {
        assert!(kinds.contains(&kind), "{kind}");
    }
}
