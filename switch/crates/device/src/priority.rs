// SPDX-License-Identifier: Apache-2.0
//! The priority of threads that process packets.
//!
//! Where busy threads are more than processors, the kernel shares a worker's processor among them: whoever writes
//! tables would take from packets what he needs. A worker that goes first leaves others what it does not use; one that
//! has nothing to do sleeps, so it takes nothing for nothing.

use std::thread;

/// Gives the calling thread this niceness. Where the process may not raise its priority (it needs CAP_SYS_NICE, or
/// RLIMIT_NICE), the thread keeps what it has, and the log says so.
pub(crate) fn go_first(nice: i32) {
    // Nobody asked for anything else than what a thread begins with.
    if nice == 0 {
        return;
    }
    // Of the calling thread: that is what Linux understands by a process here.
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
            // Lower is what every process may.
            go_first(lower);
            getpriority_process(None).unwrap()
        });
        assert_eq!(found.join().unwrap(), lower);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
