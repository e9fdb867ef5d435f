// SPDX-License-Identifier: Apache-2.0
//! Provides a running engine, the switch's end of its link, and the output of `ctl`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_esp::shim::{ETHERTYPE_IPV4, Shim, Task};
use sluice_ports::af_packet::{BatchTransmitter, RingReceiver};
use sluice_ports::poller::Poller;
use sluice_ports::{PortCounters, Receiver, Transmitter};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// Text that occurs in every key of these tests, and nowhere else.
pub(crate) const SECRET: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";

/// Runs `test` in a separate network namespace, with a veth pair: `engine`, and `port` for the switch.
pub(crate) fn in_namespace(test: impl FnOnce(&Path) + Send + 'static) {
    let run = move || {
        // SAFETY: unshare takes no pointers; with this flag it affects only the calling thread.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(
            result,
            0,
            "{} (needs root)",
            std::io::Error::last_os_error()
        );
        for line in [
            "link set lo up",
            "link add engine mtu 2000 type veth peer name port mtu 2000",
            "link set port up",
        ] {
            let words = line.split(' ');
            assert!(Command::new("ip").args(words).status().unwrap().success());
        }
        let directory = tempfile::tempdir().unwrap();
        test(directory.path());
    };
    thread::spawn(run).join().unwrap();
}

/// Waits until `holds` returns true.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < DEADLINE,
            "{what}: the condition did not become true"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// A running engine, and the switch's end of its link.
pub(crate) struct Running {
    pub(crate) directory: PathBuf,
    child: Child,
    receiver: RingReceiver,
    transmitter: BatchTransmitter,
}

/// Returns the command that starts the engine, without starting it.
pub(crate) fn command(directory: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-esp"));
    command
        .args(["--interface", "engine", "--admin"])
        .arg(directory.join("admin.sock"))
        .arg("--state-directory")
        .arg(directory.join("state"))
        .args(options)
        .env("RUST_LOG", "trace")
        .stderr(
            File::options()
                .create(true)
                .append(true)
                .open(directory.join("log"))
                .unwrap(),
        );
    command
}

impl Running {
    pub(crate) fn start(directory: &Path, options: &[&str]) -> Self {
        let child = command(directory, options).spawn().unwrap();
        wait_until("the engine answers", || {
            directory.join("admin.sock").exists()
        });
        let counters = Arc::new(PortCounters::default());
        let mut this = Self {
            directory: directory.to_owned(),
            child,
            receiver: RingReceiver::open("port", 0, 256, Arc::clone(&counters)).unwrap(),
            transmitter: BatchTransmitter::open("port", counters).unwrap(),
        };
        wait_until("the engine serves", || this.try_ctl(&["show"]).0);
        assert!(this.child.try_wait().unwrap().is_none());
        this
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs `sluice-esp ctl`. Returns whether it succeeded, and its output.
    pub(crate) fn try_ctl(&self, words: &[&str]) -> (bool, String) {
        let socket = self.directory.join("admin.sock");
        let output = Command::new(env!("CARGO_BIN_EXE_sluice-esp"))
            .arg("ctl")
            .arg("--admin")
            .arg(socket)
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    pub(crate) fn ctl(&self, words: &[&str]) -> String {
        let (well, said) = self.try_ctl(words);
        assert!(well, "{words:?}: {said}");
        said
    }

    /// Writes the SAs to a file with this mode, and adds them.
    pub(crate) fn try_add(&self, sas: &Value, mode: u32) -> (bool, String) {
        let path = self.directory.join("sas.json");
        fs::write(&path, sas.to_string()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        self.try_ctl(&["add", path.to_str().unwrap()])
    }

    pub(crate) fn add(&self, sas: &Value) {
        let (well, said) = self.try_add(sas, 0o600);
        assert!(well, "{said}");
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.ctl(&["show", "--json"])).unwrap()
    }

    /// Sends a packet after a shim, and returns the frame with which the engine answers.
    pub(crate) fn exchange(&mut self, task: Task, packet: &[u8]) -> Vec<u8> {
        self.send(task, packet);
        let mut answer = Vec::new();
        let mut poller = Poller::new().unwrap();
        poller.add(self.receiver.readiness().unwrap(), 0).unwrap();
        wait_until("the engine sends an answer", || {
            self.receiver
                .receive(64, &mut |_, frame| answer = frame.to_vec());
            !answer.is_empty() || poller.wait(Some(Duration::from_millis(100))).is_err()
        });
        answer
    }

    pub(crate) fn send(&mut self, task: Task, packet: &[u8]) {
        let shim = Shim {
            task,
            engine: 1,
            bundle: 3,
            sa: 7,
            ingress_l3_if: 1,
            vrf: 0,
            ether_type: ETHERTYPE_IPV4,
        };
        self.transmitter.push(&shim.frame(packet));
        self.transmitter.flush();
    }

    /// Sends the engine a signal, and waits for the process to end.
    pub(crate) fn end(mut self, signal: i32) -> ExitStatus {
        // SAFETY: kill takes no pointers; the child has not been waited for, so its process id is still valid.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
        self.child.wait().unwrap()
    }

    /// Waits until the engine has ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_until("the engine ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an outbound SA.
pub(crate) fn outbound() -> Value {
    json!({
        "direction": "out", "sa": 7, "spi": 4096, "bundle": 3, "mode": "tunnel", "algorithm": "aes-128-gcm",
        "key": SECRET, "local": "192.0.2.1", "remote": "192.0.2.2",
    })
}

/// Returns an IPv4 packet.
pub(crate) fn packet() -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 60, 0, 0, 0, 0, 64, 253, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1,
    ];
    packet.resize(60, 0x77);
    sluice_esp::ip::write_ipv4_checksum(&mut packet[..20]);
    packet
}
