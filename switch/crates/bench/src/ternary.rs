// SPDX-License-Identifier: Apache-2.0
//! Measures the search for the first of many overlapping rules that matches a packet (`ternary`), with ten to a hundred
//! thousand rules.
//!
//! Rules are 5-tuples with prefixes of both addresses, ranges of both ports and a protocol. They resemble the rules of
//! access lists, firewalls and packet filter chains. The crate `classifier` generates rules and packets. The packets
//! match random rules, and often lie at the bounds of these rules.

use std::collections::BTreeMap;
use std::hint::black_box;

use anyhow::{Result, bail};
use sluice_classifier::sample::{self, FiveTuple, KEY_BYTES, Shape};
use sluice_classifier::{Classifier, Precedence, Rule};

use crate::measure::{Contender, interleave};
use crate::peers::dpdk_acl::{self, DpdkAcl};
use crate::report::{Case, Memory, OURS, Report};
use crate::setting::Setting;

const BURST: usize = 256;
const SEED: u64 = 0x616c;
/// Heap for rte_acl, in bytes.
const HEAP_BYTES: usize = 2 << 30;
/// Positions of the two ports in a key.
const PORTS: [std::ops::Range<usize>; 2] = [8..10, 10..12];

struct Own(Classifier);

impl Own {
    fn new(rules: &[FiveTuple]) -> Self {
        let mut classifier = Classifier::new(KEY_BYTES, &PORTS);
        for (number, rule) in rules.iter().enumerate() {
            let (value, bounds) = rule.parts();
            let rule = Rule {
                value: &value,
                bounds: &bounds,
            };
            // Each rule has a different priority, because rte_acl requires this.
            let precedence = Precedence {
                priority: -(number as i32),
                sequence: 0,
            };
            classifier.insert(rule, precedence, number as u32 + 1);
        }
        Self(classifier)
    }

    /// Returns for each key the number of the rule that matches, or 0 if no rule matches.
    fn values(&self, keys: &[u8]) -> Vec<u32> {
        let mut found = vec![0; keys.len() / KEY_BYTES];
        self.0.lookup_batch(keys, &mut found);
        for (key, found) in keys.chunks_exact(KEY_BYTES).zip(&mut found) {
            let single = self.0.lookup(key).unwrap_or(sluice_classifier::NONE);
            assert_eq!(single, *found, "results alone and in a batch: {key:?}");
            if *found == sluice_classifier::NONE {
                *found = 0;
            }
        }
        found
    }

    fn lookup(&self, keys: &[u8]) -> u64 {
        let (mut found, mut digest) = ([0; BURST], 0);
        for burst in keys.chunks(BURST * KEY_BYTES) {
            let found = &mut found[..burst.len() / KEY_BYTES];
            self.0.lookup_batch(burst, found);
            digest += u64::from(black_box(&*found)[0]);
        }
        digest
    }
}

/// Measures rule sets of different sizes and origins: access list, firewall, and packet filter chain.
pub(crate) fn run(setting: &Setting) -> Result<Report> {
    let mut report = setting.report("look-ups per second of one core");
    let list = Shape::AccessList;
    let sizes: &[(Shape, usize)] = if setting.quick {
        &[(list, 10), (Shape::Firewall, 100)]
    } else {
        &[
            (list, 10),
            (list, 100),
            (list, 1_000),
            (list, 10_000),
            (list, 100_000),
            (Shape::Firewall, 1_000),
            (Shape::Chain, 1_000),
        ]
    };
    for (shape, count) in sizes {
        let name = format!("{count} rules, {}", described(*shape));
        setting.progress(&name);
        one_set(setting, &name, *shape, *count, &mut report)?;
    }
    Ok(report)
}

fn described(shape: Shape) -> &'static str {
    match shape {
        Shape::AccessList => "access list",
        Shape::Firewall => "firewall",
        Shape::Chain => "packet filter's chain",
    }
}

fn one_set(
    setting: &Setting,
    name: &str,
    shape: Shape,
    count: usize,
    report: &mut Report,
) -> Result<()> {
    let rules = sample::rules(shape, count, SEED);
    let length = if setting.quick { 1 << 10 } else { 1 << 18 };
    let trace = sample::trace(&rules, length, SEED + 1);
    let keys = trace.as_flattened();
    let own = Own::new(&rules);
    let acl = setting.dpdk(&[dpdk_acl::NAME], HEAP_BYTES, report);
    let acl = acl.and_then(|dpdk| {
        let built = DpdkAcl::new(dpdk, &rules, &trace);
        let why = |why| report.misses(dpdk_acl::NAME, format!("{name}: {why:#}"));
        built.map_err(why).ok()
    });
    agree(&rules, &trace, &own.values(keys), acl.as_ref())?;
    report.memory.push(Memory {
        workload: name.into(),
        ours: own.0.memory_bytes(),
        peers: BTreeMap::new(),
    });
    let mut contenders = vec![Contender::new(OURS, trace.len(), || own.lookup(keys))];
    if let Some(acl) = &acl {
        let pass = || acl.lookup();
        contenders.push(Contender::new(dpdk_acl::NAME, trace.len(), pass));
    }
    let rates = interleave(&mut contenders, setting.effort());
    let mut case = Case::new(name, "batch", &rates);
    if let Some(acl) = &acl {
        case.detail("rte_acl's implementation", acl.implementation());
    }
    setting.tell(&case.workload, &rates);
    report.cases.push(case);
    Ok(())
}

/// Checks our classifier against a linear search of the rules, for some keys. Then checks for all keys that both
/// classifiers give the same results.
///
/// # Errors
/// Fails if the results differ, because the measurement would be meaningless.
fn agree(
    rules: &[FiveTuple],
    trace: &[[u8; KEY_BYTES]],
    ours: &[u32],
    acl: Option<&DpdkAcl>,
) -> Result<()> {
    for (key, ours) in trace.iter().zip(ours).take(500) {
        let first = rules.iter().position(|rule| rule.matches(key));
        let first = first.map_or(0, |number| number as u32 + 1);
        if first != *ours {
            bail!(
                "{key:?}: our classifier returns rule {ours}, but the first match is rule {first}"
            );
        }
    }
    let Some(acl) = acl else { return Ok(()) };
    let differs = acl
        .values()
        .iter()
        .zip(ours)
        .position(|(acl, ours)| acl != ours);
    match differs {
        Some(at) => bail!(
            "{:?}: our classifier returns rule {}, and rte_acl another rule",
            trace[at],
            ours[at]
        ),
        None => Ok(()),
    }
}
