// SPDX-License-Identifier: Apache-2.0
//! Maps strings to numbers, for types that clients see as strings (P4Runtime specification, "User-defined types"). The
//! program marks such a type with `@p4runtime_translation(URI, string)`.
//!
//! Packets carry numbers. A string is mapped to a number by the first rule that applies:
//!
//! 1. The type's `@p4runtime_translation_mappings({ {"STRING", NUMBER}, ... })` lists the string.
//! 2. A decimal number without leading zeros maps to itself, so that ports are written as "1", "2" and so on.
//! 3. Any other string gets a free number when a client first writes it. The string keeps this number as long as an
//!    entity contains the string.
//!
//! If a number has no string, clients see it as a decimal number. Different strings always have different numbers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::Code;

use super::error::SchemaError;
use crate::bytestring::{canonical, check};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::config::v1 as config;

/// Largest width in bits of a type whose values are strings for clients.
pub(crate) const MAX_WIDTH: usize = 128;

/// Largest length of a string, in bytes.
const MAX_LENGTH: usize = 256;

/// Largest number of known strings of a type.
const MAX_STRINGS: usize = 1 << 18;

const MAPPINGS: &str = "@p4runtime_translation_mappings(";

/// The strings of one type.
#[derive(Debug)]
pub struct Names {
    fixed: BTreeMap<Vec<u8>, u128>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// For each string, its number and the latest sweep during which the string was used.
    numbers: HashMap<Vec<u8>, (u128, u64)>,
    strings: HashMap<u128, Vec<u8>>,
    sweep: u64,
    /// The next candidate in the search for a free number.
    next: Option<u128>,
}

/// Two types are equal only if they are the same object.
impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Names {}

/// The types of a P4Info that are strings for clients, by name.
pub(crate) type Types = BTreeMap<String, Arc<Names>>;

/// Finds the types that are strings for clients.
pub(crate) fn types(p4info: &config::P4Info) -> Result<Types, SchemaError> {
    use config::p4_new_type_spec::Representation;
    use config::p4_new_type_translation::SdnType;
    let mut types = Types::new();
    for (name, spec) in p4info.type_info.iter().flat_map(|info| &info.new_types) {
        let Some(Representation::TranslatedType(translated)) = &spec.representation else {
            continue;
        };
        if let Some(SdnType::SdnString(_)) = translated.sdn_type {
            let malformed = |why| SchemaError::Malformed(format!("type {name:?}: {why}"));
            let fixed = mappings(&spec.annotations).map_err(malformed)?;
            types.insert(name.clone(), Arc::new(Names::new(fixed)));
        }
    }
    Ok(types)
}

/// Decodes a value: a string if the type has names, else the bytes of an integer. Returns the number in its shortest
/// form.
pub(crate) fn decode(
    names: Option<&Arc<Names>>,
    value: &[u8],
    width: usize,
) -> UpdateResult<Vec<u8>> {
    match names {
        Some(names) => names.number(value, width).map(shortest),
        None => check(value, width).map(<[u8]>::to_vec),
    }
}

/// Encodes a number: as a string if the type has names, else in its shortest form.
pub(crate) fn encode(names: Option<&Arc<Names>>, number: &[u8]) -> Vec<u8> {
    match names {
        Some(names) => names.string(from_bytes(number)),
        None => canonical(number).to_vec(),
    }
}

fn shortest(number: u128) -> Vec<u8> {
    canonical(&number.to_be_bytes()).to_vec()
}

fn from_bytes(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Parses a decimal number without leading zeros.
fn decimal(string: &[u8]) -> Option<u128> {
    let digits = string.iter().all(u8::is_ascii_digit);
    let plain = digits && (string.len() == 1 || string.first() != Some(&b'0'));
    plain.then(|| std::str::from_utf8(string).ok()?.parse().ok())?
}

impl Names {
    fn new(fixed: BTreeMap<Vec<u8>, u128>) -> Self {
        let strings = fixed
            .iter()
            .map(|(string, number)| (*number, string.clone()));
        let known = Known {
            strings: strings.collect(),
            ..Known::default()
        };
        Self {
            fixed,
            known: Mutex::new(known),
        }
    }

    /// Returns the number of a string. Assigns a number if the string is new.
    fn number(&self, string: &[u8], width: usize) -> UpdateResult<u128> {
        if !(1..=MAX_WIDTH).contains(&width) {
            let message = format!("a type of {width} bits cannot be a string for clients");
            return Err(UpdateError::unimplemented(message));
        }
        let largest = u128::MAX >> (MAX_WIDTH - width);
        let fits = |number: u128| {
            let message = || format!("{:?} does not fit in {width} bits", text(string));
            (number <= largest)
                .then_some(number)
                .ok_or_else(|| UpdateError::out_of_range(message()))
        };
        if let Some(number) = self.fixed.get(string) {
            return fits(*number);
        }
        if string.len() > MAX_LENGTH {
            let message = format!(
                "a string has {} bytes; the maximum is {MAX_LENGTH}",
                string.len()
            );
            return Err(UpdateError::invalid(message));
        }
        let mut known = self.known.lock();
        let sweep = known.sweep;
        if let Some((number, seen)) = known.numbers.get_mut(string) {
            *seen = sweep;
            return fits(*number);
        }
        let exhausted = |message: String| UpdateError {
            code: Code::ResourceExhausted,
            message,
        };
        if known.numbers.len() >= MAX_STRINGS {
            return Err(exhausted(format!(
                "the type has {MAX_STRINGS} strings already, the maximum"
            )));
        }
        let number = match decimal(string) {
            Some(number) => {
                let number = fits(number)?;
                if let Some(other) = known.strings.get(&number) {
                    let message = format!("number {number} stands for {:?} already", text(other));
                    return Err(UpdateError::invalid(message));
                }
                number
            }
            None => known.free(largest).ok_or_else(|| {
                let message = format!("all numbers of {width} bits stand for other strings");
                exhausted(message)
            })?,
        };
        known.numbers.insert(string.to_vec(), (number, sweep));
        known.strings.insert(number, string.to_vec());
        Ok(number)
    }

    /// Returns whether a string has a number: an assigned one, or one that never changes. Does not assign a number.
    pub fn knows(&self, string: &[u8]) -> bool {
        self.fixes(string) || self.known.lock().numbers.contains_key(string)
    }

    /// Returns whether the number of a string never changes, because the type maps the string or the string is a
    /// decimal number.
    pub fn fixes(&self, string: &[u8]) -> bool {
        decimal(string).is_some() || self.fixed.contains_key(string)
    }

    fn string(&self, number: u128) -> Vec<u8> {
        let mut known = self.known.lock();
        let Some(string) = known.strings.get(&number).cloned() else {
            return number.to_string().into_bytes();
        };
        let sweep = known.sweep;
        if let Some((_, seen)) = known.numbers.get_mut(&string) {
            *seen = sweep;
        }
        string
    }

    /// Returns whether few numbers of this width are free, so that unused strings must be removed.
    fn is_crowded(&self, width: usize) -> bool {
        let count = self.known.lock().numbers.len() as u128;
        let numbers = (u128::MAX >> (MAX_WIDTH - width)).min(MAX_STRINGS as u128);
        count > numbers - numbers / 4
    }

    /// Begins a sweep, which removes unused strings. A string that is read or written before the end of the sweep
    /// stays.
    fn begin_sweep(&self) {
        self.known.lock().sweep += 1;
    }

    /// Ends a sweep: removes all strings that were neither read nor written since its beginning.
    fn end_sweep(&self) {
        let mut known = self.known.lock();
        let Known {
            numbers,
            strings,
            sweep,
            ..
        } = &mut *known;
        numbers.retain(|_, (number, seen)| {
            let stays = *seen == *sweep;
            if !stays {
                strings.remove(number);
            }
            stays
        });
    }
}

impl Known {
    /// Finds a free number. Never returns 0 or the largest number, because programs give these two a special meaning.
    /// Searches downwards from three quarters of the range, far from both ends.
    fn free(&mut self, largest: u128) -> Option<u128> {
        let start = self.next.unwrap_or(largest - largest / 4);
        let downwards = (1..=start).rev().chain((start + 1..largest).rev());
        // The search is short, because no more candidates can be in use than there are strings.
        let mut candidates = downwards.filter(|number| *number < largest);
        let free = candidates.find(|number| !self.strings.contains_key(number))?;
        self.next = free.checked_sub(1).filter(|next| *next > 0);
        Some(free)
    }
}

fn text(string: &[u8]) -> String {
    String::from_utf8_lossy(string).into_owned()
}

/// The types that are strings for clients and that the program uses, with their widths. Sweeps remove strings that no
/// entity contains any more.
#[derive(Debug, Default)]
pub struct InUse(Vec<(Arc<Names>, usize)>);

impl InUse {
    /// Records that a type is in use.
    pub fn add(&mut self, names: Option<&Arc<Names>>, width: usize) {
        if let Some(names) = names
            && (1..=MAX_WIDTH).contains(&width)
            && self.width(names).is_none()
        {
            self.0.push((names.clone(), width));
        }
    }

    /// Returns the width of a type that is in use.
    pub fn width(&self, names: &Arc<Names>) -> Option<usize> {
        let same = |(other, _): &&(Arc<Names>, usize)| Arc::ptr_eq(other, names);
        self.0.iter().find(same).map(|(_, width)| *width)
    }

    /// Removes strings that no entity contains, if too few numbers of a type are free. `read` must read all entities
    /// that clients have written.
    pub fn sweep(&self, read: impl FnOnce()) {
        if !self.0.iter().any(|(names, width)| names.is_crowded(*width)) {
            return;
        }
        self.0.iter().for_each(|(names, _)| names.begin_sweep());
        read();
        self.0.iter().for_each(|(names, _)| names.end_sweep());
    }
}

/// Parses `@p4runtime_translation_mappings({ {"STRING", NUMBER}, ... })` in the form that p4c writes into P4Info.
fn mappings(annotations: &[String]) -> Result<BTreeMap<Vec<u8>, u128>, String> {
    let mut all = BTreeMap::new();
    let body = annotations.iter().find_map(|a| a.strip_prefix(MAPPINGS));
    let mut rest = body.unwrap_or_default();
    while let Some(start) = rest.find('"') {
        let (string, after) = quoted(&rest[start + 1..]).ok_or("a string has no closing quote")?;
        let end = after.find('}').ok_or("a mapping has no closing brace")?;
        let number = after[..end].trim().trim_start_matches(',').trim();
        let parsed = literal(number).ok_or_else(|| format!("{number:?} is not a number"))?;
        if all.values().any(|other| *other == parsed) {
            return Err(format!("two strings stand for {parsed}"));
        }
        if all.insert(string.into_bytes(), parsed).is_some() {
            return Err("a string stands for two numbers".into());
        }
        rest = &after[end..];
    }
    Ok(all)
}

/// Splits a string at its closing quote. Returns the string and the text after the quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut string, mut characters) = (String::new(), text.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((string, &text[at + 1..])),
            '\\' => string.push(characters.next()?.1),
            _ => string.push(character),
        }
    }
    None
}

/// Parses a P4 number, with or without a width prefix.
fn literal(text: &str) -> Option<u128> {
    let digits = text.rsplit_once('w').map_or(text, |(_, digits)| digits);
    match digits.strip_prefix("0x") {
        Some(hexadecimal) => u128::from_str_radix(hexadecimal, 16).ok(),
        None => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
