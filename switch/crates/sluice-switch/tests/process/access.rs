// SPDX-License-Identifier: Apache-2.0
//! Tests who can access the switch, and which privileges the switch itself has.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sluice_admin::proto::admin_client::AdminClient;
use sluice_admin::proto::{AddPortRequest, GetSwitchRequest, ListPortsRequest, TraceRequest};
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::proto::v1::*;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::running::*;
use crate::wire::*;

/// CAP_NET_ADMIN and CAP_NET_RAW as /proc shows them: a bit mask in hexadecimal.
const NET_ADMIN_AND_RAW: &str = "0000000000003000";
const NONE: &str = "0000000000000000";

/// Returns, for each thread of a process, its name and the values of these keys in its /proc status.
fn threads(process: u32, keys: &[&str]) -> Vec<(String, Vec<String>)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // A thread may have ended after it was listed.
    let status =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let value = |status: &str, key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    };
    let read = |status: String| {
        let values = keys.iter().map(|key| value(&status, key)).collect();
        (value(&status, "Name"), values)
    };
    status.map(read).collect()
}

/// Returns the name and the niceness of each thread of a process.
fn niceness(process: u32) -> Vec<(String, i32)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let read = |task: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        let (name, rest) = text.split_once(") ").unwrap();
        let name = name.split_once('(').unwrap().1.to_owned();
        (name, rest.split(' ').nth(16).unwrap().parse().unwrap())
    };
    tasks.map(read).collect()
}

#[test]
fn it_keeps_two_capabilities_has_none_in_effect_and_workers_have_none() {
    in_namespace(|| {
        let json = json();
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let line = "-i 0@p0 -i 1@p1 --workers 2 --grpc-server-addr 127.0.0.1:50064";
        let arguments: Vec<_> = line.split(' ').chain([json.to_str().unwrap()]).collect();
        let switch = Switch::start(directory, &arguments);
        let keys = [
            "CapPrm",
            "CapEff",
            "CapInh",
            "CapAmb",
            "CapBnd",
            "NoNewPrivs",
        ];
        let has_what_it_needs = |(name, values): &(String, Vec<String>)| {
            let permitted = match name.as_str() {
                "worker-0" | "worker-1" | "idle-sweeper" => NONE,
                _ => NET_ADMIN_AND_RAW,
            };
            *values == [permitted, NONE, NONE, NONE, NONE, "1"]
        };
        let check = || {
            // Each thread drops its own capabilities when it starts.
            wait_until("every thread has only its capabilities", || {
                let all = threads(switch.id(), &keys);
                let workers = all.iter().filter(|(name, _)| name.starts_with("worker-"));
                workers.count() == 2 && all.iter().all(has_what_it_needs)
            });
        };
        check();
        let niceness = niceness(switch.id());
        let workers = niceness
            .iter()
            .filter(|(name, _)| name.starts_with("worker-"));
        assert!(
            workers.clone().all(|(_, nice)| *nice == -10),
            "{niceness:?}"
        );
        // The switch can still add and remove ports.
        ctl(directory, "remove-port 1");
        ctl(directory, "add-port 1@p1");
        sh("tc qdisc del dev p1 clsact");
        wait_until("the port is closed again", || {
            sh("tc filter show dev p1 ingress").contains("bpf")
        });
        arrives(&mut Wire::open("h0"), &mut Wire::open("h1"), 0x1111);
        check();
        assert!(switch.terminate().success());
        assert!(
            sh("ip address show dev p0").contains("inet 10.0.0.1/24"),
            "the switch has released the interface"
        );
    });
}

#[test]
fn without_interfaces_it_keeps_no_capability() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = [
        "--no-p4",
        "--use-files",
        "0",
        "--grpc-server-addr",
        "127.0.0.1:0",
    ];
    let switch = Switch::start(directory.path(), &arguments);
    wait_until("no thread has a capability", || {
        let all = threads(switch.id(), &["CapPrm", "CapEff", "CapBnd"]);
        all.iter().all(|(_, values)| *values == [NONE; 3])
    });
}

/// Runs a command as an unprivileged user, in a directory that this user can read.
fn as_nobody(words: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args(words).output().unwrap()
}

/// Connects to a Unix socket as an unprivileged user, and returns the result.
fn connect_as_nobody(path: &Path) -> String {
    let code = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
    let output = as_nobody(&["/usr/bin/python3", "-c", code, path.to_str().unwrap()]);
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn sockets_are_for_owner_and_group_and_replace_dead_ones_only() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.join("p4runtime.sock");
    let address = format!("unix:{}", path.display());
    let admin = directory.join("admin.sock");
    let admin_address = format!("unix:{}", admin.display());
    let arguments = [
        "--no-p4",
        "--grpc-server-addr",
        &address,
        "--admin",
        &admin_address,
    ];
    let switch = Switch::start(directory, &arguments);
    for socket in [&path, &admin] {
        assert_eq!(
            fs::metadata(socket).unwrap().permissions().mode() & 0o777,
            0o660
        );
        let refused = connect_as_nobody(socket);
        assert!(refused.contains("PermissionError"), "{refused}");
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answer = async || {
        let mut client = P4RuntimeClient::connect(address.clone()).await.unwrap();
        client.capabilities(CapabilitiesRequest::default()).await
    };
    assert!(runtime.block_on(answer()).is_ok());
    let second = command(directory).args(arguments).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("is served by another process"), "{said}");
    // The switch is killed, so its socket's file stays. The next switch replaces it.
    drop(switch);
    assert!(path.exists());
    let switch = Switch::start(directory, &arguments);
    assert!(runtime.block_on(answer()).is_ok());
    assert!(switch.terminate().success());
    assert!(!path.exists());
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    let open = command(directory).args(arguments).output().unwrap();
    let said = String::from_utf8(open.stderr).unwrap();
    assert!(said.contains("replace the socket"), "{said}");
}

#[tokio::test]
async fn questions_are_answered_where_p4runtime_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", directory.path().join("p4.sock").display());
    let options = ["--no-p4", "--grpc-server-addr", &address, "--admin", "none"];
    let _switch = Switch::start(
        directory.path(),
        &[&options[..], &["--cpu-port", "64"]].concat(),
    );
    let mut client = AdminClient::connect(address.clone()).await.unwrap();
    let found = client.list_ports(ListPortsRequest {}).await.unwrap();
    assert_eq!(found.into_inner().cpu_port, Some(64));
    let found = client.get_switch(GetSwitchRequest {}).await.unwrap();
    assert_eq!(found.into_inner().p4runtime_address, address);
    let add = client.add_port(AddPortRequest::default()).await.err();
    let trace = client.trace(TraceRequest::default()).await.err();
    for refused in [add, trace] {
        assert_eq!(
            refused.expect("the call is refused").code(),
            Code::PermissionDenied
        );
    }
}

/// Returns a CA certificate in PEM, and a function that issues certificates with their keys.
fn authority() -> (String, impl Fn() -> (String, String)) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
    let issue = |issuer: &CertifiedIssuer<'static, KeyPair>| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        (
            params.signed_by(&key, issuer).unwrap().pem(),
            key.serialize_pem(),
        )
    };
    (issuer.pem(), move || issue(&issuer))
}

#[test]
fn an_address_that_is_not_loopback_takes_mutual_tls() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (ca, issue) = authority();
        let (certificate, key) = issue();
        for (name, pem) in [("ca", &ca), ("cert", &certificate), ("key", &key)] {
            fs::write(directory.join(name), pem).unwrap();
        }
        let tls = "--grpc-server-ssl --grpc-server-cert cert --grpc-server-key key";
        let mutual = "--grpc-server-cacert ca --grpc-server-with-client-auth";
        let line = |address: &str, more: &str| {
            format!("--no-p4 --grpc-server-addr {address}:50065 {more}")
        };
        for (address, more) in [("0.0.0.0", ""), ("10.0.0.1", tls), ("[::]", "")] {
            let line = line(address, more);
            let output = command(directory)
                .args(line.split_whitespace())
                .output()
                .unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{line}: {said}");
            for part in [address, "not loopback", "--grpc-server-with-client-auth"] {
                assert!(said.contains(part), "{line}: {said}");
            }
        }
        let start =
            |line: &str| Switch::start(directory, &line.split_whitespace().collect::<Vec<_>>());
        drop(start(&line("0.0.0.0", "--grpc-insecure-any-address")));
        let _switch = start(&line("0.0.0.0", &format!("{tls} {mutual}")));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let trusting = ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(&ca))
                .domain_name("localhost");
            let (certificate, key) = issue();
            let proving = trusting
                .clone()
                .identity(Identity::from_pem(certificate, key));
            for (config, served) in [(trusting, false), (proving, true)] {
                let endpoint = Endpoint::from_static("https://10.0.0.1:50065");
                assert_eq!(answers(endpoint.tls_config(config).unwrap()).await, served);
            }
        });
    });
}

async fn answers(endpoint: Endpoint) -> bool {
    let Ok(channel) = endpoint.connect().await else {
        return false;
    };
    let request = CapabilitiesRequest::default();
    P4RuntimeClient::new(channel)
        .capabilities(request)
        .await
        .is_ok()
}

/// Opens a stream whose role has a configuration of `bytes` bytes. Returns the status code that ends the stream.
async fn large_role(client: &mut P4RuntimeClient<Channel>, number: usize, bytes: usize) -> Code {
    let role = Role {
        name: format!("role {number}"),
        config: Some(prost_types::Any {
            type_url: "type.googleapis.com/sluice.p4runtime.v1.RoleConfig".into(),
            value: vec![0; bytes],
        }),
        ..Role::default()
    };
    let update = MasterArbitrationUpdate {
        device_id: 1,
        role: Some(role),
        election_id: Some(Uint128 { high: 0, low: 1 }),
        status: None,
    };
    let update = Some(stream_message_request::Update::Arbitration(update));
    let requests = tokio_stream::once(StreamMessageRequest { update });
    let requests = requests.chain(tokio_stream::pending());
    let stream = client.stream_channel(requests).await;
    match stream.unwrap().into_inner().message().await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}

#[test]
fn roles_of_eight_megabytes_hold_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let address = format!("unix:{}", directory.join("s").display());
    let arguments = [
        "--no-p4",
        "--device-id",
        "1",
        "--grpc-server-addr",
        &address,
    ];
    let switch = Switch::start(directory, &arguments);
    let resident = || {
        let all = threads(switch.id(), &["VmRSS"]);
        let text = all[0].1[0].trim_end_matches(" kB").to_owned();
        text.parse::<u64>().unwrap() >> 10
    };
    let before = resident();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = P4RuntimeClient::connect(address.clone()).await.unwrap();
        for number in 0..25 {
            let code = large_role(&mut client, number, 8 << 20).await;
            assert_eq!(code, Code::ResourceExhausted);
            let code = large_role(&mut client, number, 3 << 20).await;
            assert_eq!(code, Code::InvalidArgument);
        }
    });
    let growth = resident().saturating_sub(before);
    assert!(growth < 64, "{growth} MB more");
}
