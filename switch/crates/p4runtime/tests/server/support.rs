// SPDX-License-Identifier: Apache-2.0
//! Starts a P4Runtime server on an ephemeral port, with a device of memory ports and the program `surface.p4`. Connects
//! clients to the server.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sluice_device::{Config, Device, memory_port};
use sluice_p4runtime::error::batch_errors;
use sluice_p4runtime::listen::Listener;
use sluice_p4runtime::proto::config::v1::P4Info;
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action as PipelineAction;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;
use sluice_p4runtime::{Hub, Server, p4info};
pub(crate) use sluice_p4runtime_suite::entity::{
    IntoEntity, backed, delete, exact, exact_bytes, insert, lpm, modify, multicast, replica,
    session, ternary,
};
use sluice_ports::memory::MemoryHandle;
use sluice_unix_socket::Access;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

pub(crate) const DEVICE: u64 = 1;
pub(crate) const CPU_PORT: u16 = 510;
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Expected ports of a dropped frame.
pub(crate) const NOWHERE: [usize; 0] = [];

const JSON: &[u8] = include_bytes!("programs/surface.json");
const P4INFO: &str = include_str!("programs/surface.p4info.txtpb");

pub(crate) fn p4info() -> P4Info {
    static PARSED: OnceLock<P4Info> = OnceLock::new();
    PARSED
        .get_or_init(|| p4info::from_text(P4INFO).unwrap())
        .clone()
}

pub(crate) fn pipeline_config() -> ForwardingPipelineConfig {
    ForwardingPipelineConfig {
        p4info: Some(p4info()),
        p4_device_config: JSON.into(),
        cookie: Some(forwarding_pipeline_config::Cookie { cookie: 77 }),
    }
}

/// Returns the P4Info id of the object with this name.
pub(crate) fn id(name: &str) -> u32 {
    let info = p4info();
    let preambles = [
        info.tables.iter().map(|o| &o.preamble).collect::<Vec<_>>(),
        info.actions.iter().map(|o| &o.preamble).collect(),
        info.action_profiles.iter().map(|o| &o.preamble).collect(),
        info.counters.iter().map(|o| &o.preamble).collect(),
        info.meters.iter().map(|o| &o.preamble).collect(),
        info.registers.iter().map(|o| &o.preamble).collect(),
        info.digests.iter().map(|o| &o.preamble).collect(),
        info.value_sets.iter().map(|o| &o.preamble).collect(),
    ]
    .concat();
    let named = preambles
        .into_iter()
        .flatten()
        .find(|p| p.name == name || p.alias == name);
    named
        .unwrap_or_else(|| panic!("{name} is not in P4Info"))
        .id
}

/// A running server; it stops when this is dropped.
pub(crate) struct Fixture {
    pub(crate) device: Arc<Device>,
    pub(crate) wires: Vec<MemoryHandle>,
    address: String,
    stop: Option<oneshot::Sender<()>>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

/// Starts a server with ports 0 to 7 and no program.
pub(crate) async fn start() -> Fixture {
    start_at("127.0.0.1:0", |server| server).await
}

/// Starts a server at this address, with ports 0 to 7 and no program. `change` may change the server's options first.
pub(crate) async fn start_at(address: &str, change: impl FnOnce(Server) -> Server) -> Fixture {
    let (hub, digests) = Hub::new(DEVICE);
    let config = Config {
        cpu_port: Some(CPU_PORT),
        ..Config::default()
    };
    let device = Arc::new(Device::start(config, hub.clone()).unwrap());
    let mut wires = Vec::new();
    for number in 0..8 {
        let (port, wire) = memory_port(number, 1).unwrap();
        device.add_port(port).unwrap();
        wires.push(wire);
    }
    let listener = Listener::bind(&address.parse().unwrap(), Access::default()).unwrap();
    let server = change(Server::new(listener, DEVICE, device.clone(), hub, digests));
    let address = match server.address().unwrap() {
        unix if unix.starts_with("unix:") => unix,
        tcp => format!("http://{tcp}"),
    };
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(server.serve(async {
        let _ = stopped.await;
    }));
    Fixture {
        device,
        wires,
        address,
        stop: Some(stop),
    }
}

/// Starts a server with the program loaded; also returns its primary.
pub(crate) async fn start_loaded() -> (Fixture, Client) {
    let fixture = start().await;
    let mut primary = fixture.primary().await;
    primary.commit().await.unwrap();
    (fixture, primary)
}

impl Fixture {
    /// Returns a client with an open stream, on which the client has not sent anything yet.
    pub(crate) async fn client(&self) -> Client {
        let rpc = P4RuntimeClient::connect(self.address.clone())
            .await
            .unwrap();
        let mut rpc = rpc.max_decoding_message_size(64 << 20);
        let (requests, receiver) = mpsc::channel(64);
        let stream = rpc
            .stream_channel(ReceiverStream::new(receiver))
            .await
            .unwrap()
            .into_inner();
        Client {
            rpc,
            requests,
            stream,
            role: String::new(),
            election_id: None,
        }
    }

    /// Returns a client that is primary with election id 1.
    pub(crate) async fn primary(&self) -> Client {
        let mut client = self.client().await;
        assert_eq!(client.arbitrate(1).await.unwrap().code(), Code::Ok);
        client
    }

    /// Sends a frame to a port. Returns the ports on which copies of it came out, in the order of ports.
    pub(crate) fn forward(&self, port: usize, frame: &[u8]) -> Vec<usize> {
        // The engine counts a frame on reception, but reports its counters only between two batches. The frames of a
        // batch have then all been sent.
        let received = || self.device.engine_counters()["received"];
        let before = received();
        assert!(self.wires[port].send(frame));
        let deadline = Instant::now() + DEADLINE;
        while received() == before {
            assert!(Instant::now() < deadline, "the frame was not processed");
        }
        let mut seen = Vec::new();
        for (number, wire) in self.wires.iter().enumerate() {
            while wire.receive(Duration::ZERO).is_some() {
                seen.push(number);
            }
        }
        seen
    }
}

/// An arbitration message that a client received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arbitration(pub(crate) MasterArbitrationUpdate);

impl Arbitration {
    pub(crate) fn code(&self) -> Code {
        Code::from(self.0.status.as_ref().unwrap().code)
    }

    pub(crate) fn election_id(&self) -> Option<u64> {
        self.0.election_id.as_ref().map(|id| id.low)
    }
}

pub(crate) struct Client {
    pub(crate) rpc: P4RuntimeClient<Channel>,
    pub(crate) requests: mpsc::Sender<StreamMessageRequest>,
    pub(crate) stream: Streaming<StreamMessageResponse>,
    pub(crate) role: String,
    pub(crate) election_id: Option<Uint128>,
}

impl Client {
    /// Sends a message. If the server has ended the stream, the message is lost; the next read then returns the reason.
    pub(crate) async fn send(&self, update: stream_message_request::Update) {
        let update = Some(update);
        let _ = self.requests.send(StreamMessageRequest { update }).await;
    }

    /// Replaces this stream by a new one.
    pub(crate) async fn reopen(&mut self) {
        let (requests, receiver) = mpsc::channel(64);
        let answer = self.rpc.stream_channel(ReceiverStream::new(receiver)).await;
        (self.requests, self.stream) = (requests, answer.unwrap().into_inner());
    }

    pub(crate) async fn send_arbitration(&mut self, device_id: u64, election_id: Option<u64>) {
        self.election_id = election_id.map(|low| Uint128 { high: 0, low });
        let role = (!self.role.is_empty()).then(|| Role {
            name: self.role.clone(),
            ..Role::default()
        });
        let election_id = self.election_id;
        let update = MasterArbitrationUpdate {
            device_id,
            role,
            election_id,
            status: None,
        };
        self.send(stream_message_request::Update::Arbitration(update))
            .await;
    }

    /// Requests to be primary with this id; returns the server's answer.
    pub(crate) async fn arbitrate(
        &mut self,
        election_id: impl Into<Option<u64>>,
    ) -> Result<Arbitration, Status> {
        self.send_arbitration(DEVICE, election_id.into()).await;
        self.told().await
    }

    /// Returns the next message of the stream.
    pub(crate) async fn next(&mut self) -> Result<Response, Status> {
        let message = tokio::time::timeout(DEADLINE, self.stream.message()).await;
        match message.expect("a message arrives before the deadline")? {
            Some(message) => Ok(message.update.unwrap()),
            None => Err(Status::ok("the stream has ended")),
        }
    }

    /// Returns the next message, which must be an arbitration message.
    pub(crate) async fn told(&mut self) -> Result<Arbitration, Status> {
        match self.next().await? {
            Response::Arbitration(update) => Ok(Arbitration(update)),
            other => panic!("not arbitration: {other:?}"),
        }
    }

    pub(crate) async fn set_pipeline(
        &mut self,
        action: PipelineAction,
        config: Option<ForwardingPipelineConfig>,
    ) -> Result<(), Status> {
        let request = SetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            role: self.role.clone(),
            election_id: self.election_id,
            action: action.into(),
            config,
            ..Default::default()
        };
        self.rpc
            .set_forwarding_pipeline_config(request)
            .await
            .map(drop)
    }

    pub(crate) async fn commit(&mut self) -> Result<(), Status> {
        self.set_pipeline(PipelineAction::VerifyAndCommit, Some(pipeline_config()))
            .await
    }

    pub(crate) async fn pipeline(&mut self) -> Option<ForwardingPipelineConfig> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            response_type: 0,
        };
        let response = self
            .rpc
            .get_forwarding_pipeline_config(request)
            .await
            .unwrap();
        response.into_inner().config
    }

    pub(crate) async fn write(&mut self, updates: Vec<Update>) -> Result<(), Status> {
        let request = WriteRequest {
            device_id: DEVICE,
            role: self.role.clone(),
            election_id: self.election_id,
            updates,
            ..Default::default()
        };
        self.rpc.write(request).await.map(drop)
    }

    /// Returns the code of each update of a batch.
    pub(crate) async fn write_codes(&mut self, updates: Vec<Update>) -> Vec<Code> {
        let count = updates.len();
        match self.write(updates).await {
            Ok(()) => vec![Code::Ok; count],
            Err(status) => {
                assert_eq!(status.code(), Code::Unknown, "{status:?}");
                let errors = batch_errors(&status);
                assert_eq!(
                    errors.len(),
                    count,
                    "there must be one error for each update"
                );
                errors
                    .iter()
                    .map(|error| Code::from(error.canonical_code))
                    .collect()
            }
        }
    }

    /// Returns the code of a single update.
    pub(crate) async fn code(&mut self, update: Update) -> Code {
        self.write_codes(vec![update]).await[0]
    }

    pub(crate) async fn insert(&mut self, entity: impl IntoEntity) -> Code {
        self.code(insert(entity)).await
    }

    pub(crate) async fn modify(&mut self, entity: impl IntoEntity) -> Code {
        self.code(modify(entity)).await
    }

    pub(crate) async fn delete(&mut self, entity: impl IntoEntity) -> Code {
        self.code(delete(entity)).await
    }

    pub(crate) async fn try_read(
        &mut self,
        entities: Vec<Entity>,
    ) -> Result<Vec<entity::Entity>, Status> {
        let request = ReadRequest {
            device_id: DEVICE,
            role: String::new(),
            entities,
        };
        let mut stream = self.rpc.read(request).await?.into_inner();
        let mut read = Vec::new();
        while let Some(response) = stream.message().await? {
            read.extend(
                response
                    .entities
                    .into_iter()
                    .map(|entity| entity.entity.unwrap()),
            );
        }
        Ok(read)
    }

    pub(crate) async fn read(&mut self, entity: impl IntoEntity) -> Vec<entity::Entity> {
        self.try_read(vec![entity.into_entity()]).await.unwrap()
    }

    /// Returns the code with which a read of one entity is refused.
    pub(crate) async fn read_code(&mut self, entity: impl IntoEntity) -> Code {
        let status = self.try_read(vec![entity.into_entity()]).await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown);
        Code::from(batch_errors(&status)[0].canonical_code)
    }

    /// Reads table entries.
    pub(crate) async fn read_entries(&mut self, filter: TableEntry) -> Vec<TableEntry> {
        let table_entry = |entity| match entity {
            entity::Entity::TableEntry(entry) => entry,
            other => panic!("not a table entry: {other:?}"),
        };
        self.read(filter)
            .await
            .into_iter()
            .map(table_entry)
            .collect()
    }
}

/// Returns an action with parameters, numbered from 1.
pub(crate) fn call(name: &str, params: &[&[u8]]) -> Action {
    let param = |(index, value): (usize, &&[u8])| action::Param {
        param_id: index as u32 + 1,
        value: value.to_vec(),
    };
    Action {
        action_id: id(name),
        params: params.iter().enumerate().map(param).collect(),
    }
}

pub(crate) fn direct(name: &str, params: &[&[u8]]) -> Option<TableAction> {
    Some(TableAction {
        r#type: Some(table_action::Type::Action(call(name, params))),
    })
}

pub(crate) fn forward_to(port: u8) -> Option<TableAction> {
    direct("forward", &[&[port]])
}

/// Returns an entry of `exact_table` that forwards to a port.
pub(crate) fn exact_entry(a: u128, port: u8) -> TableEntry {
    TableEntry {
        r#match: vec![exact(1, a)],
        action: direct("mark", &[&[port]]),
        ..all_of("exact_table")
    }
}

/// Returns an entry of `lpm_table` for d = 0.
pub(crate) fn lpm_entry(a: u128, prefix_len: i32, action: Option<TableAction>) -> TableEntry {
    let mut entry = TableEntry {
        r#match: vec![exact(1, 0)],
        action,
        ..all_of("lpm_table")
    };
    if prefix_len > 0 {
        entry.r#match.push(lpm(2, a, prefix_len));
    }
    entry
}

/// Returns an entry of `selector_table` for b = 1.
pub(crate) fn selector_entry(action: table_action::Type) -> TableEntry {
    TableEntry {
        r#match: vec![exact(1, 1)],
        action: Some(TableAction {
            r#type: Some(action),
        }),
        ..all_of("selector_table")
    }
}

/// Returns a request for all entries of a table. Some tests add fields to it, to make it an entry of the table.
pub(crate) fn all_of(table: &str) -> TableEntry {
    TableEntry {
        table_id: id(table),
        ..TableEntry::default()
    }
}

/// Returns a frame with a key of `surface.p4`.
pub(crate) fn frame(a: [u8; 4], b: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.extend_from_slice(&a);
    frame.extend_from_slice(&b.to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(b"payload");
    frame
}
