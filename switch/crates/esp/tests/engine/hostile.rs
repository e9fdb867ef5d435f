// SPDX-License-Identifier: Apache-2.0
//! Tests that each hostile packet is dropped under the expected name, and that none is answered.

use std::cell::RefCell;

use proptest::prelude::*;
use sluice_esp::algorithm::ALGORITHMS;
use sluice_esp::cipher::Cipher;
use sluice_esp::shim::Shim;
use sluice_esp::spec::Mode;
use sluice_esp::{Algorithm, Drop, MAX_OUTPUT};

use crate::support::*;

const GCM: Algorithm = Algorithm::Aes128Gcm;

fn inner() -> Vec<u8> {
    ipv4("10.0.0.1", "10.0.0.2", 17, &[7; 33])
}

/// Returns an authentic ESP packet with a payload and trailer that an engine would not write.
fn crafted(mode: Mode, sequence: u32, clear: &[u8]) -> Vec<u8> {
    let (spec, _) = specs(GCM, mode, false);
    let cipher = Cipher::new(
        GCM,
        &spec.key_or_none(),
        &spec.integrity_key_or_none(),
        false,
    );
    let mut esp = [SPI.to_be_bytes(), sequence.to_be_bytes()].concat();
    esp.extend([0; 8]);
    esp.extend(clear);
    esp.extend([0; 16]);
    cipher.unwrap().seal(u64::from(sequence), &mut esp).unwrap();
    ipv4(LOCAL, REMOTE, 50, &esp)
}

#[test]
fn no_authenticated_byte_can_change() {
    for algorithm in ALGORITHMS {
        if algorithm.icv_len() == 0 {
            continue;
        }
        for esn in [false, true] {
            let mut pair = Pair::of(algorithm, Mode::Tunnel, esn);
            let sealed = pair.seal(&inner()).unwrap();
            // Flips bits from the sequence number on. With a changed SPI no SA would be found.
            for bit in 24 * 8..sealed.len() * 8 {
                let mut changed = sealed.clone();
                changed[bit / 8] ^= 0x80 >> (bit % 8);
                let why = pair.open(&changed).unwrap_err();
                let number = bit < 28 * 8;
                assert!(
                    why == Drop::IntegrityFailed || number && why == Drop::Late,
                    "{algorithm:?} bit {bit}: {why:?}"
                );
            }
            assert_eq!(
                pair.open(&sealed).unwrap(),
                inner(),
                "the window has not changed"
            );
        }
    }
}

#[test]
fn replayed_and_late() {
    for algorithm in ALGORITHMS {
        for esn in [false, true] {
            let mut pair = Pair::of(algorithm, Mode::Tunnel, esn);
            let all: Vec<_> = (0..100).map(|_| pair.seal(&inner()).unwrap()).collect();
            assert_eq!(pair.open(&all[99]).unwrap(), inner());
            assert_eq!(pair.open(&all[99]), Err(Drop::Replayed));
            assert_eq!(
                pair.open(&all[36]).unwrap(),
                inner(),
                "the last number in the window"
            );
            assert_eq!(pair.open(&all[36]), Err(Drop::Replayed));
            // With ESN, the window takes the number for one of the next 2^32 numbers, so the integrity check fails.
            match (esn, algorithm.icv_len()) {
                (false, _) => assert_eq!(pair.open(&all[35]), Err(Drop::Late)),
                (true, 0) => {}
                (true, _) => assert_eq!(pair.open(&all[35]), Err(Drop::IntegrityFailed)),
            }
            let drops = &pair.receiver.status(0)[0].counters.drops;
            assert_eq!(drops["replayed"], 2);
        }
    }
}

#[test]
fn a_larger_window_takes_older_packets() {
    let (outbound, mut inbound) = specs(GCM, Mode::Tunnel, true);
    inbound.replay_window = Some(4096);
    let mut pair = Pair::new(outbound, inbound);
    let all: Vec<_> = (0..4097).map(|_| pair.seal(&inner()).unwrap()).collect();
    pair.open(&all[4096]).unwrap();
    pair.open(&all[1]).unwrap();
    assert_eq!(pair.open(&all[1]), Err(Drop::Replayed));
    assert!(pair.open(&all[0]).is_err());
}

#[test]
fn truncated_anywhere() {
    for algorithm in ALGORITHMS {
        if algorithm.icv_len() == 0 {
            continue;
        }
        let mut pair = Pair::of(algorithm, Mode::Tunnel, false);
        let sealed = pair.seal(&inner()).unwrap();
        let frame = to_decrypt().frame_of(&sealed);
        for end in 0..frame.len() {
            assert!(
                pair.receiver
                    .process(&frame[..end], 0, &mut pair.out)
                    .is_err()
            );
        }
        for end in 20..sealed.len() {
            let mut short = sealed[..end].to_vec();
            short[2..4].copy_from_slice(&(end as u16).to_be_bytes());
            let why = pair.open(&short).unwrap_err();
            assert!(
                matches!(why, Drop::EspLength | Drop::IntegrityFailed),
                "{end}: {why:?}"
            );
        }
        assert_eq!(pair.open(&sealed).unwrap(), inner());
    }
}

#[test]
fn authentic_and_wrong_inside() {
    let tunnel = |payload: &[u8], trailer: &[u8]| [payload, trailer].concat();
    let whole = inner();
    let mut longer = whole.clone();
    longer[2..4].copy_from_slice(&(whole.len() as u16 + 4).to_be_bytes());
    let mut no_ip = whole.clone();
    no_ip[0] = 0x75;
    let six = ipv6("2001:db8::1", "2001:db8::2", 17, &[1; 16]);
    let mut beyond = six.clone();
    beyond[4..6].copy_from_slice(&[0xff, 0xff]);
    for (name, clear, expected) in [
        (
            "overlong padding",
            tunnel(&[1, 2], &[255, 4]),
            Drop::BadPadding,
        ),
        (
            "one too long",
            tunnel(&[], &[1, 2, 3, 4, 0, 0, 7, 4]),
            Drop::BadPadding,
        ),
        (
            "other padding",
            tunnel(&whole, &[9, 1, 4]),
            Drop::BadPadding,
        ),
        (
            "no IP inside",
            tunnel(&whole, &[1, 1, 6]),
            Drop::BadNextHeader,
        ),
        ("TCP", tunnel(&whole, &[1, 1, 50]), Drop::BadNextHeader),
        (
            "IPv4 as IPv6",
            tunnel(&whole, &[1, 1, 41]),
            Drop::InnerMalformed,
        ),
        (
            "IPv6 as IPv4",
            tunnel(&six, &[1, 2, 2, 4]),
            Drop::InnerMalformed,
        ),
        (
            "longer than the payload",
            tunnel(&longer, &[1, 1, 4]),
            Drop::InnerMalformed,
        ),
        (
            "another version",
            tunnel(&no_ip, &[1, 1, 4]),
            Drop::InnerMalformed,
        ),
        (
            "IPv6 beyond",
            tunnel(&beyond, &[1, 2, 2, 41]),
            Drop::InnerMalformed,
        ),
        (
            "nothing inside",
            tunnel(&[], &[1, 2, 2, 4]),
            Drop::InnerMalformed,
        ),
        ("dummy", tunnel(&[9; 30], &[0, 59]), Drop::Dummy),
    ] {
        let mut pair = Pair::of(GCM, Mode::Tunnel, false);
        let packet = crafted(Mode::Tunnel, 5, &clear);
        assert_eq!(pair.open(&packet), Err(expected), "{name}");
        assert_eq!(
            pair.receiver.status(0)[0].counters.drops[expected.name()],
            1,
            "{name}"
        );
        assert_eq!(
            pair.open(&packet),
            Err(Drop::Replayed),
            "{name}: the packet was authentic"
        );
    }
}

#[test]
fn what_is_no_esp_for_an_sa() {
    let mut pair = Pair::of(GCM, Mode::Tunnel, false);
    let sealed = pair.seal(&inner()).unwrap();
    let mut check = |packet: &[u8], expected: Drop| {
        assert_eq!(pair.open(packet), Err(expected));
        assert!(pair.receiver.counters().drops(expected) > 0, "{expected:?}");
    };
    let mut spi = sealed.clone();
    spi[23] ^= 1;
    check(&spi, Drop::UnknownSpi);
    // Other tests cover fragments of ESP.
    let fragments = [[0x20, 0], [0x20, 9], [0, 9]].map(|field| {
        let mut fragment = ipv4(LOCAL, REMOTE, 17, &[0x11; 40]);
        fragment[6..8].copy_from_slice(&field);
        fragment
    });
    fragments
        .iter()
        .for_each(|fragment| check(fragment, Drop::EspFragment));
    check(&ipv4(LOCAL, REMOTE, 6, &[0; 40]), Drop::NotEsp);
    check(&ipv4(LOCAL, REMOTE, 50, &[0; 40]), Drop::NotEsp);
    check(&ipv4(LOCAL, REMOTE, 50, &[1; 7]), Drop::EspLength);
    let udp = |sport: u16, dport: u16, length: u16, rest: &[u8]| {
        let mut datagram = [sport, dport, length, 0].map(u16::to_be_bytes).concat();
        datagram.extend(rest);
        ipv4(LOCAL, REMOTE, 17, &datagram)
    };
    check(&udp(4500, 4500, 9, &[0xff]), Drop::EspLength);
    check(&udp(4500, 4500, 28, &[0; 20]), Drop::NotEsp);
    check(&udp(4501, 4499, 28, &[1; 20]), Drop::NotEsp);
    check(&udp(4500, 4500, 27, &[1; 20]), Drop::NotEsp);
    let mut version = sealed.clone();
    version[0] = 0x55;
    check(&version, Drop::Malformed);
    let mut short = sealed.clone();
    short.pop();
    check(&short, Drop::Malformed);
    check(&[], Drop::Malformed);
    let frame = Shim {
        ether_type: 0x86dd,
        ..to_decrypt()
    }
    .frame(&sealed);
    assert_eq!(
        pair.receiver.process(&frame, 0, &mut pair.out),
        Err(Drop::Malformed)
    );
    assert_eq!(pair.open(&sealed).unwrap(), inner());
}

/// Tests that a frame is dropped if its shim does not match the SA. This happens if the router's tables and the
/// engine's SAs disagree.
#[test]
fn numbers_that_mean_something_else_here() {
    let mut pair = Pair::of(GCM, Mode::Tunnel, false);
    let sealed = pair.seal(&inner()).unwrap();
    let mut out = vec![0; MAX_OUTPUT];
    for (shim, expected) in [
        (
            Shim {
                bundle: 6,
                ..to_encrypt()
            },
            Drop::WrongBundle,
        ),
        (
            Shim {
                bundle: 0,
                ..to_encrypt()
            },
            Drop::WrongBundle,
        ),
        (
            Shim {
                vrf: 4,
                ..to_encrypt()
            },
            Drop::WrongVrf,
        ),
        (
            Shim {
                sa: 78,
                ..to_encrypt()
            },
            Drop::UnknownSa,
        ),
    ] {
        let frame = shim.frame_of(&inner());
        assert_eq!(pair.sender.process(&frame, 0, &mut out), Err(expected));
    }
    for (shim, expected) in [
        (
            Shim {
                bundle: 6,
                ..to_decrypt()
            },
            Drop::WrongBundle,
        ),
        (
            Shim {
                vrf: 4,
                ..to_decrypt()
            },
            Drop::UnknownSpi,
        ),
    ] {
        let frame = shim.frame_of(&sealed);
        assert_eq!(pair.receiver.process(&frame, 0, &mut out), Err(expected));
    }
    // The shim's bundle is 0 for fragments, because the pipeline has not read their SPI.
    let frame = Shim {
        bundle: 0,
        ..to_decrypt()
    }
    .frame_of(&sealed);
    let length = pair.receiver.process(&frame, 0, &mut out).unwrap();
    assert_eq!(
        (&out[16..18], &out[28..length]),
        (&BUNDLE.to_be_bytes()[..], &inner()[..])
    );
}

#[test]
fn padding_of_the_frame_is_not_encrypted() {
    let mut pair = Pair::of(GCM, Mode::Tunnel, false);
    let short = ipv4("10.0.0.1", "10.0.0.2", 1, &[]);
    let sealed = pair.seal(&[&short[..], &[0xaa; 26]].concat()).unwrap();
    let opened = pair.open(&[&sealed[..], &[0xbb; 9]].concat()).unwrap();
    assert_eq!(opened, short);
}

#[test]
fn too_long_for_an_ip_packet() {
    let mut pair = Pair::of(GCM, Mode::Tunnel, false);
    // A packet of maximum length: outer header, ESP header and IV, 65,480 bytes of text, ICV.
    let fits = 65_480 - 2 - 20;
    let longest = ipv4("10.0.0.1", "10.0.0.2", 1, &vec![1; fits]);
    assert_eq!(pair.opened(&longest), longest);
    let longer = ipv4("10.0.0.1", "10.0.0.2", 1, &vec![1; fits + 1]);
    assert_eq!(pair.seal(&longer), Err(Drop::TooLong));
    let full = ipv6("2001:db8::1", "2001:db8::2", 17, &[1; 65_535]);
    assert_eq!(pair.seal(&full), Err(Drop::TooLong));
    assert_eq!(pair.open(&full), Err(Drop::NotEsp));
    let esp = ipv6("2001:db8::1", "2001:db8::2", 50, &[1; 65_535]);
    assert_eq!(pair.open(&esp), Err(Drop::UnknownSpi));
}

/// Tests random bytes, with and without a shim. Each frame has one outcome, which is counted once. Only authentic
/// packets are answered.
#[test]
fn any_bytes_have_one_outcome() {
    let pair = RefCell::new(Pair::of(GCM, Mode::Transport, false));
    let outcomes = |pair: &mut Pair| -> u64 {
        let of_sas: u64 = pair.receiver.status(0)[0].counters.drops.values().sum();
        of_sas + pair.receiver.counters().all_drops() + pair.receiver.held_fragments()
    };
    let versions = prop::sample::select(vec![0x45_u8, 0x46, 0x60, 0]);
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    proptest!(ProptestConfig::with_cases(20_000), |(bytes in bytes, with_shim: bool, known: bool, version in versions)| {
        let pair = &mut *pair.borrow_mut();
        let frames = if with_shim {
            let packet = plausible(&bytes, version, known);
            vec![to_decrypt().frame_of(&packet), to_encrypt().frame_of(&packet)]
        } else {
            vec![bytes]
        };
        for frame in frames {
            let before = outcomes(pair);
            // A fragment may be kept.
            prop_assert!(matches!(pair.receiver.process(&frame, 0, &mut pair.out), Err(_) | Ok(0)));
            prop_assert_eq!(outcomes(pair), before + 1);
            // The sender encrypts the frame if its packet is between the SA's ends. Both cases are allowed, but not a
            // panic.
            let _ = pair.sender.process(&frame, 0, &mut pair.out);
        }
    });
}

/// Turns bytes into a packet of this IP version. If `known` is set, the packet reaches an SA.
fn plausible(bytes: &[u8], version: u8, known: bool) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    if let Some(first) = packet.first_mut() {
        *first = version;
    }
    if known && packet.len() > 48 {
        let length = packet.len() as u16;
        if version == 0x60 {
            packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
            packet[6] = [50, 17, 0, 43, 44, 60][usize::from(packet[7]) % 6];
            packet[40..44].copy_from_slice(&SPI.to_be_bytes());
        } else {
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            packet[6..8].fill(0);
            packet[9] = 50;
            packet[20..24].copy_from_slice(&SPI.to_be_bytes());
        }
    }
    packet
}
