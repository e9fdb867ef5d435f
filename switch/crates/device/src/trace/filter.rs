// SPDX-License-Identifier: Apache-2.0
//! Which packets are traced.

use std::str::FromStr;

/// What a packet must have, as it comes in; everything unset is allowed to be anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The port that it came in by.
    pub port: Option<u32>,
    /// Its EtherType, in bytes 12 and 13.
    pub ether_type: Option<u16>,
    /// These bytes at this offset.
    pub data: Option<(usize, Vec<u8>)>,
}

impl Filter {
    /// Whether a packet is one of those.
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
    }

    /// Adds a condition: `port=1`, `ethertype=0x0800` or `data=26:0a000001` (offset in decimal, bytes
    /// in hexadecimal).
    ///
    /// # Errors
    /// What is wrong with it, and what there is.
    pub fn add(&mut self, condition: &str) -> Result<(), String> {
        let known = "conditions are port=N, ethertype=0xNNNN and data=OFFSET:HEX";
        let wrong = |what: &str| format!("{condition:?}: {what}; {known}");
        let (name, value) = condition.split_once('=').ok_or_else(|| wrong("no `=`"))?;
        match name {
            "port" => self.port = Some(value.parse().map_err(|_| wrong("not a port number"))?),
            "ethertype" => {
                let digits = value.trim_start_matches("0x");
                let kind = u16::from_str_radix(digits, 16);
                self.ether_type = Some(kind.map_err(|_| wrong("not 16 bits in hexadecimal"))?);
            }
            "data" => {
                let (offset, bytes) = value.split_once(':').ok_or_else(|| wrong("no `:`"))?;
                let offset = offset.parse().map_err(|_| wrong("not an offset"))?;
                let bytes =
                    from_hex(bytes).ok_or_else(|| wrong("not whole bytes in hexadecimal"))?;
                self.data = Some((offset, bytes));
            }
            _ => return Err(wrong("unknown")),
        }
        Ok(())
    }
}

impl FromStr for Filter {
    type Err = String;

    /// Conditions separated by commas, all of which must hold.
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
            "shorter than what is asked for"
        );
        packet[13] = 6;
        assert!(!filter.admits(1, &packet));
        assert!(Filter::default().admits(7, &[]));
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
        ] {
            let error = text.parse::<Filter>().unwrap_err();
            assert!(error.contains("data=OFFSET:HEX"), "{text}: {error}");
        }
    }
}
