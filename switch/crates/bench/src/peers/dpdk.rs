// SPDX-License-Identifier: Apache-2.0
//! Loads DPDK through `bench/peers/dpdk.c`, and starts EAL.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use anyhow::{Context, Result, bail};
use libloading::Library;

/// Handle of a DPDK structure.
pub(super) type Handle = *mut c_void;

/// DPDK after EAL has started.
#[derive(Clone, Copy)]
pub(crate) struct Dpdk {
    library: &'static Library,
}

impl Dpdk {
    /// Loads the library and starts EAL on one processor. All structures share a heap of `heap_bytes` bytes. Must be
    /// called only once in a process.
    ///
    /// # Errors
    /// Fails if the library or DPDK cannot be loaded, or if EAL does not start.
    pub(crate) fn start(path: &Path, processor: u32, heap_bytes: usize) -> Result<Self> {
        // SAFETY: the library is compiled from bench/peers/dpdk.c. Loading it runs only DPDK's own initializers. The
        // library is never unloaded, because EAL cannot be unloaded.
        let library = unsafe { Library::new(path) };
        let library = library.with_context(|| format!("loading {}", path.display()))?;
        let dpdk = Self {
            library: Box::leak(Box::new(library)),
        };
        type Start = unsafe extern "C" fn(u32, usize) -> c_int;
        // SAFETY: `peer_init` has the type `Start`.
        let start = unsafe { dpdk.function::<Start>("peer_init")? };
        // SAFETY: this is called once, by the thread that makes all other calls.
        match unsafe { start(processor, heap_bytes) } {
            0 => Ok(dpdk),
            error => bail!(
                "cannot start DPDK's EAL: {}",
                std::io::Error::from_raw_os_error(-error)
            ),
        }
    }

    /// Returns DPDK's version.
    ///
    /// # Errors
    /// Fails if the library is not the expected one.
    pub(crate) fn version(self) -> Result<String> {
        type Version = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: `peer_version` has the type `Version` and returns a constant string.
        let version = unsafe { CStr::from_ptr(self.function::<Version>("peer_version")?()) };
        Ok(version.to_string_lossy().into_owned())
    }

    /// Returns one of the library's functions.
    ///
    /// # Safety
    /// `F` must be the function pointer type of the function with this name.
    ///
    /// # Errors
    /// Fails if the library has no function with this name.
    pub(super) unsafe fn function<F: Copy>(self, name: &str) -> Result<F> {
        // SAFETY: the caller ensures that `F` is the function's type.
        let symbol = unsafe { self.library.get::<F>(name.as_bytes()) };
        Ok(
            *symbol
                .with_context(|| format!("no function {name} in the library of DPDK's peers"))?,
        )
    }
}
