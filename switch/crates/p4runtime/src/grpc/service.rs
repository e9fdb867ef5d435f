// SPDX-License-Identifier: Apache-2.0
//! Implements the gRPC service, which unpacks requests and passes them to [`Control`] and [`Hub`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use prost::Message;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::block_in_place;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::control::Control;
use crate::error::{UpdateError, UpdateResult, batch_status};
use crate::grpc::listen::ConnectionId;
use crate::proto::v1::p4_runtime_server::P4Runtime;
use crate::proto::v1::stream_message_request::Update as RequestUpdate;
use crate::proto::v1::{
    CapabilitiesRequest, CapabilitiesResponse, DigestListAck, DigestListAckError,
    GetForwardingPipelineConfigRequest, GetForwardingPipelineConfigResponse, PacketOut,
    PacketOutError, ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest,
    SetForwardingPipelineConfigResponse, StreamError, StreamMessageRequest, StreamOtherError,
    WriteResponse, stream_error,
};
use crate::read::Reading;
use crate::stream::digest_task::Acknowledgement;
use crate::stream::hub::{ConnectionNumber, Hub, Outbound, Response as StreamResponse};
use crate::stream::packets;

/// The version of the specification that this server implements.
pub(crate) const API_VERSION: &str = "1.5.0";

/// Size in bytes at which a read response is sent. Packet-ins wait while a response is built, and behind its bytes on
/// the connection, so responses are short. glibc also serves short buffers from its heap. For long ones, the kernel
/// would clear new pages again and again.
const READ_CHUNK: usize = 32 * 1024;

/// Largest number of reads in flight. Each read keeps its result in memory until the client has received it.
const MAX_READS: usize = 64;

/// Largest number of bytes that a stream error quotes of a client's message.
const MAX_ECHO: usize = 16 << 10;

/// Largest number of packet-outs that are passed to the device together.
const PACKET_OUTS: usize = 64;

/// The P4Runtime service of one device.
#[derive(Clone)]
pub(crate) struct Service {
    control: Arc<Control>,
    acknowledgements: mpsc::Sender<Acknowledgement>,
    reads: Arc<Semaphore>,
    /// Whether writes are accepted on any connection.
    any_connection: bool,
}

impl Service {
    /// Creates the service of a device. Acknowledgements of digest lists go to the queue `acknowledgements`, from which
    /// the task that buffers digests takes them.
    pub(crate) fn new(
        control: Arc<Control>,
        acknowledgements: mpsc::Sender<Acknowledgement>,
        any_connection: bool,
    ) -> Self {
        Self {
            control,
            acknowledgements,
            reads: Arc::new(Semaphore::new(MAX_READS)),
            any_connection,
        }
    }

    /// Returns the connection of a request. Returns `None` if writes are accepted on any connection.
    fn connection<T>(&self, request: &Request<T>) -> ConnectionNumber {
        let id = request.extensions().get::<ConnectionId>();
        id.filter(|_| !self.any_connection).map(|id| id.0)
    }
}

#[tonic::async_trait]
impl P4Runtime for Service {
    type ReadStream = ReceiverStream<Result<ReadResponse, Status>>;
    type StreamChannelStream = Pin<Box<dyn Stream<Item = Result<StreamResponse, Status>> + Send>>;

    async fn write(&self, request: Request<Bytes>) -> Result<Response<WriteResponse>, Status> {
        let connection = self.connection(&request);
        let request = request.into_inner();
        block_in_place(|| self.control.write(request, connection))?;
        Ok(Response::new(WriteResponse {}))
    }

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        let Ok(permit) = Arc::clone(&self.reads).try_acquire_owned() else {
            let message = format!("{MAX_READS} reads are in flight, the maximum: try again later");
            return Err(Status::resource_exhausted(message));
        };
        let (reading, results) = block_in_place(|| self.control.read(&request))?;
        let (sender, receiver) = mpsc::channel(2);
        tokio::spawn(async move {
            send_reading(reading, results, sender).await;
            drop(permit);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        let connection = self.connection(&request);
        let request = request.into_inner();
        block_in_place(|| self.control.set_pipeline(request, connection))?;
        Ok(Response::new(SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        self.control.check_device(request.device_id)?;
        let config = self.control.pipeline_config(request.response_type());
        Ok(Response::new(GetForwardingPipelineConfigResponse {
            config,
        }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<Bytes>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let connection = self.connection(&request);
        let (id, mut outbound): (_, Outbound) = self.control.hub().connect(connection)?;
        let session = Session {
            service: self.clone(),
            id,
        };
        let reader = tokio::spawn(session.run(request.into_inner()));
        outbound.set_reader(reader.abort_handle());
        Ok(Response::new(Box::pin(outbound)))
    }

    async fn capabilities(
        &self,
        request: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        match request.into_inner().device_id {
            0 => {}
            device_id => self.control.check_device(device_id)?,
        }
        Ok(Response::new(CapabilitiesResponse {
            p4runtime_api_version: API_VERSION.into(),
            ..CapabilitiesResponse::default()
        }))
    }
}

/// Sends the entities in chunks. Waits until the client has received a chunk before it builds the next one. Sends the
/// status of the batch last.
async fn send_reading(
    reading: Reading,
    results: Vec<UpdateResult>,
    sender: mpsc::Sender<Result<ReadResponse, Status>>,
) {
    let mut chunk = ReadResponse::default();
    let mut size = 0;
    for entity in reading {
        size += entity.encoded_len();
        chunk.entities.push(entity);
        if size >= READ_CHUNK {
            size = 0;
            if sender.send(Ok(std::mem::take(&mut chunk))).await.is_err() {
                return;
            }
            tokio::task::yield_now().await; // to packet-ins and packet-outs
        }
    }
    if !chunk.entities.is_empty() && sender.send(Ok(chunk)).await.is_err() {
        return;
    }
    if let Err(status) = batch_status(&results) {
        // Sending fails if the client has disconnected. The status then has no receiver.
        let _ = sender.send(Err(status)).await;
    }
}

/// Packet-outs. Each is kept in two forms: the client's message, and the packet that enters the pipeline.
type PacketOuts = Vec<(Bytes, Vec<u8>)>;

/// Returns the next message of a stream if it has arrived already.
fn arrived(requests: &mut Streaming<Bytes>) -> Option<Result<Option<Bytes>, Status>> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(requests).poll_next(&mut context) {
        Poll::Ready(next) => Some(next.transpose()),
        Poll::Pending => None,
    }
}

/// The requests of one controller's stream.
struct Session {
    service: Service,
    id: u64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.hub().disconnect(self.id);
    }
}

impl Session {
    fn hub(&self) -> &Hub {
        self.service.control.hub()
    }

    async fn run(self, mut requests: Streaming<Bytes>) {
        let mut waiting = PacketOuts::default();
        loop {
            let next = if waiting.len() < PACKET_OUTS {
                arrived(&mut requests)
            } else {
                None
            };
            if !matches!(next, Some(Ok(Some(_)))) {
                self.send(&mut waiting);
            }
            let message = match next {
                Some(next) => next,
                None => requests.message().await,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Err(status) if status.code() == Code::ResourceExhausted => {
                    return self.hub().end(self.id, status);
                }
                // An error of the transport means that the client has disconnected.
                Ok(None) | Err(_) => return,
            };
            if let Some(packet) = self.packet_of(&message) {
                waiting.push((message, packet));
                continue;
            }
            self.send(&mut waiting);
            // A message that is not protobuf ends the stream.
            let Ok(request) = StreamMessageRequest::decode(message) else {
                return;
            };
            match request.update {
                Some(RequestUpdate::Arbitration(update)) => {
                    match self.hub().arbitrate(self.id, &update) {
                        Ok(None) => {}
                        Ok(Some(takeover)) => {
                            block_in_place(|| self.service.control.complete(&takeover));
                        }
                        Err(status) => return self.hub().end(self.id, status),
                    }
                }
                Some(RequestUpdate::Packet(packet)) => self.packet_out(packet),
                Some(RequestUpdate::DigestAck(ack)) => self.digest_ack(ack),
                Some(RequestUpdate::Other(other)) => {
                    let error = UpdateError::unimplemented(
                        "architecture-specific requests are not implemented",
                    );
                    let other = Some(other).filter(|other| other.encoded_len() <= MAX_ECHO);
                    let details = StreamOtherError { other };
                    self.report(error, stream_error::Details::Other(details));
                }
                None => {
                    let error = UpdateError::invalid("the stream message is empty");
                    let details = StreamOtherError::default();
                    self.report(error, stream_error::Details::Other(details));
                }
            }
        }
    }

    fn report(&self, error: UpdateError, details: stream_error::Details) {
        let error = StreamError {
            canonical_code: error.code.into(),
            message: error.message,
            space: "sluice".into(),
            code: 0,
            details: Some(details),
        };
        self.hub().send_error(self.id, error);
    }

    /// Returns the packet of a packet-out, without building the protobuf message. Returns `None` for any other message.
    fn packet_of(&self, message: &Bytes) -> Option<Vec<u8>> {
        let pipeline = self.hub().running()?;
        let header = pipeline.schema.packet_out.as_ref()?;
        packets::packet_out(header, message)
    }

    /// Sends the packet-outs of a client. If the client may send every packet-out, sends them together, so that they
    /// wake a worker once, and reports those that find no room. Otherwise decodes and checks each of them.
    fn send(&self, waiting: &mut PacketOuts) {
        if waiting.is_empty() {
            return;
        }
        let device = self.service.control.device();
        let (messages, packets): (Vec<_>, Vec<_>) = waiting.drain(..).unzip();
        let sends_all = device.config().cpu_port.is_some() && self.hub().sends_all(self.id);
        let sent = if sends_all {
            device.packet_outs(packets)
        } else {
            0
        };
        for message in messages.into_iter().skip(sent) {
            if let Ok(StreamMessageRequest {
                update: Some(RequestUpdate::Packet(packet)),
            }) = StreamMessageRequest::decode(message)
            {
                match sends_all {
                    true => self.refuse(queue_full(), packet),
                    false => self.packet_out(packet),
                }
            }
        }
    }

    fn packet_out(&self, packet: PacketOut) {
        if let Err(error) = self.try_packet_out(&packet) {
            self.refuse(error, packet);
        }
    }

    fn refuse(&self, error: UpdateError, packet: PacketOut) {
        let packet_out = Some(packet).filter(|packet| packet.encoded_len() <= MAX_ECHO);
        let details = PacketOutError { packet_out };
        self.report(error, stream_error::Details::PacketOut(details));
    }

    fn try_packet_out(&self, packet: &PacketOut) -> UpdateResult {
        let Some(rights) = self.hub().rights_of(self.id) else {
            return Err(UpdateError::permission_denied(
                "only the primary may send packets",
            ));
        };
        if !rights.sends(&packet.metadata) {
            return Err(UpdateError::permission_denied(
                "the role does not include this packet-out",
            ));
        }
        let Some(pipeline) = self.hub().running() else {
            let message = "no forwarding pipeline config is set".into();
            return Err(UpdateError {
                code: tonic::Code::FailedPrecondition,
                message,
            });
        };
        let mut bytes = match &pipeline.schema.packet_out {
            Some(header) => header.encode(&packet.metadata)?,
            None if packet.metadata.is_empty() => Vec::new(),
            None => {
                return Err(UpdateError::invalid(
                    "the packet-out has metadata, but P4Info has no packet_out header",
                ));
            }
        };
        bytes.extend_from_slice(&packet.payload);
        let device = self.service.control.device();
        if device.config().cpu_port.is_none() {
            let message =
                "the switch was started without --cpu-port, so it accepts no packet-outs".into();
            return Err(UpdateError {
                code: tonic::Code::FailedPrecondition,
                message,
            });
        }
        if device.packet_out(&bytes) {
            Ok(())
        } else {
            Err(queue_full())
        }
    }

    fn digest_ack(&self, ack: DigestListAck) {
        let running = self.hub().running();
        let known = running.is_some_and(|p| p.schema.digests.contains_key(&ack.digest_id));
        let error = if self.hub().rights_of(self.id).is_none() {
            UpdateError::permission_denied("only the primary may acknowledge digests")
        } else if !known {
            UpdateError::invalid(format!(
                "P4Info has no digest with id {:#010x}",
                ack.digest_id
            ))
        } else {
            // If the queue is full, drops the acknowledgement, as if it had been lost in transit.
            let _ = self
                .service
                .acknowledgements
                .try_send((ack.digest_id, ack.list_id));
            return;
        };
        let details = DigestListAckError {
            digest_list_ack: Some(ack),
        };
        self.report(error, stream_error::Details::DigestListAck(details));
    }
}

/// Returns the error that reports a packet-out that was dropped because its queue is full.
fn queue_full() -> UpdateError {
    UpdateError {
        code: tonic::Code::ResourceExhausted,
        message: "the queue of packet-outs is full: send more slowly".into(),
    }
}
