// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `TapSet`.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use super::errors::io_error;
use super::fast_path::FastPath;
use crate::tap::device::parse_mac;
use crate::tap::set::{self, Counters};

#[pyclass(module = "sluice._native", frozen)]
pub(super) struct TapSet(set::TapSet);

#[pymethods]
impl TapSet {
    #[new]
    #[pyo3(signature = (*, queue_limit=1024, fast_path=None, rests=false))]
    fn new(
        queue_limit: usize,
        fast_path: Option<PyRef<'_, FastPath>>,
        rests: bool,
    ) -> PyResult<Self> {
        if queue_limit == 0 {
            return Err(PyValueError::new_err(
                "a queue limit of 0 holds nothing: use 1 or more",
            ));
        }
        let fast_path = fast_path.map(|path| Arc::clone(&path.0));
        if rests && fast_path.is_none() {
            return Err(PyValueError::new_err(
                "rests needs a fast path, which ends the rest: give fast_path too",
            ));
        }
        set::TapSet::new(queue_limit, fast_path, rests)
            .map(Self)
            .map_err(|error| io_error(&error, "starting a TapSet"))
    }

    #[pyo3(signature = (name, mtu, mac, persist=false, base=0, queue=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn add(
        &self,
        py: Python<'_>,
        name: &str,
        mtu: u32,
        mac: &str,
        persist: bool,
        base: u32,
        queue: Option<RawFd>,
    ) -> PyResult<u32> {
        let mac = parse_mac(mac).map_err(PyValueError::new_err)?;
        let queue = queue.map(duplicate).transpose()?;
        py.detach(|| self.0.add(name, mtu, mac, persist, base, queue))
            .map_err(|error| io_error(&error, &format!("adding the TAP {name}")))
    }

    fn join(&self, py: Python<'_>, name: &str, index: u32, queue: RawFd) -> PyResult<()> {
        let queue = duplicate(queue)?;
        py.detach(|| self.0.join(name, index, queue))
            .map_err(|error| io_error(&error, &format!("joining the TAP {name}")))
    }

    fn queue(&self, index: u32) -> PyResult<RawFd> {
        self.0.queue(index).ok_or_else(|| not_in_set(index))
    }

    fn remove(&self, py: Python<'_>, index: u32) -> PyResult<()> {
        if py.detach(|| self.0.remove(index)) {
            return Ok(());
        }
        Err(not_in_set(index))
    }

    fn set_up(&self, py: Python<'_>, index: u32, up: bool) -> PyResult<()> {
        py.detach(|| self.0.with(index, |tap| tap.set_up(up)))
            .map_err(|error| io_error(&error, "setting an interface up or down"))
    }

    fn set_carrier(&self, py: Python<'_>, index: u32, up: bool) -> PyResult<()> {
        py.detach(|| self.0.set_carrier(index, up))
            .map_err(|error| io_error(&error, "setting a carrier"))
    }

    fn fileno(&self) -> i32 {
        self.0.descriptor()
    }

    fn read<'py>(&self, py: Python<'py>, max_frames: usize) -> Vec<(u32, Bound<'py, PyBytes>)> {
        let frames = self.0.read(max_frames).into_iter();
        frames
            .map(|(index, frame)| (index, PyBytes::new(py, &frame)))
            .collect()
    }

    fn write(&self, py: Python<'_>, frames: Vec<(u32, PyBackedBytes)>) -> usize {
        py.detach(|| {
            self.0
                .write(frames.iter().map(|(index, frame)| (*index, frame.as_ref())))
        })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        let unknown = PyDict::new(py);
        unknown.set_item("tx_unknown_interface", self.0.tx_unknown_interface())?;
        all.set_item(0, unknown)?;
        let mut snapshots = Vec::new();
        self.0
            .counters(|index, counters| snapshots.push((index, snapshot(counters))));
        for (index, counters) in snapshots {
            let dict = PyDict::new(py);
            for (name, value) in counters {
                dict.set_item(name, value)?;
            }
            all.set_item(index, dict)?;
        }
        Ok(all)
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// Duplicates a descriptor that Python owns. The caller owns the duplicate.
fn duplicate(descriptor: RawFd) -> PyResult<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes no pointers, and refuses a descriptor that is not open.
    let own = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        let error = io::Error::last_os_error();
        return Err(io_error(&error, "taking over a queue"));
    }
    // SAFETY: `own` was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

fn not_in_set(index: u32) -> PyErr {
    PyValueError::new_err(format!("interface {index} is not in this TapSet"))
}

fn snapshot(counters: &Counters) -> [(&'static str, u64); 9] {
    [
        ("rx_frames", &counters.rx_frames),
        ("rx_bytes", &counters.rx_bytes),
        ("rx_dropped", &counters.rx_dropped),
        ("rx_errors", &counters.rx_errors),
        ("tx_frames", &counters.tx_frames),
        ("tx_bytes", &counters.tx_bytes),
        ("tx_dropped_down", &counters.tx_dropped_down),
        ("tx_dropped_full", &counters.tx_dropped_full),
        ("tx_errors", &counters.tx_errors),
    ]
    .map(|(name, counter)| (name, counter.load(Relaxed)))
}
