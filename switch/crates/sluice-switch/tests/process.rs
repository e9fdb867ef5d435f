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
        let mut child = Command::new(env!("CARGO_BIN_EXE_sluice-switch"))
            .current_dir(directory)
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let switch = Self(child);
        let ready = lines.find(|line| line.as_ref().unwrap() == "sluice-switch: ready");
        assert!(ready.is_some(), "the switch ended");
        switch
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

    /// Whether a frame of `surface.p4` comes before the time is up; others (the far kernel's) are passed over.
    fn sees(&mut self, timeout: Duration) -> bool {
        let mut poller = Poller::new().unwrap();
        poller.add(self.receiver.readiness().unwrap(), 0).unwrap();
        let deadline = Instant::now() + timeout;
        let mut seen = false;
        while !seen && Instant::now() < deadline {
            poller.wait(Some(timeout)).unwrap().for_each(drop);
            self.receiver
                .receive(64, &mut |_, frame| seen |= frame[12..14] == [0x88, 0xb5]);
        }
        seen
    }
}

/// Sends frames until one arrives: the link's news may reach the switch after the first of them.
fn arrives(from: &mut Wire, to: &mut Wire) {
    let deadline = Instant::now() + DEADLINE;
    from.send(&frame(1));
    while !to.sees(Duration::from_millis(20)) {
        assert!(Instant::now() < deadline, "no frame came");
        from.send(&frame(1));
    }
}

/// A frame of EtherType 0x88b5 with the key that `surface.p4` matches on.
fn frame(a: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
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
        let switch = Switch::start(Path::new("/"), &arguments);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // One live path at a time, so that there is no doubt which one a packet takes.
        sh("ip link set h2 down");
        runtime.block_on(write(address, two_paths()));
        let mut h0 = Wire::open("h0");
        arrives(&mut h0, &mut Wire::open("h1"));
        sh("ip link set h1 down && ip link set h2 up");
        arrives(&mut h0, &mut Wire::open("h2"));
        assert!(switch.terminate().success());
        let after = sh("ip address show dev p0 | grep -v link/ether");
        assert_eq!(without_lifetimes(&before), without_lifetimes(&after));
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-switch"));
        let output = command
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
        (&["--no-p4", "--grpc-server-ssl"], 2, "TLS"),
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
