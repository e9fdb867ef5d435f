// SPDX-License-Identifier: Apache-2.0
//! The one tokio thread that runs all P4Runtime sessions and FPM servers of the process.
//!
//! It starts with the first of them and lives as long as the process. A process may fork only before that, since
//! threads do not survive a fork.

use std::io;
use std::sync::Mutex;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::mailbox::lock;

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// Returns the runtime; starts it at the first call.
///
/// # Errors
/// The kernel's error if it has no thread or descriptor left.
pub fn handle() -> io::Result<Handle> {
    let mut slot = lock(&RUNTIME);
    if let Some(runtime) = slot.as_ref() {
        return Ok(runtime.handle().clone());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("sluice-native")
        .enable_all()
        .build()?;
    Ok(slot.insert(runtime).handle().clone())
}
