// SPDX-License-Identifier: Apache-2.0
//! Builds an ordered list of outbound rules. All packets of the trace match the same rule, which can be at any position
//! of the list. No other rule matches them.
//!
//! The switch has two lists with these rules. [`CACHED`] has a flow entry for each flow of the trace. [`UNCACHED`] has
//! none, so its packets find their rule in the rule table. [`verdict_by_default`] changes the program so that it looks
//! up neither flows nor rules.

use std::fmt::Write;
use std::ops::RangeInclusive;

use sluice_program::TableId;
use sluice_tables::{EntryAction, EntrySpec, KeyField, Store, Transaction};

use super::{R, bytes, call, entry, network, scatter, table_named, udp4};

/// List whose flows are in the flow table.
pub(crate) const CACHED: u64 = 12;
/// List without flows.
pub(crate) const UNCACHED: u64 = 13;
/// Epoch of both lists.
pub(crate) const EPOCH: u64 = 0x10004;
const GENERATION: u64 = 6;
const RULE_SET: u64 = 7;
const BYPASS: u64 = 1;
const UDP: u8 = 17;
/// Updates per transaction.
const UPDATES: usize = 1_000;
const RULES: &str = "outbound.ipv4_rule";
const FLOWS: &str = "outbound.ipv4_flow";
const LIST_STATE: &str = "outbound.list_state";

/// A rule. Matches one protocol, and a range of each address and port.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) source: RangeInclusive<u32>,
    pub(crate) destination: RangeInclusive<u32>,
    pub(crate) protocol: u8,
    pub(crate) source_ports: RangeInclusive<u16>,
    pub(crate) destination_ports: RangeInclusive<u16>,
}

impl Rule {
    /// Returns a rule for UDP from 10.0.0.0/8 to a destination prefix.
    fn to(address: u32, length: u32) -> Self {
        Self {
            source: prefix(0x0a00_0000, 8),
            destination: prefix(address, length),
            protocol: UDP,
            source_ports: 0..=u16::MAX,
            destination_ports: 1024..=u16::MAX,
        }
    }
}

fn prefix(address: u32, length: u32) -> RangeInclusive<u32> {
    address..=address | (u32::MAX >> length)
}

/// Returns the rule that matches all packets.
pub(crate) fn matching_rule() -> Rule {
    Rule::to(0x0d00_0000, 16)
}

/// Returns a rule that does not match the packets. Each index gives a different destination network.
pub(crate) fn other_rule(index: usize) -> Rule {
    Rule::to(0x0b00_0000 + (index as u32) * 256, 24)
}

/// Configures two interfaces and both lists. Interface 2 is bound to the list [`CACHED`].
pub(crate) fn tables() -> String {
    let mut text = network(&format!("check_outbound {CACHED}"), 1);
    let _ = writeln!(
        text,
        "entry {R}.routing.fib.ipv4_fib 0 0x0d000000/8 => {R}.routing.fib.set_nexthop 1"
    );
    for list in [CACHED, UNCACHED] {
        let _ = writeln!(
            text,
            "entry {R}.flow_cache.{LIST_STATE} {list} => {R}.flow_cache.outbound.set_list {EPOCH} {GENERATION} {RULE_SET}"
        );
    }
    text
}

/// Binds interface 2 to a list.
pub(crate) fn bind(store: &Store, list: u64) {
    let program = store.program();
    let table = table_named(program, "flow_cache.outbound_binding");
    let key = vec![KeyField::Exact(bytes(2, 2))];
    let action = call(program, table, "check_outbound", &[list]);
    let mut transaction = store.transaction();
    let modified = transaction.modify(table, entry(key, 0, action));
    modified.expect("the interface is bound");
    transaction.commit();
}

/// Sets the epoch of a list. Flows of other epochs give no verdict from then on.
pub(crate) fn set_epoch(transaction: &mut Transaction<'_>, store: &Store, list: u64, epoch: u64) {
    let program = store.program();
    let table = table_named(program, LIST_STATE);
    let key = vec![KeyField::Exact(bytes(list, 2))];
    let action = call(program, table, "set_list", &[epoch, GENERATION, RULE_SET]);
    let modified = transaction.modify(table, entry(key, 0, action));
    modified.expect("the list has a state");
}

fn write(store: &Store, count: usize, update: impl Fn(&mut Transaction<'_>, usize)) {
    for start in (0..count).step_by(UPDATES) {
        let mut transaction = store.transaction();
        (start..(start + UPDATES).min(count)).for_each(|index| update(&mut transaction, index));
        transaction.commit();
    }
}

/// Returns the table of rules.
pub(crate) fn rule_table(store: &Store) -> TableId {
    table_named(store.program(), RULES)
}

/// Returns a rule as an entry of the table of rules. `number` is the number of the rule's counter.
pub(crate) fn rule_entry(store: &Store, rule: &Rule, priority: i32, number: u64) -> EntrySpec {
    let program = store.program();
    let action = call(program, rule_table(store), "set_rule", &[number, BYPASS, 0]);
    entry(rule_key(rule), priority, action)
}

fn rule_key(rule: &Rule) -> Vec<KeyField> {
    let prefix = |range: &RangeInclusive<u32>| KeyField::Ternary {
        value: bytes((*range.start()).into(), 4),
        mask: bytes((!(range.start() ^ range.end())).into(), 4),
    };
    let ports = |range: &RangeInclusive<u16>| match (range.start(), range.end()) {
        (0, &u16::MAX) => KeyField::DontCare,
        (low, high) => KeyField::Range {
            low: bytes((*low).into(), 2),
            high: bytes((*high).into(), 2),
        },
    };
    vec![
        KeyField::Exact(bytes(RULE_SET, 2)),
        KeyField::DontCare,
        prefix(&rule.source),
        prefix(&rule.destination),
        KeyField::Ternary {
            value: vec![rule.protocol],
            mask: vec![u8::MAX],
        },
        ports(&rule.source_ports),
        ports(&rule.destination_ports),
    ]
}

/// Returns the priority of the matching rule at a position, in a list of `length` rules.
fn priority_at(length: usize, position: usize) -> i32 {
    2 * (length - position) as i32 + 2
}

/// Returns the priority of the other rule with this index. Between any two of these rules, there is room for the
/// matching rule.
fn priority_of_other(length: usize, index: usize) -> i32 {
    2 * (length - index) as i32 - 1
}

/// Writes a list of `length` rules to the table of rules. The matching rule is at `position`, counted from 1.
pub(crate) fn fill_rules(store: &Store, length: usize, position: usize) {
    let table = rule_table(store);
    let number = length as u64 + 1; // no packet matches these rules, so they share a counter
    let action = call(store.program(), table, "set_rule", &[number, BYPASS, 0]);
    write(store, length - 1, |transaction, index| {
        let key = rule_key(&other_rule(index));
        let rule = entry(key, priority_of_other(length, index), action.clone());
        transaction.insert(table, rule).expect("the rule is new");
    });
    let mut transaction = store.transaction();
    let rule = matching_entry(store, length, position);
    transaction.insert(table, rule).expect("the rule is new");
    transaction.commit();
}

fn matching_entry(store: &Store, length: usize, position: usize) -> EntrySpec {
    let priority = priority_at(length, position);
    rule_entry(store, &matching_rule(), priority, position as u64)
}

/// Moves the matching rule to another position of the list.
pub(crate) fn move_rule(store: &Store, length: usize, from: usize, to: usize) {
    let mut transaction = store.transaction();
    delete_rule(&mut transaction, store, length, from);
    let new = matching_entry(store, length, to);
    let inserted = transaction.insert(rule_table(store), new);
    inserted.expect("the rule is new");
    transaction.commit();
}

/// Deletes the matching rule from its position in the list.
pub(crate) fn delete_rule(
    transaction: &mut Transaction<'_>,
    store: &Store,
    length: usize,
    position: usize,
) {
    let rule = matching_entry(store, length, position);
    let deleted = transaction.delete(rule_table(store), &rule.key, rule.priority);
    deleted.expect("the rule is in the list");
}

/// Returns source, destination and ports of a flow. The matching rule matches all flows.
fn flow(index: usize) -> [u32; 3] {
    let random = scatter(index);
    [
        0x0a00_0000 | index as u32,
        0x0d00_0000 | (random as u32 & 0xffff),
        (random >> 16) as u32 | 0x0400_0400,
    ]
}

/// Table and action of flow entries, looked up once for many entries.
struct FlowTable {
    table: TableId,
    action: EntryAction,
    key_bytes: Vec<usize>,
}

impl FlowTable {
    /// The flows match the rule with this number.
    fn new(store: &Store, rule: u64, epoch: u64) -> Self {
        let program = store.program();
        let table = table_named(program, FLOWS);
        let keys = program.table(table).key.iter();
        Self {
            table,
            action: call(program, table, "set_ipv4_flow", &[epoch, rule, BYPASS, 0]),
            key_bytes: keys.map(sluice_program::Key::bytes).collect(),
        }
    }

    fn key(&self, index: usize) -> Vec<KeyField> {
        let [source, destination, ports] = flow(index);
        let (source_port, destination_port) = (ports >> 16, ports & 0xffff);
        let fields = [
            CACHED,
            0,
            0,
            0,
            source.into(),
            destination.into(),
            UDP.into(),
            source_port.into(),
            destination_port.into(),
        ];
        let fields = self.key_bytes.iter().zip(fields);
        let fields = fields.map(|(count, value)| KeyField::Exact(bytes(value, *count)));
        fields.collect()
    }

    fn entry(&self, index: usize) -> EntrySpec {
        entry(self.key(index), 0, self.action.clone())
    }
}

/// Adds `flows` flows of the list [`CACHED`], which match the rule with this number.
pub(crate) fn fill_flows(store: &Store, flows: usize, rule: usize) {
    let of = FlowTable::new(store, rule as u64, EPOCH);
    write(store, flows, |transaction, index| {
        let inserted = transaction.insert(of.table, of.entry(index));
        inserted.expect("the flow is new");
    });
}

/// Deletes `flows` flows.
pub(crate) fn delete_flows(store: &Store, flows: usize) {
    let of = FlowTable::new(store, 0, EPOCH);
    write(store, flows, |transaction, index| {
        let deleted = transaction.delete(of.table, &of.key(index), 0);
        deleted.expect("the flow is in the table");
    });
}

/// Writes `flows` flows again, with the epoch that their list has now.
pub(crate) fn renew_flows(store: &Store, flows: usize, rule: usize, epoch: u64) {
    let of = FlowTable::new(store, rule as u64, epoch);
    write(store, flows, |transaction, index| {
        let modified = transaction.modify(of.table, of.entry(index));
        modified.expect("the flow is in the table");
    });
}

/// Returns one packet for each of `flows` flows, in pseudo-random order.
pub(crate) fn packets(flows: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut order: Vec<usize> = (0..flows).collect();
    order.sort_by_key(|index| scatter(index ^ 0x5555_5555));
    order.into_iter().map(|index| {
        let [source, destination, ports] = flow(index);
        udp4(source, destination, [(ports >> 16) as u16, ports as u16])
    })
}

/// Returns the packets that a rule has counted.
pub(crate) fn counted(store: &Store, rule: usize) -> u64 {
    let name = format!("{R}.flow_cache.outbound.rule_hit_counter");
    let counter = store.program().counter_by_name(&name);
    let counter = counter.expect("the router counts packets of rules");
    let cell = store.externs().counter(counter, rule);
    cell.expect("the counter has this index").get().0
}

/// Returns the packets that the first flow has counted.
pub(crate) fn counted_by_flow(store: &Store) -> u64 {
    let of = FlowTable::new(store, 0, EPOCH);
    let entry = store.view().entry(of.table, &of.key(0), 0);
    let entry = entry.expect("the flow is in the table");
    entry.state().map_or(0, |state| state.counter().get().0)
}

/// Returns the router program without outbound lookups of IPv4 packets in flows and rules. The table of rules has no
/// key. Its default action, which [`set_verdict`] sets, gives every packet its verdict. Everything else is unchanged.
///
/// # Panics
/// Panics if the program does not have the expected tables.
pub(crate) fn verdict_by_default(json: &[u8]) -> Vec<u8> {
    let mut program: serde_json::Value = serde_json::from_slice(json).expect("this is JSON");
    let action = &format!("{R}.flow_cache.outbound.set_rule");
    let (flows, rules) = (
        format!("{R}.flow_cache.{FLOWS}"),
        format!("{R}.flow_cache.{RULES}"),
    );
    let ingress = &mut program["pipelines"][0];
    let conditionals = ingress["conditionals"].as_array_mut();
    let conditionals = conditionals.expect("the program has conditions");
    let mut before = conditionals
        .iter_mut()
        .filter(|condition| condition["true_next"] == *flows);
    let before = before.next().expect("a condition leads to the flow table");
    before["true_next"] = rules.as_str().into();
    let tables = ingress["tables"].as_array_mut();
    let mut tables = tables.expect("the program has tables").iter_mut();
    let table = tables.find(|table| table["name"] == rules);
    let table = table.expect("the program has this table");
    let names = table["actions"].as_array().expect("the table has actions");
    let at = names.iter().position(|name| name == action);
    let at = at.expect("the table has this action");
    table["key"] = serde_json::json!([]);
    table["match_type"] = "exact".into();
    table["default_entry"] = serde_json::json!({
        "action_id": table["action_ids"][at],
        "action_const": false,
        "action_data": ["0x0", "0x1", "0x0"],
        "action_entry_const": false,
    });
    serde_json::to_vec(&program).expect("this was JSON before")
}

/// Sets the default action in a program that [`verdict_by_default`] has changed: packets bypass IPsec by this rule.
pub(crate) fn set_verdict(store: &Store, rule: usize) {
    let (program, table) = (store.program(), rule_table(store));
    let action = call(program, table, "set_rule", &[rule as u64, BYPASS, 0]);
    let mut transaction = store.transaction();
    let set = transaction.set_default(table, Some(action.into()));
    set.expect("the default action is not constant");
    transaction.commit();
}
