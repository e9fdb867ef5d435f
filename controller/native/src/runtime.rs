// SPDX-License-Identifier: Apache-2.0
//! Runs the tokio thread that serves all P4Runtime sessions and FPM servers of the process.
//!
//! The first session or server starts the thread, which then runs until the process ends. After the
//! start, the process must not fork, because a forked child does not have the thread.

use std::io;
use std::sync::Mutex;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::mailbox::lock;

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// Returns the runtime. The first call starts it.
///
/// # Errors
/// The kernel's error if no thread or descriptor is available.
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
