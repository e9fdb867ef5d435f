// SPDX-License-Identifier: Apache-2.0
//! Implements the Python class `FastPath`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::errors::io_error;
use super::packets::{metadata_values, packet_list, value_tuple};
use crate::fast_path;
use crate::fast_path::rules::{Interfaces, Rules, TapSettings};

type TapArguments = (u32, u128, u32, Vec<[u8; 6]>, Vec<u128>, Vec<u128>);

#[pyclass(module = "sluice._native", frozen)]
pub(super) struct FastPath(pub(super) Arc<fast_path::FastPath>);

#[pymethods]
impl FastPath {
    #[new]
    #[pyo3(signature = (*, reason_field, interface_field, for_the_host, link_protocols, protocols,
        icmp, withheld_ports, vrf_ports, answered_in_place, answered_ports, remember,
        told_limit=2048))]
    #[allow(
        clippy::too_many_arguments,
        reason = "the names of Python's keyword arguments"
    )]
    fn new(
        reason_field: usize,
        interface_field: usize,
        for_the_host: BTreeMap<u128, bool>,
        link_protocols: HashSet<u16>,
        protocols: HashSet<u8>,
        icmp: HashSet<(u8, u8)>,
        withheld_ports: HashSet<u16>,
        vrf_ports: Vec<((u16, u16), (u16, u16))>,
        answered_in_place: HashSet<u8>,
        answered_ports: HashSet<u16>,
        remember: bool,
        told_limit: usize,
    ) -> PyResult<Self> {
        let rules = Rules {
            reason: reason_field,
            interface: interface_field,
            for_the_host,
            link_protocols,
            protocols,
            icmp,
            withheld_ports,
            vrf_ports: vrf_ports
                .into_iter()
                .map(|(from, to)| (from.0..=from.1, to.0..=to.1))
                .collect(),
            answered_in_place,
            answered_ports,
            remember,
        };
        fast_path::FastPath::new(rules, told_limit)
            .map(|path| Self(Arc::new(path)))
            .map_err(|error| io_error(&error, "making a fast path"))
    }

    fn set_interfaces(
        &self,
        py: Python<'_>,
        taps: Vec<TapArguments>,
        sources: HashMap<u32, Vec<Vec<u8>>>,
    ) -> PyResult<()> {
        let mut interfaces = Interfaces::default();
        for (index, l3_if, vrf, macs, link_metadata, ip_metadata) in taps {
            let tap = TapSettings {
                vrf,
                macs,
                link_metadata: link_metadata.into(),
                ip_metadata: ip_metadata.into(),
                waiting: Arc::default(),
            };
            interfaces.taps.insert(index, tap);
            interfaces.by_l3_if.insert(l3_if, index);
        }
        for (vrf, addresses) in sources {
            let addresses = addresses.iter().map(|octets| address(octets));
            interfaces
                .sources
                .insert(vrf, addresses.collect::<PyResult<HashSet<_>>>()?);
        }
        py.detach(|| self.0.set_interfaces(interfaces));
        Ok(())
    }

    fn would_send<'py>(
        &self,
        py: Python<'py>,
        index: u32,
        frame: &[u8],
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let metadata = self.0.would_send(index, frame);
        metadata.map(|values| value_tuple(py, &values)).transpose()
    }

    fn would_give<'py>(
        &self,
        py: Python<'py>,
        frame: &[u8],
        metadata: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<(u32, Bound<'py, PyBytes>)>> {
        let found = self.0.would_give(frame, &metadata_values(metadata)?);
        Ok(found.map(|(index, frame)| (index, PyBytes::new(py, &frame))))
    }

    fn fileno(&self) -> i32 {
        self.0.descriptor()
    }

    fn told<'py>(&self, py: Python<'py>, max_packets: usize) -> PyResult<Bound<'py, PyList>> {
        packet_list(py, self.0.told(max_packets))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (dict, counters) = (PyDict::new(py), self.0.counters());
        for (name, counter) in [
            ("from_host", &counters.from_host),
            ("from_host_dropped", &counters.from_host_dropped),
            ("to_host", &counters.to_host),
            ("to_host_refused", &counters.to_host_refused),
            ("to_host_untold", &counters.to_host_untold),
        ] {
            dict.set_item(name, counter.load(Relaxed))?;
        }
        Ok(dict)
    }

    fn by_reason(&self) -> BTreeMap<u128, u64> {
        self.0.by_reason().collect()
    }
}

fn address(octets: &[u8]) -> PyResult<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        return Ok(octets.into());
    }
    match <[u8; 16]>::try_from(octets) {
        Ok(octets) => Ok(octets.into()),
        Err(_) => Err(PyValueError::new_err(format!(
            "an address of {} octets: 4 or 16 are expected",
            octets.len()
        ))),
    }
}
