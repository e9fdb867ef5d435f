// SPDX-License-Identifier: Apache-2.0
//! Defines a separate index type for each kind of object, so that an id of one kind cannot be used for another
//! kind. Invariant: every id is the index of an existing object.

macro_rules! index {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the index in the program's vector of objects of this kind.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            pub(crate) fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("a JSON file has fewer than 2^32 objects"))
            }
        }
    )*};
}

index! {
    /// A header type.
    HeaderTypeId;
    /// A header or metadata instance.
    HeaderId;
    /// A header stack.
    StackId;
    /// A header union.
    UnionId;
    /// A header union stack.
    UnionStackId;
    /// A parser state, counted over all parsers.
    StateId;
    /// A parser value set.
    ValueSetId;
    /// An action.
    ActionId;
    /// A match-action table, counted over all pipelines.
    TableId;
    /// An `if` of a pipeline, counted over all pipelines.
    ConditionalId;
    /// An action profile or action selector.
    ProfileId;
    /// A counter array (indirect or direct).
    CounterId;
    /// A meter array (indirect or direct).
    MeterId;
    /// A register array.
    RegisterId;
    /// A named calculation: an algorithm with its input.
    CalculationId;
    /// A digest ("learn list").
    DigestId;
    /// A list of metadata fields that a copy of the packet keeps.
    FieldListId;
}
