// SPDX-License-Identifier: Apache-2.0
//! Tests header fields in both modes and both families: UDP, DSCP, ECN, DF, TFC. Also tests which packets an SA
//! accepts.

use sluice_esp::engine::Sa;
use sluice_esp::lifetime::Limits;
use sluice_esp::shim::Shim;
use sluice_esp::spec::{DontFragment, Encapsulation, Mode};
use sluice_esp::{Algorithm, Drop, Engine, MAX_OUTPUT, SaSpec};

use crate::support::*;

const GCM: Algorithm = Algorithm::Aes128Gcm;

fn amended(mode: Mode, amend: impl Fn(&mut SaSpec)) -> Pair {
    let (mut outbound, inbound) = specs(GCM, mode, false);
    amend(&mut outbound);
    Pair::new(outbound, inbound)
}

fn encapsulated(local_port: u16, remote_port: u16) -> Encapsulation {
    Encapsulation {
        local_port,
        remote_port,
    }
}

#[test]
fn a_tunnel_carries_both_families_over_both() {
    let inner4 = ipv4("10.0.0.1", "10.0.0.2", 17, &[1; 30]);
    let inner6 = ipv6("2001:db8::1", "2001:db8::2", 17, &[2; 31]);
    for (local, remote) in [(LOCAL, REMOTE), ("2001:db8:1::1", "2001:db8:2::2")] {
        let mut pair = amended(Mode::Tunnel, |spec| {
            spec.local = Some(local.parse().unwrap());
            spec.remote = Some(remote.parse().unwrap());
        });
        for inner in [&inner4, &inner6] {
            let sealed = pair.seal(inner).unwrap();
            let (source, destination) = sluice_esp::ip::addresses(&sealed);
            assert_eq!(source.to_string(), local);
            assert_eq!(destination.to_string(), remote);
            if sealed[0] >> 4 == 4 {
                assert!(ipv4_checksum_holds(&sealed));
                assert_eq!((sealed[8], sealed[9]), (64, 50));
            } else {
                assert_eq!((sealed[7], sealed[6]), (64, 50));
            }
            assert!(
                !sealed
                    .windows(8)
                    .any(|seen| seen == &inner[inner.len() - 8..]),
                "encrypted"
            );
            assert_eq!(&pair.open(&sealed).unwrap(), inner);
        }
    }
}

#[test]
fn transport_mode_keeps_the_headers_for_every_hop() {
    let mut pair = amended(Mode::Transport, |_| {});
    let packet = ipv4(LOCAL, REMOTE, 6, &[3; 40]);
    let sealed = pair.seal(&packet).unwrap();
    assert_eq!((sealed[9], &sealed[12..20]), (50, &packet[12..20]));
    assert!(ipv4_checksum_holds(&sealed));
    assert_eq!(pair.open(&sealed).unwrap(), packet);
    let mut options = packet.clone();
    options[0] = 0x46;
    options.splice(20..20, [1, 1, 1, 1]);
    let length = (options.len() as u16).to_be_bytes();
    options[2..4].copy_from_slice(&length);
    sluice_esp::ip::write_ipv4_checksum(&mut options[..24]);
    assert_eq!(pair.opened(&options), options);

    let addresses = ("2001:db8::1", "2001:db8::2");
    let mut pair = amended(Mode::Transport, |spec| {
        spec.local = Some(addresses.0.parse().unwrap());
        spec.remote = Some(addresses.1.parse().unwrap());
    });
    // Hop-by-hop options and routing header stay in front of ESP. The destination options after them are encrypted.
    let upper = [4; 24];
    let hop_by_hop = [43, 0, 1, 4, 0, 0, 0, 0];
    let routing = [60, 0, 4, 0, 0, 0, 0, 0];
    let destination = [17, 0, 1, 4, 0, 0, 0, 0];
    let all = [&hop_by_hop[..], &routing, &destination, &upper].concat();
    let packet = ipv6(addresses.0, addresses.1, 0, &all);
    let sealed = pair.seal(&packet).unwrap();
    assert_eq!(sealed[40..48], hop_by_hop);
    assert_eq!((sealed[48], &sealed[49..56]), (50, &routing[1..]));
    assert_eq!(sealed[56..60], SPI.to_be_bytes());
    assert_eq!(pair.open(&sealed).unwrap(), packet);
}

#[test]
fn transport_mode_is_for_whole_packets_between_its_ends() {
    let mut pair = amended(Mode::Transport, |_| {});
    let elsewhere = ipv4(LOCAL, "192.0.2.3", 6, &[3; 40]);
    assert_eq!(pair.seal(&elsewhere), Err(Drop::TransportAddresses));
    for field in [[0x20, 0], [0, 1]] {
        let mut fragment = ipv4(LOCAL, REMOTE, 6, &[3; 40]);
        fragment[6..8].copy_from_slice(&field);
        assert_eq!(pair.seal(&fragment), Err(Drop::TransportFragment));
    }
}

#[test]
fn esp_in_udp() {
    for mode in [Mode::Tunnel, Mode::Transport] {
        let (mut outbound, mut inbound) = specs(GCM, mode, false);
        outbound.encapsulation = Some(encapsulated(4500, 31_000));
        inbound.encapsulated = true;
        let mut pair = Pair::new(outbound, inbound);
        let packet = ipv4(LOCAL, REMOTE, 1, &[3; 40]);
        let sealed = pair.seal(&packet).unwrap();
        let size = (sealed.len() as u16 - 20).to_be_bytes();
        let expected = [&[0x11, 0x94, 0x79, 0x18][..], &size, &[0, 0]].concat();
        assert_eq!((sealed[9], &sealed[20..28]), (17, &expected[..]));
        assert_eq!(pair.open(&sealed).unwrap(), packet);
    }
    let mut plain = Pair::of(GCM, Mode::Tunnel, false);
    let (mut outbound, _) = specs(GCM, Mode::Tunnel, false);
    outbound.encapsulation = Some(encapsulated(4500, 4500));
    let mut udp = Pair::new(outbound, specs(GCM, Mode::Tunnel, false).1);
    let packet = ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 8]);
    let in_udp = udp.seal(&packet).unwrap();
    assert_eq!(plain.open(&in_udp), Err(Drop::WrongEncapsulation));
}

#[test]
fn over_ipv6_udp_has_its_checksum() {
    let mut pair = amended(Mode::Tunnel, |spec| {
        spec.local = Some("2001:db8::1".parse().unwrap());
        spec.remote = Some("2001:db8::2".parse().unwrap());
        spec.encapsulation = Some(encapsulated(4500, 4500));
    });
    let sealed = pair
        .seal(&ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 9]))
        .unwrap();
    let length = sealed.len() - 40;
    assert_eq!(sluice_esp::ip::upper_checksum(&sealed, 40, length, 17), 0);
}

#[test]
fn behind_nat_transport_mode_renews_checksums() {
    let (mut outbound, mut inbound) = specs(GCM, Mode::Transport, false);
    outbound.encapsulation = Some(encapsulated(4500, 4500));
    inbound.encapsulated = true;
    let mut pair = Pair::new(outbound, inbound);
    for (protocol, length, field) in [(6, 24, 16), (17, 24, 6)] {
        let mut packet = ipv4(LOCAL, REMOTE, protocol, &vec![9; length]);
        packet[20 + field..22 + field].fill(0);
        let checksum = sluice_esp::ip::upper_checksum(&packet, 20, length, protocol);
        packet[20 + field..22 + field].copy_from_slice(&checksum.to_be_bytes());
        let mut sealed = pair.seal(&packet).unwrap();
        sealed[12..16].copy_from_slice(&[203, 0, 113, 9]);
        sluice_esp::ip::write_ipv4_checksum(&mut sealed[..20]);
        let opened = pair.open(&sealed).unwrap();
        assert_eq!(opened[12..16], [203, 0, 113, 9]);
        assert_eq!(
            sluice_esp::ip::upper_checksum(&opened, 20, length, protocol),
            0
        );
    }
}

#[test]
fn an_outbound_sa_follows_its_peer_s_authentic_packets_only() {
    let (mut outbound, mut inbound) = specs(GCM, Mode::Tunnel, false);
    outbound.encapsulation = Some(encapsulated(4500, 4500));
    inbound.encapsulated = true;
    inbound.followed_by = Some(500);
    let mut pair = Pair::new(outbound.clone(), inbound);
    let mut back = outbound;
    (back.sa, back.key) = (500, Some(sluice_esp::Key::from_hex(&[b'7'; 40]).unwrap()));
    let back = Sa::prepare(back, &pair.reservations, 0).unwrap();
    assert!(pair.receiver.add(back).is_ok());
    let peer = |pair: &mut Pair| {
        let status = pair.receiver.status(0);
        (status[0].peer.unwrap(), status[0].counters.peer_moved)
    };
    let packet = ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 9]);
    let moved = |sealed: &[u8], port: u16| {
        let mut sealed = sealed.to_vec();
        sealed[12..16].copy_from_slice(&[203, 0, 113, 9]);
        sealed[20..22].copy_from_slice(&port.to_be_bytes());
        sealed
    };
    let (first, second) = (pair.seal(&packet).unwrap(), pair.seal(&packet).unwrap());
    let mut forged = moved(&second, 1);
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(pair.open(&forged), Err(Drop::IntegrityFailed));
    assert_eq!(peer(&mut pair), ((REMOTE.parse().unwrap(), Some(4500)), 0));
    pair.open(&moved(&second, 2)).unwrap();
    assert_eq!(
        peer(&mut pair),
        (("203.0.113.9".parse().unwrap(), Some(2)), 1)
    );
    pair.open(&moved(&first, 3)).unwrap();
    assert_eq!(
        peer(&mut pair).1,
        1,
        "an older packet does not change the peer"
    );
    let frame = Shim {
        sa: 500,
        ..to_encrypt()
    }
    .frame_of(&packet);
    let length = pair.receiver.process(&frame, 0, &mut pair.out).unwrap();
    let sent = &pair.out[28..length];
    assert_eq!(
        (&sent[16..20], &sent[22..24]),
        (&[203, 0, 113, 9][..], &[0, 2][..])
    );
}

#[test]
fn dscp_ecn_df_and_ttl_of_the_outer_header() {
    let with = |class: u8, df: bool| {
        let mut packet = ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 9]);
        packet[1] = class;
        packet[6] = if df { 0x40 } else { 0 };
        packet
    };
    let outer = |amend: &dyn Fn(&mut SaSpec), packet: &[u8]| {
        let mut pair = amended(Mode::Tunnel, amend);
        let sealed = pair.seal(packet).unwrap();
        (sealed[1], sealed[6] & 0x40 != 0, sealed[8])
    };
    assert_eq!(outer(&|_| {}, &with(0xba, false)), (0xba, true, 64));
    assert_eq!(
        outer(&|spec| spec.ecn = false, &with(0xbb, false)),
        (0xb8, true, 64)
    );
    let fixed = |spec: &mut SaSpec| (spec.dscp, spec.ttl) = (Some(10), Some(9));
    assert_eq!(outer(&fixed, &with(0xb9, false)), (0x29, true, 9));
    for df in [true, false] {
        let copied = outer(&|spec| spec.df = DontFragment::Copy, &with(0, df));
        assert_eq!(copied, (0, df, 64));
    }
    assert_eq!(
        outer(&|spec| spec.df = DontFragment::Clear, &with(0, true)),
        (0, false, 64)
    );
    let six = ipv6("2001:db8::1", "2001:db8::2", 17, &[0; 8]);
    assert!(outer(&|spec| spec.df = DontFragment::Copy, &six).1);
}

#[test]
fn fragmentable_packets_differ_in_their_identification() {
    let mut pair = amended(Mode::Tunnel, |spec| spec.df = DontFragment::Clear);
    let packet = ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 9]);
    let seen: std::collections::HashSet<_> = (0..100)
        .map(|_| pair.seal(&packet).unwrap()[4..6].to_vec())
        .collect();
    assert_eq!(seen.len(), 100);
}

#[test]
fn congestion_on_the_way_reaches_the_packet_inside() {
    for (inner, outer, expected) in [
        (2, 3, Some(3)),
        (1, 3, Some(3)),
        (2, 1, Some(1)),
        (3, 0, Some(3)),
        (0, 3, None),
    ] {
        for mut packet in [
            ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 9]),
            ipv6("2001:db8::1", "2001:db8::2", 17, &[0; 8]),
        ] {
            sluice_esp::ip::set_traffic_class(&mut packet, 0xb8 | inner);
            let mut pair = Pair::of(GCM, Mode::Tunnel, false);
            let mut sealed = pair.seal(&packet).unwrap();
            sluice_esp::ip::set_traffic_class(&mut sealed, outer);
            assert!(ipv4_checksum_holds(&sealed));
            let opened = pair.open(&sealed);
            let Some(expected) = expected else {
                assert_eq!(opened, Err(Drop::EcnNotCapable));
                continue;
            };
            sluice_esp::ip::set_traffic_class(&mut packet, 0xb8 | expected);
            assert_eq!(opened.unwrap(), packet);
            assert!(packet[0] >> 4 == 6 || ipv4_checksum_holds(&packet));
        }
    }
}

#[test]
fn tfc_padding_hides_the_length_and_is_off_by_default() {
    let mut plain = Pair::of(GCM, Mode::Tunnel, false);
    let mut padded = amended(Mode::Tunnel, |spec| spec.tfc_pad_to = 600);
    let short = ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 9]);
    let long = ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 570]);
    assert_ne!(
        plain.seal(&short).unwrap().len(),
        plain.seal(&long).unwrap().len()
    );
    assert_eq!(
        padded.seal(&short).unwrap().len(),
        padded.seal(&long).unwrap().len()
    );
    assert_eq!((padded.opened(&short), padded.opened(&long)), (short, long));
}

#[test]
fn after_a_hard_lifetime_nothing_goes_out_or_comes_in() {
    let packet = ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 80]);
    let limits = |bytes, packets, seconds| Limits {
        bytes,
        packets,
        seconds,
    };
    for (hard, now) in [
        (limits(Some(300), None, None), 0),
        (limits(None, Some(3), None), 0),
        (limits(None, None, Some(10)), 10_000_000_000),
    ] {
        let mut pair = amended(Mode::Tunnel, |spec| spec.hard = hard);
        for _ in 0..3 {
            pair.seal(&packet).unwrap();
        }
        for at in [now, now, 0] {
            assert_eq!(pair.seal_at(&packet, at), Err(Drop::HardLifetime));
        }
        assert_eq!(pair.sender.status(0)[0].counters.drops["hard_lifetime"], 3);
    }
    let (outbound, mut inbound) = specs(GCM, Mode::Tunnel, false);
    inbound.hard = limits(None, Some(1), None);
    let mut pair = Pair::new(outbound, inbound);
    pair.opened(&packet);
    let sealed = pair.seal(&packet).unwrap();
    assert_eq!(pair.open(&sealed), Err(Drop::HardLifetime));
}

#[test]
fn an_idle_sa_whose_time_is_over_gives_up_its_keys() {
    let hard = Limits {
        seconds: Some(10),
        ..Limits::default()
    };
    let mut pair = amended(Mode::Tunnel, |spec| spec.hard = hard);
    pair.sender.tick(10_000_000_000);
    let packet = ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 80]);
    // A clock that goes back does not restore the erased keys.
    assert_eq!(pair.seal_at(&packet, 0), Err(Drop::HardLifetime));
}

#[test]
fn sequence_numbers_end_without_esn() {
    let (outbound, _) = specs(GCM, Mode::Tunnel, false);
    let state = tempfile::tempdir().unwrap();
    // For this key, all but a few numbers may have been used.
    let fingerprint = sluice_esp::reservation::fingerprint(
        outbound.key.as_ref().unwrap(),
        outbound.integrity_key.as_ref().unwrap(),
    );
    let almost = u64::from(u32::MAX) - 2;
    let mut record = [&fingerprint[..], &almost.to_be_bytes()].concat();
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &record);
    record.extend(&sum.as_ref()[..8]);
    std::fs::write(state.path().join(sluice_esp::reservation::FILE), record).unwrap();
    let reservations = reservations(state.path());
    let mut engine = Engine::default();
    let sa = Sa::prepare(outbound, &reservations, 0).unwrap();
    assert!(engine.add(sa).is_ok());
    let mut out = vec![0; MAX_OUTPUT];
    let frame = to_encrypt().frame_of(&ipv4("10.0.0.1", "10.0.0.2", 1, &[0; 8]));
    for low in [u32::MAX - 1, u32::MAX] {
        engine.process(&frame, 0, &mut out).unwrap();
        assert_eq!(out[28 + 24..28 + 28], low.to_be_bytes());
    }
    assert_eq!(
        engine.process(&frame, 0, &mut out),
        Err(Drop::SequenceExhausted)
    );
}

#[test]
fn one_key_serves_one_direction_and_one_sa() {
    let (outbound, inbound) = specs(GCM, Mode::Tunnel, false);
    let state = tempfile::tempdir().unwrap();
    let reservations = reservations(state.path());
    let prepare = |spec: &SaSpec| Sa::prepare(spec.clone(), &reservations, 0);
    let mut engine = Engine::default();
    assert!(engine.add(prepare(&outbound).unwrap()).is_ok());
    let mut other = outbound.clone();
    other.sa += 1;
    assert!(prepare(&other).err().unwrap().contains("its own key"));
    let refused = engine.add(prepare(&inbound).unwrap()).err().unwrap().1;
    assert!(refused.contains("has this key"), "{refused}");
    drop(engine.remove_outbound(SA).unwrap());
    assert!(engine.add(prepare(&inbound).unwrap()).is_ok());
    let refused = engine.add(prepare(&outbound).unwrap()).err().unwrap().1;
    assert!(refused.contains("has this key"), "{refused}");
    assert!(engine.remove_inbound(3, SPI).is_some());
    assert!(engine.remove_inbound(3, SPI).is_none());
}
