// SPDX-License-Identifier: Apache-2.0
//! Tests that a port sends through the qdisc that a user has set on its interface, while the host still cannot send
//! there. The tests need root, because the ports do.

mod support;

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use sluice_ports::af_packet::BatchTransmitter;
use sluice_ports::interface::SilentInterface;
use sluice_ports::poller::Poller;
use sluice_ports::{Retry, Transmitter, qdisc};
use support::{DEADLINE, frame, is_ours, open, sh, with_veth};

/// Returns how many frames the root qdisc of `sw` has passed and dropped, from `tc -s`.
fn passed() -> String {
    sh(
        "tc -s qdisc show dev sw root | sed -n 's/.* \\([0-9]*\\) pkt (dropped \\([0-9]*\\).*/\\1 \\2/p'",
    )
}

/// Sets a qdisc on `sw`. Returns false if this kernel lacks that kind of qdisc.
fn put(arguments: &str) -> bool {
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("tc qdisc replace dev sw root {arguments}")])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let missing = error.contains("Specified qdisc kind is unknown")
        || error.contains("Specified qdisc not found");
    assert!(output.status.success() || missing, "{arguments}: {error}");
    if missing {
        eprintln!("skipped: this kernel has no {arguments}");
    }
    !missing
}

#[test]
fn frames_go_through_the_qdisc_only_when_told_and_are_limited_by_it() {
    with_veth(|| {
        let silent = SilentInterface::take("sw").unwrap();
        assert_eq!(qdisc::of(silent.index()).unwrap(), None);
        // The burst and the queue each have room for two frames of 1,000 bytes. The rate is so low that no further
        // frame leaves during the test.
        if !put("handle 5: tbf rate 8bit burst 2100 limit 2100") {
            return;
        }
        assert_eq!(qdisc::of(silent.index()).unwrap().as_deref(), Some("tbf"));
        let (mut peer, mut switch) = (open("peer"), open("sw"));
        let sent: Vec<_> = (0..10).map(|n| frame(n, 1000)).collect();
        switch.send(&sent);
        assert_eq!(
            peer.receive(10, is_ours),
            sent,
            "the frames bypass the qdisc"
        );
        let path = switch.transmitter.path();
        path.honour_qdisc(true).unwrap();
        switch.send(&sent);
        assert_eq!(
            peer.receive(2, is_ours),
            sent[..2],
            "the qdisc sends the burst"
        );
        let counted = switch.counters.read();
        // Two frames were sent, two wait in the qdisc, and the qdisc refused the others.
        assert_eq!(
            (counted.tx_packets, counted.tx_queue_full),
            (14, 6),
            "{}",
            passed()
        );
        path.honour_qdisc(false).unwrap();
        switch.send(&sent[9..]);
        assert_eq!(
            peer.receive(1, is_ours),
            sent[9..],
            "the frames bypass the qdisc again"
        );
        sh("tc qdisc del dev sw root");
        assert_eq!(qdisc::of(silent.index()).unwrap(), None);
    });
}

/// Opens the end `sw` as a holding port that sends through the qdisc.
fn holding() -> support::Port {
    let mut switch = open("sw");
    let transmitter = BatchTransmitter::open("sw", switch.counters.clone()).unwrap();
    switch.transmitter = transmitter.holding();
    switch.transmitter.path().honour_qdisc(true).unwrap();
    switch
}

#[test]
fn what_a_full_qdisc_refuses_is_kept_in_order_until_it_has_room() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        if !put("handle 5: tbf rate 8bit burst 2100 limit 2100") {
            return;
        }
        let (mut peer, mut switch) = (open("peer"), holding());
        let sent: Vec<_> = (0..200).map(|n| frame(n, 1000)).collect();
        switch.send(&sent[..100]);
        assert_eq!(
            peer.receive(2, is_ours),
            sent[..2],
            "the qdisc sends the burst"
        );
        assert!(matches!(switch.transmitter.retry(), Some(Retry::At(_))));
        assert!(!switch.transmitter.flush());
        let counted = switch.counters.read();
        assert_eq!((counted.tx_packets, counted.tx_dropped), (4, 0));
        // The port keeps at most two batches of frames.
        switch.send(&sent[100..]);
        let counted = switch.counters.read();
        let refused = 200 - 4 - 128;
        assert_eq!((counted.tx_packets, counted.tx_queue_full), (4, refused));
        // Deleting the qdisc also drops the two frames that waited in it.
        sh("tc qdisc del dev sw root");
        assert!(switch.transmitter.flush());
        assert!(switch.transmitter.retry().is_none());
        assert_eq!(peer.receive(128, is_ours), sent[4..132]);
        assert_eq!(switch.counters.read().tx_packets, 132);
    });
}

#[test]
fn a_qdisc_gets_few_frames_ahead_and_says_when_it_takes_more() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        if !put("handle 5: tbf rate 8bit burst 2100 limit 1000000") {
            return;
        }
        let (mut peer, mut switch) = (open("peer"), holding());
        let sent: Vec<_> = (0..100).map(|n| frame(n, 1000)).collect();
        switch.send(&sent);
        assert_eq!(
            peer.receive(2, is_ours),
            sent[..2],
            "the qdisc sends the burst"
        );
        assert!(!switch.transmitter.flush());
        let went = switch.counters.read().tx_packets as usize;
        assert!((10..60).contains(&went), "{went}");
        let mut poller = Poller::new().unwrap();
        let Some(Retry::Writable(fd)) = switch.transmitter.retry() else {
            panic!("{:?}", switch.transmitter.retry());
        };
        poller.add_writable(fd, 7).unwrap();
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0);
        sh("tc qdisc del dev sw root");
        let tokens = |poller: &mut Poller| -> Vec<u64> {
            let events = poller.wait(Some(DEADLINE)).unwrap();
            events.map(|event| event.token).collect()
        };
        assert_eq!(tokens(&mut poller), [7]);
        assert!(switch.transmitter.flush());
        assert_eq!(peer.receive(100 - went, is_ours), sent[went..]);
        // The event is reported only once.
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0);
    });
}

#[test]
fn a_frame_that_is_refused_for_ever_does_not_block_the_others() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        // This qdisc never accepts a frame that is longer than its burst.
        if !put("handle 5: tbf rate 1gbit burst 500 limit 1000000") {
            return;
        }
        let (mut peer, mut switch) = (open("peer"), holding());
        let short = frame(2, 100);
        switch.send(&[frame(1, 1000), short.clone()]);
        assert!(switch.transmitter.retry().is_some());
        let deadline = Instant::now() + DEADLINE;
        while !switch.transmitter.flush() {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        assert_eq!(peer.receive(1, is_ours), [short]);
        let counted = switch.counters.read();
        assert_eq!((counted.tx_packets, counted.tx_queue_full), (1, 1));
    });
}

#[test]
fn the_host_sends_nothing_through_a_qdisc_either() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        if !put("handle 5: pfifo limit 10") {
            return;
        }
        let (mut peer, mut switch) = (open("peer"), open("sw"));
        switch.transmitter.path().honour_qdisc(true).unwrap();
        sh(
            "ip link set sw up arp on && ip address add 10.1.0.1/24 dev sw &&
            ip neighbor replace 10.1.0.9 lladdr 02:00:00:00:00:09 dev sw",
        );
        let host = UdpSocket::bind("10.1.0.1:0").unwrap();
        // The kernel may or may not report that the filter dropped the frame, so the result is ignored.
        drop(host.send_to(b"leak", "10.1.0.9:9"));
        switch.send(&[frame(1, 60)]);
        let first = peer.receive(1, |_| true);
        assert_eq!(first, [frame(1, 60)], "the first frame of all");
        assert_eq!(passed().trim(), "1 0");
    });
}

#[test]
fn the_mark_of_another_port_does_not_open_an_interface() {
    with_veth(|| {
        let silent = SilentInterface::take("sw").unwrap();
        let mut peer = open("peer");
        sh(
            "ip link set sw up arp on && ip address add 10.1.0.1/24 dev sw &&
            ip neighbor replace 10.1.0.9 lladdr 02:00:00:00:00:09 dev sw",
        );
        let host = UdpSocket::bind("10.1.0.1:0").unwrap();
        // The filter drops the first frame, which has another interface's mark. The filter accepts the second frame,
        // which has this interface's mark.
        for index in [silent.index() + 1, silent.index()] {
            mark(&host, 0x5100_0000 | index as u32);
            drop(host.send_to(&index.to_be_bytes(), "10.1.0.9:9"));
        }
        let first = peer.receive(1, |_| true);
        assert!(
            first[0].ends_with(&silent.index().to_be_bytes()),
            "{first:02x?}"
        );
    });
}

fn mark(socket: &UdpSocket, mark: u32) {
    // SAFETY: pointer and length describe the value, which lives during the call.
    let result = unsafe {
        let pointer = std::ptr::from_ref(&mark).cast();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_MARK);
        libc::setsockopt(socket.as_raw_fd(), level, name, pointer, 4)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
