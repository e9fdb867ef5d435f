// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes `RuleTree` and `RuleBatch`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::punts::FirstPacket;
use crate::mailbox::lock;
use crate::rules::area::{ABSENT, ANY, Address, Addresses, NUMBER_SELECTORS, Packets, Selectors};
use crate::rules::list::{List, NewRules};

/// Fields of a Python rule that this module reads.
const FIELDS: [&str; 12] = [
    "action",
    "bundle",
    "source",
    "destination",
    "protocol",
    "source_port",
    "destination_port",
    "icmp",
    "generated",
    "scope",
    "is_default",
    "mobility_type",
];

/// The effect of a rule: an action, and the name of a bundle if the action is to protect.
type Effect = (u8, Option<String>);

/// Says where each field is in a Python rule, and numbers the effects of rules. Shared by all
/// versions of a list.
struct RuleClass {
    /// For each name in [`FIELDS`], the index of this field in a rule.
    indexes: [usize; FIELDS.len()],
    opaque: Py<PyAny>,
    own: Py<PyAny>,
    transit: Py<PyAny>,
    bypass: u8,
    effects: Mutex<HashMap<Effect, u32>>,
}

impl RuleClass {
    fn effect(&self, effect: Effect) -> u32 {
        let mut effects = lock(&self.effects);
        let next = effects.len() as u32;
        *effects.entry(effect).or_insert(next)
    }

    fn push(&self, batch: &mut NewRules, rule: &Bound<'_, PyTuple>) -> PyResult<()> {
        let field = |at: usize| rule.get_item(self.indexes[at]);
        let py = rule.py();
        let action: u8 = field(0)?.extract()?;
        let effect = self.effect((action, field(1)?.extract()?));
        let scope = field(9)?;
        let is_own = !scope.is(&self.transit);
        let is_transit = !scope.is(&self.own) && !field(8)?.is_truthy()?;
        let selectors = Selectors {
            addresses: [address_ranges(&field(2)?)?, address_ranges(&field(3)?)?],
            numbers: [
                self.numbers(py, &field(4)?, |one| Ok([one.extract()?; 2]))?,
                self.numbers(py, &field(5)?, number_range)?,
                self.numbers(py, &field(6)?, number_range)?,
                self.numbers(py, &field(7)?, number_range)?,
                self.numbers(py, &field(11)?, number_range)?,
            ],
            origins: match (is_transit, is_own) {
                (true, true) => Some([0, 1]),
                (true, false) => Some([0, 0]),
                (false, true) => Some([1, 1]),
                (false, false) => None,
            },
        };
        let restricts = action != self.bypass && !field(10)?.is_truthy()?;
        batch.push(selectors, effect, restricts);
        Ok(())
    }

    /// Returns the ranges of a selector. `read` converts one element of the Python tuple.
    fn numbers(
        &self,
        py: Python<'_>,
        selector: &Bound<'_, PyAny>,
        read: impl Fn(&Bound<'_, PyAny>) -> PyResult<[u32; 2]>,
    ) -> PyResult<Vec<[u32; 2]>> {
        if selector.is_none() {
            return Ok(vec![ANY]);
        }
        if selector.is(self.opaque.bind(py)) {
            return Ok(vec![[ABSENT; 2]]);
        }
        let elements = selector.cast::<PyTuple>()?;
        elements.iter().map(|one| read(&one)).collect()
    }
}

fn number_range(range: &Bound<'_, PyAny>) -> PyResult<[u32; 2]> {
    let range = range.cast::<PyTuple>()?;
    Ok([range.get_item(0)?.extract()?, range.get_item(1)?.extract()?])
}

fn address_ranges(selector: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Addresses>>> {
    if selector.is_none() {
        return Ok(None);
    }
    let range = |one: Bound<'_, PyAny>| {
        let one = one.cast::<PyTuple>()?;
        let (family, low) = address(one.get_item(0)?.cast::<PyBytes>()?.as_bytes())?;
        let (_, high) = address(one.get_item(1)?.cast::<PyBytes>()?.as_bytes())?;
        Ok(Addresses {
            family,
            range: [low, high],
        })
    };
    let ranges: PyResult<Vec<_>> = selector.cast::<PyTuple>()?.iter().map(range).collect();
    ranges.map(Some)
}

fn address(bytes: &[u8]) -> PyResult<Address> {
    let mut value = [0; 16];
    let start = value.len().checked_sub(bytes.len());
    let end = start.and_then(|start| value.get_mut(start..));
    end.ok_or_else(|| PyValueError::new_err("an address has at most 16 bytes"))?
        .copy_from_slice(bytes);
    Ok((bytes.len() as u32, u128::from_be_bytes(value)))
}

#[pyclass(module = "sluice._native", frozen)]
pub(super) struct RuleBatch(Mutex<NewRules>, Arc<RuleClass>);

#[pymethods]
impl RuleBatch {
    fn extend(&self, rules: &Bound<'_, PyAny>) -> PyResult<()> {
        for rule in rules.try_iter()? {
            self.1.push(&mut lock(&self.0), rule?.cast::<PyTuple>()?)?;
        }
        Ok(())
    }

    fn __len__(&self) -> usize {
        lock(&self.0).len()
    }
}

#[pyclass(module = "sluice._native", frozen)]
pub(super) struct RuleTree(List, Arc<RuleClass>);

#[pymethods]
impl RuleTree {
    #[new]
    fn new(
        fields: &Bound<'_, PyTuple>,
        opaque: Py<PyAny>,
        own: Py<PyAny>,
        transit: Py<PyAny>,
        bypass: u8,
    ) -> PyResult<Self> {
        let mut indexes = [0; FIELDS.len()];
        for (index, field) in indexes.iter_mut().zip(FIELDS) {
            *index = fields.index(field)?;
        }
        let effects = Mutex::default();
        let class = RuleClass {
            indexes,
            opaque,
            own,
            transit,
            bypass,
            effects,
        };
        Ok(Self(List::default(), Arc::new(class)))
    }

    fn batch(&self) -> RuleBatch {
        RuleBatch(Mutex::default(), Arc::clone(&self.1))
    }

    fn replaced(
        &self,
        py: Python<'_>,
        start: usize,
        removed: &RuleBatch,
        added: &RuleBatch,
    ) -> PyResult<Self> {
        let list = py.detach(|| {
            let removed = std::mem::take(&mut *lock(&removed.0));
            let added = std::mem::take(&mut *lock(&added.0));
            self.0.replaced(start, &removed, &added)
        });
        let list = list.ok_or_else(|| PyValueError::new_err("the list has no such rules"))?;
        Ok(Self(list, Arc::clone(&self.1)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of Selectors")]
    fn first_match(
        &self,
        source: &[u8],
        destination: &[u8],
        protocol: Option<u32>,
        source_port: Option<u32>,
        destination_port: Option<u32>,
        icmp: Option<u32>,
        is_own: bool,
        mobility_type: Option<u32>,
    ) -> PyResult<Option<usize>> {
        let numbers = [protocol, source_port, destination_port, icmp, mobility_type];
        let numbers = numbers.map(|one| one.or(Some(ABSENT)));
        let packet = packets(source, destination, numbers, is_own)?;
        Ok(self.0.first_match(&packet))
    }

    fn first_match_of(&self, packet: &Bound<'_, FirstPacket>) -> PyResult<Option<usize>> {
        let packet = packet.get();
        let key = packet.key();
        let (from, to) = packet.ports().unzip();
        let port = |port: Option<u16>| Some(port.map_or(ABSENT, u32::from));
        let protocol = Some(u32::from(key.protocol));
        let numbers = [protocol, port(from), port(to), Some(ABSENT), Some(ABSENT)];
        let packet = packets(key.source(), key.destination(), numbers, key.is_local())?;
        Ok(self.0.first_match(&packet))
    }

    fn has_other_effect(
        &self,
        source: &[u8],
        destination: &[u8],
        protocol: Option<u32>,
        is_own: bool,
        effect: Effect,
        limit: Option<usize>,
    ) -> PyResult<bool> {
        let mut numbers = [None; NUMBER_SELECTORS];
        numbers[0] = protocol;
        let packets = packets(source, destination, numbers, is_own)?;
        let limit = limit.unwrap_or(self.0.len());
        Ok(self
            .0
            .has_other_effect(&packets, self.1.effect(effect), limit))
    }

    fn restricts_to(&self, destination: &[u8], is_own: bool) -> PyResult<bool> {
        let destination = Some(address(destination)?);
        Ok(self.0.restricts(&Packets {
            destination,
            is_own,
            ..Packets::default()
        }))
    }
}

fn packets(
    source: &[u8],
    destination: &[u8],
    numbers: [Option<u32>; NUMBER_SELECTORS],
    is_own: bool,
) -> PyResult<Packets> {
    Ok(Packets {
        source: Some(address(source)?),
        destination: Some(address(destination)?),
        numbers,
        is_own,
    })
}
