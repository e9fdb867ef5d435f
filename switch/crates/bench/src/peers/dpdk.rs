// SPDX-License-Identifier: Apache-2.0
//! DPDK, through `bench/peers/dpdk.c`: loads the library and starts EAL.

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
    /// Loads the library and starts EAL on a processor, with this memory for all structures together. At most once per
    /// process.
    ///
    /// # Errors
    /// The library or DPDK cannot be loaded, or EAL does not start.
    pub(crate) fn start(path: &Path, processor: u32, heap_bytes: usize) -> Result<Self> {
        // SAFETY: the library is compiled from bench/peers/dpdk.c, whose initialisers are DPDK's
        // own. It stays loaded for good: EAL cannot be unloaded.
        let library = unsafe { Library::new(path) };
        let library = library.with_context(|| format!("loading {}", path.display()))?;
        let dpdk = Self {
            library: Box::leak(Box::new(library)),
        };
        type Start = unsafe extern "C" fn(u32, usize) -> c_int;
        // SAFETY: `peer_init` has this type.
        let start = unsafe { dpdk.function::<Start>("peer_init")? };
        // SAFETY: called once, from the thread that makes all other calls.
        match unsafe { start(processor, heap_bytes) } {
            0 => Ok(dpdk),
            error => bail!(
                "DPDK's EAL does not start: {}",
                std::io::Error::from_raw_os_error(-error)
            ),
        }
    }

    /// Returns DPDK's version.
    ///
    /// # Errors
    /// The library is not the expected one.
    pub(crate) fn version(self) -> Result<String> {
        type Version = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: `peer_version` has this type and returns a constant string.
        let version = unsafe { CStr::from_ptr(self.function::<Version>("peer_version")?()) };
        Ok(version.to_string_lossy().into_owned())
    }

    /// Returns one of the library's functions.
    ///
    /// # Safety
    /// The function has the type `F`, a function pointer.
    ///
    /// # Errors
    /// The function does not exist.
    pub(super) unsafe fn function<F: Copy>(self, name: &str) -> Result<F> {
        // SAFETY: by this function's contract.
        let symbol = unsafe { self.library.get::<F>(name.as_bytes()) };
        Ok(
            *symbol
                .with_context(|| format!("no function {name} in the library of DPDK's peers"))?,
        )
    }
}
