// SPDX-License-Identifier: Apache-2.0
//! Formats the result as JSON. Scripts depend on its fields. Times are in seconds, latencies in microseconds, rates in
//! packets per second. Byte counts leave out the frame check sequence.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;
use sluice_ports::PortStatistics;

use crate::generator::Sent;
use crate::sink::InputReport;
use crate::tally::Tally;

/// The whole result. `gen` leaves out `received`, and `sink` leaves out `sent`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sent: Option<SentReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) received: Option<ReceivedReport>,
    /// Packets that were sent but not received. Present only if this process sends and receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<u64>,
    /// CPU time of this process in seconds.
    pub(crate) cpu_seconds: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct SentReport {
    /// Packets that the interface accepted.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Packets that the interface refused: queue full, link down, or longer than the MTU.
    pub(crate) refused: u64,
    seconds: f64,
    rate: f64,
    /// Longest delay of a packet behind its scheduled time, in microseconds.
    worst_lag_us: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReceivedReport {
    /// Undamaged packets of the run, including duplicates.
    packets: u64,
    bytes: u64,
    /// Packets without duplicates.
    pub(crate) unique: u64,
    /// Packets that are missing before the last received packet of their flow.
    missing: u64,
    duplicates: u64,
    reordered: u64,
    corrupt: CorruptReport,
    /// Frames that do not belong to this run.
    other: u64,
    /// Frames that the receive ring dropped, because this program was too slow.
    ring_dropped: u64,
    /// Time from the first to the last packet, in seconds.
    seconds: f64,
    rate: f64,
    longest_gap_seconds: f64,
    flows: u64,
    latency_us: LatencyReport,
    hop_limits: BTreeMap<u8, u64>,
    interfaces: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct CorruptReport {
    ip_checksum: u64,
    transport_checksum: u64,
    payload: u64,
}

#[derive(Debug, Serialize)]
struct LatencyReport {
    min: f64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl SentReport {
    pub(crate) fn new(sent: &Sent, port: PortStatistics) -> Self {
        let seconds = sent.elapsed as f64 / 1e9;
        Self {
            packets: port.tx_packets,
            bytes: port.tx_bytes,
            refused: port.tx_dropped,
            seconds,
            rate: rate(port.tx_packets, seconds),
            worst_lag_us: microseconds(sent.worst_lag),
        }
    }
}

impl ReceivedReport {
    pub(crate) fn new(tally: &Tally, inputs: &[InputReport]) -> Self {
        let first = tally.first.unwrap_or(tally.last);
        let seconds = (tally.last - first) as f64 / 1e9;
        Self {
            packets: tally.packets,
            bytes: tally.bytes,
            unique: tally.unique(),
            missing: tally.missing(),
            duplicates: tally.duplicates,
            reordered: tally.reordered,
            corrupt: CorruptReport {
                ip_checksum: tally.corrupt.ip_checksum,
                transport_checksum: tally.corrupt.transport_checksum,
                payload: tally.corrupt.payload,
            },
            other: tally.other,
            ring_dropped: inputs.iter().map(|input| input.dropped).sum(),
            seconds,
            // The first packet is not counted in the rate, because it only starts the interval.
            rate: rate(tally.packets.saturating_sub(1), seconds),
            longest_gap_seconds: tally.longest_gap as f64 / 1e9,
            flows: tally.flows_seen(),
            latency_us: LatencyReport::new(&tally.latency),
            hop_limits: tally.hop_limits(),
            interfaces: inputs
                .iter()
                .map(|input| (input.name.clone(), input.packets))
                .collect(),
        }
    }
}

impl LatencyReport {
    fn new(histogram: &Histogram<u64>) -> Self {
        let quantile = |fraction| microseconds(histogram.value_at_quantile(fraction));
        Self {
            min: microseconds(histogram.min()),
            mean: histogram.mean() / 1e3,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: microseconds(histogram.max()),
        }
    }
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

fn rate(packets: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        packets as f64 / seconds
    } else {
        0.0
    }
}
