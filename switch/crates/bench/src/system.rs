// SPDX-License-Identifier: Apache-2.0
//! Wraps operating system functions for measurements: pinning to a processor, and processor time.

use std::io;
use std::time::Duration;

/// Binds this thread, and all threads that it starts later, to the last processor on which it may run. Returns the
/// number of this processor.
///
/// # Errors
/// Fails if the kernel refuses the request.
pub(crate) fn pin() -> io::Result<u32> {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: a cpu_set_t is an array of bits, for which zero is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes, the size of `set`.
    if unsafe { libc::sched_getaffinity(0, size, &mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: `cpu` is below CPU_SETSIZE, so it is within the set.
    let last = all.rev().find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
    let last = last.ok_or_else(|| io::Error::other("there is no processor to run on"))?;
    // SAFETY: `last` is below CPU_SETSIZE. The kernel reads `size` bytes, which is the size of `set`.
    let bound = unsafe {
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(last, &mut set);
        libc::sched_setaffinity(0, size, &set)
    };
    match bound {
        0 => Ok(last as u32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the processor time of this thread alone.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: this clock exists on every Linux, and `time` is a writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the value, but hides from the compiler where it comes from. So code that uses the result cannot start before
/// the value is computed.
#[inline(always)]
pub(crate) fn opaque(value: u32) -> u32 {
    let mut word = u64::from(value);
    // SAFETY: the block has no instruction, so the value stays in its register.
    unsafe {
        std::arch::asm!(
            "/* {0} */",
            inout(reg) word,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    word as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_processor() -> io::Result<()> {
        std::thread::spawn(|| {
            pin()?;
            assert_eq!(std::thread::available_parallelism()?.get(), 1);
            Ok(())
        })
        .join()
        .expect("the thread does not panic")
    }

    #[test]
    fn thread_time_advances_with_work() {
        let start = thread_time();
        let mut sum = 0u32;
        while thread_time() == start {
            sum = opaque(sum.wrapping_add(1));
        }
        assert!(thread_time() > start);
    }
}
