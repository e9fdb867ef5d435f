// SPDX-License-Identifier: Apache-2.0
//! What entries lead to, numbered: equal ones share a number. A table of a million routes has few
//! next hops, and small numbers make small look-up structures.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::entry::{ActionEntry, ActionRef};
use crate::slab::{Record, Target};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Classes {
    hasher: DefaultHashBuilder,
    /// Numbers, by what they stand for.
    numbers: HashTable<u32>,
    /// What each number stands for, and how many entries have it.
    kinds: Vec<Option<(Class, usize)>>,
    free: Vec<u32>,
}

/// What equal entries lead to.
#[derive(Debug)]
enum Class {
    Direct(ActionEntry),
    Member(u32),
    Group(u32),
    /// A group of one entry's own, kept under its slot.
    OneShot(u32),
}

impl Class {
    fn of(entry: &Record<'_>) -> Self {
        match entry.target() {
            Target::Direct(ActionRef { action, params }) => Self::Direct(ActionEntry {
                action,
                params: params.into(),
            }),
            Target::Member(id) => Self::Member(id),
            Target::Group(id) => Self::Group(id),
            Target::OneShot => Self::OneShot(entry.slot()),
        }
    }

    fn target(&self) -> (Target<'_>, u32) {
        match self {
            Self::Direct(action) => (Target::Direct(action.as_ref()), 0),
            Self::Member(id) => (Target::Member(*id), 0),
            Self::Group(id) => (Target::Group(*id), 0),
            Self::OneShot(slot) => (Target::OneShot, *slot),
        }
    }

    fn is(&self, entry: &Record<'_>) -> bool {
        match (self, entry.target()) {
            (Self::Direct(known), Target::Direct(action)) => known.as_ref() == action,
            (Self::Member(known), Target::Member(id)) | (Self::Group(known), Target::Group(id)) => {
                *known == id
            }
            (Self::OneShot(known), Target::OneShot) => *known == entry.slot(),
            _ => false,
        }
    }
}

fn hash(hasher: &DefaultHashBuilder, (target, slot): (Target<'_>, u32)) -> u64 {
    let mut hasher = hasher.build_hasher();
    match target {
        Target::Direct(action) => (0, action.action.index(), action.params).hash(&mut hasher),
        Target::Member(id) => (1, id).hash(&mut hasher),
        Target::Group(id) => (2, id).hash(&mut hasher),
        Target::OneShot => (3, slot).hash(&mut hasher),
    }
    hasher.finish()
}

impl Classes {
    /// The number of what an entry leads to, for one entry more.
    pub(super) fn add(&mut self, entry: &Record<'_>) -> u32 {
        let Self {
            hasher,
            numbers,
            kinds,
            free,
        } = self;
        let hash_of = hash(hasher, (entry.target(), entry.slot()));
        let same = |number: &u32| {
            let kind = kinds[*number as usize].as_ref();
            kind.is_some_and(|(known, _)| known.is(entry))
        };
        if let Some(number) = numbers.find(hash_of, same).copied() {
            if let Some((_, entries)) = &mut kinds[number as usize] {
                *entries += 1;
            }
            return number;
        }
        let number = free.pop().unwrap_or_else(|| {
            kinds.push(None);
            u32::try_from(kinds.len() - 1).expect("a table has fewer than 2^32 entries")
        });
        kinds[number as usize] = Some((Class::of(entry), 1));
        numbers.insert_unique(hash_of, number, |number| {
            let kind = kinds[*number as usize].as_ref();
            kind.map_or(0, |(known, _)| hash(hasher, known.target()))
        });
        number
    }

    /// One entry fewer has this number.
    pub(super) fn release(&mut self, number: u32) {
        let Some((class, entries)) = &mut self.kinds[number as usize] else {
            return;
        };
        *entries -= 1;
        if *entries > 0 {
            return;
        }
        let hash = hash(&self.hasher, class.target());
        if let Ok(place) = self.numbers.find_entry(hash, |known| *known == number) {
            place.remove();
        }
        self.kinds[number as usize] = None;
        self.free.push(number);
    }

    /// What a number stands for; with the slot under which the group is that belongs to one entry.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<(Target<'_>, u32)> {
        let kind = self.kinds[number as usize].as_ref();
        kind.map(|(class, _)| class.target())
    }
}
