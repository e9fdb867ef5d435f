// SPDX-License-Identifier: Apache-2.0
//! Limits the number of requests in flight and the bytes of their messages.
//!
//! A layer around the services reads the length that each message announces, before the bytes of the message are
//! received. It charges this length to a budget that all connections share. If a message exceeds the budget, or the
//! limit of its method, its request ends with RESOURCE_EXHAUSTED. The charge is released when the request is answered,
//! or on a stream when the next message begins.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;
use tower_layer::Layer;
use tower_service::Service;

/// Largest length in bytes of a message that changes the switch: a pipeline configuration, or a batch of updates.
pub(crate) const MAX_WRITE: usize = 256 << 20;

/// Largest length in bytes of any other message, on a stream or in a read request. P4Runtime requires 4 MB.
pub(crate) const MAX_OTHER: usize = 4 << 20;

/// Largest sum of the lengths of all messages in flight, in bytes.
pub(crate) const MAX_BYTES: usize = 512 << 20;

/// Largest number of requests in flight. A stream does not count once it is open.
pub(crate) const MAX_REQUESTS: usize = 1024;

/// Length of the prefix of each gRPC message: a flag and the message's length.
const PREFIX: usize = 5;

/// Counts requests and bytes in flight. Clones share one budget.
#[derive(Debug, Clone, Default)]
pub(crate) struct Admission(Arc<Budget>);

#[derive(Debug, Default)]
struct Budget {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// Adds `amount` to a counter, unless the sum would exceed `limit`. Returns whether the amount was added.
fn add(counter: &AtomicUsize, amount: usize, limit: usize) -> bool {
    let sum = |value: usize| value.checked_add(amount).filter(|sum| *sum <= limit);
    let order = Ordering::Relaxed;
    counter.fetch_update(order, order, sum).is_ok()
}

/// A request in flight, with the charged length of its current message.
#[derive(Debug)]
struct Charge {
    budget: Arc<Budget>,
    bytes: Mutex<usize>,
}

impl Charge {
    /// Releases the charge of the last message, and charges the length of the next one.
    fn set(&self, bytes: usize) -> Result<(), Status> {
        let mut charged = self.bytes.lock();
        self.budget.bytes.fetch_sub(*charged, Ordering::Relaxed);
        *charged = 0;
        if !add(&self.budget.bytes, bytes, MAX_BYTES) {
            let message =
                format!("the messages in flight would exceed {MAX_BYTES} bytes: try again later");
            return Err(Status::resource_exhausted(message));
        }
        *charged = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A request that has not been answered yet.
struct Answering(Arc<Budget>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S> Layer<S> for Admission {
    type Service = Admitted<S>;

    fn layer(&self, inner: S) -> Admitted<S> {
        Admitted {
            inner,
            budget: Arc::clone(&self.0),
        }
    }
}

/// Passes only those requests to the inner service that fit the budget.
#[derive(Debug, Clone)]
pub(crate) struct Admitted<S> {
    inner: S,
    budget: Arc<Budget>,
}

impl<S> Service<http::Request<Body>> for Admitted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if !add(&self.budget.requests, 1, MAX_REQUESTS) {
            let message =
                format!("{MAX_REQUESTS} requests are in flight, the maximum: try again later");
            let refusal = Status::resource_exhausted(message).into_http();
            return Box::pin(async move { Ok(refusal) });
        }
        let answering = Answering(Arc::clone(&self.budget));
        let charge = Arc::new(Charge {
            budget: Arc::clone(&self.budget),
            bytes: Mutex::default(),
        });
        let limit = limit(request.uri().path());
        let measured = |body| {
            Body::new(Measured {
                body,
                limit,
                prefix: Vec::with_capacity(PREFIX),
                rest: 0,
                charge: Arc::clone(&charge),
            })
        };
        let answer = self.inner.call(request.map(measured));
        Box::pin(async move {
            let answer = answer.await;
            // Order: the charge is released only here, because the message is in memory until its request is answered.
            drop((answering, charge));
            answer
        })
    }
}

/// Returns the largest message length of a method, in bytes.
fn limit(path: &str) -> usize {
    match path.rsplit('/').next() {
        Some("Write" | "SetForwardingPipelineConfig") => MAX_WRITE,
        _ => MAX_OTHER,
    }
}

/// A request's body. Each message is charged when it begins.
struct Measured {
    body: Body,
    limit: usize,
    /// The bytes of the next message's prefix that have arrived.
    prefix: Vec<u8>,
    /// Bytes of the message that have not arrived yet.
    rest: usize,
    charge: Arc<Charge>,
}

impl Measured {
    fn measure(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let taken = self.rest.min(bytes.len());
                self.rest -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            let taken = (PREFIX - self.prefix.len()).min(bytes.len());
            self.prefix.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let [_, a, b, c, d] = *self.prefix.as_slice() {
                self.prefix.clear();
                self.rest = u32::from_be_bytes([a, b, c, d]) as usize;
                self.begin()?;
            }
        }
        Ok(())
    }

    fn begin(&self) -> Result<(), Status> {
        if self.rest > self.limit {
            return Err(Status::resource_exhausted(format!(
                "the message has {} bytes; the maximum for this method is {}",
                self.rest, self.limit
            )));
        }
        self.charge.set(self.rest)
    }
}

impl HttpBody for Measured {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            other => return other,
        };
        if let Some(bytes) = frame.data_ref()
            && let Err(status) = self.measure(bytes)
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measured(budget: &Arc<Budget>, limit: usize) -> Measured {
        Measured {
            body: Body::empty(),
            limit,
            prefix: Vec::new(),
            rest: 0,
            charge: Arc::new(Charge {
                budget: Arc::clone(budget),
                bytes: Mutex::default(),
            }),
        }
    }

    fn charged(budget: &Budget) -> usize {
        budget.bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn a_message_is_charged_when_it_begins_and_until_the_next() {
        let budget = Arc::new(Budget::default());
        let mut body = measured(&budget, 10);
        body.measure(&[0, 0, 0, 0, 7, 1, 2]).unwrap();
        assert_eq!(charged(&budget), 7);
        body.measure(&[3, 4, 5, 6, 7, 0, 0]).unwrap();
        assert_eq!(charged(&budget), 7);
        body.measure(&[0, 0, 3]).unwrap();
        assert_eq!(charged(&budget), 3);
        drop(body);
        assert_eq!(charged(&budget), 0);
    }

    #[test]
    fn what_is_too_long_or_too_much_is_refused_by_name() {
        let budget = Arc::new(Budget::default());
        let refused = measured(&budget, 10)
            .measure(&[0, 0, 0, 0, 11])
            .unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(
            refused
                .message()
                .contains("11 bytes; the maximum for this method is 10"),
            "{refused}"
        );
        let large = (MAX_WRITE as u32).to_be_bytes();
        let prefix = [&[0][..], &large].concat();
        let mut bodies: Vec<_> = (0..3).map(|_| measured(&budget, MAX_WRITE)).collect();
        assert!(bodies[0].measure(&prefix).is_ok());
        assert!(bodies[1].measure(&prefix).is_ok());
        let refused = bodies[2].measure(&prefix).unwrap_err();
        assert!(
            refused.message().contains("messages in flight"),
            "{refused}"
        );
        drop(bodies);
        assert_eq!(charged(&budget), 0);
    }

    proptest! {
        /// Checks that the charge does not depend on how a body is split into frames.
        #[test]
        fn pieces_do_not_matter(
            lengths in proptest::collection::vec(0..40usize, 0..8),
            cuts in proptest::collection::vec(1..9usize, 1..40),
        ) {
            let mut bytes = Vec::new();
            for length in &lengths {
                bytes.push(0);
                bytes.extend((*length as u32).to_be_bytes());
                bytes.extend(vec![0xff; *length]);
            }
            let budget = Arc::new(Budget::default());
            let mut body = measured(&budget, 40);
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                prop_assert!(body.measure(piece).is_ok());
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!((body.rest, body.prefix.len()), (0, 0));
            prop_assert_eq!(charged(&budget), lengths.last().copied().unwrap_or(0));
        }
    }
}
