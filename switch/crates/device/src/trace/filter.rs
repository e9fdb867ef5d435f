// SPDX-License-Identifier: Apache-2.0
//! Selects packets to be traced, by conditions.

use std::str::FromStr;

use super::packet::{self, Flow, Prefix};

/// Part of each error message: the list of known conditions.
const KNOWN: &str = "conditions are port=N (of the switch), ethertype=0xNNNN, src=PREFIX, dst=PREFIX, ip=PREFIX (either), \
    protocol=NAME or N, sport=N, dport=N, l4port=N (either) and data=OFFSET:HEX";

/// Conditions on an arriving packet. An absent condition matches every packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The ingress port.
    pub port: Option<u32>,
    /// EtherType: bytes 12 and 13 of the frame.
    pub ether_type: Option<u16>,
    /// Offset in bytes, and the bytes that the packet must have at this offset.
    pub data: Option<(usize, Vec<u8>)>,
    /// Prefix of the IP source address.
    pub source: Option<Prefix>,
    /// Prefix of the IP destination address.
    pub destination: Option<Prefix>,
    /// Prefix of the IP source or destination address.
    pub either: Option<Prefix>,
    /// IP protocol. For IPv6, the protocol after the extension headers.
    pub protocol: Option<u8>,
    /// Source port of the transport header.
    pub source_port: Option<u16>,
    /// Destination port of the transport header.
    pub destination_port: Option<u16>,
    /// Source or destination port of the transport header.
    pub either_port: Option<u16>,
}

impl Filter {
    /// Returns whether a packet fulfils all conditions.
    pub fn admits(&self, port: u32, packet: &[u8]) -> bool {
        let data = |(offset, bytes): &(usize, Vec<u8>)| {
            let there = offset
                .checked_add(bytes.len())
                .and_then(|end| packet.get(*offset..end));
            there == Some(bytes)
        };
        let ether_type = |wanted: u16| packet.get(12..14) == Some(&wanted.to_be_bytes());
        self.port.is_none_or(|wanted| wanted == port)
            && self.ether_type.is_none_or(ether_type)
            && self.data.as_ref().is_none_or(data)
            && (!self.looks_at_ip()
                || Flow::read(packet).is_some_and(|flow| self.admits_flow(&flow)))
    }

    fn looks_at_ip(&self) -> bool {
        let addresses = [self.source, self.destination, self.either];
        let ports = [self.source_port, self.destination_port, self.either_port];
        self.protocol.is_some()
            || addresses.iter().any(Option::is_some)
            || ports.iter().any(Option::is_some)
    }

    fn admits_flow(&self, flow: &Flow) -> bool {
        let either = |prefix: Prefix| prefix.holds(flow.source) || prefix.holds(flow.destination);
        let port = |wanted: Option<u16>, is: fn(u16, u16, u16) -> bool| {
            wanted.is_none_or(|wanted| flow.ports.is_some_and(|(from, to)| is(wanted, from, to)))
        };
        self.source.is_none_or(|prefix| prefix.holds(flow.source))
            && self
                .destination
                .is_none_or(|prefix| prefix.holds(flow.destination))
            && self.either.is_none_or(either)
            && self.protocol.is_none_or(|wanted| wanted == flow.protocol)
            && port(self.source_port, |wanted, from, _| wanted == from)
            && port(self.destination_port, |wanted, _, to| wanted == to)
            && port(self.either_port, |wanted, from, to| {
                wanted == from || wanted == to
            })
    }

    /// Adds a condition in a form that `KNOWN` lists: `port=1`, `src=10.0.0.0/8`, `protocol=udp` or `data=26:0a000001`
    /// (offset in decimal, bytes in hexadecimal).
    ///
    /// # Errors
    /// Describes the mistake, and lists the known conditions.
    pub fn add(&mut self, condition: &str) -> Result<(), String> {
        let wrong = |what: &str| format!("{condition:?}: {what}; {KNOWN}");
        let prefix = |text| {
            Prefix::parse(text).ok_or_else(|| wrong("the value is not an address or a prefix"))
        };
        let (name, value) = condition
            .split_once('=')
            .ok_or_else(|| wrong("there is no `=`"))?;
        match name {
            "port" => {
                self.port = Some(
                    value
                        .parse()
                        .map_err(|_| wrong("the value is not a port number"))?,
                )
            }
            "ethertype" => {
                let digits = value.trim_start_matches("0x");
                let kind = u16::from_str_radix(digits, 16);
                self.ether_type = Some(
                    kind.map_err(|_| wrong("the value is not a hexadecimal number of 16 bits"))?,
                );
            }
            "data" => {
                let (offset, bytes) = value
                    .split_once(':')
                    .ok_or_else(|| wrong("there is no `:`"))?;
                let offset = offset
                    .parse()
                    .map_err(|_| wrong("the offset is not a number"))?;
                let bytes = from_hex(bytes)
                    .ok_or_else(|| wrong("the bytes are not pairs of hexadecimal digits"))?;
                self.data = Some((offset, bytes));
            }
            "src" => self.source = Some(prefix(value)?),
            "dst" => self.destination = Some(prefix(value)?),
            "ip" => self.either = Some(prefix(value)?),
            "protocol" => {
                let number = packet::protocol(value);
                self.protocol = Some(number.ok_or_else(|| wrong("the value is not a protocol"))?);
            }
            "sport" | "dport" | "l4port" => {
                let number = value
                    .parse()
                    .map_err(|_| wrong("the value is not a port of TCP or UDP"))?;
                match name {
                    "sport" => self.source_port = Some(number),
                    "dport" => self.destination_port = Some(number),
                    _ => self.either_port = Some(number),
                }
            }
            _ => return Err(wrong("there is no such condition")),
        }
        Ok(())
    }
}

impl FromStr for Filter {
    type Err = String;

    /// Parses conditions separated by commas. A packet must fulfil all of them.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for condition in text.split(',').filter(|condition| !condition.is_empty()) {
            filter.add(condition)?;
        }
        Ok(filter)
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.trim_start_matches("0x").as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let whole = !digits.is_empty() && digits.len().is_multiple_of(2);
    whole
        .then(|| digits.chunks(2).map(byte).collect())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_conditions_must_hold() {
        let filter: Filter = "port=1,ethertype=0x0800,data=14:45".parse().unwrap();
        let mut packet = [0; 20];
        packet[12] = 8;
        packet[14] = 0x45;
        assert!(filter.admits(1, &packet));
        assert!(!filter.admits(2, &packet));
        assert!(
            !filter.admits(1, &packet[..14]),
            "the packet is shorter than the filter requires"
        );
        packet[13] = 6;
        assert!(!filter.admits(1, &packet));
        assert!(Filter::default().admits(7, &[]));
    }

    /// Returns a packet with UDP over IPv4, from 10.0.0.1 port 4660 to 10.0.0.2 port 53.
    fn udp() -> Vec<u8> {
        let mut packet = vec![0; 12];
        packet.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0, 53, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn addresses_protocol_and_ports_are_looked_at() {
        let admits = |text: &str| text.parse::<Filter>().unwrap().admits(1, &udp());
        for text in [
            "src=10.0.0.1",
            "dst=10.0.0.0/30",
            "ip=10.0.0.2",
            "protocol=udp",
            "protocol=17",
            "sport=4660",
            "dport=53",
            "l4port=53,l4port=4660",
            "src=10.0.0.1,dst=10.0.0.2,protocol=UDP,dport=53,port=1",
        ] {
            assert!(admits(text), "{text}");
        }
        for text in [
            "src=10.0.0.2",
            "dst=10.0.0.1",
            "ip=2001:db8::/32",
            "protocol=tcp",
            "sport=53",
            "dport=4660",
            "l4port=54",
            "src=10.0.0.1,port=2",
        ] {
            assert!(!admits(text), "{text}");
        }
        let any: Filter = "ip=0.0.0.0/0".parse().unwrap();
        assert!(!any.admits(1, &[0; 60]), "the packet is not IP");
    }

    #[test]
    fn what_is_no_condition_is_told_what_is() {
        for text in [
            "port",
            "port=x",
            "ethertype=10000",
            "data=1",
            "data=x:00",
            "data=0:0",
            "data=0:",
            "ip=1",
            "src=10.0.0.0/33",
            "protocol=none",
            "dport=70000",
            "host=10.0.0.1",
        ] {
            let error = text.parse::<Filter>().unwrap_err();
            assert!(error.contains("data=OFFSET:HEX"), "{text}: {error}");
        }
    }
}
