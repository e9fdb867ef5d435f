// SPDX-License-Identifier: Apache-2.0
//! Tests ports on interfaces: links, restored settings, limits.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use sluice_ports::pcap::Reader;

use crate::client::{two_paths, write};
use crate::running::*;
use crate::wire::*;

#[test]
fn on_interfaces_it_forwards_follows_links_and_gives_them_back() {
    in_namespace(|| {
        let before = sh("ip address show dev p0 | grep -v link/ether");
        let (json, address) = (json(), "127.0.0.1:50051");
        let p4info = format!("{PROGRAM}.p4info.txtpb");
        let arguments = [
            "-i",
            "0@p0",
            "-i",
            "1@p1",
            "-i",
            "2@p2",
            "--device-id",
            "7",
            "--p4info",
            &p4info,
            json.to_str().unwrap(),
            "--thrift-port",
            "9090",
            "--",
            "--grpc-server-addr",
            address,
            "--cpu-port",
            "510",
        ];
        let directory = tempfile::tempdir().unwrap();
        let switch = Switch::start(directory.path(), &arguments);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // Only one of the two paths is up at a time, so the path of each packet is known.
        sh("ip link set h2 down");
        runtime.block_on(write(address, two_paths()));
        let mut h0 = Wire::open("h0");
        arrives(&mut h0, &mut Wire::open("h1"), LOOKED_UP);
        sh("ip link set h1 down && ip link set h2 up");
        arrives(&mut h0, &mut Wire::open("h2"), LOOKED_UP);
        assert!(switch.terminate().success());
        let after = sh("ip address show dev p0 | grep -v link/ether");
        assert_eq!(without_lifetimes(&before), without_lifetimes(&after));
    });
}

#[test]
fn a_second_switch_on_an_interface_does_not_start() {
    in_namespace(|| {
        let first = tempfile::tempdir().unwrap();
        let line = |port: &str, grpc: u16| {
            format!("--no-p4 -i {port} --grpc-server-addr 127.0.0.1:{grpc}")
        };
        let line_of_first = line("0@p0", 50052);
        let switch = Switch::start(first.path(), &line_of_first.split(' ').collect::<Vec<_>>());
        let second = tempfile::tempdir().unwrap();
        let refused = command(second.path())
            .args(line("3@p0", 50053).split(' '))
            .output()
            .unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("-i 3@p0"), "{said}");
        assert!(said.contains("another switch or engine, process"), "{said}");
        // The refused switch leaves the first switch's settings unchanged.
        assert!(sh("ip link show dev p0").contains("NOARP"));
        // The lock of a killed switch is released.
        drop(switch);
        let line_of_second = line("3@p0", 50053);
        let switch = Switch::start(
            second.path(),
            &line_of_second.split(' ').collect::<Vec<_>>(),
        );
        assert!(switch.terminate().success());
    });
}

#[test]
fn somebody_who_takes_an_interface_s_name_keeps_no_switch_away() {
    in_namespace(|| {
        let shown = sh("ip -oneline link show dev p0");
        let (index, _) = shown.split_once(':').unwrap();
        let code = "import socket,sys; s=socket.socket(socket.AF_UNIX); \
                    s.bind(b'\\0'+sys.argv[1].encode()); s.listen(); print(flush=True); s.accept()";
        let name = format!("sluice-switch/interface/{index}");
        let mut squatter = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["/usr/bin/python3", "-c", code, &name])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        squatter
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut line)
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let line = "--no-p4 -i 0@p0 --grpc-server-addr 127.0.0.1:50052";
        let switch = Switch::start(directory.path(), &line.split(' ').collect::<Vec<_>>());
        assert!(switch.terminate().success());
        // The switch connects to a socket to check whether a server listens. The process that holds this socket
        // ends when it gets this connection.
        assert!(squatter.wait().unwrap().success());
    });
}

#[test]
fn an_interface_that_disappears_and_comes_back_is_a_link_that_went_down() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let line = "-i 0@p0 -i 1@p1 --pcap . --grpc-server-addr 127.0.0.1:50052";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let switch = Switch::start(directory.path(), &arguments);
        let mut h0 = Wire::open("h0");
        for _ in 0..2 {
            // `surface.p4` sends packets of this EtherType to port 1.
            arrives(&mut h0, &mut Wire::open("h1"), 0x1111);
            sh("ip link delete p1");
            h0.send(&frame_of(0x1111, 1));
            sh("ip link add p1 type veth peer name h1 && ip link set h1 up");
        }
        arrives(&mut h0, &mut Wire::open("h1"), 0x1111);
        assert!(
            sh("ip link show dev p1").contains("NOARP"),
            "the switch has taken the interface over again"
        );
        assert!(switch.terminate().success());
        assert!(
            !sh("ip link show dev p1").contains("NOARP"),
            "the switch has released the interface"
        );
        let sent = File::open(directory.path().join("p1_out.pcap")).unwrap();
        let mut recorded = Reader::new(sent).unwrap();
        let mut count = 0;
        while recorded.next_record().unwrap().is_some() {
            count += 1;
        }
        assert!(
            count >= 3,
            "one file contains the frames from before and after: {count}"
        );
    });
}

#[test]
fn the_drop_port_drops_and_limits_hold() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line =
            "-i 0@p0 -i 2@p2 --drop-port 1 --max-mc-groups 3 --grpc-server-addr 127.0.0.1:50058";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let switch = Switch::start(directory, &arguments);
        Wire::open("h0").send(&frame_of(0x1111, 1));
        wait_until("dropped", || {
            counter(directory, "program", "dropped_ingress") == 1
        });
        assert_eq!(ctl_json(directory, "tables")["multicast_groups"]["size"], 3);
        assert!(switch.terminate().success());
    });
}

/// Returns lines with addresses and flags. Leaves out what can change at any time: lifetimes, and IPv6 addresses of
/// autoconfiguration.
fn without_lifetimes(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| !line.contains("inet6") && !line.contains("valid_lft"));
    lines.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn ports_are_closed_to_the_host_while_the_switch_runs_and_after_it_was_killed() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "-i 0@p0 -i 1@p1 --grpc-server-addr 127.0.0.1:50063";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let filters = || sh("tc filter show dev p0 ingress; tc filter show dev p0 egress");
        let switch = Switch::start(directory, &arguments);
        let whole = filters();
        assert_eq!(whole.matches("direct-action").count(), 2, "{whole}");
        sh("tc qdisc del dev p0 clsact");
        wait_until("the port is closed again", || filters() == whole);
        wait_until("counted", || {
            counter(directory, "device", "port_closed_again") >= 1
        });
        arrives(&mut Wire::open("h0"), &mut Wire::open("h1"), 0x1111);
        // The switch is killed, so it restores no settings.
        drop(switch);
        assert_eq!(filters(), whole);
        let switch = Switch::start(directory, &arguments);
        arrives(&mut Wire::open("h0"), &mut Wire::open("h1"), 0x1111);
        assert!(switch.terminate().success());
        assert!(!sh("tc qdisc show dev p0").contains("clsact"));
        // An interface that cannot be closed to the host does not become a port.
        sh("tc qdisc add dev p1 ingress");
        let output = command(directory).args(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for part in ["-i 1@p1", "cannot close the interface to the host"] {
            assert!(said.contains(part), "{said}");
        }
    });
}
