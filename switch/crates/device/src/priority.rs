// SPDX-License-Identifier: Apache-2.0
//! Sets the priority of threads that process packets.
//!
//! If more threads are busy than there are processors, the scheduler makes a worker share its processor with other
//! threads. For example, a thread that writes tables would take CPU time from packet processing. With a higher
//! priority, workers leave only unused time to other threads. An idle worker sleeps, so its priority delays no thread.

use std::thread;

/// Sets the niceness of the calling thread. Raising the priority requires CAP_SYS_NICE or RLIMIT_NICE. Without them,
/// the thread keeps its niceness, and a warning is logged.
pub(crate) fn go_first(nice: i32) {
    // 0 keeps the niceness that the thread started with.
    if nice == 0 {
        return;
    }
    // Linux sets the niceness per thread, so this changes only the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        let thread = thread::current();
        let worker = thread.name().unwrap_or_default();
        tracing::warn!(worker, nice, %error, "the priority of a worker cannot be raised");
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
