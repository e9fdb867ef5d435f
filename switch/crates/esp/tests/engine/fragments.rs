// SPDX-License-Identifier: Apache-2.0
//! Tests ESP packets that were fragmented on their path, and hostile fragments.

use proptest::prelude::*;
use sluice_esp::lifetime::Nanoseconds;
use sluice_esp::reassembly::{
    MAX_BYTES, MAX_DATAGRAMS, MAX_FRAGMENTS, MAX_SOURCE_BYTES, MAX_SOURCE_DATAGRAMS, TIMEOUT,
};
use sluice_esp::shim::Shim;
use sluice_esp::spec::Mode;
use sluice_esp::{Algorithm, Drop, Engine, MAX_OUTPUT};

use crate::support::*;

const GCM: Algorithm = Algorithm::Aes128Gcm;

/// Returns bytes `from..to` of a datagram's data as a fragment.
fn fragment(packet: &[u8], id: u32, from: usize, to: usize) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        let (header, data) = packet.split_at(20);
        return piece_ipv4(header, id, from, &data[from..to], to < data.len());
    }
    let (header, data) = packet.split_at(40);
    piece_ipv6(header, id, from, &data[from..to], to < data.len())
}

fn piece_ipv4(header: &[u8], id: u32, offset: usize, data: &[u8], more: bool) -> Vec<u8> {
    let mut piece = [header, data].concat();
    let length = (piece.len() as u16).to_be_bytes();
    piece[2..4].copy_from_slice(&length);
    piece[4..6].copy_from_slice(&(id as u16).to_be_bytes());
    let field = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
    piece[6..8].copy_from_slice(&field.to_be_bytes());
    sluice_esp::ip::write_ipv4_checksum(&mut piece[..20]);
    piece
}

fn piece_ipv6(header: &[u8], id: u32, offset: usize, data: &[u8], more: bool) -> Vec<u8> {
    let mut piece = header.to_vec();
    let protocol = std::mem::replace(&mut piece[6], 44);
    let field = offset as u16 | u16::from(more);
    piece.extend([protocol, 0]);
    piece.extend(field.to_be_bytes());
    piece.extend(id.to_be_bytes());
    piece.extend(data);
    let length = ((piece.len() - 40) as u16).to_be_bytes();
    piece[4..6].copy_from_slice(&length);
    piece
}

/// Splits a datagram into fragments with `size` bytes of data each.
fn fragments(packet: &[u8], id: u32, size: usize) -> Vec<Vec<u8>> {
    let data = packet.len() - if packet[0] >> 4 == 4 { 20 } else { 40 };
    let starts = (0..data).step_by(size);
    let cut = |from: usize| fragment(packet, id, from, data.min(from + size));
    starts.map(cut).collect()
}

/// Returns a pair of engines whose ESP packets are IPv4 or IPv6.
fn pair(ipv6: bool, mode: Mode) -> Pair {
    let (mut outbound, inbound) = specs(GCM, mode, true);
    if ipv6 {
        outbound.local = Some("2001:db8::1".parse().unwrap());
        outbound.remote = Some("2001:db8::2".parse().unwrap());
    }
    Pair::new(outbound, inbound)
}

/// Returns a frame to be decrypted. Its shim names no bundle, as the pipeline does for fragments.
fn frame(packet: &[u8]) -> Vec<u8> {
    Shim {
        bundle: 0,
        ..to_decrypt()
    }
    .frame_of(packet)
}

/// Passes a packet to the receiver. Returns the answer, or None if the packet is kept.
fn give(engine: &mut Engine, packet: &[u8], now: Nanoseconds) -> Result<Option<Vec<u8>>, Drop> {
    let mut out = vec![0; MAX_OUTPUT];
    let length = engine.process(&frame(packet), now, &mut out)?;
    Ok((length != 0).then(|| out[28..length].to_vec()))
}

fn drops(engine: &Engine, why: Drop) -> u64 {
    engine.counters().drops(why)
}

fn inner(size: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..size).map(|at| at as u8).collect();
    ipv4("10.0.0.1", "10.0.0.2", 253, &payload)
}

/// Returns a fragment of a datagram that is never complete.
fn lone(source: [u8; 4], id: u32, size: usize) -> Vec<u8> {
    let mut packet = ipv4(LOCAL, REMOTE, 50, &vec![1; size + 8]);
    packet[12..16].copy_from_slice(&source);
    fragment(&packet, id, 0, size)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn in_any_order_it_is_what_it_was(
        ipv6: bool,
        transport: bool,
        sizes in prop::collection::vec((1_usize..3000, 1_usize..40), 1..5),
        shuffle in prop::collection::vec(any::<u32>(), 400),
    ) {
        let mode = if transport { Mode::Transport } else { Mode::Tunnel };
        let mut pair = pair(ipv6, mode);
        let mut waiting = Vec::new();
        let mut expected = Vec::new();
        for (id, (size, eights)) in sizes.iter().enumerate() {
            let mut packet = match (transport, ipv6) {
                (false, _) => inner(*size),
                (true, false) => ipv4(LOCAL, REMOTE, 253, &vec![9; *size]),
                (true, true) => crate::support::ipv6("2001:db8::1", "2001:db8::2", 253, &vec![9; *size]),
            };
            if transport && !ipv6 {
                // The test changes the IP header, which ESP does not authenticate.
                packet[5] = id as u8 + 1;
                sluice_esp::ip::write_ipv4_checksum(&mut packet[..20]);
            }
            let sealed = pair.seal(&packet).unwrap();
            let data = sealed.len();
            let size = (eights * 8).max(data / MAX_FRAGMENTS / 8 * 8 + 8);
            let mut pieces = fragments(&sealed, id as u32 + 1, size);
            if pieces.len() == 1 {
                // A single fragment would keep its fragment header in IPv6. So the packet is sent whole.
                pieces = vec![sealed];
            }
            waiting.extend(pieces);
            expected.push(packet);
        }
        let count = waiting.len() as u64;
        let whole = waiting.iter().filter(|one| !is_fragment(one)).count() as u64;
        let mut opened = Vec::new();
        for pick in shuffle.iter().cycle() {
            if waiting.is_empty() {
                break;
            }
            let next = waiting.swap_remove(*pick as usize % waiting.len());
            if let Some(packet) = give(&mut pair.receiver, &next, 0).unwrap() {
                opened.push(packet);
            }
        }
        opened.sort();
        expected.sort();
        prop_assert_eq!(opened, expected);
        prop_assert_eq!(pair.receiver.held_fragments(), 0);
        prop_assert_eq!(pair.receiver.counters().reassembled_fragments, count - whole);
        prop_assert_eq!(pair.receiver.counters().all_drops(), 0);
    }

    /// Tests that each random fragment is dropped, kept, or part of an answered packet.
    #[test]
    fn none_is_lost_track_of(
        ipv6: bool,
        steps in prop::collection::vec((0_u32..3, 0_usize..20, 1_usize..20, any::<bool>(), 0_u64..3), 1..200),
    ) {
        let mut pair = pair(ipv6, Mode::Tunnel);
        let sealed: Vec<_> = (0..3).map(|_| pair.seal(&inner(60)).unwrap()).collect();
        let (mut frames, mut whole, mut answers, mut dropped) = (0, 0, 0, 0);
        let mut now = 0;
        for (which, from, eights, to_end, passes) in steps {
            now += passes * TIMEOUT / 8;
            let packet = &sealed[which as usize];
            let data = packet.len() - if ipv6 { 40 } else { 20 };
            let from = (from * 8).min((data - 1) / 8 * 8);
            let to = if to_end { data } else { data.min(from + eights * 8) };
            let piece = fragment(packet, which, from, to);
            frames += 1;
            whole += u64::from(!is_fragment(&piece));
            match give(&mut pair.receiver, &piece, now) {
                Ok(Some(opened)) => {
                    prop_assert_eq!(opened, inner(60));
                    answers += 1;
                }
                Ok(None) => {}
                Err(_) => dropped += 1,
            }
        }
        let of_sa: u64 = pair.receiver.status(now)[0].counters.drops.values().sum();
        let counters = pair.receiver.counters();
        let datagrams = counters.reassembled;
        let kept = pair.receiver.held_fragments();
        prop_assert!(dropped <= counters.all_drops() + of_sa);
        // Each datagram is answered, or dropped by the SA. Each fragment is part of a datagram, kept, or dropped.
        prop_assert_eq!(answers + of_sa, datagrams + whole);
        prop_assert_eq!(counters.reassembled_fragments + kept + counters.all_drops() + whole, frames);
    }
}

fn is_fragment(packet: &[u8]) -> bool {
    sluice_esp::ip::View::read(packet).unwrap().fragment
}

#[test]
fn what_overlaps_is_dropped_as_a_whole() {
    for ipv6 in [false, true] {
        // Second fragments that overlap the first (0 to 40) or the third (64 to the end).
        for (from, to) in [(32, 64), (40, 72), (0, 48), (8, 32), (0, 40)] {
            let mut pair = pair(ipv6, Mode::Tunnel);
            let sealed = pair.seal(&inner(100)).unwrap();
            let data = sealed.len() - if ipv6 { 40 } else { 20 };
            let engine = &mut pair.receiver;
            for (from, to) in [(0, 40), (64, data)] {
                assert_eq!(give(engine, &fragment(&sealed, 5, from, to), 0), Ok(None));
            }
            let mut bad = fragment(&sealed, 5, from, to);
            *bad.last_mut().unwrap() ^= 1;
            assert_eq!(give(engine, &bad, 0), Err(Drop::FragmentOverlap));
            // Later fragments of the datagram are dropped too.
            let rest = fragment(&sealed, 5, 40, 64);
            assert_eq!(give(engine, &rest, 0), Err(Drop::FragmentOverlap));
            assert_eq!(drops(engine, Drop::FragmentOverlap), 4);
            assert_eq!(engine.held_fragments(), 0);
            // Another datagram is not affected. This one is refused until it times out.
            let again = fragments(&sealed, 6, 48);
            let given: Vec<_> = again.iter().map(|one| give(engine, one, 0)).collect();
            assert_eq!(given.last(), Some(&Ok(Some(inner(100)))));
        }
    }
}

#[test]
fn a_fragment_that_comes_twice_is_taken_once() {
    let mut pair = pair(false, Mode::Tunnel);
    let sealed = pair.seal(&inner(100)).unwrap();
    let all = fragments(&sealed, 5, 56);
    assert_eq!(all.len(), 3);
    let engine = &mut pair.receiver;
    assert_eq!(give(engine, &all[0], 0), Ok(None));
    assert_eq!(give(engine, &all[0], 0), Err(Drop::FragmentDuplicate));
    assert_eq!(give(engine, &all[2], 0), Ok(None));
    assert_eq!(give(engine, &all[1], 0), Ok(Some(inner(100))));
    assert_eq!(
        give(engine, &all[1], 0),
        Ok(None),
        "a fragment of a new datagram"
    );
}

#[test]
fn malformed_fragments() {
    let mut pair = pair(false, Mode::Tunnel);
    let header = ipv4(LOCAL, REMOTE, 50, &[]);
    let header6 = ipv6("2001:db8::1", "2001:db8::2", 50, &[]);
    let engine = &mut pair.receiver;
    for bad in [
        piece_ipv4(&header, 1, 0, &[1; 44], true),
        piece_ipv4(&header, 1, 0, &[], true),
        piece_ipv4(&header, 1, 8, &[], false),
        piece_ipv4(&header, 1, 65_528, &[1; 8], false),
        piece_ipv6(&header6, 1, 0, &[1; 44], true),
        piece_ipv6(&header6, 1, 65_528, &[1; 16], true),
    ] {
        assert_eq!(give(engine, &bad, 0), Err(Drop::FragmentMalformed));
    }
    // The longest data that the fragment fields allow. Together with the header the packet is too long.
    assert_eq!(
        give(engine, &piece_ipv4(&header, 2, 65_000, &[1; 528], false), 0),
        Ok(None)
    );
    let most = piece_ipv4(&header, 2, 0, &[1; 65_000], true);
    assert_eq!(give(engine, &most, 0), Err(Drop::FragmentMalformed));
    assert_eq!(engine.held_fragments(), 0);
    assert_eq!(drops(engine, Drop::FragmentMalformed), 8);
    let udp = ipv4(LOCAL, REMOTE, 17, &[1; 64]);
    assert_eq!(
        give(engine, &fragment(&udp, 1, 0, 32), 0),
        Err(Drop::EspFragment)
    );
}

#[test]
fn an_end_is_an_end() {
    let packet = ipv4(LOCAL, REMOTE, 50, &[1; 160]);
    let header = &packet[..20];
    let mut engine = Engine::default();
    let last = piece_ipv4(header, 1, 80, &[1; 40], false);
    for beyond in [
        piece_ipv4(header, 1, 120, &[1; 40], true),
        piece_ipv4(header, 1, 160, &[1; 8], false),
    ] {
        assert_eq!(give(&mut engine, &last, 0), Ok(None));
        assert_eq!(give(&mut engine, &beyond, 0), Err(Drop::FragmentOverlap));
        engine = Engine::default();
    }
    assert_eq!(
        give(&mut engine, &piece_ipv4(header, 1, 120, &[1; 40], true), 0),
        Ok(None)
    );
    assert_eq!(give(&mut engine, &last, 0), Err(Drop::FragmentOverlap));
}

#[test]
fn endless_fragments_are_bounded() {
    // Many fragments of one datagram.
    let mut engine = Engine::default();
    let packet = ipv4(LOCAL, REMOTE, 50, &[1; 8 * 200]);
    for number in 0..100 {
        let piece = fragment(&packet, 1, number * 8, number * 8 + 8);
        let expected = if number < MAX_FRAGMENTS {
            Ok(None)
        } else {
            Err(Drop::FragmentTooMany)
        };
        assert_eq!(give(&mut engine, &piece, 0), expected);
    }
    assert_eq!(drops(&engine, Drop::FragmentTooMany), 100);

    // From one source: first too many datagrams, then too many bytes.
    for (size, most) in [
        (8, MAX_SOURCE_DATAGRAMS),
        (60_000, MAX_SOURCE_BYTES / 60_000),
    ] {
        let mut engine = Engine::default();
        for id in 0..1000 {
            assert_eq!(
                give(&mut engine, &lone([192, 0, 2, 1], id, size), 0),
                Ok(None)
            );
            assert!(engine.held_fragments() <= most as u64);
        }
        let kept = engine.held_fragments();
        assert_eq!(drops(&engine, Drop::FragmentLimit), 1000 - kept);
    }

    // From many sources: first too many datagrams, then too many bytes.
    for (size, most) in [(8, MAX_DATAGRAMS), (9_000, MAX_BYTES / 9_000)] {
        let mut engine = Engine::default();
        for number in 0..3000_u32 {
            let [_, _, high, low] = number.to_be_bytes();
            let piece = lone([10, 0, high, low], 1, size);
            assert_eq!(give(&mut engine, &piece, 0), Ok(None));
            assert!(engine.held_fragments() <= most as u64);
        }
        let kept = engine.held_fragments();
        assert_eq!(drops(&engine, Drop::FragmentLimit), 3000 - kept);
    }
}

#[test]
fn a_flood_of_fragments_keeps_no_datagram_from_being_complete() {
    let mut pair = pair(false, Mode::Tunnel);
    let sealed = pair.seal(&inner(1400)).unwrap();
    let [first, second] = &fragments(&sealed, 9, 800)[..] else {
        panic!("there are two fragments")
    };
    let engine = &mut pair.receiver;
    let mut id = 1000;
    let mut flood = |engine: &mut Engine, count, spoofed: bool| {
        for _ in 0..count {
            id += 1;
            let [_, _, high, low] = u32::to_be_bytes(id);
            // The flood has other source addresses, or spoofs the peer's address.
            let source = if spoofed {
                [192, 0, 2, 1]
            } else {
                [10, 0, high, low]
            };
            assert_eq!(give(engine, &lone(source, id, 64), 0), Ok(None));
        }
    };
    flood(engine, 2000, false);
    flood(engine, 60, true);
    assert_eq!(give(engine, first, 0), Ok(None));
    flood(engine, 900, false);
    flood(engine, 60, true);
    assert_eq!(give(engine, second, 0), Ok(Some(inner(1400))));
}

#[test]
fn what_is_not_complete_in_time_is_dropped() {
    let mut pair = pair(true, Mode::Tunnel);
    let sealed = pair.seal(&inner(100)).unwrap();
    let all = fragments(&sealed, 5, 64);
    let engine = &mut pair.receiver;
    assert_eq!(give(engine, &all[0], 0), Ok(None));
    engine.tick(TIMEOUT - 1);
    assert_eq!(engine.held_fragments(), 1);
    engine.tick(TIMEOUT);
    assert_eq!(engine.held_fragments(), 0);
    assert_eq!(drops(engine, Drop::FragmentTimeout), 1);
    // The remaining fragments start a new datagram, which waits for its first fragment.
    for piece in &all[1..] {
        assert_eq!(give(engine, piece, TIMEOUT), Ok(None));
    }
    assert_eq!(give(engine, &all[0], 2 * TIMEOUT - 1), Ok(Some(inner(100))));
}

#[test]
fn fragments_of_another_vrf_address_or_identification_are_another_datagram_s() {
    let mut pair = pair(false, Mode::Tunnel);
    let sealed = pair.seal(&inner(100)).unwrap();
    let [first, second] = &fragments(&sealed, 5, 88)[..] else {
        panic!("there are two fragments")
    };
    let engine = &mut pair.receiver;
    assert_eq!(give(engine, first, 0), Ok(None));
    let mut out = vec![0; MAX_OUTPUT];
    let elsewhere = Shim {
        bundle: 0,
        vrf: 4,
        ..to_decrypt()
    }
    .frame_of(second);
    assert_eq!(engine.process(&elsewhere, 0, &mut out), Ok(0));
    for at in [5, 15, 19] {
        let mut other = second.clone();
        other[at] ^= 1;
        assert_eq!(give(engine, &other, 0), Ok(None));
    }
    assert_eq!(give(engine, second, 0), Ok(Some(inner(100))));
    assert_eq!(engine.held_fragments(), 4);
}

#[test]
fn congestion_of_a_fragment_is_the_packet_s() {
    for (marked, expected) in [(3, Ok(3)), (2, Ok(2)), (0, Err(Drop::EcnNotCapable))] {
        let mut pair = pair(false, Mode::Tunnel);
        let mut packet = inner(100);
        packet[1] = 2;
        sluice_esp::ip::write_ipv4_checksum(&mut packet[..20]);
        let sealed = pair.seal(&packet).unwrap();
        let mut all = fragments(&sealed, 5, 64);
        all[1][1] = marked;
        if marked == 0 {
            all[0][1] = 3;
        }
        let engine = &mut pair.receiver;
        let given: Vec<_> = all.iter().map(|one| give(engine, one, 0)).collect();
        match (given.last().unwrap(), expected) {
            (Ok(Some(opened)), Ok(class)) => {
                assert_eq!(opened[1], class);
                assert!(ipv4_checksum_holds(opened));
            }
            (found, expected) => assert_eq!(found.clone().map(|_| 0), expected),
        }
    }
}

#[test]
fn the_longest_packet_is_reassembled() {
    for ipv6 in [false, true] {
        let mut pair = pair(ipv6, Mode::Tunnel);
        let overhead = 57;
        let packet = inner(65_535 - overhead - 20 - 3);
        let sealed = pair.seal(&packet).unwrap();
        let mut last = Ok(None);
        for piece in fragments(&sealed, 5, 1280) {
            last = give(&mut pair.receiver, &piece, 0);
        }
        assert_eq!(last, Ok(Some(packet)));
    }
}
