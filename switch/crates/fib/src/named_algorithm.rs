// SPDX-License-Identifier: Apache-2.0
//! The available algorithms. Each has a name, and the maximum number of routes for which it is selected.

use crate::address::Address;
use crate::algorithm::{Algorithm, BuildError};
use crate::bitmap_rank::{BitmapRank16, BitmapRank32};
use crate::bound_tree::{BoundTree16, BoundTree32};
use crate::ranges::Ranges;
use crate::rib::Rib;

/// A new structure, or the reason why it cannot hold the routes.
pub type Built<A> = Result<Box<dyn Algorithm<A>>, BuildError>;

/// An algorithm with its name.
#[derive(Clone, Copy, Debug)]
pub struct NamedAlgorithm<A: Address> {
    /// Name of the algorithm, for operators.
    pub name: &'static str,
    /// Maximum number of routes for which the algorithm is selected automatically.
    pub(crate) most_routes: usize,
    build: fn(&Rib<A>) -> Built<A>,
}

impl<A: Address> NamedAlgorithm<A> {
    const fn of<T: Algorithm<A> + 'static>(name: &'static str, most_routes: usize) -> Self {
        Self {
            name,
            most_routes,
            build: |rib| Ok(Box::new(T::build(rib)?)),
        }
    }

    /// Builds the structure for the routes of `rib`.
    ///
    /// # Errors
    /// Fails if the routes exceed what the structure can hold.
    pub fn build(&self, rib: &Rib<A>) -> Built<A> {
        (self.build)(rib)
    }
}

/// Address types that have algorithms.
pub trait Family: Address {
    /// All algorithms for these addresses. Automatic selection takes the first algorithm whose `most_routes` is not
    /// exceeded and that can hold the routes.
    const ALGORITHMS: &'static [NamedAlgorithm<Self>];
}

impl Family for u32 {
    const ALGORITHMS: &'static [NamedAlgorithm<Self>] = &[
        NamedAlgorithm::of::<Ranges<Self>>("ranges", 15),
        NamedAlgorithm::of::<BitmapRank16>("rank16", usize::MAX),
        NamedAlgorithm::of::<BitmapRank32>("rank32", usize::MAX),
    ];
}

impl Family for u128 {
    const ALGORITHMS: &'static [NamedAlgorithm<Self>] = &[
        NamedAlgorithm::of::<Ranges<Self>>("ranges", 15),
        NamedAlgorithm::of::<BoundTree16>("bound-tree16", usize::MAX),
        NamedAlgorithm::of::<BoundTree32>("bound-tree32", usize::MAX),
    ];
}
