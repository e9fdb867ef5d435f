// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime client whose steps are expectations.

use prost::Message;
use sluice_p4runtime::proto::rpc;
use sluice_p4runtime::proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action as PipelineAction;
use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::write_request::Atomicity;
use sluice_p4runtime::proto::v1::*;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::{DEADLINE, Frame, QUIET, Seen, Target, Walk, failed};
use crate::case::{Failure, Outcome, same};
use crate::entity::{IntoEntity, delete, insert, modify};
use crate::program;

/// The source address of packets that only mark the end of what came before.
const MARKER: u64 = 0x02ff_ffff_ffff;

/// One code, or one of several where the specification leaves it open.
pub trait Expected: std::fmt::Debug + Copy {
    /// Whether this is it.
    fn has(self, code: Code) -> bool;
    /// Whether UNIMPLEMENTED means that an optional feature is not there.
    fn optional(self) -> bool {
        false
    }
}

impl Expected for Code {
    fn has(self, code: Code) -> bool {
        self == code
    }
}

impl<const N: usize> Expected for [Code; N] {
    fn has(self, code: Code) -> bool {
        self.contains(&code)
    }
}

/// A code, of a feature that the specification makes optional.
#[derive(Debug, Clone, Copy)]
pub struct Optional(pub Code);

impl Expected for Optional {
    fn has(self, code: Code) -> bool {
        self.0 == code
    }

    fn optional(self) -> bool {
        true
    }
}

fn check(found: Code, expected: impl Expected, what: impl FnOnce() -> String) -> Outcome {
    if expected.has(found) {
        return Ok(());
    }
    if expected.optional() && found == Code::Unimplemented {
        return Err(Failure::Skipped("optional, and UNIMPLEMENTED here".into()));
    }
    let what = what();
    Err(Failure::Failed(format!(
        "expected {expected:?}, found {found:?}, of {what}"
    )))
}

/// What arbitration told a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Told(pub MasterArbitrationUpdate);

impl Told {
    /// OK for the primary, ALREADY_EXISTS for a backup, NOT_FOUND where there is no primary.
    pub fn code(&self) -> Code {
        self.0
            .status
            .as_ref()
            .map_or(Code::Unknown, |status| Code::from(status.code))
    }

    /// The highest election id.
    pub fn election_id(&self) -> Option<Uint128> {
        self.0.election_id
    }
}

/// The stream from the server. Some servers say nothing at all, not even that the stream is open, before they have
/// something to say.
enum Inbound {
    Opening(JoinHandle<Result<Streaming<StreamMessageResponse>, Status>>),
    Open(Box<Streaming<StreamMessageResponse>>),
}

/// A client with a stream.
pub struct Client {
    /// Remote procedures.
    pub rpc: P4RuntimeClient<Channel>,
    /// The device that requests name.
    pub device_id: u64,
    /// The role that requests name.
    pub role: String,
    /// Its configuration, for arbitration.
    pub role_config: Option<prost_types::Any>,
    /// The election id that requests carry.
    pub election_id: Option<Uint128>,
    first_id: u64,
    packet_io: bool,
    requests: Option<mpsc::Sender<StreamMessageRequest>>,
    inbound: Inbound,
}

impl Client {
    pub(super) fn open(rpc: P4RuntimeClient<Channel>, target: &Target, first_id: u64) -> Self {
        let (requests, receiver) = mpsc::channel(1024);
        let mut stream_rpc = rpc.clone();
        let opening = tokio::spawn(async move {
            let stream = stream_rpc
                .stream_channel(ReceiverStream::new(receiver))
                .await?;
            Ok(stream.into_inner())
        });
        Self {
            rpc,
            device_id: target.device_id,
            role: String::new(),
            role_config: None,
            election_id: None,
            first_id,
            packet_io: target.packet_io,
            requests: Some(requests),
            inbound: Inbound::Opening(opening),
        }
    }

    // ---- the stream ----

    /// Sends a message.
    ///
    /// # Errors
    /// If the stream has ended.
    pub async fn send(&self, update: Option<Request>) -> Outcome {
        let ended = || Failure::Failed("the stream has ended".into());
        let requests = self.requests.as_ref().ok_or_else(ended)?;
        let message = StreamMessageRequest { update };
        requests.send(message).await.map_err(|_| ended())
    }

    /// Closes the stream from this side.
    pub fn close(&mut self) {
        self.requests = None;
    }

    /// The next message, or the status that the stream ended with.
    async fn receive(&mut self) -> Result<Option<StreamMessageResponse>, Status> {
        if let Inbound::Opening(opening) = &mut self.inbound {
            let opened = opening
                .await
                .map_err(|error| Status::internal(error.to_string()))?;
            self.inbound = Inbound::Open(Box::new(opened?));
        }
        match &mut self.inbound {
            Inbound::Open(stream) => stream.message().await,
            Inbound::Opening(_) => Ok(None),
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// If the stream ends or nothing comes.
    pub async fn next(&mut self) -> Outcome<Response> {
        match timeout(DEADLINE, self.receive()).await {
            Err(_) => Err(Failure::Failed("nothing came on the stream".into())),
            Ok(Err(status)) => Err(failed("the stream ended", &status)),
            Ok(Ok(None)) => Err(Failure::Failed("the stream ended without a status".into())),
            Ok(Ok(Some(message))) => {
                let empty = || Failure::Failed("an empty stream message".into());
                message.update.ok_or_else(empty)
            }
        }
    }

    /// The next message that is one of this kind; others are passed over.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub async fn next_of<T>(&mut self, pick: impl Fn(Response) -> Option<T>) -> Outcome<T> {
        loop {
            if let Some(message) = pick(self.next().await?) {
                return Ok(message);
            }
        }
    }

    /// The code with which the server ends the stream; what comes before is passed over.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn ended(&mut self) -> Outcome<Code> {
        let ending = async {
            loop {
                match self.receive().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Code::Ok,
                    Err(status) => return status.code(),
                }
            }
        };
        let late = |_| Failure::Failed("the server did not end the stream".into());
        timeout(DEADLINE, ending).await.map_err(late)
    }

    /// Fails if a message comes.
    ///
    /// # Errors
    /// With that message.
    pub async fn is_quiet(&mut self) -> Outcome {
        match timeout(QUIET, self.receive()).await {
            Err(_) => Ok(()),
            Ok(message) => Err(Failure::Failed(format!(
                "expected nothing, found {message:?}"
            ))),
        }
    }

    // ---- arbitration ----

    /// Sends an arbitration update with the case's n-th election id.
    ///
    /// # Errors
    /// If the stream has ended.
    pub async fn send_arbitration(&mut self, n: impl Into<Option<u64>>) -> Outcome {
        self.election_id = n.into().map(|n| Uint128 {
            high: 0,
            low: self.first_id + n,
        });
        self.send_election_id().await
    }

    /// Sends an arbitration update with the election id as it is.
    ///
    /// # Errors
    /// If the stream has ended.
    pub async fn send_election_id(&mut self) -> Outcome {
        let role = (!self.role.is_empty() || self.role_config.is_some()).then(|| Role {
            name: self.role.clone(),
            config: self.role_config.clone(),
            ..Default::default()
        });
        let update = MasterArbitrationUpdate {
            device_id: self.device_id,
            role,
            election_id: self.election_id,
            status: None,
        };
        self.send(Some(Request::Arbitration(update))).await
    }

    /// The next message, which must be arbitration's.
    ///
    /// # Errors
    /// If it is not, or none comes.
    pub async fn told(&mut self) -> Outcome<Told> {
        match self.next().await? {
            Response::Arbitration(update) => Ok(Told(update)),
            other => Err(Failure::Failed(format!(
                "expected arbitration, found {other:?}"
            ))),
        }
    }

    /// Sends an arbitration update; the answer must have this code.
    ///
    /// # Errors
    /// If it has another, or none comes.
    pub async fn is_told(&mut self, n: impl Into<Option<u64>>, code: Code) -> Outcome<Told> {
        self.send_arbitration(n).await?;
        self.hears(code).await
    }

    /// The next message must be arbitration's, with this code.
    ///
    /// # Errors
    /// If it is not.
    pub async fn hears(&mut self, code: Code) -> Outcome<Told> {
        let told = self.told().await?;
        same(told.code(), code, "the arbitration's status")?;
        Ok(told)
    }

    // ---- the pipeline ----

    /// The SetForwardingPipelineConfig RPC must have this code.
    ///
    /// # Errors
    /// If it has another.
    pub async fn sets(
        &mut self,
        action: PipelineAction,
        config: Option<ForwardingPipelineConfig>,
        expected: impl Expected,
    ) -> Outcome {
        let request = SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            election_id: self.election_id,
            action: action.into(),
            config,
            ..Default::default()
        };
        let result = self.rpc.set_forwarding_pipeline_config(request).await;
        let (code, message) = split(result);
        check(code, expected, || format!("{action:?}: {message}"))
    }

    /// Sets the suite's pipeline.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn commit(&mut self) -> Outcome {
        let config = Some(program::config());
        self.sets(PipelineAction::VerifyAndCommit, config, Code::Ok)
            .await
    }

    /// The GetForwardingPipelineConfig RPC.
    ///
    /// # Errors
    /// If it fails.
    pub async fn pipeline(
        &mut self,
        part: ResponseType,
    ) -> Outcome<Option<ForwardingPipelineConfig>> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: part.into(),
        };
        let response = self.rpc.get_forwarding_pipeline_config(request).await?;
        Ok(response.into_inner().config)
    }

    // ---- writes ----

    /// The Write RPC as it is.
    ///
    /// # Errors
    /// The server's.
    pub async fn write(
        &mut self,
        updates: Vec<Update>,
        atomicity: Atomicity,
    ) -> Result<(), Status> {
        let request = WriteRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            election_id: self.election_id,
            updates,
            atomicity: atomicity.into(),
            ..Default::default()
        };
        self.rpc.write(request).await.map(drop)
    }

    /// The whole Write RPC must be refused with this code and without details.
    ///
    /// # Errors
    /// If it is not.
    pub async fn write_refused(
        &mut self,
        updates: Vec<Update>,
        expected: impl Expected,
    ) -> Outcome {
        let result = self.write(updates, Atomicity::ContinueOnError).await;
        let (code, message) = split(result);
        check(code, expected, || format!("the whole write: {message}"))
    }

    /// The errors of a batch, one for each update in their order.
    ///
    /// # Errors
    /// If the server does not say so.
    pub async fn errors(
        &mut self,
        updates: Vec<Update>,
        atomicity: Atomicity,
    ) -> Outcome<Vec<Error>> {
        let count = updates.len();
        let Err(status) = self.write(updates, atomicity).await else {
            return Ok(vec![Error::default(); count]);
        };
        if status.code() == Code::Unimplemented && atomicity != Atomicity::ContinueOnError {
            return Err(Failure::Skipped("optional, and UNIMPLEMENTED here".into()));
        }
        let errors = details(&status)?;
        same(
            status.code(),
            Code::Unknown,
            "the status of a batch that failed in part",
        )?;
        same(
            errors.len(),
            count,
            "the number of errors in the status' details",
        )?;
        Ok(errors)
    }

    /// The code of each update of a batch.
    ///
    /// # Errors
    /// As for [`errors`](Self::errors).
    pub async fn codes(&mut self, updates: Vec<Update>) -> Outcome<Vec<Code>> {
        self.codes_with(Atomicity::ContinueOnError, updates).await
    }

    /// The code of each update of a batch of this atomicity.
    ///
    /// # Errors
    /// As for [`errors`](Self::errors).
    pub async fn codes_with(
        &mut self,
        atomicity: Atomicity,
        updates: Vec<Update>,
    ) -> Outcome<Vec<Code>> {
        let errors = self.errors(updates, atomicity).await?;
        Ok(errors
            .iter()
            .map(|error| Code::from(error.canonical_code))
            .collect())
    }

    /// An update must have this code.
    ///
    /// # Errors
    /// If it has another.
    pub async fn updates(&mut self, update: Update, expected: impl Expected) -> Outcome {
        let what = format!("{update:?}");
        let errors = self
            .errors(vec![update], Atomicity::ContinueOnError)
            .await?;
        let code = Code::from(errors[0].canonical_code);
        check(code, expected, || format!("{what}: {}", errors[0].message))
    }

    /// An INSERT must have this code.
    ///
    /// # Errors
    /// If it has another.
    pub async fn insert(&mut self, entity: impl IntoEntity, expected: impl Expected) -> Outcome {
        self.updates(insert(entity), expected).await
    }

    /// A MODIFY must have this code.
    ///
    /// # Errors
    /// If it has another.
    pub async fn modify(&mut self, entity: impl IntoEntity, expected: impl Expected) -> Outcome {
        self.updates(modify(entity), expected).await
    }

    /// A DELETE must have this code.
    ///
    /// # Errors
    /// If it has another.
    pub async fn delete(&mut self, entity: impl IntoEntity, expected: impl Expected) -> Outcome {
        self.updates(delete(entity), expected).await
    }

    // ---- reads ----

    /// The Read RPC as it is: what came, and the status it ended with.
    pub async fn try_read(&mut self, entities: Vec<Entity>) -> (Vec<Entity>, Result<(), Status>) {
        let request = ReadRequest {
            device_id: self.device_id,
            role: self.role.clone(),
            entities,
        };
        let mut read = Vec::new();
        let mut stream = match self.rpc.read(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => return (read, Err(status)),
        };
        loop {
            match stream.message().await {
                Ok(Some(response)) => read.extend(response.entities),
                Ok(None) => return (read, Ok(())),
                Err(status) => return (read, Err(status)),
            }
        }
    }

    /// Reads what the request means.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn read(&mut self, request: impl IntoEntity) -> Outcome<Vec<Entity>> {
        let request = request.into_entity();
        let what = format!("read of {request:?}");
        let (read, result) = self.try_read(vec![request]).await;
        match result {
            Ok(()) => Ok(read),
            Err(status) => {
                let code = refusal(&status);
                Err(Failure::Failed(format!(
                    "{what}: {code:?}: {}",
                    status.message()
                )))
            }
        }
    }

    /// Reading must give exactly these, in any order.
    ///
    /// # Errors
    /// If it gives something else.
    pub async fn reads(&mut self, request: impl IntoEntity, expected: Vec<Entity>) -> Outcome {
        let mut found = self.read(request).await?;
        let mut expected = expected;
        let by_text = |entity: &Entity| format!("{entity:?}");
        found.sort_by_key(by_text);
        expected.sort_by_key(by_text);
        same(found, expected, "what is read")
    }

    /// Reading must give back exactly what was written.
    ///
    /// # Errors
    /// If it gives something else.
    pub async fn reads_back(
        &mut self,
        request: impl IntoEntity,
        written: impl IntoEntity,
    ) -> Outcome {
        self.reads(request, vec![written.into_entity()]).await
    }

    /// Reads table entries.
    ///
    /// # Errors
    /// If the server refuses it, or something else comes.
    pub async fn entries(&mut self, request: TableEntry) -> Outcome<Vec<TableEntry>> {
        let entry = |entity: Entity| match entity.entity {
            Some(entity::Entity::TableEntry(entry)) => Ok(entry),
            other => Err(Failure::Failed(format!("not a table entry: {other:?}"))),
        };
        self.read(request).await?.into_iter().map(entry).collect()
    }

    /// A read request must be refused with this code, in the status or in its details.
    ///
    /// # Errors
    /// If it is not.
    pub async fn read_refused(
        &mut self,
        request: impl IntoEntity,
        expected: impl Expected,
    ) -> Outcome {
        let request = request.into_entity();
        let what = format!("read of {request:?}");
        let (_, result) = self.try_read(vec![request]).await;
        let code = result.as_ref().err().map_or(Code::Ok, refusal);
        check(code, expected, || what)
    }

    // ---- packets ----

    /// Fails, as skipped, where packets do not come back.
    ///
    /// # Errors
    /// Skipped.
    pub fn needs_packets(&self) -> Outcome {
        if self.packet_io {
            return Ok(());
        }
        Err(Failure::Skipped(
            "packets do not come back from this server".into(),
        ))
    }

    /// Sends a packet-out.
    ///
    /// # Errors
    /// If the stream has ended. Skipped where packets do not come back.
    pub async fn packet_out(&self, packet: PacketOut) -> Outcome {
        self.needs_packets()?;
        self.send(Some(Request::Packet(packet))).await
    }

    /// Sends a packet through the program; what came back of it, in order.
    ///
    /// # Errors
    /// If the server does not even send back a packet that follows it. Skipped where packets do not come back.
    pub async fn walks(&mut self, walk: Walk, frame: Frame) -> Outcome<Vec<Seen>> {
        self.packet_out(frame.out(walk)).await?;
        let marker = Frame {
            src: MARKER,
            ..Frame::default()
        };
        self.packet_out(marker.out(Walk::Keyless)).await?;
        let mut seen = Vec::new();
        loop {
            let packet = self.next_of(packet_in).await?;
            let packet = Seen::read(&packet)?;
            if packet.payload == marker.bytes() {
                return Ok(seen);
            }
            seen.push(packet);
        }
    }

    /// Sends a packet through the program, which must come back once.
    ///
    /// # Errors
    /// As for [`walks`](Self::walks), or if it does not.
    pub async fn walk(&mut self, walk: Walk, frame: Frame) -> Outcome<Seen> {
        let mut seen = self.walks(walk, frame).await?;
        match (seen.pop(), seen.is_empty()) {
            (Some(packet), true) => Ok(packet),
            (last, _) => {
                let count = seen.len() + usize::from(last.is_some());
                Err(Failure::Failed(format!(
                    "one packet went out, {count} came back"
                )))
            }
        }
    }

    /// A packet must be marked with this value on its way.
    ///
    /// # Errors
    /// As for [`walk`](Self::walk), or if it is another.
    pub async fn marks(&mut self, walk: Walk, frame: Frame, expected: u128) -> Outcome {
        let seen = self.walk(walk, frame).await?;
        same(
            seen.mark,
            expected,
            &format!("the mark of {frame:x?} by {walk:?}"),
        )
    }
}

fn packet_in(response: Response) -> Option<PacketIn> {
    match response {
        Response::Packet(packet) => Some(packet),
        _ => None,
    }
}

fn split<T>(result: Result<T, Status>) -> (Code, String) {
    match result {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().into()),
    }
}

/// The per-update errors in a status' details.
fn details(status: &Status) -> Outcome<Vec<Error>> {
    let undecodable = || failed("the status has no decodable details", status);
    let inner = rpc::Status::decode(status.details()).map_err(|_| undecodable())?;
    let error =
        |any: &prost_types::Any| Error::decode(any.value.as_slice()).map_err(|_| undecodable());
    inner.details.iter().map(error).collect()
}

/// Why a single read request was refused.
fn refusal(status: &Status) -> Code {
    match (status.code(), details(status)) {
        (Code::Unknown, Ok(errors)) if errors.len() == 1 => Code::from(errors[0].canonical_code),
        (code, _) => code,
    }
}
