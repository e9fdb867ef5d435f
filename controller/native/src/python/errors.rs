// SPDX-License-Identifier: Apache-2.0
//! Converts the crate's errors to Python exceptions.
//!
//! * ValueError: an invalid argument
//! * OSError: an error of the kernel
//! * ConnectionError: the object is closed
//! * BlockingIOError: a queue is full

use std::io;

use pyo3::PyErr;
use pyo3::exceptions::{PyBlockingIOError, PyConnectionError, PyOSError, PyValueError};

use crate::p4runtime::client::ClientError;
use crate::tap::device::DeviceError;

pub(super) fn client_error(error: ClientError) -> PyErr {
    let message = error.to_string();
    match error {
        ClientError::Argument(_) | ClientError::Metadata(_) | ClientError::NoLayout => {
            PyValueError::new_err(message)
        }
        ClientError::Closed(_) => PyConnectionError::new_err(message),
        ClientError::Busy(_) => PyBlockingIOError::new_err((libc::EAGAIN, message)),
        ClientError::System(error) => io_error(&error, "starting a P4Runtime session"),
    }
}

/// Converts an error to OSError with the kernel's errno. An error without an errno becomes
/// ValueError or ConnectionError. `context` names the failed step, for errors that do not name it.
pub(super) fn io_error(error: &io::Error, context: &str) -> PyErr {
    let device = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<DeviceError>());
    match (error.kind(), error.raw_os_error(), device) {
        // Python selects the subclass of OSError from the errno (PermissionError, FileExistsError,
        // ...).
        (_, _, Some(device)) => PyOSError::new_err((device.number, device.to_string())),
        (_, Some(number), _) => PyOSError::new_err((number, format!("{context}: {error}"))),
        (io::ErrorKind::NotConnected, ..) => PyConnectionError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}
