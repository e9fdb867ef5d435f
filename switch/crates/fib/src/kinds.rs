// SPDX-License-Identifier: Apache-2.0
//! The algorithms that there are, by name, and which of them suit how many routes.

use crate::algorithm::{Algorithm, BuildError};
use crate::{Address, BoundTree16, BoundTree32, Dir24x16, Dir24x32, Ranges, Rank16, Rank32, Rib};

/// A structure, or why it cannot hold the routes.
pub type Built<A> = Result<Box<dyn Algorithm<A>>, BuildError>;

/// An algorithm by name.
#[derive(Clone, Copy, Debug)]
pub struct Kind<A: Address> {
    /// What operators call it.
    pub name: &'static str,
    /// How many routes it may have when it is chosen without being asked for; 0 if it never is.
    pub(crate) most_routes: usize,
    build: fn(&Rib<A>) -> Built<A>,
}

impl<A: Address> Kind<A> {
    const fn of<T: Algorithm<A> + 'static>(name: &'static str, most_routes: usize) -> Self {
        Self {
            name,
            most_routes,
            build: |rib| Ok(Box::new(T::build(rib)?)),
        }
    }

    /// The structure for the routes of `rib`.
    ///
    /// # Errors
    /// The routes exceed what the structure can hold.
    pub fn build(&self, rib: &Rib<A>) -> Built<A> {
        (self.build)(rib)
    }
}

/// Addresses that there are algorithms for.
pub trait Family: Address {
    /// All algorithms for these addresses. The framework takes the first whose number of routes
    /// suffices and that can hold the routes.
    const KINDS: &'static [Kind<Self>];
}

impl Family for u32 {
    const KINDS: &'static [Kind<Self>] = &[
        Kind::of::<Ranges<Self>>("ranges", 15),
        Kind::of::<Rank16>("rank16", usize::MAX),
        Kind::of::<Rank32>("rank32", usize::MAX),
        Kind::of::<Dir24x16>("dir24x16", 0),
        Kind::of::<Dir24x32>("dir24x32", 0),
    ];
}

impl Family for u128 {
    const KINDS: &'static [Kind<Self>] = &[
        Kind::of::<Ranges<Self>>("ranges", 15),
        Kind::of::<BoundTree16>("bound-tree16", usize::MAX),
        Kind::of::<BoundTree32>("bound-tree32", usize::MAX),
    ];
}
