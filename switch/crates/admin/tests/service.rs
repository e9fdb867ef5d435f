// SPDX-License-Identifier: Apache-2.0
//! Tests the service through its client, on a switch with ports in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_admin::proto::admin_client::AdminClient;
use sluice_admin::proto::*;
use sluice_admin::{About, Address, PortPolicy, Server};
use sluice_device::{Config, Device, Handler, InterfaceOptions, memory_port};
use sluice_ports::memory::MemoryHandle;
use sluice_program::{DigestId, Program, TableId};
use sluice_tables::Entry;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const DEADLINE: Duration = Duration::from_secs(10);

struct Nobody;

impl Handler for Nobody {
    fn packet_in(&self, _: &[u8]) -> bool {
        false
    }

    fn digest(&self, _: DigestId, _: &[u8]) -> bool {
        false
    }

    fn idle(&self, _: Vec<(TableId, Entry)>) {}
}

/// A switch and its running service. Dropping the value stops the service.
struct Served {
    device: Arc<Device>,
    client: AdminClient<Channel>,
    _directory: tempfile::TempDir,
    socket: PathBuf,
    task: tokio::task::JoinHandle<()>,
    stop: tokio::sync::oneshot::Sender<()>,
}

async fn serve(config: Config, ports: PortPolicy) -> Served {
    let device = Arc::new(Device::start(config, Arc::new(Nobody)).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("1.sock");
    let about = About {
        version: "1.2.3",
        device_id: 7,
        p4runtime_address: "127.0.0.1:9559".to_owned(),
    };
    let address = Address::Unix(socket.clone());
    let server = Server::bind(&address, device.clone(), about, ports)
        .await
        .unwrap();
    let uri = server.address().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        server.serve(async { drop(stopped.await) }).await.unwrap();
    });
    let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
    let client = AdminClient::new(channel);
    Served {
        device,
        client,
        _directory: directory,
        socket,
        task,
        stop,
    }
}

fn interfaces() -> PortPolicy {
    PortPolicy::Interfaces(InterfaceOptions::default())
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

fn code<T: std::fmt::Debug>(result: Result<tonic::Response<T>, tonic::Status>) -> (Code, String) {
    let status = result.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_says_what_it_is_and_its_socket_goes_with_it() {
    let config = Config {
        cpu_port: Some(510),
        workers: 2,
        ..Config::default()
    };
    let mut served = serve(config, interfaces()).await;
    let found = served
        .client
        .get_switch(GetSwitchRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (found.version.as_str(), found.device_id, found.workers),
        ("1.2.3", 7, 2)
    );
    assert_eq!((found.cpu_port, found.drop_port), (Some(510), 511));
    assert_eq!(
        (found.p4runtime_address.as_str(), found.program.as_str()),
        ("127.0.0.1:9559", "")
    );
    assert_eq!(found.process_id, std::process::id());
    load(&served.device, "registers");
    let found = served
        .client
        .get_switch(GetSwitchRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(found.program.ends_with("registers.p4"), "{}", found.program);
    drop(served.client);
    served.stop.send(()).unwrap();
    served.task.await.unwrap();
    assert!(!served.socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn loopback_answers_questions_and_changes_nothing() {
    let device = Arc::new(Device::start(Config::default(), Arc::new(Nobody)).unwrap());
    let about = About {
        version: "1.2.3",
        device_id: 8,
        p4runtime_address: String::new(),
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(&address, device, about, interfaces())
        .await
        .unwrap();
    let uri = format!("http://{}", server.address().unwrap());
    let task = tokio::spawn(server.serve(std::future::pending()));
    let mut client = AdminClient::connect(uri).await.unwrap();
    let found = client.get_switch(GetSwitchRequest {}).await.unwrap();
    assert_eq!(found.into_inner().device_id, 8);
    let add = client.add_port(AddPortRequest::default()).await.err();
    let remove = client.remove_port(RemovePortRequest::default()).await.err();
    let set = client.set_fib(SetFibRequest::default()).await.err();
    let bench = client.bench_fib(BenchFibRequest::default()).await.err();
    let profile = client.get_profile(GetProfileRequest::default()).await.err();
    let trace = client.trace(TraceRequest::default()).await.err();
    let dry_run = client.dry_run(DryRunRequest::default()).await.err();
    for refused in [add, remove, set, bench, profile, trace, dry_run] {
        let refused = refused.expect("the call is refused");
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains("unix:PATH"), "{refused}");
    }
    task.abort();
}

/// Checks that eleven dry runs, one after the other, take at least ten times the minimum interval. This holds even if
/// all are refused.
#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_are_bounded_in_number() {
    let mut served = serve(Config::default(), interfaces()).await;
    let begin = Instant::now();
    for _ in 0..11 {
        let refused = served.client.dry_run(DryRunRequest::default()).await;
        assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    }
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_bounded() {
    let mut served = serve(Config::default(), interfaces()).await;
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&served.socket).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o660);
    let long = AddPortRequest {
        number: 1,
        interface: "x".repeat(100_000),
    };
    let refused = served.client.add_port(long).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let many = TraceRequest {
        filter: vec!["port=1".to_owned(); 1000],
        count: 1,
    };
    let refused = served.client.trace(many).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_have_their_statistics() {
    let mut served = serve(Config::default(), interfaces()).await;
    load(&served.device, "registers");
    let wires: Vec<_> = (0..2)
        .map(|number| attach(&served.device, number))
        .collect();
    assert!(wires[0].send(&[1, 0, 0, 0, 0, 0]));
    assert!(wires[1].receive(DEADLINE).is_some());
    served.device.set_port_status(1, false);
    // Waits for the counter, because the switch counts a frame only after sending it.
    let deadline = Instant::now() + DEADLINE;
    let list = loop {
        let list = served.client.list_ports(ListPortsRequest {}).await;
        let list = list.unwrap().into_inner();
        if list.ports[1].statistics.unwrap().tx_packets == 1 || Instant::now() > deadline {
            break list;
        }
        tokio::task::yield_now().await;
    };
    let seen = |port: &Port| {
        let counted = port.statistics.unwrap();
        (
            port.number,
            port.up,
            (counted.rx_packets, counted.rx_bytes),
            counted.tx_bytes,
        )
    };
    let seen: Vec<_> = list.ports.iter().map(seen).collect();
    assert_eq!(seen, [(0, true, (1, 6), 0), (1, false, (0, 0), 6)]);
    assert_eq!(list.ports[1].name, "memory1");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_added_and_removed_or_refused_by_name() {
    let config = Config {
        cpu_port: Some(510),
        ..Config::default()
    };
    let mut served = serve(config, interfaces()).await;
    attach(&served.device, 3);
    let add = |number, interface: &str| AddPortRequest {
        number,
        interface: interface.to_owned(),
    };
    for (request, wanted, said) in [
        (add(3, "eth0"), Code::AlreadyExists, "port 3 exists already"),
        (
            add(4, "memory3"),
            Code::AlreadyExists,
            "memory3 is port 3 already",
        ),
        (add(510, "eth0"), Code::InvalidArgument, "CPU port"),
        (add(511, "eth0"), Code::InvalidArgument, "drop port"),
        (
            add(70_000, "eth0"),
            Code::InvalidArgument,
            "70000 is not a port number",
        ),
        (add(4, "no-such-if"), Code::NotFound, "interface no-such-if"),
        (add(4, "lo"), Code::InvalidArgument, "loopback"),
    ] {
        let (code, message) = code(served.client.add_port(request.clone()).await);
        assert_eq!(code, wanted, "{request:?}: {message}");
        assert!(message.contains(said), "{request:?}: {message}");
    }
    served
        .client
        .remove_port(RemovePortRequest { number: 3 })
        .await
        .unwrap();
    let again = served
        .client
        .remove_port(RemovePortRequest { number: 3 })
        .await;
    assert_eq!(code(again).0, Code::NotFound);
    assert!(served.device.ports().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_on_files_takes_no_more_ports() {
    let mut served = serve(Config::default(), PortPolicy::Refused).await;
    let request = AddPortRequest {
        number: 1,
        interface: "eth0".to_owned(),
    };
    let (code, message) = code(served.client.add_port(request).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.contains("--use-files"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drops_and_punts_have_names() {
    let config = Config {
        cpu_port: Some(1),
        ..Config::default()
    };
    let mut served = serve(config, interfaces()).await;
    load(&served.device, "registers");
    let wire = attach(&served.device, 0);
    assert!(
        wire.send(&[1, 0, 0, 0, 0, 0]),
        "the packet is sent to port 1, which has no receiver"
    );
    let counters = loop {
        let counters = served
            .client
            .get_counters(GetCountersRequest {})
            .await
            .unwrap();
        let counters = counters.into_inner();
        if counters
            .program
            .iter()
            .any(|counter| counter.name == "received" && counter.value == 1)
        {
            break counters;
        }
    };
    let value = |list: &[Counter], name: &str| {
        list.iter()
            .find(|counter| counter.name == name)
            .unwrap()
            .value
    };
    assert_eq!(value(&counters.program, "transmitted"), 1);
    assert_eq!(value(&counters.device, "packet_in"), 1);
    assert_eq!(value(&counters.device, "packet_in_dropped"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_say_how_full_they_are() {
    let mut served = serve(Config::default(), interfaces()).await;
    let (code, _) = code(served.client.get_tables(GetTablesRequest {}).await);
    assert_eq!(code, Code::FailedPrecondition);
    load(&served.device, "action_selector");
    let store = served.device.store().unwrap();
    let mut tx = store.transaction();
    let replica = sluice_tables::Replica::new(1, 1);
    tx.multicast_insert(1, vec![replica]).unwrap();
    tx.commit();
    let found = served
        .client
        .get_tables(GetTablesRequest {})
        .await
        .unwrap()
        .into_inner();
    let with_key = store
        .program()
        .tables
        .iter()
        .filter(|table| !table.key.is_empty());
    assert_eq!(found.tables.len(), with_key.count());
    assert!(!found.action_profiles.is_empty());
    assert_eq!(
        found.multicast_groups.unwrap(),
        Occupancy {
            used: 1,
            size: 65_535
        }
    );
    assert_eq!(
        found.clone_sessions.unwrap(),
        Occupancy {
            used: 0,
            size: 32_767
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_ends_after_its_count_and_a_wrong_filter_is_refused() {
    let mut served = serve(Config::default(), interfaces()).await;
    load(&served.device, "registers");
    let wire = attach(&served.device, 0);
    let request = |filter: &str, count| TraceRequest {
        filter: vec![filter.to_owned()],
        count,
    };
    let (code, message) = code(served.client.trace(request("ip=1", 0)).await);
    assert_eq!(code, Code::InvalidArgument, "{message}");
    let stream = served.client.trace(request("port=0", 2)).await.unwrap();
    let mut stream = stream.into_inner();
    for _ in 0..3 {
        assert!(wire.send(&[1, 0, 0, 0, 0, 0]));
    }
    for number in 1..=2 {
        let trace = stream.message().await.unwrap().unwrap();
        assert_eq!((trace.packet, trace.lost), (number, 0));
        let last = trace.lines.last().unwrap();
        assert_eq!(
            (last.step.as_str(), last.name.as_str()),
            ("fate", "dropped")
        );
        let reason = Detail {
            name: "reason".to_owned(),
            value: "no_such_port".to_owned(),
        };
        assert!(last.details.contains(&reason), "{:?}", last.details);
    }
    assert!(stream.message().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_loses_traces_and_learns_how_many() {
    let mut served = serve(Config::default(), interfaces()).await;
    load(&served.device, "registers");
    let (wire, output) = (attach(&served.device, 0), attach(&served.device, 1));
    let request = TraceRequest {
        filter: Vec::new(),
        count: 0,
    };
    let mut stream = served.client.trace(request).await.unwrap().into_inner();
    // Number of packets. It is larger than the capacity of the buffer, gRPC's windows and the sockets together. The
    // switch forwards all packets, so only traces are lost.
    const PACKETS: u64 = 20_000;
    for _ in 0..PACKETS {
        assert!(wire.send(&[3, 0, 0, 0, 0, 0]));
        assert!(output.receive(DEADLINE).is_some());
    }
    let (mut read, mut lost) = (0, 0);
    while lost == 0 {
        let trace = stream.message().await.unwrap().unwrap();
        read += 1;
        lost += trace.lost;
        assert!(read < PACKETS, "nothing was lost");
    }
    assert!(lost < PACKETS && read > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fibs_are_shown_pinned_and_tried() {
    let mut served = serve(Config::default(), interfaces()).await;
    let all = ListFibsRequest::default();
    let (refused, _) = code(served.client.list_fibs(all.clone()).await);
    assert_eq!(refused, Code::FailedPrecondition);
    load(&served.device, "tables_match");
    let store = served.device.store().unwrap();
    let fibs = served.client.list_fibs(all.clone()).await.unwrap();
    let fibs = fibs.into_inner().fibs;
    let fib = fibs.iter().max_by_key(|fib| fib.routes).unwrap();
    assert_eq!((fib.algorithm.as_str(), fib.pinned), ("ranges", false));

    let short = fib.table.rsplit('.').next().unwrap().to_owned();
    let set = |table: &str, algorithm: &str| SetFibRequest {
        table: table.to_owned(),
        exact: Vec::new(),
        algorithm: algorithm.to_owned(),
    };
    let pinned = served.client.set_fib(set(&short, "rank16")).await.unwrap();
    for fib in pinned.into_inner().fibs {
        assert_eq!((fib.algorithm.as_str(), fib.pinned), ("rank16", true));
    }
    let (refused, said) = code(served.client.set_fib(set(&short, "nonsense")).await);
    assert_eq!(refused, Code::InvalidArgument);
    assert!(said.contains("rank16"), "{said}");
    let (refused, _) = code(served.client.set_fib(set("nonsense", "rank16")).await);
    assert_eq!(refused, Code::NotFound);
    let other = store
        .program()
        .tables
        .iter()
        .find(|table| !table.key.is_empty() && table.kind != sluice_program::MatchKind::Lpm);
    let (refused, _) = code(
        served
            .client
            .set_fib(set(&other.unwrap().name, "ranges"))
            .await,
    );
    assert_eq!(refused, Code::InvalidArgument);

    let bench = BenchFibRequest {
        table: fib.table.clone(),
        exact: fib.exact.clone(),
    };
    let tried = served.client.bench_fib(bench).await.unwrap().into_inner();
    assert_eq!(tried.fib.unwrap().routes, fib.routes);
    let rank16 = tried
        .trials
        .iter()
        .find(|trial| trial.algorithm == "rank16");
    assert!(rank16.unwrap().batch > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn registers_are_read_and_written_by_name() {
    let mut served = serve(Config::default(), interfaces()).await;
    load(&served.device, "registers");
    let store = served.device.store().unwrap();
    let register = &store.program().registers[0];
    let (name, size) = (register.name.clone(), register.size);
    let short = name.rsplit('.').next().unwrap().to_owned();
    let write = |index, value: &str| WriteRegisterRequest {
        register: short.clone(),
        index,
        value: value.to_owned(),
    };
    let read = |index| ReadRegisterRequest {
        register: name.clone(),
        index,
    };
    let all = served
        .client
        .write_register(write(None, "0x3"))
        .await
        .unwrap();
    assert_eq!(all.get_ref().register, name);
    assert_eq!(all.get_ref().cells.len(), size);
    served
        .client
        .write_register(write(Some(1), "2"))
        .await
        .unwrap();
    let found = served.client.read_register(read(None)).await.unwrap();
    let values: Vec<_> = found
        .get_ref()
        .cells
        .iter()
        .map(|cell| cell.value.as_str())
        .collect();
    assert_eq!(values[..2], ["0x3", "0x2"]);
    let one = served.client.read_register(read(Some(1))).await.unwrap();
    assert_eq!(
        one.get_ref().cells,
        [Cell {
            index: 1,
            value: "0x2".into()
        }]
    );
    let beyond = served.client.read_register(read(Some(size as u32))).await;
    assert_eq!(code(beyond).0, Code::OutOfRange);
    let wide = format!("0x{}", "f".repeat(600));
    assert_eq!(
        code(served.client.write_register(write(Some(0), &wide)).await).0,
        Code::OutOfRange
    );
    for bad in ["", "0x", "seven", "-1", "0xg"] {
        let refused = served.client.write_register(write(Some(0), bad)).await;
        assert_eq!(code(refused).0, Code::InvalidArgument, "{bad:?}");
    }
    let unknown = ReadRegisterRequest {
        register: "none".into(),
        index: None,
    };
    assert_eq!(
        code(served.client.read_register(unknown).await).0,
        Code::NotFound
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_and_multicast_groups_are_read_back() {
    let mut served = serve(Config::default(), interfaces()).await;
    let without = served
        .client
        .list_replication(ListReplicationRequest {})
        .await;
    assert_eq!(code(without).0, Code::FailedPrecondition);
    load(&served.device, "replication");
    let store = served.device.store().unwrap();
    let mut transaction = store.transaction();
    let replica = |port, instance| sluice_tables::Replica::new(port, instance);
    transaction
        .multicast_insert(5, vec![replica(1, 0), replica(2, 7)])
        .unwrap();
    let session = sluice_tables::CloneSession {
        replicas: vec![replica(3, 1)],
        class_of_service: 0,
        packet_length: 64,
    };
    transaction.clone_session_insert(9, session).unwrap();
    transaction.commit();
    let found = served
        .client
        .list_replication(ListReplicationRequest {})
        .await
        .unwrap();
    let copy = |port, instance| Replica {
        port,
        instance,
        backups: vec![],
    };
    let session = CloneSession {
        id: 9,
        replicas: vec![copy(3, 1)],
        packet_length: 64,
        class_of_service: 0,
    };
    let group = MulticastGroup {
        id: 5,
        replicas: vec![copy(1, 0), copy(2, 7)],
    };
    assert_eq!(found.get_ref().clone_sessions, [session]);
    assert_eq!(found.get_ref().multicast_groups, [group]);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_listed_and_set() {
    let config = Config {
        queues: 2,
        ..Config::default()
    };
    let mut served = serve(config, interfaces()).await;
    load(&served.device, "registers");
    let (wire, _output) = (attach(&served.device, 0), attach(&served.device, 1));
    let set = |port, priority, depth, rate| SetQueuesRequest {
        port,
        priority,
        depth,
        rate,
    };
    let one = set(Some(1), Some(1), Some(9), Some(1_000));
    let found = served.client.set_queues(one).await.unwrap();
    let queue = Queue {
        port: 1,
        priority: 1,
        packets: 0,
        depth: 9,
        rate: 1_000,
        dropped: 0,
    };
    assert_eq!(found.get_ref().queues, [queue]);
    let closed = set(Some(1), Some(0), Some(0), None);
    served.client.set_queues(closed).await.unwrap();
    // The program sends this frame to port 1.
    assert!(wire.send(&[3, 0, 0, 0, 0, 0]));
    let deadline = Instant::now() + DEADLINE;
    let queues = loop {
        let found = served.client.list_queues(ListQueuesRequest {}).await;
        let queues = found.unwrap().into_inner().queues;
        if queues[2].dropped == 1 {
            break queues;
        }
        assert!(Instant::now() < deadline, "{queues:?}");
    };
    let rows: Vec<_> = queues
        .iter()
        .map(|queue| (queue.port, queue.priority, queue.depth, queue.rate))
        .collect();
    assert_eq!(
        rows,
        [(0, 0, 64, 0), (0, 1, 64, 0), (1, 0, 0, 0), (1, 1, 9, 1_000)]
    );
    for (wrong, expected) in [
        (set(Some(7), None, Some(1), None), Code::NotFound),
        (set(None, Some(2), Some(1), None), Code::OutOfRange),
        (set(None, None, None, None), Code::InvalidArgument),
        (
            set(Some(70_000), None, Some(1), None),
            Code::InvalidArgument,
        ),
    ] {
        let refused = served.client.set_queues(wrong).await;
        assert_eq!(code(refused).0, expected, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_of_ports_begin_anew() {
    let mut served = serve(Config::default(), interfaces()).await;
    let wire = attach(&served.device, 1);
    let _other = attach(&served.device, 2);
    let received = async |served: &mut Served| {
        let ports = served.client.list_ports(ListPortsRequest {}).await.unwrap();
        ports.get_ref().ports[0].statistics.unwrap().rx_packets
    };
    let reach = async |served: &mut Served, count| {
        let deadline = Instant::now() + DEADLINE;
        while received(served).await < count {
            assert!(Instant::now() < deadline);
        }
        assert_eq!(received(served).await, count);
    };
    for _ in 0..3 {
        assert!(wire.send(&[0; 60]));
    }
    reach(&mut served, 3).await;
    let reset = served
        .client
        .reset_ports(ResetPortsRequest { number: Some(1) })
        .await
        .unwrap();
    let statistics = reset.get_ref().ports[0].statistics.unwrap();
    assert_eq!((statistics.rx_packets, statistics.rx_bytes), (0, 0));
    assert!(wire.send(&[0; 60]));
    reach(&mut served, 1).await;
    let missing = served
        .client
        .reset_ports(ResetPortsRequest { number: Some(9) })
        .await;
    assert_eq!(code(missing).0, Code::NotFound);
    served
        .client
        .reset_ports(ResetPortsRequest { number: None })
        .await
        .unwrap();
    assert_eq!(received(&mut served).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_is_told_and_leaves_nothing_behind() {
    let mut served = serve(Config::default(), interfaces()).await;
    let wire = attach(&served.device, 1);
    let request = |port, packet: &[u8]| DryRunRequest {
        port,
        packet: packet.to_vec(),
    };
    let (said, _) = code(served.client.dry_run(request(1, &[3, 5, 0, 0, 0, 7])).await);
    assert_eq!(said, Code::FailedPrecondition);
    load(&served.device, "registers");
    // The program adds one to a register's cell. Both dry runs have the same result, because neither writes the cell.
    for _ in 0..2 {
        let trace = served.client.dry_run(request(0, &[3, 5, 0, 0, 0, 7])).await;
        let lines = trace.unwrap().into_inner().lines;
        let value = |name: &str| {
            let line = lines.iter().find(|line| line.name == name).unwrap();
            let detail = line.details.iter().find(|detail| detail.name == "value");
            detail.unwrap().value.clone()
        };
        assert_eq!(value("register_read"), "0x0");
        assert_eq!(value("register_write"), "0x1");
        assert_eq!(lines.last().unwrap().name, "transmitted");
    }
    assert_eq!(served.device.engine_counters()["received"], 0);
    assert!(wire.receive(Duration::ZERO).is_none(), "nothing was sent");
    for (port, packet) in [(1 << 16, vec![]), (1, vec![0; 20_000])] {
        let (said, _) = code(served.client.dry_run(request(port, &packet)).await);
        assert_eq!(said, Code::InvalidArgument);
    }
}
