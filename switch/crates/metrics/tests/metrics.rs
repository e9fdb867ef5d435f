// SPDX-License-Identifier: Apache-2.0
//! Tests the metrics as a scraper reads them, on a switch with ports in memory.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_admin::{About, Address};
use sluice_device::{Config, Device, memory_port};
use sluice_metrics::{Server, Source};
use sluice_p4runtime::Hub;
use sluice_p4runtime::proto::v1::{MasterArbitrationUpdate, Role, Uint128};
use sluice_ports::memory::MemoryHandle;
use sluice_program::Program;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(10);

/// Creates a switch without a program, and its source of metrics.
fn switch(config: Config) -> (Arc<Device>, Arc<Hub>, Source) {
    let (hub, _digests) = Hub::new(7);
    let device = Arc::new(Device::start(config, hub.clone()).unwrap());
    let about = About {
        version: "1.2.3",
        device_id: 7,
        p4runtime_address: String::new(),
    };
    let source = Source::new(about, device.clone(), hub.clone());
    (device, hub, source)
}

fn load(device: &Device, program: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/build");
    let json = std::fs::read(folder.join(program).with_extension("json")).unwrap();
    device.load(Some(device.new_store(Program::from_json(&json).unwrap())));
}

fn attach(device: &Device, number: u16) -> MemoryHandle {
    let (port, wire) = memory_port(number, device.config().workers).unwrap();
    device.add_port(port).unwrap();
    wire
}

/// Returns the value of a sample, given the start of its line in the text.
fn value(text: &str, sample: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(sample));
    let found = found.unwrap_or_else(|| panic!("no {sample} in {text}"));
    found.trim().parse().unwrap()
}

#[test]
fn packets_are_counted_by_port_and_reason() {
    let (device, _, source) = switch(Config::default());
    let text = source.text().unwrap();
    assert_eq!(value(&text, "sluice_dataplane_program_loaded "), 0.0);
    load(&device, "registers");
    let wires: Vec<_> = (0..2).map(|number| attach(&device, number)).collect();
    assert!(wires[0].send(&[1, 0, 0, 0, 0, 0]));
    assert!(wires[1].receive(DEADLINE).is_some());
    // Waits for the counter, because the switch counts a frame only after sending it.
    let sent = r#"sluice_dataplane_port_sent_packets_total{interface="memory1",port="1"} "#;
    let deadline = Instant::now() + DEADLINE;
    let text = loop {
        let text = source.text().unwrap();
        if value(&text, sent) == 1.0 {
            break text;
        }
        assert!(Instant::now() < deadline, "{text}");
    };
    for (sample, expected) in [
        (
            r#"port_received_packets_total{interface="memory0",port="0"}"#,
            1.0,
        ),
        (
            r#"port_received_bytes_total{interface="memory0",port="0"}"#,
            6.0,
        ),
        (r#"port_up{interface="memory1",port="1"}"#, 1.0),
        (
            r#"port_dropped_packets_total{interface="memory0",port="0",reason="rx_ring_full"}"#,
            0.0,
        ),
        (r#"queue_limit_packets{port="1",priority="0"}"#, 64.0),
        (r#"events_total{event="received"}"#, 1.0),
        (r#"dropped_packets_total{reason="no_such_port"}"#, 0.0),
        (r#"build_info{device_id="7",version="1.2.3"}"#, 1.0),
        ("program_loaded", 1.0),
        ("p4runtime_streams", 0.0),
        ("packet_in_queue_limit_messages", 2048.0),
    ] {
        let found = value(&text, &format!("sluice_dataplane_{sample} "));
        assert_eq!(found, expected, "{sample}");
    }
    // The program sends this frame to port 1. The port was removed, so the frame is dropped.
    device.remove_port(1).unwrap();
    assert!(wires[0].send(&[1, 0, 0, 0, 0, 0]));
    let dropped = r#"sluice_dataplane_dropped_packets_total{reason="no_such_port"} "#;
    let deadline = Instant::now() + DEADLINE;
    while value(&source.text().unwrap(), dropped) != 1.0 {
        assert!(Instant::now() < deadline, "the packet is not counted");
    }
}

#[test]
fn tables_have_their_sizes_and_fibs_their_algorithms() {
    let (device, _, source) = switch(Config::default());
    load(&device, "tables_match");
    let text = source.text().unwrap();
    let store = device.store().unwrap();
    let lpm = store.fibs(sluice_tables::FibDetail::Sizes);
    let tables = text.matches("\nsluice_dataplane_table_entries{").count();
    assert!(tables > 1, "{text}");
    assert_eq!(
        tables,
        text.matches("\nsluice_dataplane_table_limit_entries{")
            .count()
    );
    assert_eq!(
        text.matches("\nsluice_dataplane_fib_routes{").count(),
        lpm.len()
    );
}

#[test]
fn a_stream_is_counted_while_it_is_open() {
    let (_device, hub, source) = switch(Config::default());
    let (id, _outbound) = hub.connect(None).unwrap();
    let streams = || {
        value(
            &source.text().unwrap(),
            "sluice_dataplane_p4runtime_streams ",
        )
    };
    assert_eq!(streams(), 1.0);
    hub.disconnect(id);
    assert_eq!(streams(), 0.0);
}

#[test]
fn primaries_of_named_roles_do_not_stand_for_that_of_the_default_role() {
    let (_device, hub, source) = switch(Config::default());
    let primaries = || {
        let text = source.text().unwrap();
        let of = |role| format!(r#"sluice_dataplane_p4runtime_primaries{{role="{role}"}} "#);
        (value(&text, &of("default")), value(&text, &of("named")))
    };
    let becomes_primary = |role: Option<Role>| {
        let (id, outbound) = hub.connect(None).unwrap();
        let update = MasterArbitrationUpdate {
            device_id: 7,
            role,
            election_id: Some(Uint128 { high: 0, low: 1 }),
            ..Default::default()
        };
        if let Some(takeover) = hub.arbitrate(id, &update).unwrap() {
            hub.complete(&takeover);
        }
        (id, outbound)
    };
    let named = Role {
        name: "stand-in".to_owned(),
        ..Default::default()
    };
    assert_eq!(primaries(), (0.0, 0.0));
    let _stand_in = becomes_primary(Some(named));
    assert_eq!(primaries(), (0.0, 1.0));
    let controller = becomes_primary(None);
    assert_eq!(primaries(), (1.0, 1.0));
    hub.disconnect(controller.0);
    assert_eq!(primaries(), (0.0, 1.0));
}

#[test]
fn names_are_as_prometheus_has_them() {
    let (device, _, source) = switch(Config {
        cpu_port: Some(510),
        ..Config::default()
    });
    load(&device, "registers");
    let _wire = attach(&device, 0);
    let text = source.text().unwrap();
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(names.insert(name), "{name} is listed twice");
        assert!(name.starts_with("sluice_dataplane_") || name.starts_with("process_"));
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} {kind}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
    assert!(names.contains("process_cpu_seconds_total"), "{names:?}");
}

#[test]
fn queues_with_metrics_are_bounded() {
    let (device, _, source) = switch(Config {
        queues: 256,
        ..Config::default()
    });
    let _wires: Vec<_> = (0..5).map(|number| attach(&device, number)).collect();
    let text = source.text().unwrap();
    assert_eq!(
        text.matches("\nsluice_dataplane_queue_packets{").count(),
        1024
    );
    assert_eq!(value(&text, "sluice_dataplane_queues_left_out "), 256.0);
}

/// Sends a request, and reads the response until the server closes the connection.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> String {
    // The server may refuse the request, and close the connection, before it has read the whole request.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_path_is_served_on_loopback() {
    let (_device, _, source) = switch(Config::default());
    let address: Address = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(&address, source).await.unwrap();
    let at = server.address().unwrap();
    let task = tokio::spawn(server.serve(std::future::pending()));
    let connect = || async { TcpStream::connect(&at).await.unwrap() };
    let long = format!("GET /{} HTTP/1.1\r\nHost: r1\r\n\r\n", "x".repeat(100_000));
    for (request, status, body) in [
        (
            "GET /metrics HTTP/1.1\r\nHost: r1\r\n\r\n",
            "200 OK",
            "sluice_dataplane_workers 1\n",
        ),
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK", "# TYPE"),
        ("HEAD /metrics HTTP/1.1\r\nHost: r1\r\n\r\n", "200 OK", ""),
        (
            "POST /metrics HTTP/1.1\r\nHost: r1\r\n\r\n",
            "405 Method",
            "GET or HEAD\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: r1\r\n\r\n",
            "404 Not Found",
            "there is /metrics",
        ),
        ("\x16\x03\x01\r\n\r\n", "400 Bad Request", ""),
        (&*long, "4", ""),
    ] {
        let answer = ask(connect().await, request.as_bytes()).await;
        let shown = &request[..request.len().min(40)];
        let first = answer.lines().next().unwrap_or_default();
        let code = first.split_once(' ').map_or("", |(_, code)| code);
        assert!(code.starts_with(status), "{shown:?}: {first}");
        let (_, content) = answer.split_once("\r\n\r\n").unwrap();
        assert!(content.contains(body), "{shown:?}: {content}");
        assert!(!content.is_empty() || body.is_empty(), "{shown:?}");
        if status == "200 OK" {
            assert!(answer.contains("content-type: text/plain; version=0.0.4\r\n"));
        }
    }
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_hold_a_place_each_and_no_more() {
    let (_device, _, source) = switch(Config::default());
    let address: Address = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(&address, source).await.unwrap();
    let at = server.address().unwrap();
    let task = tokio::spawn(server.serve(std::future::pending()));
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(&at).await.unwrap());
    }
    let request = b"GET /metrics HTTP/1.1\r\nHost: r1\r\n\r\n";
    let mut waiting = TcpStream::connect(&at).await.unwrap();
    waiting.write_all(request).await.unwrap();
    let mut byte = [0];
    let early = timeout(Duration::from_millis(300), waiting.read(&mut byte)).await;
    assert!(early.is_err(), "a ninth client was served");
    silent.pop();
    let late = timeout(DEADLINE, waiting.read(&mut byte)).await;
    assert_eq!(late.unwrap().unwrap(), 1);
    task.abort();
}

/// Checks that eleven scrapes, one after the other, take at least ten times the minimum interval. The server delays
/// scrapes, because each scrape interrupts the workers.
#[tokio::test(flavor = "multi_thread")]
async fn scrapes_are_bounded_in_number() {
    let (_device, _, source) = switch(Config::default());
    let address: Address = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(&address, source).await.unwrap();
    let at = server.address().unwrap();
    let task = tokio::spawn(server.serve(std::future::pending()));
    let begin = Instant::now();
    for _ in 0..11 {
        let stream = TcpStream::connect(&at).await.unwrap();
        let answer = ask(stream, b"GET /metrics HTTP/1.1\r\nHost: r1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    assert!(begin.elapsed() >= Duration::from_millis(200));
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_is_for_its_group_and_goes_with_the_server() {
    let (_device, _, source) = switch(Config::default());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.sock");
    let address = Address::Unix(path.clone());
    let server = Server::bind(&address, source.clone()).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert!(
        Server::bind(&address, source).await.is_err(),
        "a server uses the socket"
    );
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(server.serve(async { drop(stopped.await) }));
    let stream = UnixStream::connect(&path).await.unwrap();
    let answer = ask(stream, b"GET /metrics HTTP/1.1\r\nHost: r1\r\n\r\n").await;
    assert!(
        answer.contains("sluice_dataplane_uptime_seconds "),
        "{answer}"
    );
    stop.send(()).unwrap();
    task.await.unwrap();
    assert!(!path.exists());
}
