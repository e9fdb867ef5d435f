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

/// CPU time of this thread so far, in nanoseconds, as Linux accounts it.
pub(crate) fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let field = text.split_whitespace().next();
    let field = field.and_then(|field| field.parse().ok());
    field.expect("/proc/thread-self/schedstat begins with a number")
}
