// SPDX-License-Identifier: Apache-2.0
//! Holds the metric families of one scrape, in the types of the client library.

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Labels of a metric (name, value), and its value.
pub(crate) type Sample = (Vec<(&'static str, String)>, f64);

/// Metric families in the order of the output.
#[derive(Debug, Default)]
pub(crate) struct Families(Vec<MetricFamily>);

impl Families {
    /// Adds a gauge: a value that can rise and fall.
    pub(crate) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        self.add(name, help, MetricType::GAUGE, samples);
    }

    /// Adds a counter: a value that only rises. The name must end in `_total`.
    pub(crate) fn counter(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.add(name, help, MetricType::COUNTER, samples);
    }

    /// Adds one gauge without labels.
    pub(crate) fn value(&mut self, name: &str, help: &str, value: f64) {
        self.gauge(name, help, [(Vec::new(), value)]);
    }

    fn add(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let metrics: Vec<_> = samples
            .into_iter()
            .map(|(labels, value)| metric(kind, labels, value))
            .collect();
        // The encoder treats a family without samples as an error.
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(format!("sluice_dataplane_{name}"));
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    /// Returns the families, followed by `others`.
    pub(crate) fn followed_by(mut self, others: Vec<MetricFamily>) -> Vec<MetricFamily> {
        self.0.extend(others);
        self.0
    }
}

/// Builds one sample. Sorts its labels by name, as client libraries do.
fn metric(kind: MetricType, mut labels: Vec<(&'static str, String)>, value: f64) -> Metric {
    labels.sort_unstable();
    let pair = |(name, content): (&str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(content);
        pair
    };
    let mut metric = Metric::from_label(labels.into_iter().map(pair).collect());
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    metric
}
