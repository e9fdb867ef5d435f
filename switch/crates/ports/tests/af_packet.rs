// SPDX-License-Identifier: Apache-2.0
//! Tests AF_PACKET ports on veth pairs, each test in a separate network namespace. The namespace ends with the test's
//! thread, so a failed test leaves nothing behind. The tests need root, because the ports do.

mod support;

use std::fs;
use std::sync::mpsc;

use sluice_ports::Receiver;
use sluice_ports::interface::SilentInterface;
use sluice_ports::link_monitor::{Link, LinkMonitor, LinkObserver};
use support::{DEADLINE, frame, is_ours, open, sh, with_veth};

#[test]
fn frames_cross_unchanged_and_in_order() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        let (mut switch, mut peer) = (open("sw"), open("peer"));
        let sent: Vec<_> = (0..200).map(|n| frame(n, 60 + n as usize * 7)).collect();
        peer.send(&sent);
        assert_eq!(switch.receive(200, is_ours), sent);
        switch.send(&sent);
        assert_eq!(peer.receive(200, is_ours), sent);
        assert_eq!(switch.counters.read().tx_packets, 200);
    });
}

#[test]
fn a_full_ring_drops_and_counts() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        let (mut switch, mut peer) = (open("sw"), open("peer"));
        for batch in 0..50 {
            peer.send(
                &(0..100)
                    .map(|n| frame(batch * 100 + n, 60))
                    .collect::<Vec<_>>(),
            );
        }
        let mut received = 0;
        while switch
            .receiver
            .receive(64, &mut |_, frame| received += u64::from(is_ours(&frame)))
            > 0
        {}
        peer.send(&[frame(9999, 60)]);
        switch.receive(1, is_ours);
        switch.receiver.clear_error();
        let counters = switch.counters.read();
        assert!(received < 5000, "the ring has no space for all frames");
        assert!(counters.rx_dropped >= 5000 - received, "{counters:?}");
    });
}

#[test]
fn a_frame_longer_than_the_mtu_is_dropped_and_the_next_one_sent() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        let (mut switch, mut peer) = (open("sw"), open("peer"));
        switch.send(&[frame(1, 60), frame(2, 4000), frame(3, 10), frame(4, 60)]);
        assert_eq!(peer.receive(2, is_ours), [frame(1, 60), frame(4, 60)]);
        let counters = switch.counters.read();
        assert_eq!((counters.tx_packets, counters.tx_too_long), (2, 2));
        assert_eq!(counters.tx_dropped, 2);
    });
}

#[test]
fn a_vlan_tag_is_where_the_sender_put_it() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        let (mut switch, mut peer) = (open("sw"), open("peer"));
        let mut tagged = frame(7, 64);
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x2a]);
        peer.send(std::slice::from_ref(&tagged));
        assert_eq!(
            switch.receive(1, |frame| frame[12..14] == [0x81, 0x00]),
            [tagged]
        );
    });
}

#[test]
fn what_the_kernel_left_to_hardware_is_completed() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        let mut switch = open("sw");
        // Offloads are on, so the kernel leaves the UDP checksum of sent packets to the (virtual) hardware.
        sh("ip address add 10.0.0.1/24 dev peer &&
            ip neighbor add 10.0.0.2 lladdr 02:00:00:00:00:02 dev peer");
        let socket = std::net::UdpSocket::bind("10.0.0.1:0").unwrap();
        socket.send_to(b"odd", "10.0.0.2:9").unwrap();
        let is_udp = |frame: &[u8]| frame[12..14] == [0x08, 0x00] && frame[23] == 17;
        let frame = switch.receive(1, is_udp).remove(0);
        let length = u16::from_be_bytes([frame[38], frame[39]]);
        let sum = sluice_checksum::sum(u64::from(length) + 17, &frame[26..34]);
        let sum = sluice_checksum::sum(sum, &frame[34..34 + usize::from(length)]);
        assert_eq!(sluice_checksum::finish(sum), 0);
    });
}

#[test]
fn a_taken_interface_is_silent_and_comes_back_as_it_was() {
    with_veth(|| {
        sh("ip link set sw up && ip address add 10.1.0.1/24 dev sw &&
            ip -6 address add 2001:db8::1/64 dev sw nodad");
        let forwarding = || fs::read_to_string("/proc/sys/net/ipv4/conf/sw/forwarding").unwrap();
        sh("echo 1 > /proc/sys/net/ipv4/conf/sw/forwarding");
        let silent = SilentInterface::take("sw").unwrap();
        let taken = sh("ip address show dev sw");
        assert!(
            !taken.contains("inet") && taken.contains("NOARP"),
            "{taken}"
        );
        assert_eq!(forwarding().trim(), "0");
        drop(silent);
        let restored = sh("ip address show dev sw");
        assert!(restored.contains("inet 10.1.0.1/24"), "{restored}");
        assert!(restored.contains("inet6 2001:db8::1/64"), "{restored}");
        assert!(!restored.contains("NOARP"), "{restored}");
        assert_eq!(forwarding().trim(), "1");
    });
}

#[test]
fn the_host_answers_nothing_on_a_taken_interface() {
    with_veth(|| {
        // The address is on another interface of the host. Without the host filter, Linux would answer ARP requests for
        // this address.
        sh("ip address add 10.9.0.1/32 dev lo && ip address add 10.9.0.2/24 dev peer");
        let _silent = SilentInterface::take("sw").unwrap();
        let mut peer = open("peer");
        let mut request = vec![0xff; 6];
        request.extend_from_slice(&[2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
        request.extend_from_slice(&[2, 0, 0, 0, 0, 1, 10, 9, 0, 2, 0, 0, 0, 0, 0, 0, 10, 9, 0, 1]);
        request.resize(60, 0);
        let mut switch = open("sw");
        peer.send(&[request]);
        switch.receive(1, |frame| frame[12..14] == [0x08, 0x06]);
        // Without the host filter, the host answers while the send system call is still running.
        peer.receiver.receive(64, &mut |_, frame| {
            assert_ne!(
                frame[12..14],
                [0x08, 0x06],
                "a frame is an ARP answer: {frame:02x?}"
            );
        });
    });
}

/// Forwards the reports of a link monitor to a channel: the port, and `Some(up)` or `None` for a new interface.
struct Teller {
    sender: mpsc::Sender<(u16, Option<bool>)>,
    /// Whether the observer can use new interfaces.
    able: bool,
}

impl LinkObserver for Teller {
    fn state(&mut self, port: u16, up: bool) {
        self.sender.send((port, Some(up))).unwrap();
    }

    fn appeared(&mut self, port: u16) -> std::io::Result<()> {
        self.sender.send((port, None)).unwrap();
        if std::mem::replace(&mut self.able, true) {
            Ok(())
        } else {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }

    fn check(&mut self, _: u16) {}
}

fn watch(
    silent: &SilentInterface,
    able: bool,
) -> (LinkMonitor, mpsc::Receiver<(u16, Option<bool>)>) {
    let (sender, changes) = mpsc::channel();
    let link = Link {
        port: 5,
        name: "sw".into(),
        index: silent.index(),
    };
    let monitor = LinkMonitor::start(vec![link], Teller { sender, able }).unwrap();
    (monitor, changes)
}

#[test]
fn carrier_changes_are_told_and_the_port_survives_them() {
    with_veth(|| {
        let silent = SilentInterface::take("sw").unwrap();
        let (_monitor, changes) = watch(&silent, true);
        let next = || changes.recv_timeout(DEADLINE).unwrap();
        assert_eq!(next(), (5, Some(true)));
        let (mut switch, mut peer) = (open("sw"), open("peer"));
        sh("ip link set peer down");
        assert_eq!(next(), (5, Some(false)));
        switch.send(&[frame(1, 60)]);
        assert_eq!(switch.counters.read().tx_link_down, 1);
        switch.receiver.clear_error();
        sh("ip link set peer up");
        assert_eq!(next(), (5, Some(true)));
        peer.receiver.clear_error();
        peer.send(&[frame(2, 60)]);
        assert_eq!(switch.receive(1, is_ours), [frame(2, 60)]);
        sh("ip link delete sw");
        assert_eq!(next(), (5, Some(false)));
        switch.send(&[frame(3, 60)]);
        assert_eq!(switch.counters.read().tx_link_down, 2);
    });
}

#[test]
fn an_interface_that_comes_back_is_told_until_it_can_be_used() {
    with_veth(|| {
        let silent = SilentInterface::take("sw").unwrap();
        let (_monitor, changes) = watch(&silent, false);
        let next = || changes.recv_timeout(DEADLINE).unwrap();
        assert_eq!(next(), (5, Some(true)));
        sh("ip link delete sw");
        assert_eq!(next(), (5, Some(false)));
        silent.abandon();
        sh("ip link add sw type veth peer name peer");
        assert_eq!(next(), (5, None), "the interface exists again");
        sh("ip link set sw up && ip link set peer up");
        assert_eq!(next(), (5, None), "the first attempt failed");
        let mut state = next();
        while state != (5, Some(true)) {
            state = next();
        }
    });
}
