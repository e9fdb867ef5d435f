// SPDX-License-Identifier: Apache-2.0
//! The switch as a process: on veth pairs in a network namespace of its own (which ends with the test's thread, so a
//! failed test leaves nothing behind), on pcap files, and with command lines that it refuses. Needs root, as the ports do.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use sluice_p4runtime::p4info;
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::proto::v1::*;
use sluice_ports::af_packet::{BatchTransmitter, RingReceiver};
use sluice_ports::pcap::{Reader, Writer};
use sluice_ports::poller::Poller;
use sluice_ports::{PortCounters, Receiver, Transmitter};
use tokio_stream::StreamExt;

const DEADLINE: Duration = Duration::from_secs(10);
const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../p4runtime/tests/spec/programs/surface"
);

/// Runs `test` on a thread with a network namespace of its own: ports p0 to p2, whose other ends are h0 to h2.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: no pointers; affects this thread only.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(
            result,
            0,
            "{} (these tests need root)",
            std::io::Error::last_os_error()
        );
        sh("ip link set lo up
            for n in 0 1 2; do ip link add p$n type veth peer name h$n; ip link set h$n up; done
            ip link set p0 up && ip address add 10.0.0.1/24 dev p0");
        test();
    };
    thread::spawn(run).join().unwrap();
}

fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn json() -> PathBuf {
    format!("{PROGRAM}.json").into()
}

/// The program, in a directory of its own, where its admin socket is too.
fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-switch"));
    command
        .current_dir(directory)
        .env("SLUICE_SWITCH_RUN", directory.join("run"));
    command
}

/// Runs `sluice-switch ctl`: whether it went well, and what it said.
fn try_ctl(directory: &Path, line: &str) -> (bool, String) {
    let output = command(directory)
        .arg("ctl")
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let said = if output.status.success() {
        output.stdout
    } else {
        output.stderr
    };
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn ctl(directory: &Path, line: &str) -> String {
    let (well, said) = try_ctl(directory, line);
    assert!(well, "ctl {line}: {said}");
    said
}

fn ctl_json(directory: &Path, line: &str) -> Json {
    serde_json::from_str(&ctl(directory, &format!("--json {line}"))).unwrap()
}

/// A value of `ctl counters`.
fn counter(directory: &Path, place: &str, name: &str) -> u64 {
    let counters = ctl_json(directory, "counters");
    let list = counters[place].as_array().unwrap();
    let found = list.iter().find(|counter| counter["name"] == name);
    found.unwrap()["value"].as_u64().unwrap()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: it did not come to pass");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A running switch, killed if the test does not end it.
struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Switch {
    /// Starts a switch and waits until it is ready.
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::start_and_listen(directory, arguments).0
    }

    /// Likewise, with what it said before it was ready. Its standard output goes to `stdout` in the directory.
    fn start_and_listen(directory: &Path, arguments: &[&str]) -> (Self, Vec<String>) {
        let mut child = command(directory)
            .args(arguments)
            .stdout(File::create(directory.join("stdout")).unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let switch = Self(child);
        let mut said = Vec::new();
        for line in lines.map(Result::unwrap) {
            if line == "sluice-switch: ready" {
                return (switch, said);
            }
            said.push(line);
        }
        panic!("the switch ended: {said:?}");
    }

    /// Asks it to end, which must not take a second.
    fn terminate(mut self) -> ExitStatus {
        let start = Instant::now();
        // SAFETY: no pointers; the child has not been waited for, so the number is its own.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
        let status = self.0.wait().unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        status
    }
}

/// The far end of a port's wire.
struct Wire {
    receiver: RingReceiver,
    transmitter: BatchTransmitter,
}

impl Wire {
    fn open(name: &str) -> Self {
        let counters = Arc::new(PortCounters::default());
        Self {
            receiver: RingReceiver::open(name, 0, 256, counters.clone()).unwrap(),
            transmitter: BatchTransmitter::open(name, counters).unwrap(),
        }
    }

    fn send(&mut self, frame: &[u8]) {
        self.transmitter.push(frame);
        self.transmitter.flush();
    }

    /// Whether a frame of this kind comes before the time is up; others (the far kernel's) are passed over.
    fn sees(&mut self, kind: u16, timeout: Duration) -> bool {
        let mut poller = Poller::new().unwrap();
        poller.add(self.receiver.readiness().unwrap(), 0).unwrap();
        let deadline = Instant::now() + timeout;
        let mut seen = false;
        while !seen && Instant::now() < deadline {
            poller.wait(Some(timeout)).unwrap().for_each(drop);
            self.receiver.receive(64, &mut |_, frame| {
                seen |= frame[12..14] == kind.to_be_bytes()
            });
        }
        seen
    }
}

/// Sends frames until one arrives: the link's news may reach the switch after the first of them.
fn arrives(from: &mut Wire, to: &mut Wire, kind: u16) {
    let deadline = Instant::now() + DEADLINE;
    from.send(&frame_of(kind, 1));
    while !to.sees(kind, Duration::from_millis(20)) {
        assert!(Instant::now() < deadline, "no frame came");
        from.send(&frame_of(kind, 1));
    }
}

/// The EtherType of frames that `surface.p4` looks up.
const LOOKED_UP: u16 = 0x88b5;

/// A frame with the key that `surface.p4` matches on.
fn frame(a: u32) -> Vec<u8> {
    frame_of(LOOKED_UP, a)
}

/// A frame of this EtherType.
fn frame_of(kind: u16, a: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&a.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn id(name: &str) -> u32 {
    let text = fs::read_to_string(format!("{PROGRAM}.p4info.txtpb")).unwrap();
    let info = p4info::from_text(&text).unwrap();
    let tables = info.tables.into_iter().map(|table| table.preamble.unwrap());
    let actions = info
        .actions
        .into_iter()
        .map(|action| action.preamble.unwrap());
    tables
        .chain(actions)
        .find(|preamble| preamble.alias == name)
        .unwrap()
        .id
}

/// An entry of `selector_table` for b = 0: ports 1 and 2, each while its link is up.
fn two_paths() -> TableEntry {
    let path = |port: u8| ActionProfileAction {
        action: Some(Action {
            action_id: id("forward"),
            params: vec![action::Param {
                param_id: 1,
                value: vec![port],
            }],
        }),
        weight: 1,
        watch_kind: Some(action_profile_action::WatchKind::WatchPort(vec![port])),
    };
    let set = ActionProfileActionSet {
        action_profile_actions: vec![path(1), path(2)],
        ..ActionProfileActionSet::default()
    };
    let exact = field_match::FieldMatchType::Exact(field_match::Exact { value: vec![0] });
    TableEntry {
        table_id: id("selector_table"),
        r#match: vec![FieldMatch {
            field_id: 1,
            field_match_type: Some(exact),
        }],
        action: Some(TableAction {
            r#type: Some(table_action::Type::ActionProfileActionSet(set)),
        }),
        ..TableEntry::default()
    }
}

/// Becomes primary at a switch that has its program, writes an entry, and leaves.
async fn write(address: &str, entry: TableEntry) {
    let mut client = P4RuntimeClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let election_id = Some(Uint128 { high: 0, low: 1 });
    let arbitration = MasterArbitrationUpdate {
        device_id: 7,
        election_id,
        ..Default::default()
    };
    let update = Some(stream_message_request::Update::Arbitration(arbitration));
    let requests =
        tokio_stream::once(StreamMessageRequest { update }).chain(tokio_stream::pending());
    let mut stream = client.stream_channel(requests).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    let entity = Some(Entity {
        entity: Some(entity::Entity::TableEntry(entry)),
    });
    let updates = vec![Update {
        r#type: update::Type::Insert.into(),
        entity,
    }];
    let request = WriteRequest {
        device_id: 7,
        election_id,
        updates,
        ..Default::default()
    };
    client.write(request).await.unwrap();
}

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
        // One live path at a time, so that there is no doubt which one a packet takes.
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
fn an_interface_that_disappears_and_comes_back_is_a_link_that_went_down() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let line = "-i 0@p0 -i 1@p1 --pcap . --grpc-server-addr 127.0.0.1:50052";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let switch = Switch::start(directory.path(), &arguments);
        let mut h0 = Wire::open("h0");
        for _ in 0..2 {
            // `surface.p4` sends this EtherType to port 1.
            arrives(&mut h0, &mut Wire::open("h1"), 0x1111);
            sh("ip link delete p1");
            h0.send(&frame_of(0x1111, 1));
            sh("ip link add p1 type veth peer name h1 && ip link set h1 up");
        }
        arrives(&mut h0, &mut Wire::open("h1"), 0x1111);
        assert!(
            sh("ip link show dev p1").contains("NOARP"),
            "taken over again"
        );
        assert!(switch.terminate().success());
        assert!(
            !sh("ip link show dev p1").contains("NOARP"),
            "and given back"
        );
        let sent = File::open(directory.path().join("p1_out.pcap")).unwrap();
        let mut recorded = Reader::new(sent).unwrap();
        let mut count = 0;
        while recorded.next_record().unwrap().is_some() {
            count += 1;
        }
        assert!(
            count >= 3,
            "one file has what was sent before and after: {count}"
        );
    });
}

#[test]
fn ports_come_and_go_while_packets_flow_and_ctl_tells_it_all() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line =
            "-i 0@p0 --device-id 5 --cpu-port 510 --workers 2 --grpc-server-addr 127.0.0.1:50055";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let switch = Switch::start(directory, &arguments);
        let shown = ctl_json(directory, "show");
        assert_eq!(
            (&shown["device_id"], &shown["cpu_port"]),
            (&5.into(), &510.into())
        );
        assert_eq!(shown["p4runtime_address"], "127.0.0.1:50055");
        let mut h0 = Wire::open("h0");
        h0.send(&frame_of(0x1111, 1));
        wait_until("no port 1 yet", || {
            counter(directory, "device", "no_such_port") > 0
        });
        assert!(ctl(directory, "add-port 1@p1").contains("p1"));
        arrives(&mut h0, &mut Wire::open("h1"), 0x1111);
        let ports = ctl_json(directory, "ports");
        let port = |number: usize| ports["ports"][number].clone();
        assert_eq!(
            (&port(1)["name"], &port(1)["up"]),
            (&"p1".into(), &true.into())
        );
        assert!(port(1)["statistics"]["tx_packets"].as_u64().unwrap() > 0);
        assert!(port(0)["statistics"]["rx_bytes"].as_u64().unwrap() >= 60);
        for (line, said) in [
            ("add-port 1@p2", "port 1 exists already (AlreadyExists)"),
            ("add-port 2@p1", "interface p1 is port 1 already"),
            ("add-port 2@nope", "interface nope"),
            ("remove-port 9", "there is no port 9 (NotFound)"),
        ] {
            let (well, stderr) = try_ctl(directory, line);
            assert!(!well && stderr.contains(said), "{line}: {stderr}");
        }
        ctl(directory, "remove-port 1");
        assert!(!sh("ip link show dev p1").contains("NOARP"), "given back");
        ctl(directory, "add-port 1@p2");
        arrives(&mut h0, &mut Wire::open("h2"), 0x1111);
        let tables = ctl(directory, "tables");
        assert!(
            tables.starts_with("KIND") && tables.contains("clone sessions"),
            "{tables}"
        );
        assert!(switch.terminate().success());
        let (well, said) = try_ctl(directory, "show");
        assert!(!well && said.contains("no switch runs here"), "{said}");
    });
}

#[test]
fn ctl_traces_what_it_is_asked_for() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "-i 0@p0 -i 1@p1 --grpc-server-addr 127.0.0.1:50056";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let switch = Switch::start(directory, &arguments);
        let trace = |line: &str| {
            let arguments =
                format!("ctl trace --filter port=0 --filter ethertype=0x1111 --count 2 {line}");
            let mut child = command(directory)
                .args(arguments.split_whitespace())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // Frames come until two have been traced.
            let mut h0 = Wire::open("h0");
            while child.try_wait().unwrap().is_none() {
                h0.send(&frame_of(0x2222, 1));
                h0.send(&frame_of(0x1111, 1));
                thread::sleep(Duration::from_millis(5));
            }
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
        };
        let text = trace("");
        assert_eq!(text.matches("fate").count(), 2, "{text}");
        assert!(
            text.contains(" enter     switch port=0 bytes=60 data="),
            "{text}"
        );
        assert!(
            text.contains(" parser    ethernet extracts=ethernet"),
            "{text}"
        );
        assert!(
            text.contains(" fate      transmitted port=1 bytes=60"),
            "{text}"
        );
        let lines = trace("--json");
        let lines: Vec<Json> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let first = &lines[0];
        assert_eq!(
            (&first["step"], &first["details"]["port"]),
            (&"enter".into(), &"0".into())
        );
        let last = &lines[lines.len() - 1];
        assert_eq!(
            (&last["step"], &last["name"]),
            (&"fate".into(), &"transmitted".into())
        );
        let (well, said) = try_ctl(directory, "trace --filter ip=10.0.0.1");
        assert!(!well && said.contains("conditions are port=N"), "{said}");
        assert!(switch.terminate().success());
    });
}

#[test]
fn a_log_has_every_step_of_every_packet_unless_its_level_leaves_that_out() {
    in_namespace(|| {
        let json = json();
        let run = |line: &str, log: &str| {
            let directory = tempfile::tempdir().unwrap();
            let common = "-i 0@p0 -i 1@p1 --grpc-server-addr 127.0.0.1:50057";
            let arguments = common.split(' ').chain(line.split(' '));
            let arguments: Vec<_> = arguments.chain([json.to_str().unwrap()]).collect();
            let switch = Switch::start(directory.path(), &arguments);
            arrives(&mut Wire::open("h0"), &mut Wire::open("h1"), 0x1111);
            let read = || fs::read_to_string(directory.path().join(log)).unwrap();
            if !line.contains("--log-level") {
                wait_until(line, || read().contains("fate      transmitted port=1"));
                assert!(
                    read().contains("parser    ethernet extracts=ethernet"),
                    "{}",
                    read()
                );
            }
            assert!(switch.terminate().success());
            let aside = directory.path().join(format!("{log}.1")).exists();
            (read(), aside)
        };
        assert!(!run("--log-console", "stdout").0.is_empty());
        assert!(!run("--log-file log --log-flush", "log").1);
        let (text, _) = run("--log-console --log-level info", "stdout");
        assert!(
            text.contains("serving P4Runtime") && !text.contains("fate"),
            "{text}"
        );
        assert_eq!(run("--log-file log --log-level off", "log").0, "");
        let (_, aside) = run(
            "--log-file log --log-level debug --log-file-max-size 100 --log-file-max-files 2",
            "log",
        );
        assert!(aside, "a second file");
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

#[test]
fn what_means_nothing_here_is_warned_about_and_starts() {
    for flag in [
        "--thrift-port 9090",
        "--nanolog ipc:///tmp/bm-log.ipc",
        "--notifications-addr ipc:///tmp/bmv2-notifications.ipc",
        "--priority-queues 8",
        "--dump-packet-data 64",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let line = format!("--no-p4 --grpc-server-addr 127.0.0.1:0 {flag}");
        let arguments: Vec<_> = line.split(' ').collect();
        let (switch, said) = Switch::start_and_listen(directory.path(), &arguments);
        let name = flag.split(' ').next().unwrap();
        let warned = |line: &String| line.contains(name) && line.contains("no effect");
        assert!(said.iter().any(warned), "{flag}: {said:?}");
        let (well, said) = try_ctl(directory.path(), "tables");
        assert!(!well && said.contains("no program is loaded"), "{said}");
        assert!(switch.terminate().success());
    }
}

#[test]
fn it_says_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let says = |argument: &str| {
        let output = command(directory.path()).arg(argument).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(says("--json-version"), "2.24\n");
    assert_eq!(
        says("-v"),
        format!("sluice-switch {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert!(says("--help").contains("--grpc-server-addr"));
}

#[test]
fn two_switches_share_a_namespace() {
    in_namespace(|| {
        let json = json();
        sh("ip link add q0 type veth peer name q1");
        let directory = tempfile::tempdir().unwrap();
        let start = |line: &str| {
            let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
            Switch::start(directory.path(), &arguments)
        };
        // p0, through one switch, over q0 and q1, through the other, to p2.
        let one = start("-i 0@p0 -i 1@q0 --device-id 1 --grpc-server-addr 127.0.0.1:50053");
        let two = start("-i 3@q1 -i 1@p2 --device-id 2 --grpc-server-addr 127.0.0.1:50054");
        arrives(&mut Wire::open("h0"), &mut Wire::open("h2"), 0x1111);
        let (well, said) = try_ctl(directory.path(), "ports");
        assert!(
            !well && said.contains("--device-id 1") && said.contains("--device-id 2"),
            "{said}"
        );
        assert!(ctl(directory.path(), "ports --device-id 2").contains("q1"));
        let (well, said) = try_ctl(directory.path(), "ports --device-id 3");
        assert!(!well && said.contains("device id 3"), "{said}");
        assert!(one.terminate().success() && two.terminate().success());
    });
}

/// Addresses and flags; IPv6 autoconfiguration may be under way.
fn without_lifetimes(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| !line.contains("inet6") && !line.contains("valid_lft"));
    lines.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn on_files_it_reads_in_the_order_of_stamps_and_writes() {
    let directory = tempfile::tempdir().unwrap();
    let kinds = [(0x1111u16, "p1"), (0x2222, "p2"), (0x3333, "")];
    let frame = |kind: u16| {
        let mut frame = frame(1);
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame
    };
    let input = File::create(directory.path().join("p0_in.pcap")).unwrap();
    let mut writer = Writer::new(input).unwrap();
    for (kind, _) in kinds {
        writer.write(&frame(kind)).unwrap();
    }
    let json = json();
    let arguments = [
        "-i",
        "0@p0",
        "-i",
        "1@p1",
        "-i",
        "2@p2",
        "--use-files",
        "0",
        json.to_str().unwrap(),
        "--grpc-server-addr",
        "127.0.0.1:0",
    ];
    let switch = Switch::start(directory.path(), &arguments);
    for (kind, name) in &kinds[..2] {
        let path = directory.path().join(format!("{name}_out.pcap"));
        let deadline = Instant::now() + DEADLINE;
        let record = loop {
            let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
            if let Ok(Some(record)) = reader.next_record() {
                break record;
            }
            assert!(Instant::now() < deadline, "nothing in {}", path.display());
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(record.data, frame(*kind));
    }
    assert!(switch.terminate().success());
}

#[test]
fn what_it_cannot_do_it_says_and_ends_with_an_honest_code() {
    let run = |arguments: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let output = command(directory.path())
            .args(arguments)
            .args(["--grpc-server-addr", "127.0.0.1:0"])
            .output();
        let output = output.unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let program = format!("{PROGRAM}.p4");
    for (arguments, code, said) in [
        (&[][..], 2, "--no-p4"),
        (&["--no-p4", "--packet-in", "ipc:///tmp/x"], 2, "pcap files"),
        (&["--no-p4", "--restore-state", "x"], 2, "P4Runtime clients"),
        (&["--no-p4", "--debugger"], 2, "debugger"),
        (&["--no-p4", "--disable-swap"], 2, "always swaps"),
        (&["--no-p4", "--load-modules", "x.so"], 2, "shared objects"),
        (
            &["--no-p4", "--dp-grpc-server-addr", "127.0.0.1:1"],
            2,
            "pcap files",
        ),
        (
            &["--no-p4", "-i", "1@p0", "--max-port-count", "0"],
            2,
            "1 interfaces",
        ),
        (
            &["--no-p4", "--drop-port", "3", "--cpu-port", "3"],
            2,
            "the same",
        ),
        (&["--no-p4", "--admin", "192.0.2.1:1"], 2, "loopback"),
        (&["--no-p4", "--admin", "unix:/dev/null"], 1, "not a socket"),
        (
            &["--no-p4", "--log-file", "/nonexistent/log"],
            1,
            "/nonexistent/log",
        ),
        (&["--nonsense"], 2, "--nonsense"),
        (&["/nonexistent/x.json"], 1, "/nonexistent/x.json"),
        (&[program.as_str()], 1, "surface.p4"),
        (&["--no-p4", "-i", "1@no-such-if"], 1, "1@no-such-if"),
        (&["--no-p4", "-i", "1@lo"], 1, "loopback"),
    ] {
        let (exit, stderr) = run(arguments);
        assert_eq!(exit, Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    in_namespace(move || {
        let (exit, stderr) = run(&["--no-p4", "-i", "1@p0", "-i", "1@p1"]);
        assert_eq!(exit, Some(1));
        assert!(stderr.contains("port 1 exists already"), "{stderr}");
        assert!(
            sh("ip address show dev p0").contains("inet 10.0.0.1/24"),
            "given back"
        );
    });
}
