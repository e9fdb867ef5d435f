// SPDX-License-Identifier: Apache-2.0
//! What the benchmarks measure by.

use sluice_engine::Sink;
use sluice_program::DigestId;

/// Counts what leaves.
#[derive(Default)]
pub(crate) struct Count(pub(crate) usize);

impl Sink for Count {
    fn transmit(&mut self, _port: u32, data: &[u8]) {
        self.0 += 1;
        std::hint::black_box(data);
    }

    fn digest(&mut self, _digest: DigestId, _fields: &[u8]) {}
}

/// CPU time of this thread so far, in nanoseconds. (What /proc says of it may be a tick old.) By the C library, which
/// asks the kernel where valgrind hides the vdso.
pub(crate) fn cpu_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists on every Linux, and `time` is a timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
