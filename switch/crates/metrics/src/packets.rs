// SPDX-License-Identifier: Apache-2.0
//! Collects the metrics of packets: those of each port, those of each queue, and counters of no port or queue.

use sluice_device::{Device, PortInfo};

use crate::family::{Families, Sample};

/// Maximum number of queues with separate metrics. A port has one queue for each priority.
const QUEUES: usize = 1024;

/// Prefix of the names of drop counters.
const DROPPED: &str = "dropped_";

/// The device's drop counters, each with the value of its `reason` label.
const DEVICE_DROPS: [(&str, &str); 7] = [
    ("no_program", "no_program"),
    ("no_such_port", "no_such_port"),
    ("packet_in_dropped", "packet_in"),
    ("packet_out_dropped", "packet_out"),
    ("digest_dropped", "digest"),
    ("queue_program_replaced", "queue_program_replaced"),
    ("queue_port_removed", "queue_port_removed"),
];

pub(crate) fn ports(device: &Device, families: &mut Families) {
    let ports = device.ports();
    let labels = |port: &PortInfo| {
        vec![
            ("port", port.number.to_string()),
            ("interface", port.name.clone()),
        ]
    };
    let each = |value: fn(&PortInfo) -> f64| {
        let sample = |port: &PortInfo| (labels(port), value(port));
        ports.iter().map(sample).collect::<Vec<Sample>>()
    };
    families.gauge(
        "port_up",
        "1 while the link of a port is up, else 0.",
        each(|port| f64::from(u8::from(port.up))),
    );
    families.counter(
        "port_received_packets_total",
        "Packets that a port has received.",
        each(|port| port.statistics.rx_packets as f64),
    );
    families.counter(
        "port_received_bytes_total",
        "Bytes that a port has received, without frame check sequences.",
        each(|port| port.statistics.rx_bytes as f64),
    );
    families.counter(
        "port_sent_packets_total",
        "Packets that a port has sent.",
        each(|port| port.statistics.tx_packets as f64),
    );
    families.counter(
        "port_sent_bytes_total",
        "Bytes that a port has sent, without frame check sequences.",
        each(|port| port.statistics.tx_bytes as f64),
    );
    let drops = ports.iter().flat_map(|port| {
        let counted = &port.statistics;
        let by_reason = [
            ("rx_ring_full", counted.rx_dropped),
            ("rx_damaged", counted.rx_errors),
            ("tx_link_down", counted.tx_link_down),
            ("tx_queue_full", counted.tx_queue_full),
            ("tx_bad_length", counted.tx_too_long),
        ];
        by_reason.map(|(reason, value)| {
            let mut labels = labels(port);
            labels.push(("reason", reason.to_owned()));
            (labels, value as f64)
        })
    });
    families.counter(
        "port_dropped_packets_total",
        "Packets that a port has lost, by reason.",
        drops,
    );
}

pub(crate) fn queues(device: &Device, families: &mut Families) {
    let found = device.queues();
    let told = &found[..found.len().min(QUEUES)];
    let each = |value: fn(&sluice_device::QueueInfo) -> f64| {
        let sample = |queue: &sluice_device::QueueInfo| {
            let labels = vec![
                ("port", queue.port.to_string()),
                ("priority", queue.priority.to_string()),
            ];
            (labels, value(queue))
        };
        told.iter().map(sample).collect::<Vec<Sample>>()
    };
    families.gauge(
        "queue_packets",
        "Packets that wait in a port's queue.",
        each(|queue| f64::from(queue.packets)),
    );
    families.gauge(
        "queue_limit_packets",
        "Maximum number of packets in a port's queue.",
        each(|queue| f64::from(queue.depth)),
    );
    families.counter(
        "queue_dropped_packets_total",
        "Packets that were dropped because a port's queue was full.",
        each(|queue| queue.dropped as f64),
    );
    families.value(
        "queues_left_out",
        "Number of queues without their own metrics. Only the first 1024 queues have metrics.",
        (found.len() - told.len()) as f64,
    );
}

/// Adds the counters of the engines and of the device, by name.
pub(crate) fn counters(device: &Device, families: &mut Families) {
    let (mut drops, mut events) = (Vec::new(), Vec::new());
    let by = |label: &'static str, name: &str, value: u64| -> Sample {
        (vec![(label, name.to_owned())], value as f64)
    };
    for (name, value) in device.statistics().named() {
        match DEVICE_DROPS.iter().find(|(known, _)| *known == name) {
            Some((_, reason)) => drops.push(by("reason", reason, value)),
            None => events.push(by("event", name, value)),
        }
    }
    for (name, value) in device.engine_counters() {
        match name.strip_prefix(DROPPED) {
            Some(reason) => drops.push(by("reason", reason, value)),
            None => events.push(by("event", name, value)),
        }
    }
    families.counter(
        "dropped_packets_total",
        "Packets that the switch dropped outside of ports, by reason. `ingress`, `egress`: the program dropped the packet.",
        drops,
    );
    families.counter(
        "events_total",
        "Counters of the switch and of the program that are not drops, by name.",
        events,
    );
}
