// SPDX-License-Identifier: Apache-2.0
//! Lists all cases, by the specification's sections. In a case, `t` is the bench and `c` is a client.

/// Declares the cases of a section. Makes a function of each case, and a function `cases()` that lists
/// them in the order of the declaration.
macro_rules! section {
    ($title:literal; $(async fn $name:ident($bench:ident) $steps:block)*) => {
        /// Returns the section's cases.
        pub(super) fn cases() -> Vec<crate::case::Case> {
            vec![$(crate::case::Case::new($title, stringify!($name), |bench| Box::pin($name(bench)))),*]
        }
        $(
            async fn $name($bench: &mut crate::bench::Bench) -> crate::outcome::Outcome {
                $steps
                Ok(())
            }
        )*
    };
}

mod action;
mod action_profile;
mod arbitration;
mod atomicity;
mod bytestrings;
mod capabilities;
mod clone_session;
mod constant_table;
mod counter;
mod default_entry;
mod digest;
mod direct_resources;
mod extern_entry;
mod get_pipeline;
mod idle_timeout;
mod match_format;
mod meter;
mod multicast;
mod one_shot;
mod packet_io;
mod prelude;
mod read;
mod register;
mod role;
mod set_pipeline;
mod stream_error;
mod symmetry;
mod table_entry;
mod table_read;
mod value_set;
mod write;

use crate::case::Case;

/// Returns every case. Cases that need a server without a pipeline come first.
pub fn all() -> Vec<Case> {
    [
        get_pipeline::cases(),
        set_pipeline::cases(),
        capabilities::cases(),
        arbitration::cases(),
        role::cases(),
        bytestrings::cases(),
        symmetry::cases(),
        table_entry::cases(),
        match_format::cases(),
        action::cases(),
        default_entry::cases(),
        constant_table::cases(),
        table_read::cases(),
        direct_resources::cases(),
        idle_timeout::cases(),
        action_profile::cases(),
        one_shot::cases(),
        counter::cases(),
        meter::cases(),
        multicast::cases(),
        clone_session::cases(),
        value_set::cases(),
        register::cases(),
        digest::cases(),
        extern_entry::cases(),
        write::cases(),
        atomicity::cases(),
        read::cases(),
        packet_io::cases(),
        stream_error::cases(),
    ]
    .concat()
}
