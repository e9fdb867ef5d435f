// SPDX-License-Identifier: Apache-2.0
//! Provides a running switch, its output, and its network namespace.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
pub(crate) const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../p4runtime/tests/server/programs/surface"
);

/// Runs `test` on a thread with a separate network namespace. The namespace has ports p0 to p2; their other ends are h0
/// to h2. IPv6 is off, so the kernel sends no neighbour discovery and no MLD: every packet that is counted comes from a
/// test.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: unshare takes no pointers; with this flag it affects only the calling thread.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(
            result,
            0,
            "{} (these tests need root)",
            std::io::Error::last_os_error()
        );
        sh("file=/proc/sys/net/ipv6/conf/default/disable_ipv6
            if [ -e $file ]; then echo 1 >$file; fi
            ip link set lo up
            for n in 0 1 2; do ip link add p$n type veth peer name h$n; ip link set h$n up; done
            ip link set p0 up && ip address add 10.0.0.1/24 dev p0");
        test();
    };
    thread::spawn(run).join().unwrap();
}

pub(crate) fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn json() -> PathBuf {
    format!("{PROGRAM}.json").into()
}

/// Returns the command that starts the program. The program's admin socket and other files are in `directory`.
pub(crate) fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-switch"));
    command
        .current_dir(directory)
        .env("SLUICE_SWITCH_RUN", directory.join("run"));
    command
}

/// Runs `sluice-switch ctl`. Returns whether it succeeded, and its output.
pub(crate) fn try_ctl(directory: &Path, line: &str) -> (bool, String) {
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

pub(crate) fn ctl(directory: &Path, line: &str) -> String {
    let (well, said) = try_ctl(directory, line);
    assert!(well, "ctl {line}: {said}");
    said
}

pub(crate) fn ctl_json(directory: &Path, line: &str) -> Json {
    serde_json::from_str(&ctl(directory, &format!("--json {line}"))).unwrap()
}

/// Returns a value from the output of `ctl counters`.
pub(crate) fn counter(directory: &Path, place: &str, name: &str) -> u64 {
    let counters = ctl_json(directory, "counters");
    let list = counters[place].as_array().unwrap();
    let found = list.iter().find(|counter| counter["name"] == name);
    found.unwrap()["value"].as_u64().unwrap()
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "{what}: the condition did not become true"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// A running switch. Dropping the value kills the process, unless the test has ended it.
pub(crate) struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Switch {
    /// Starts a switch and waits until it is ready.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::start_and_listen(directory, arguments).0
    }

    /// Starts a switch and waits until it is ready. Also returns the lines that it printed before that. The switch's
    /// standard output goes to the file `stdout` in the directory.
    pub(crate) fn start_and_listen(directory: &Path, arguments: &[&str]) -> (Self, Vec<String>) {
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

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends SIGTERM, and waits until the switch has ended. Fails if the switch waits for clients or packets.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        let start = Instant::now();
        // SAFETY: kill takes no pointers; the child has not been waited for, so its process id is still valid.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
        let status = self.0.wait().unwrap();
        assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
        status
    }
}
