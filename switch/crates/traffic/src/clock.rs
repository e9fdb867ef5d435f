// SPDX-License-Identifier: Apache-2.0
//! Reads the clock that sender and receiver share, and sleeps until a time of this clock.

use std::mem;

/// Returns the nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now() -> u64 {
    // SAFETY: every bit pattern is valid for this plain C structure, and the call fills it. The call cannot fail for
    // this clock.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until the clock shows `time`, or a signal arrives.
pub(crate) fn sleep_until(time: u64) {
    let time = libc::timespec {
        tv_sec: (time / 1_000_000_000) as libc::time_t,
        tv_nsec: (time % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` lives during the call; an absolute sleep returns no remainder.
    unsafe {
        let flags = libc::TIMER_ABSTIME;
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            flags,
            &raw const time,
            std::ptr::null_mut(),
        );
    }
}

/// Makes this thread wake up on time from its sleeps. By default the kernel may wake it up to 50 microseconds late.
pub(crate) fn sleep_precisely() {
    // SAFETY: this prctl takes only numbers. If the kernel refuses, the thread may still wake up late, which is
    // harmless.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Returns the CPU seconds that this process has used, user and system.
pub(crate) fn cpu_seconds() -> f64 {
    // SAFETY: every bit pattern is valid for this plain C structure, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
