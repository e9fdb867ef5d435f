// SPDX-License-Identifier: Apache-2.0
//! The version that `--version` and the admin service show.

/// Version of the program, and the commit from which it was built (build.rs).
pub(crate) const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("SLUICE_BUILT_FROM"),
    ")"
);
