// SPDX-License-Identifier: Apache-2.0
//! The one tokio thread that every P4Runtime session and FPM server of the process runs on.
//!
//! It starts with the first of them and lives as long as the process. A process that forks must do
//! so before: threads do not survive a fork.

use std::io;
use std::sync::Mutex;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::mailbox::lock;

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// The runtime, started if it was not.
///
/// # Errors
/// The kernel's, when it gives no thread or descriptor.
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
