// SPDX-License-Identifier: Apache-2.0
//! Reads the resource use of a process, as the kernel counts it.

use std::fs;

use anyhow::Context;

/// Processor time and memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Processor time of all threads since the process started.
    pub(crate) cpu_seconds: f64,
    /// Resident memory in MiB.
    pub(crate) resident_mib: f64,
}

impl Usage {
    /// Returns the usage of this process.
    ///
    /// # Errors
    /// The kernel does not report the usage.
    pub(crate) fn own() -> anyhow::Result<Self> {
        Self::of(std::process::id())
    }

    /// Returns the usage of a process.
    ///
    /// # Errors
    /// The process does not exist.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let mut nanoseconds = 0;
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.with_context(|| format!("process {pid}"))? {
            // A thread that has ended meanwhile counts as 0.
            let times = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            let running = times.split_whitespace().next();
            nanoseconds += running.map_or(Ok(0), str::parse::<u64>)?;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        Ok(Self {
            cpu_seconds: nanoseconds as f64 / 1e9,
            resident_mib: kib
                .context("/proc has no VmRSS of the process")?
                .parse::<f64>()?
                / 1024.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_something() {
        let usage = Usage::own().unwrap();
        assert!(usage.cpu_seconds > 0.0 && usage.resident_mib > 1.0);
        assert!(Usage::of(u32::MAX).is_err());
    }
}
