// SPDX-License-Identifier: Apache-2.0
//! What the benchmarks measure by.

use rustix::time::{ClockId, clock_gettime};
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

/// CPU time of this thread so far, in nanoseconds. (What /proc says of it may be a tick old.)
pub(crate) fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
