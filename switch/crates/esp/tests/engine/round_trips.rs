// SPDX-License-Identifier: Apache-2.0
//! Tests random packets with random pairs of SAs.

use std::collections::HashSet;

use proptest::prelude::*;
use sluice_esp::algorithm::ALGORITHMS;
use sluice_esp::spec::{Encapsulation, Mode};

use crate::support::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_goes_in_comes_out(
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        transport: bool,
        esn: bool,
        outer_ipv6: bool,
        udp: bool,
        tfc_pad_to in prop::sample::select(vec![0_u16, 100, 1400]),
        packets in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..1500)), 1..8),
    ) {
        let mode = if transport { Mode::Transport } else { Mode::Tunnel };
        let (mut outbound, mut inbound) = specs(algorithm, mode, esn);
        let ends = if outer_ipv6 { ("2001:db8::1", "2001:db8::2") } else { (LOCAL, REMOTE) };
        outbound.local = Some(ends.0.parse().unwrap());
        outbound.remote = Some(ends.1.parse().unwrap());
        if udp {
            outbound.encapsulation = Some(Encapsulation { local_port: 4500, remote_port: 4500 });
            inbound.encapsulated = true;
        }
        if !transport {
            outbound.tfc_pad_to = tfc_pad_to;
        }
        let mut pair = Pair::new(outbound, inbound);
        let mut seen = HashSet::new();
        let mut bytes = 0;
        for (inner_ipv6, payload) in &packets {
            // Protocol 253 is for experiments (RFC 3692). The engine knows no checksum in it, so it changes nothing in
            // the payload.
            let packet = match (transport, outer_ipv6, *inner_ipv6) {
                (true, true, _) => ipv6(ends.0, ends.1, 253, payload),
                (true, false, _) => ipv4(ends.0, ends.1, 253, payload),
                (false, _, true) => ipv6("2001:db8:1::1", "2001:db8:2::1", 253, payload),
                (false, _, false) => ipv4("10.1.0.1", "10.2.0.1", 253, payload),
            };
            let sealed = pair.seal(&packet).unwrap();
            prop_assert!(sealed.len() - packet.len() <= 40 + 8 + 8 + 16 + 17 + 16 + usize::from(tfc_pad_to));
            let upper = if outer_ipv6 { 40 } else { 20 } + if udp { 8 } else { 0 };
            let text = sealed.len() - upper - 8 - algorithm.iv_len() - algorithm.icv_len();
            prop_assert_eq!(text % algorithm.block(), 0);
            prop_assert_eq!(&pair.open(&sealed).unwrap(), &packet);
            prop_assert!(seen.insert(sealed), "no two packets are equal");
            bytes += packet.len() as u64;
        }
        let [sent] = &pair.sender.status(0)[..] else { panic!("there is one SA") };
        prop_assert_eq!((sent.counters.packets, sent.counters.bytes), (packets.len() as u64, bytes));
        prop_assert_eq!(sent.sequence, packets.len() as u64);
        let [received] = &pair.receiver.status(0)[..] else { panic!("there is one SA") };
        prop_assert_eq!((received.counters.packets, received.sequence), (sent.counters.packets, sent.sequence));
    }
}

#[test]
fn a_status_has_no_key() {
    for algorithm in ALGORITHMS {
        let mut pair = Pair::of(algorithm, Mode::Tunnel, true);
        let status = [pair.sender.status(0), pair.receiver.status(0)].concat();
        let shown = serde_json::to_string(&status).unwrap() + &format!("{status:?}");
        assert!(!shown.contains("c5c5"), "{shown}");
        let (spec, _) = specs(algorithm, Mode::Tunnel, true);
        assert!(!format!("{spec:?}").contains("c5c5"));
    }
}
