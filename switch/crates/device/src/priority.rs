// SPDX-License-Identifier: Apache-2.0
//! The priority of threads that process packets.
//!
//! With more busy threads than processors, the scheduler divides a worker's processor between them, so a thread that
//! writes tables would take time from packets. A worker of higher priority leaves only unused time to other threads. An
//! idle worker sleeps, so its priority then costs nothing.

use std::thread;

/// Sets the niceness of the calling thread. If the process may not raise its priority (which requires CAP_SYS_NICE or
/// RLIMIT_NICE), the thread keeps its niceness, and a warning is logged.
pub(crate) fn go_first(nice: i32) {
    // 0 means: leave the niceness that the thread starts with.
    if nice == 0 {
        return;
    }
    // Applies to the calling thread only, since Linux sets the niceness per thread.
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        let thread = thread::current();
        let worker = thread.name().unwrap_or_default();
        tracing::warn!(worker, nice, %error, "a worker keeps the priority of other threads");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn only_the_calling_thread_changes() {
        let before = getpriority_process(None).unwrap();
        let lower = (before + 3).min(19);
        let found = thread::spawn(move || {
            // Every process may lower its priority.
            go_first(lower);
            getpriority_process(None).unwrap()
        });
        assert_eq!(found.join().unwrap(), lower);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
