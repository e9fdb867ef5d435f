// SPDX-License-Identifier: Apache-2.0
//! Provides CPU time and a sink that counts packets to the benchmarks.

use sluice_engine::Sink;
use sluice_program::DigestId;

/// A sink that counts sent packets.
#[derive(Default)]
pub(crate) struct Count(pub(crate) usize);

impl Sink for Count {
    fn transmit(&mut self, _port: u32, data: &[u8]) {
        self.0 += 1;
        std::hint::black_box(data);
    }

    fn digest(&mut self, _digest: DigestId, _fields: &[u8]) {}
}

/// Returns this thread's CPU time so far, in nanoseconds. Does not read /proc, whose values may be one clock tick old.
/// Works under valgrind too: valgrind hides the vDSO, and the C library then makes a system call.
pub(crate) fn cpu_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists on every Linux, and `time` is a writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
