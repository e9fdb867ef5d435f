// SPDX-License-Identifier: Apache-2.0
//! Defines the flows of a run, and picks the flow of each packet.
//!
//! A flow is a combination of one value each from five ranges: source, destination, two protocol numbers (such as
//! ports) and flow label. Flow numbers count through the combinations; the source varies fastest. A flow is computed
//! from its number, so the flows take no memory.

use std::net::IpAddr;
use std::str::FromStr;

use crate::probe::MAX_FLOWS;
use sluice_random::Random;

/// One number, or `count` consecutive numbers from `base` on, written `base+count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) base: u32,
    pub(crate) count: u32,
}

/// One address, or `count` consecutive addresses from the given one on, written `base+count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) base: IpAddr,
    pub(crate) count: u32,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (base, count) = split(text)?;
        let base = base
            .parse()
            .map_err(|_| format!("{base:?} is not a number up to {}", u32::MAX))?;
        let range = Self { base, count };
        if range.base.checked_add(count - 1).is_none() {
            return Err(format!("{text} ends after {}", u32::MAX));
        }
        Ok(range)
    }
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (base, count) = split(text)?;
        let base = base
            .parse()
            .map_err(|_| format!("{base:?} is not an IP address"))?;
        let last = match base {
            IpAddr::V4(base) => base.to_bits().checked_add(count - 1).is_some(),
            IpAddr::V6(base) => base.to_bits().checked_add(u128::from(count) - 1).is_some(),
        };
        if last {
            Ok(Self { base, count })
        } else {
            Err(format!("{text} ends after the last address"))
        }
    }
}

fn split(text: &str) -> Result<(&str, u32), String> {
    let Some((base, count)) = text.split_once('+') else {
        return Ok((text, 1));
    };
    match count.parse() {
        Ok(count @ 1..=MAX_FLOWS) => Ok((base, count)),
        _ => Err(format!(
            "{count:?} is not a count from 1 to {MAX_FLOWS} (write BASE+COUNT)"
        )),
    }
}

impl Addresses {
    fn at(&self, index: u32) -> IpAddr {
        match self.base {
            IpAddr::V4(base) => IpAddr::V4((base.to_bits() + index).into()),
            IpAddr::V6(base) => IpAddr::V6((base.to_bits() + u128::from(index)).into()),
        }
    }
}

/// The fields that identify a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Source port, ICMP identifier or SPI.
    pub(crate) source_number: u32,
    /// Destination port.
    pub(crate) destination_number: u32,
    pub(crate) flow_label: u32,
}

/// All flows of a run.
#[derive(Clone, Debug)]
pub(crate) struct FlowSpace {
    pub(crate) sources: Addresses,
    pub(crate) destinations: Addresses,
    pub(crate) source_numbers: Range,
    pub(crate) destination_numbers: Range,
    pub(crate) flow_labels: Range,
}

impl FlowSpace {
    /// Returns the number of flows.
    ///
    /// # Errors
    /// There are more flows than the flow number in a probe can count.
    pub(crate) fn count(&self) -> Result<u32, String> {
        let count = self
            .dimensions()
            .into_iter()
            .map(u128::from)
            .product::<u128>();
        match u32::try_from(count) {
            Ok(count) if count <= MAX_FLOWS => Ok(count),
            _ => Err(format!(
                "the ranges have {count} flows, but at most {MAX_FLOWS} are possible: shorten the ranges"
            )),
        }
    }

    /// Returns flow number `index`.
    pub(crate) fn flow(&self, index: u32) -> Flow {
        let mut rest = index;
        let [
            source,
            destination,
            source_number,
            destination_number,
            flow_label,
        ] = self.dimensions().map(|count| {
            let digit = rest % count;
            rest /= count;
            digit
        });
        Flow {
            source: self.sources.at(source),
            destination: self.destinations.at(destination),
            source_number: self.source_numbers.base + source_number,
            destination_number: self.destination_numbers.base + destination_number,
            flow_label: self.flow_labels.base + flow_label,
        }
    }

    fn dimensions(&self) -> [u32; 5] {
        [
            self.sources.count,
            self.destinations.count,
            self.source_numbers.count,
            self.destination_numbers.count,
            self.flow_labels.count,
        ]
    }
}

/// Distribution of packets over flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pick {
    /// The flows take turns.
    RoundRobin,
    /// All flows are equally likely.
    Random,
    /// Flow k, counted from 1, has a weight of k^-s.
    Zipf(f64),
}

impl FromStr for Pick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("zipf:").map(f64::from_str)) {
            ("round-robin", _) => Ok(Self::RoundRobin),
            ("random", _) => Ok(Self::Random),
            (_, Some(Ok(exponent))) if exponent > 0.0 && exponent.is_finite() => {
                Ok(Self::Zipf(exponent))
            }
            _ => Err(format!(
                "{text:?} is not a choice of flows: use round-robin, random or zipf:EXPONENT"
            )),
        }
    }
}

/// Picks the flow of each packet.
#[derive(Clone, Debug)]
pub(crate) struct Picker {
    flows: u32,
    next: u32,
    random: Random,
    /// Cumulative weights of the flows. `None` for round robin, empty for uniform.
    weights: Option<Vec<f64>>,
}

impl Picker {
    pub(crate) fn new(pick: Pick, flows: u32, seed: u64) -> Self {
        let weights = match pick {
            Pick::RoundRobin => None,
            Pick::Random => Some(Vec::new()),
            Pick::Zipf(exponent) => Some(cumulated_zipf(exponent, flows)),
        };
        Self {
            flows,
            next: 0,
            random: Random::new(seed),
            weights,
        }
    }

    pub(crate) fn pick(&mut self) -> u32 {
        match &self.weights {
            None => {
                let flow = self.next;
                self.next = if flow + 1 == self.flows { 0 } else { flow + 1 };
                flow
            }
            Some(weights) if weights.is_empty() => self.random.below(self.flows.into()) as u32,
            Some(weights) => {
                let point = self.random.unit();
                let index = weights.partition_point(|weight| *weight <= point);
                (index as u32).min(self.flows - 1)
            }
        }
    }
}

/// Returns, for each k, the share of the packets that belong to flows 1 to k.
fn cumulated_zipf(exponent: f64, flows: u32) -> Vec<f64> {
    let mut sum = 0.0;
    let mut cumulated: Vec<f64> = (1..=flows)
        .map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        })
        .collect();
    cumulated.iter_mut().for_each(|weight| *weight /= sum);
    cumulated
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn space() -> FlowSpace {
        FlowSpace {
            sources: "10.0.0.254+3".parse().unwrap(),
            destinations: "10.1.0.1".parse().unwrap(),
            source_numbers: "1024+2".parse().unwrap(),
            destination_numbers: "9".parse().unwrap(),
            flow_labels: "0".parse().unwrap(),
        }
    }

    #[test]
    fn flows_are_the_product_of_the_ranges_with_the_source_fastest() {
        let space = space();
        assert_eq!(space.count(), Ok(6));
        let flow = |index| {
            (
                space.flow(index).source.to_string(),
                space.flow(index).source_number,
            )
        };
        assert_eq!(flow(0), ("10.0.0.254".into(), 1024));
        assert_eq!(flow(2), ("10.0.1.0".into(), 1024));
        assert_eq!(flow(5), ("10.0.1.0".into(), 1025));
    }

    #[test]
    fn ranges_that_cannot_be_are_refused_by_name() {
        for (text, problem) in [
            ("10.0.0.1+0", "not a count"),
            ("10.0.0.1+x", "not a count"),
            ("10.0.0", "not an IP address"),
            ("255.255.255.255+2", "after the last"),
        ] {
            let error = text.parse::<Addresses>().unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
        assert!(
            "4294967295+2"
                .parse::<Range>()
                .unwrap_err()
                .contains("ends after")
        );
        assert!("-1".parse::<Range>().is_err());
        let wide = FlowSpace {
            sources: "10.0.0.0+16777216".parse().unwrap(),
            ..space()
        };
        assert!(wide.count().unwrap_err().contains("at most"));
    }

    #[test]
    fn every_way_to_pick_stays_within_the_flows() {
        let picks = |pick: &str, flows| {
            let mut picker = Picker::new(pick.parse().unwrap(), flows, 1);
            (0..1000).map(|_| picker.pick()).collect::<Vec<u32>>()
        };
        assert_eq!(picks("round-robin", 3)[..5], [0, 1, 2, 0, 1]);
        assert_eq!(picks("random", 10).iter().collect::<HashSet<_>>().len(), 10);
        let zipf = picks("zipf:1.0", 100);
        let often = |flow| zipf.iter().filter(|pick| **pick == flow).count();
        assert!(
            often(0) > 2 * often(3) && often(0) > 100,
            "{} {}",
            often(0),
            often(3)
        );
        assert!(zipf.iter().all(|flow| *flow < 100));
        assert!("zipf:0".parse::<Pick>().is_err());
        assert!("zipf".parse::<Pick>().is_err());
    }
}
