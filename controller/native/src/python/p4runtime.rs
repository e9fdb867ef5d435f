// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `P4RuntimeClient`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList, PySequence, PyTuple};
use tokio::sync::OwnedSemaphorePermit;

use super::errors::client_error;
use super::fast_path::FastPath;
use super::packets::{metadata_value, packet_list};
use super::punts::{FirstPacket, PuntQueue};
use crate::p4runtime::client::{Client, ClientError, Options};
use crate::p4runtime::dry_run;
use crate::p4runtime::inbox::{Code, Event, Notification, RequestKind, RequestOutcome};
use crate::p4runtime::packet::{Field, Layout};
use crate::p4runtime::ports::{self, SwitchPorts};
use crate::p4runtime::role::{Bounds, Filter, Role};
use crate::p4runtime::target::Tls;

/// Id of a metadata field, and the values that select a packet.
type FilterArguments = (u32, Vec<u128>);

#[pyclass(module = "sluice._native", frozen)]
pub(super) struct P4RuntimeClient(Client);

#[pymethods]
impl P4RuntimeClient {
    #[new]
    #[pyo3(signature = (address, device_id, election_id, role=None, *, request_timeout=60.0,
        packet_in_limit=4096, packet_out_limit=4096, request_limit=1024, tls=None,
        server_name=None, fast_path=None, packets_only=None, punts=None))]
    #[allow(
        clippy::too_many_arguments,
        reason = "the names of Python's keyword arguments"
    )]
    fn new(
        py: Python<'_>,
        address: String,
        device_id: u64,
        election_id: (u64, u64),
        role: Option<String>,
        request_timeout: f64,
        packet_in_limit: usize,
        packet_out_limit: usize,
        request_limit: usize,
        tls: Option<(Vec<u8>, Vec<u8>, Vec<u8>)>,
        server_name: Option<String>,
        fast_path: Option<PyRef<'_, FastPath>>,
        packets_only: Option<(FilterArguments, FilterArguments)>,
        punts: Option<PyRef<'_, PuntQueue>>,
    ) -> PyResult<Self> {
        let request_timeout = Duration::try_from_secs_f64(request_timeout)
            .map_err(|error| PyValueError::new_err(format!("request_timeout: {error}")))?;
        if tls.is_none() && server_name.is_some() {
            let problem = "server_name applies to TLS only: give tls too";
            return Err(PyValueError::new_err(problem));
        }
        if fast_path.is_none() && punts.is_some() {
            let problem = "punts applies to a fast path only: give fast_path too";
            return Err(PyValueError::new_err(problem));
        }
        let role = role_of(role, packets_only)?;
        let tls = tls.map(|(authority, certificate, key)| Tls {
            authority,
            certificate,
            key,
            server_name,
        });
        let options = Options {
            address,
            tls,
            device_id,
            election_id,
            role,
            request_timeout,
            packet_in_limit,
            packet_out_limit,
            request_limit,
        };
        let fast_path = fast_path.map(|path| Arc::clone(&path.0));
        let punts = punts.map(|punts| Arc::clone(&punts.queue));
        py.detach(|| Client::start(options, fast_path, punts))
            .map(Self)
            .map_err(client_error)
    }

    fn fileno(&self) -> i32 {
        self.0.descriptor()
    }

    fn poll<'py>(&self, py: Python<'py>, max_events: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.0
            .poll(max_events)
            .into_iter()
            .map(|event| event_tuple(py, event))
            .collect()
    }

    fn set_packet_metadata(
        &self,
        py: Python<'_>,
        packet_in: Vec<(u32, u32)>,
        packet_out: Vec<(u32, u32)>,
    ) -> PyResult<()> {
        let (packet_in, packet_out) = (layout(packet_in)?, layout(packet_out)?);
        py.detach(|| self.0.set_packet_metadata(packet_in, packet_out));
        Ok(())
    }

    fn packet_out(&self, batch: &Bound<'_, PySequence>) -> PyResult<usize> {
        let layout = self.0.packet_out_layout().map_err(client_error)?;
        let mut messages = Vec::with_capacity(batch.len()?);
        let mut values = Vec::with_capacity(layout.fields().len());
        for item in batch.try_iter()? {
            let (payload, metadata): (Bound<'_, PyBytes>, Bound<'_, PyTuple>) = item?.extract()?;
            values.clear();
            for value in &metadata {
                values.push(metadata_value(&value)?);
            }
            let message = layout.encode_packet_out(payload.as_bytes(), &values);
            messages.push(message.map_err(|error| client_error(ClientError::Metadata(error)))?);
        }
        self.0.packet_out(messages).map_err(client_error)
    }

    fn answer(&self, batch: &Bound<'_, PySequence>) -> PyResult<usize> {
        let layout = self.0.packet_out_layout().map_err(client_error)?;
        let mut messages = Vec::with_capacity(batch.len()?);
        // Encoded once and reused, because most packets of one call have the
        // same few answers.
        let mut known = None;
        let (mut answer, mut values) = (Vec::new(), Vec::with_capacity(layout.fields().len()));
        for item in batch.try_iter()? {
            let (punt, given): (Bound<'_, FirstPacket>, Bound<'_, PyTuple>) = item?.extract()?;
            if !known.as_ref().is_some_and(|known| given.is(known)) {
                answer.clear();
                for value in &given {
                    answer.push(metadata_value(&value)?);
                }
                known = Some(given);
            }
            punt.get().answered(&answer, &mut values)?;
            let message = layout.encode_packet_out(punt.get().frame(), &values);
            messages.push(message.map_err(|error| client_error(ClientError::Metadata(error)))?);
        }
        self.0.packet_out(messages).map_err(client_error)
    }

    fn write(&self, token: u64, request: &[u8]) -> PyResult<()> {
        self.0
            .write(token, Bytes::copy_from_slice(request))
            .map_err(client_error)
    }

    fn set_pipeline(&self, token: u64, request: &[u8]) -> PyResult<()> {
        self.0
            .set_pipeline(token, Bytes::copy_from_slice(request))
            .map_err(client_error)
    }

    fn get_pipeline(&self, token: u64, request: &[u8]) -> PyResult<()> {
        self.0
            .get_pipeline(token, Bytes::copy_from_slice(request))
            .map_err(client_error)
    }

    fn read(&self, token: u64, request: &[u8]) -> PyResult<()> {
        self.0
            .read(token, Bytes::copy_from_slice(request))
            .map_err(client_error)
    }

    fn ports(&self, token: u64) -> PyResult<()> {
        self.0.ports(token).map_err(client_error)
    }

    fn dry_run(&self, token: u64, port: u32, packet: &[u8]) -> PyResult<()> {
        self.0.dry_run(token, port, packet).map_err(client_error)
    }

    fn capabilities(&self, token: u64) -> PyResult<()> {
        self.0.capabilities(token).map_err(client_error)
    }

    fn arbitrate(&self, election_id: (u64, u64)) -> PyResult<()> {
        self.0.arbitrate(election_id).map_err(client_error)
    }

    fn send(&self, message: &[u8]) -> PyResult<()> {
        self.0
            .send(Bytes::copy_from_slice(message))
            .map_err(client_error)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.0.counters();
        let dict = PyDict::new(py);
        let set = |name: &str, counter: &AtomicU64| dict.set_item(name, counter.load(Relaxed));
        set("packet_in", &counters.packet_in)?;
        set("packet_in_dropped", &counters.packet_in_dropped)?;
        set("packet_in_malformed", &counters.packet_in_malformed)?;
        set("packet_in_unexpected", &counters.packet_in_unexpected)?;
        set("packet_out", &counters.packet_out)?;
        set("packet_out_dropped", &counters.packet_out_dropped)?;
        set("digests_dropped", &counters.digests_dropped)?;
        set("idle_timeouts_dropped", &counters.idle_timeouts_dropped)?;
        set("stream_errors_dropped", &counters.stream_errors_dropped)?;
        set("unknown_stream_messages", &counters.unknown_stream_messages)?;
        dict.set_item("requests_pending", self.0.requests_pending())?;
        Ok(dict)
    }

    fn close(&self) {
        self.0.close();
    }
}

fn role_of(
    name: Option<String>,
    packets_only: Option<(FilterArguments, FilterArguments)>,
) -> PyResult<Option<Role>> {
    let filter = |(metadata_id, values): FilterArguments| Filter {
        metadata_id,
        values: values
            .into_iter()
            .map(|value| value.to_be_bytes().to_vec())
            .collect(),
    };
    let bounds = packets_only.map(|(packet_in, packet_out)| Bounds {
        packet_in: filter(packet_in),
        packet_out: filter(packet_out),
    });
    match name {
        None if bounds.is_some() => Err(PyValueError::new_err(
            "packets_only applies to a role only: give role too",
        )),
        name => Ok(name.map(|name| Role { name, bounds })),
    }
}

fn layout(fields: Vec<(u32, u32)>) -> PyResult<Layout> {
    let fields = fields
        .into_iter()
        .map(|(id, width)| Field { id, width })
        .collect();
    Layout::new(fields).map_err(|error| client_error(ClientError::Metadata(error)))
}

/// A received part of a read, until Python takes it.
#[pyclass(module = "sluice._native", frozen)]
pub(super) struct ReadPart(Mutex<Option<(Bytes, OwnedSemaphorePermit)>>);

#[pymethods]
impl ReadPart {
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (part, _permit) =
            held.ok_or_else(|| PyValueError::new_err("this part was taken already"))?;
        Ok(PyBytes::new(py, &part))
    }
}

fn event_tuple(py: Python<'_>, event: Event) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        Event::Connected => ("connected",).into_pyobject(py),
        Event::Arbitration {
            status: (code, message),
            election_id,
        } => ("arbitration", code == 0, code, message, election_id).into_pyobject(py),
        Event::Packets(packets) => ("packet_in", packet_list(py, packets)?).into_pyobject(py),
        Event::Notification(kind, message) => {
            let name = match kind {
                Notification::Digest => "digest",
                Notification::IdleTimeout => "idle_timeout",
                Notification::StreamError => "stream_error",
            };
            (name, PyBytes::new(py, &message)).into_pyobject(py)
        }
        Event::ReadPart(token, part, permit) => {
            let part = ReadPart(Mutex::new(Some((part, permit))));
            ("read_part", token, part).into_pyobject(py)
        }
        Event::Answer(token, answer) => answer_tuple(py, token, answer),
        Event::Closed((code, message)) => ("closed", code, message).into_pyobject(py),
    }
}

fn answer_tuple(
    py: Python<'_>,
    token: u64,
    answer: RequestOutcome,
) -> PyResult<Bound<'_, PyTuple>> {
    let (code, message) = answer.status;
    let response = || PyBytes::new(py, &answer.response);
    match answer.kind {
        RequestKind::Write => ("write_done", token, code, message, answer.errors).into_pyobject(py),
        RequestKind::Read => ("read_done", token, code, message).into_pyobject(py),
        RequestKind::Pipeline => {
            ("pipeline_done", token, code, message, response()).into_pyobject(py)
        }
        RequestKind::Capabilities => {
            ("capabilities", token, code, message, response()).into_pyobject(py)
        }
        RequestKind::Ports => ports_tuple(py, token, (code, message), &answer.response),
        RequestKind::DryRun => dry_run_tuple(py, token, (code, message), &answer.response),
    }
}

fn dry_run_tuple<'py>(
    py: Python<'py>,
    token: u64,
    (mut code, mut message): Code,
    response: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    let told = dry_run::decode(response).unwrap_or_else(|error| {
        (code, message) = (
            tonic::Code::Internal as i32,
            format!("the answer to a dry run cannot be decoded: {error}"),
        );
        Vec::new()
    });
    let mut steps = Vec::with_capacity(told.len());
    for (step, name, details) in told {
        steps.push((step, name, details.into_py_dict(py)?).into_pyobject(py)?);
    }
    ("dry_run", token, code, message, PyList::new(py, steps)?).into_pyobject(py)
}

fn ports_tuple<'py>(
    py: Python<'py>,
    token: u64,
    (mut code, mut message): Code,
    response: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    let told = ports::decode(response).unwrap_or_else(|error| {
        (code, message) = (
            tonic::Code::Internal as i32,
            format!("the list of the switch's ports cannot be decoded: {error}"),
        );
        SwitchPorts::default()
    });
    let links = told.ports.into_py_dict(py)?;
    ("ports", token, code, message, links, told.cpu_port).into_pyobject(py)
}
