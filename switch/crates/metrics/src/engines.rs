// SPDX-License-Identifier: Apache-2.0
//! Collects the metrics of the ESP engines inside the switch.

use sluice_device::PortId;
use sluice_esp::Counters;
use sluice_esp::engine::Totals;
use sluice_esp_control::command::{Command, Handle};

use crate::family::{Families, Sample};

/// ESP engines, each with the number of the port that it is attached to.
pub type Engines = Vec<(PortId, Handle)>;

/// Adds the counters of the engines. Leaves out engines that have stopped running.
pub(crate) fn all(engines: &Engines, families: &mut Families) {
    let ask = |(port, engine): &(PortId, Handle)| Some((*port, engine.ask(Command::Totals)?));
    let found: Vec<_> = engines.iter().filter_map(ask).collect();
    let by_direction = |value: fn(&Totals) -> [f64; 2]| {
        let samples = |(port, totals): &(PortId, Totals)| {
            let [out, inbound] = value(totals);
            [(*port, "out", out), (*port, "in", inbound)]
        };
        let label = |(port, direction, value): (PortId, &str, f64)| -> Sample {
            (labels(port, "direction", direction), value)
        };
        found
            .iter()
            .flat_map(samples)
            .map(label)
            .collect::<Vec<_>>()
    };
    families.gauge(
        "esp_sas",
        "SAs of an ESP engine inside the switch, by direction.",
        by_direction(|totals| [totals.outbound_sas as f64, totals.inbound_sas as f64]),
    );
    families.counter(
        "esp_packets_total",
        "Packets that an ESP engine has encrypted (out) or decrypted (in).",
        by_direction(|totals| {
            [
                totals.outbound.packets as f64,
                totals.inbound.packets as f64,
            ]
        }),
    );
    families.counter(
        "esp_bytes_total",
        "Bytes in clear of the packets that an ESP engine has encrypted (out) or decrypted (in).",
        by_direction(|totals| [totals.outbound.bytes as f64, totals.inbound.bytes as f64]),
    );
    families.counter(
        "esp_dropped_packets_total",
        "Packets that an ESP engine has dropped, by reason.",
        found.iter().flat_map(|(port, totals)| drops(*port, totals)),
    );
}

fn drops(port: PortId, totals: &Totals) -> Vec<Sample> {
    let mut all = Counters::default();
    for counters in [&totals.outbound, &totals.inbound, &totals.others] {
        all.add(counters);
    }
    let sample = |(reason, count): (&str, u64)| (labels(port, "reason", reason), count as f64);
    all.nonzero().map(sample).collect()
}

fn labels(port: PortId, name: &'static str, value: &str) -> Vec<(&'static str, String)> {
    vec![("port", port.to_string()), (name, value.to_owned())]
}
