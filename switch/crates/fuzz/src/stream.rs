// SPDX-License-Identifier: Apache-2.0
//! Implements the target `stream`: several controllers send arbitrary messages on their streams, over real gRPC.
//!
//! An input is a series of messages. Each message comes from one of four clients. Invariants:
//!
//! * No task of the server panics.
//! * Errors on a stream, and the status that ends a stream, have codes that the specification allows, never INTERNAL or
//!   UNKNOWN.
//! * A stream ends after its client has finished, and the server then serves the next request.

// Older clients still send fields that P4Runtime has deprecated.
#![allow(deprecated)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_device::{Config, Device, memory_port};
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;
use sluice_p4runtime::{Hub, Server, p4info};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use crate::choices::Choices;
use crate::programs;
use crate::random::Random;
use crate::target::{Tally, Target};

/// Name of the target.
pub const NAME: &str = "stream";

const DEVICE: u64 = 1;
const CLIENTS: usize = 4;
const LENGTH: usize = 2 << 10;
const QUEUE: usize = 4;
/// Maximum time until a stream ends.
const DEADLINE: Duration = Duration::from_secs(10);
const NEVER: [Code; 3] = [Code::Internal, Code::Unknown, Code::DataLoss];

/// Number of panics on any thread, including the server's tasks.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Fuzz target `stream`; see the module's documentation.
pub struct StreamTarget {
    runtime: Runtime,
    rpc: P4RuntimeClient<Channel>,
}

impl StreamTarget {
    /// Creates the target with its own server.
    ///
    /// # Panics
    /// If no TCP port is free, or if the source tree is missing.
    pub fn new() -> Self {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            hook(panic);
        }));
        let runtime = Runtime::new().expect("the runtime starts");
        let rpc = runtime.block_on(serve());
        Self { runtime, rpc }
    }
}

impl Default for StreamTarget {
    fn default() -> Self {
        Self::new()
    }
}

/// Starts a server whose program has every P4Runtime entity. Returns a client.
async fn serve() -> P4RuntimeClient<Channel> {
    let (hub, digests) = Hub::new(DEVICE);
    let config = Config {
        cpu_port: Some(510),
        ..Config::default()
    };
    let device = Arc::new(Device::start(config, hub.clone()).expect("the device starts"));
    let (port, _) = memory_port(1, 1).expect("the port can be made");
    device.add_port(port).expect("the port is new");
    let server = Server::bind("127.0.0.1:0", DEVICE, device, hub, digests);
    let server = server.await.expect("the server can listen");
    let address = server.address().expect("the server has an address");
    let surface = programs::surface();
    let config = ForwardingPipelineConfig {
        p4info: Some(p4info::from_text(&surface.p4info).expect("the P4Info is valid")),
        p4_device_config: surface.json.into(),
        cookie: None,
    };
    server.control().load(config).expect("the program loads");
    tokio::spawn(server.serve(std::future::pending()));
    P4RuntimeClient::connect(format!("http://{address}"))
        .await
        .expect("the server listens")
}

impl Target for StreamTarget {
    fn unit(&self) -> &'static str {
        "messages"
    }

    fn bar(&self) -> u64 {
        100_000
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        (0..4).map(|seed| Random::new(seed).bytes(LENGTH)).collect()
    }

    fn mutate(&self, random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
        if random.one_in(2) {
            return crate::mutate::bytes(random, input, other);
        }
        random.bytes(LENGTH)
    }

    fn run(&mut self, input: &[u8], tally: &mut Tally) {
        let before = PANICS.load(Ordering::Relaxed);
        self.runtime.block_on(talk(&self.rpc, input, tally));
        let panics = PANICS.load(Ordering::Relaxed) - before;
        assert_eq!(panics, 0, "tasks of the server have panicked");
    }
}

/// Sending end of a client, and the task that reads the client's stream.
type Client = (mpsc::Sender<StreamMessageRequest>, JoinHandle<u64>);

async fn connect(mut rpc: P4RuntimeClient<Channel>) -> Client {
    let (requests, receiver) = mpsc::channel(QUEUE);
    let stream = rpc.stream_channel(ReceiverStream::new(receiver));
    let stream = stream.await.expect("the stream opens").into_inner();
    (requests, tokio::spawn(listen(stream)))
}

/// Sends every message of the input. A client whose stream has ended reconnects. The server may end a stream before it
/// has read all messages. So timing decides how many messages it reads, and this target is not deterministic.
async fn talk(rpc: &P4RuntimeClient<Channel>, input: &[u8], tally: &mut Tally) {
    let mut choices = Choices::new(input);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect(rpc.clone()).await);
    }
    while !choices.is_empty() {
        let client = &mut clients[choices.below(CLIENTS)];
        let update = message(&mut choices);
        if client.1.is_finished() {
            let ended = std::mem::replace(client, connect(rpc.clone()).await);
            hang_up(ended, tally).await;
        }
        // Sending fails if the stream has ended meanwhile. The message is then lost.
        let _ = client.0.send(StreamMessageRequest { update }).await;
        tally.add("messages", 1);
    }
    for client in clients {
        hang_up(client, tally).await;
    }
    let mut rpc = rpc.clone();
    let alive = rpc.capabilities(CapabilitiesRequest::default());
    alive.await.expect("the server still serves");
}

async fn hang_up((requests, listener): Client, tally: &mut Tally) {
    drop(requests);
    let heard = tokio::time::timeout(DEADLINE, listener).await;
    let heard = heard.expect("the stream ends");
    tally.add("streams", 1);
    tally.add("responses", heard.expect("the responses are correct"));
}

/// Reads a stream to its end. Returns the number of messages.
async fn listen(mut stream: Streaming<StreamMessageResponse>) -> u64 {
    let mut heard = 0;
    loop {
        match stream.message().await {
            Ok(Some(StreamMessageResponse { update })) => {
                heard += 1;
                if let Some(Response::Error(error)) = update {
                    let code = Code::from(error.canonical_code);
                    assert!(!NEVER.contains(&code) && code != Code::Ok, "{error:?}");
                }
            }
            Ok(None) => return heard,
            Err(status) => {
                assert!(!NEVER.contains(&status.code()), "{status:?}");
                return heard;
            }
        }
    }
}

fn message(choices: &mut Choices<'_>) -> Option<Request> {
    Some(match choices.below(8) {
        0..4 => Request::Arbitration(arbitration(choices)),
        4 | 5 => Request::Packet(packet_out(choices)),
        6 => Request::DigestAck(DigestListAck {
            digest_id: choices.u32(),
            list_id: u64::from(choices.byte()),
        }),
        _ if choices.one_in(2) => Request::Other(prost_types::Any::default()),
        _ => return None,
    })
}

fn arbitration(choices: &mut Choices<'_>) -> MasterArbitrationUpdate {
    let role = choices.one_in(4).then(|| Role {
        id: u64::from(choices.byte() % 2),
        name: (*choices.pick(&["", "a", "b", "\u{0}"])).into(),
        config: choices.one_in(8).then(|| prost_types::Any {
            type_url: "type.googleapis.com/p4.v1.Uint128".into(),
            value: vec![choices.byte(); 3],
        }),
    });
    let election_id = (!choices.one_in(8)).then(|| Uint128 {
        high: u64::from(choices.one_in(16)),
        low: u64::from(choices.byte()),
    });
    MasterArbitrationUpdate {
        device_id: if choices.one_in(32) { 77 } else { DEVICE },
        role,
        election_id,
        status: None,
    }
}

fn packet_out(choices: &mut Choices<'_>) -> PacketOut {
    let metadata = |id: usize, choices: &mut Choices<'_>| {
        let length = choices.below(4);
        PacketMetadata {
            metadata_id: if choices.one_in(16) { 99 } else { id as u32 },
            value: choices.bytes(length),
        }
    };
    let fields = [2, 2, 2, 0, 1, 3][choices.below(6)];
    let length = choices.below(128);
    PacketOut {
        metadata: (1..=fields).map(|id| metadata(id, choices)).collect(),
        payload: choices.bytes(length).into(),
    }
}
