// SPDX-License-Identifier: Apache-2.0
//! Tests that no frame passes between a taken interface and the host's network stack. The tests use real sockets of the
//! host, and check the frames at the interface's other end. The tests need root, because the ports do.

mod support;

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use sluice_checksum as checksum;
use sluice_ports::Receiver;
use sluice_ports::host_filter::{Checked, HostFilter};
use sluice_ports::interface::SilentInterface;
use sluice_ports::link_monitor::{Link, LinkMonitor, LinkObserver};
use support::{DEADLINE, frame, is_ours, open, sh, with_veth};

const PORT: u16 = 7000;
/// Makes the host accept as many frames as possible, with the worst settings that an operator could choose.
const WILLING: &str = "ip link set sw up arp on && ip address add 10.1.0.1/24 dev sw &&
    echo 0 > /proc/sys/net/ipv6/conf/sw/disable_ipv6 &&
    ip -6 address add 2001:db8::1/64 dev sw nodad &&
    echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter &&
    echo 0 > /proc/sys/net/ipv4/conf/sw/rp_filter";

fn mac(name: &str) -> [u8; 6] {
    let text = sh(&format!("ip -br link show dev {name}"));
    let address = text.split_whitespace().nth(2).unwrap();
    let bytes = address
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<_>>().try_into().unwrap()
}

fn index_of(name: &str) -> i32 {
    let text = sh(&format!("ip -o link show dev {name}"));
    text.split(':').next().unwrap().parse().unwrap()
}

fn udp(port: u16, payload: &[u8], pseudo: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len();
    let mut udp = [9, port, length as u16, 0].map(u16::to_be_bytes).concat();
    udp.extend_from_slice(payload);
    let sum = checksum::sum(17 + length as u64, pseudo);
    let sum = checksum::finish(checksum::sum(sum, &udp));
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    udp
}

/// Returns a frame to the given MAC address, with a UDP datagram to the given IPv4 address.
fn ipv4(mac: [u8; 6], to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let addresses = [[10, 1, 0, 9], to.octets()].concat();
    let udp = udp(PORT, payload, &addresses);
    let length = (20 + udp.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&[0, 1, 0, 0, 1, 17, 0, 0]);
    header.extend_from_slice(&addresses);
    let sum = checksum::finish(checksum::sum(0, &header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&mac[..], &[2, 0, 0, 0, 0, 9, 8, 0], &header, &udp].concat()
}

fn ipv6(mac: [u8; 6], to: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let from: Ipv6Addr = "2001:db8::9".parse().unwrap();
    let addresses = [from.octets(), to.octets()].concat();
    let udp = udp(PORT + 1, payload, &addresses);
    let mut header = vec![0x60, 0, 0, 0];
    header.extend_from_slice(&(udp.len() as u16).to_be_bytes());
    header.extend_from_slice(&[17, 1]);
    header.extend_from_slice(&addresses);
    [&mac[..], &[2, 0, 0, 0, 0, 9, 0x86, 0xdd], &header, &udp].concat()
}

/// Returns one datagram for each way in which a frame could reach the host. The payload begins with the name of the
/// way.
fn datagrams(payload: &str) -> Vec<Vec<u8>> {
    let own = mac("sw");
    let text = |way: &str| format!("{way} {payload}").into_bytes();
    vec![
        ipv4([0xff; 6], Ipv4Addr::BROADCAST, &text("broadcast")),
        ipv4(
            [1, 0, 0x5e, 0, 0, 1],
            Ipv4Addr::new(224, 0, 0, 1),
            &text("multicast"),
        ),
        ipv4(own, Ipv4Addr::new(10, 1, 0, 1), &text("unicast")),
        ipv6(
            [0x33, 0x33, 0, 0, 0, 1],
            "ff02::1".parse().unwrap(),
            &text("multicast6"),
        ),
        ipv6(own, "2001:db8::1".parse().unwrap(), &text("unicast6")),
    ]
}

fn expected(payload: &str) -> Vec<String> {
    let ways = [
        "broadcast",
        "multicast",
        "unicast",
        "multicast6",
        "unicast6",
    ];
    ways.map(|way| format!("{way} {payload}")).to_vec()
}

/// Sockets of the host that accept datagrams to any address: one for IPv4 and one for IPv6.
struct Witness([UdpSocket; 2]);

impl Witness {
    fn open() -> Self {
        let sockets = [
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)),
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT + 1)),
        ];
        Self(sockets.map(|socket| {
            let socket = socket.unwrap();
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            socket
        }))
    }

    /// Returns the payloads of the next datagrams: three over IPv4 and two over IPv6.
    fn next(&self) -> Vec<String> {
        let sockets = self.0.iter().zip([3, 2]);
        let sockets = sockets.flat_map(|(socket, count)| std::iter::repeat_n(socket, count));
        let read = |socket: &UdpSocket| {
            let mut buffer = [0; 100];
            let length = socket.recv(&mut buffer).expect("a datagram arrives");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        sockets.map(read).collect()
    }
}

fn is_ip(frame: &[u8]) -> bool {
    frame.get(6..12) == Some(&[2, 0, 0, 0, 0, 9])
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn filters() -> String {
    sh("tc filter show dev sw ingress; tc filter show dev sw egress")
}

#[test]
fn the_switch_receives_and_no_socket_of_the_host_does() {
    with_veth(|| {
        sh(WILLING);
        let (mut peer, host) = (open("peer"), Witness::open());
        peer.send(&datagrams("before"));
        assert_eq!(
            host.next(),
            expected("before"),
            "the host's socket receives"
        );
        let silent = SilentInterface::take("sw").unwrap();
        // Sets the host's settings to the worst ones again, so that only the filter protects.
        sh(WILLING);
        let mut switch = open("sw");
        peer.send(&datagrams("meanwhile"));
        assert_eq!(switch.receive(5, is_ip), datagrams("meanwhile"));
        drop(switch);
        drop(silent);
        sh("ip -6 address replace 2001:db8::1/64 dev sw nodad");
        peer.send(&datagrams("after"));
        assert_eq!(
            host.next(),
            expected("after"),
            "no datagram arrived before this one"
        );
    });
}

#[test]
fn the_host_sends_nothing_and_the_switch_does() {
    with_veth(|| {
        let _silent = SilentInterface::take("sw").unwrap();
        sh(WILLING);
        sh("ip neighbor replace 10.1.0.9 lladdr 02:00:00:00:00:09 dev sw");
        let (mut peer, mut switch) = (open("peer"), open("sw"));
        let host = UdpSocket::bind("10.1.0.1:0").unwrap();
        // The kernel may or may not report that the filter dropped the frame, so the result is ignored.
        drop(host.send_to(b"leak", "10.1.0.9:9"));
        sh("ip neighbor add proxy 10.1.0.8 dev sw; ip link set sw multicast on");
        switch.send(&[frame(1, 60)]);
        assert_eq!(
            peer.receive(1, |_| true),
            [frame(1, 60)],
            "the first frame of all"
        );
        assert_eq!(switch.counters.read().tx_packets, 1);
    });
}

#[test]
fn a_closed_interface_is_given_back_without_a_trace() {
    with_veth(|| {
        drop(SilentInterface::take("sw").unwrap());
        let qdiscs = sh("tc qdisc show dev sw");
        assert!(!qdiscs.contains("clsact"), "{qdiscs}");
    });
}

#[test]
fn what_others_put_on_the_interface_stays() {
    with_veth(|| {
        sh("tc qdisc add dev sw clsact &&
            tc filter add dev sw ingress pref 7 protocol ip u32 match u32 0 0 flowid 1:1");
        let before = filters();
        let mut filter = HostFilter::put(index_of("sw")).unwrap();
        assert_ne!(filters(), before);
        assert_eq!(filter.check().unwrap(), Checked::Intact);
        drop(filter);
        assert_eq!(filters(), before);
        assert!(sh("tc qdisc show dev sw").contains("clsact"));
    });
}

#[test]
fn filters_of_a_killed_switch_are_taken_over_and_removed_in_the_end() {
    with_veth(|| {
        // Keeps the filters in place, as if the process had been killed by SIGKILL.
        HostFilter::put(index_of("sw")).unwrap().forget();
        let left = filters();
        let filter = HostFilter::put(index_of("sw")).unwrap();
        assert_eq!(filters(), left);
        drop(filter);
        let qdiscs = sh("tc qdisc show dev sw");
        assert!(!qdiscs.contains("clsact"), "{qdiscs}");
    });
}

#[test]
fn an_interface_that_cannot_be_closed_is_not_taken() {
    with_veth(|| {
        let problem = || SilentInterface::take("sw").unwrap_err().to_string();
        sh("ip address add 10.1.0.1/24 dev sw && tc qdisc add dev sw ingress");
        let refused = problem();
        assert!(refused.contains("cannot close the interface"), "{refused}");
        assert!(
            refused.contains("tc qdisc del dev IFACE ingress"),
            "{refused}"
        );
        sh("tc qdisc replace dev sw ingress; tc qdisc del dev sw ingress; tc qdisc add dev sw clsact;
            tc filter add dev sw egress pref 1 protocol ip u32 match u32 0 0 flowid 1:1");
        let refused = problem();
        assert!(refused.contains("preference 1 is Sluice's"), "{refused}");
        assert!(!filters().contains(" bpf "), "nothing of ours is left");
        assert!(
            sh("ip address show dev sw").contains("10.1.0.1"),
            "the addresses of the interface have not changed"
        );
    });
}

/// Checks the interface when the link monitor requests it.
struct SilenceChecker(Arc<Mutex<SilentInterface>>, Arc<Mutex<Vec<bool>>>);

impl LinkObserver for SilenceChecker {
    fn state(&mut self, _: u16, up: bool) {
        self.1.lock().unwrap().push(up);
    }

    fn appeared(&mut self, _: u16) -> std::io::Result<()> {
        Ok(())
    }

    fn check(&mut self, _: u16) {
        // If a check fails, the link goes down, which the test observes.
        drop(self.0.lock().unwrap().check());
    }
}

#[test]
fn filters_that_are_removed_come_back_and_a_port_that_stays_open_goes_down() {
    with_veth(|| {
        let silent = SilentInterface::take("sw").unwrap();
        let link = Link {
            port: 5,
            name: "sw".into(),
            index: silent.index(),
        };
        let (silent, states) = (Arc::new(Mutex::new(silent)), Arc::default());
        let checker = SilenceChecker(silent.clone(), Arc::clone(&states));
        let _monitor = LinkMonitor::start(vec![link], checker).unwrap();
        let is_up = || states.lock().unwrap().last() == Some(&true);
        wait_until("the interface is up", is_up);
        let whole = filters();
        for remove in [
            "tc qdisc del dev sw clsact",
            "tc filter del dev sw egress",
            "tc filter del dev sw ingress pref 1",
        ] {
            sh(remove);
            wait_until(remove, || filters() == whole);
        }
        sh(
            "tc filter add dev sw ingress pref 1 protocol all handle 9 bpf bytecode '1,6 0 0 0,' flowid 1:1",
        );
        wait_until("down", || !is_up());
        let flags = sh("ip link show dev sw");
        assert!(!flags.contains(",UP"), "{flags}");
        sh("tc filter del dev sw ingress pref 1 protocol all handle 9 bpf");
        wait_until("the port is closed again", || filters() == whole);
        wait_until("the interface is up again", is_up);
        let (mut peer, mut switch) = (open("peer"), open("sw"));
        peer.receiver.clear_error();
        peer.send(&[frame(1, 60)]);
        assert_eq!(switch.receive(1, is_ours), [frame(1, 60)]);
    });
}
