// SPDX-License-Identifier: Apache-2.0
//! Tests which command lines the switch accepts, accepts with a warning, or refuses. Checks the messages.

use crate::running::*;

#[test]
fn what_means_nothing_here_is_warned_about_and_starts() {
    for flag in [
        "--thrift-port 9090",
        "--nanolog ipc:///tmp/bm-log.ipc",
        "--notifications-addr ipc:///tmp/bmv2-notifications.ipc",
        "--dump-packet-data 64",
        "--debugger-addr ipc:///tmp/bmv2-debugger.ipc",
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
    let says = |line: &str| {
        let arguments = line.split(' ');
        let output = command(directory.path()).args(arguments).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(says("--json-version"), "2.24\n");
    let built_from = concat!(
        env!("CARGO_PKG_VERSION"),
        " (",
        env!("SLUICE_BUILT_FROM"),
        ")\n"
    );
    assert_eq!(says("-v"), format!("sluice-switch {built_from}"));
    assert_eq!(
        says("ctl --version"),
        format!("sluice-switch ctl {built_from}")
    );
    assert_eq!(pipeline_of(built_from), committed_pipeline());
    assert!(says("--help").contains("--grpc-server-addr"));
}

/// Returns the digest in `VERSION (commit COMMIT, pipeline DIGEST)`.
fn pipeline_of(version: &str) -> String {
    let (_, digest) = version.split_once(", pipeline ").unwrap();
    digest.trim_end().trim_end_matches(')').to_owned()
}

/// Returns the first characters of the committed router.json's SHA-256 digest.
fn committed_pipeline() -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    sh(&format!(
        "sha256sum < {root}/p4src/build/v1model/router.json | cut -c 1-12"
    ))
    .trim()
    .to_owned()
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
            "1 ports",
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
            "/nonexistent/log.txt",
        ),
        (&["--nonsense"], 2, "--nonsense"),
        (&["/nonexistent/x.json"], 1, "/nonexistent/x.json"),
        (&[program.as_str()], 1, "surface.p4"),
        (
            &["--no-p4", "--strict-ports", "-i", "1@no-such-if"],
            1,
            "1@no-such-if",
        ),
        (&["--no-p4", "-i", "1@lo"], 1, "loopback"),
    ] {
        let (exit, stderr) = run(arguments);
        assert_eq!(exit, Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    in_namespace(move || {
        let (exit, stderr) = run(&["--no-p4", "--strict-ports", "-i", "1@p0", "-i", "1@p1"]);
        assert_eq!(exit, Some(1));
        assert!(stderr.contains("port 1 exists already"), "{stderr}");
        assert!(
            sh("ip address show dev p0").contains("inet 10.0.0.1/24"),
            "the switch has released the interface"
        );
    });
}

#[test]
fn ports_that_cannot_be_attached_are_named_and_the_others_work() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "--no-p4 --grpc-server-a 127.0.0.1:0 --dev 4 \
                    -i 1@no-such-if -i 2@p0 -i 2@p1 -i 3@p1 -i 4@p1";
        let arguments: Vec<_> = line.split_whitespace().collect();
        for log in [None, Some("--log-console")] {
            let arguments: Vec<_> = arguments.iter().copied().chain(log).collect();
            let (switch, said) = Switch::start_and_listen(directory, &arguments);
            for (port, why) in [
                ("1@no-such-if", "No such device"),
                ("2@p1", "port 2 exists already"),
                ("4@p1", "interface p1 is port 3 already"),
            ] {
                let named = |line: &String| line.contains(port) && line.contains(why);
                assert!(said.iter().any(named), "{port}: {said:?}");
            }
            let found = ctl_json(directory, "ports");
            let ports = found["ports"].as_array().unwrap().iter();
            let ports: Vec<_> = ports
                .map(|p| (p["number"].as_u64(), p["name"].as_str()))
                .collect();
            assert_eq!(ports, [(Some(2), Some("p0")), (Some(3), Some("p1"))]);
            assert!(switch.terminate().success());
        }
    });
}

#[test]
fn bash_completes_options_commands_and_their_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let output = command(directory.path())
        .args(["completion", "bash"])
        .output();
    let script = String::from_utf8(output.unwrap().stdout).unwrap();
    let completed = |words: &[&str]| {
        let typed: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
        let last = words.len() - 1;
        let ask = format!(
            "COMP_WORDS=({}); COMP_CWORD={last}
             function=$(complete -p sluice-switch | sed 's/.*-F \\([^ ]*\\).*/\\1/')
             $function sluice-switch '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            typed.join(" "),
            words[last],
            words[last - 1]
        );
        let output = std::process::Command::new("bash")
            .args(["-ec", &format!("{script}\n{ask}")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        said.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        completed(&["sluice-switch", "ctl", "set-q"]),
        ["set-queue-depth", "set-queue-rate"]
    );
    assert_eq!(
        completed(&["sluice-switch", "--metr"]),
        ["--metrics-address"]
    );
    assert_eq!(completed(&["sluice-switch", "ctl", "fib", "b"]), ["bench"]);
    let (exit, stderr) = {
        let output = command(directory.path())
            .args(["completion", "csh"])
            .output();
        let output = output.unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(exit, Some(2));
    assert!(stderr.contains("bash"), "{stderr}");
}
