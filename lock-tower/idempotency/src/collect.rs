//! Collects the body of a handler's response, so that the response can be stored.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, timeout_at};
use tower::BoxError;

use crate::frame::next_frame;
use crate::later::later;
use crate::record::answer::Answer;
use crate::record::outcome::Outcome;
use crate::response_body::{AnswerBody, End};

/// The limits within which the layer collects the body of a handler's response, so that the
/// response can be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CollectBounds {
    /// The maximum size of a stored body, in bytes. A response with a larger body is not stored.
    pub(crate) bytes: usize,
    /// The maximum time to collect a body whose size is unknown in advance. A response whose body
    /// takes longer is not stored.
    pub(crate) within: Duration,
}

impl CollectBounds {
    /// Collects the body of a response that is to be stored, at most until `latest`. Returns the
    /// outcome to store, and the response to send. The outcome is [`Outcome::NotKept`] if the
    /// response cannot be stored, or if the body fails, is too large or does not end in time.
    pub(crate) async fn collect<R>(
        &self,
        response: Response<R>,
        latest: Instant,
    ) -> (Outcome, Response<AnswerBody<R>>)
    where
        R: Body<Error: Into<BoxError>>,
    {
        let (parts, body) = response.into_parts();
        let body = match can_be_kept(&parts) && body.size_hint().lower() <= self.bytes as u64 {
            true => self.collect_body(Box::pin(body), latest).await,
            false => AnswerBody::open(body),
        };
        let outcome = match &body.end {
            End::Trailers(_) => Outcome::kept(Answer::new(&parts, body.data.clone())),
            End::Failed(_) | End::Open(_) => Outcome::NotKept(parts.status),
        };
        (outcome, Response::from_parts(parts, body))
    }

    async fn collect_body<R>(&self, mut body: Pin<Box<R>>, latest: Instant) -> AnswerBody<R>
    where
        R: Body<Error: Into<BoxError>>,
    {
        let is_bounded = body.size_hint().upper().is_some_and(|upper| upper <= self.bytes as u64);
        let until = match is_bounded {
            true => latest,
            false => latest.min(later(self.within)),
        };
        let mut data = BytesMut::new();
        let mut trailers = None;
        let end = loop {
            match timeout_at(until, next_frame(body.as_mut())).await {
                Ok(None) => break End::Trailers(trailers),
                Ok(Some(Err(error))) => break End::Failed(Some(error.into())),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => {
                        let fits = piece.remaining() <= self.bytes.saturating_sub(data.len());
                        data.put(piece);
                        if !fits {
                            break End::Open(body);
                        }
                    }
                    Err(frame) => trailers = frame.into_trailers().ok().or(trailers),
                },
                Err(_) => break End::Open(body),
            }
        };
        AnswerBody { data: data.freeze(), end }
    }
}

/// Returns true if a response with this head can be stored, because it is not an upgrade, not an
/// event stream, and not compressed for a particular client.
fn can_be_kept(parts: &Parts) -> bool {
    let is_stream = parts.headers.get(CONTENT_TYPE).is_some_and(|value| {
        let name = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
    });
    parts.status != StatusCode::SWITCHING_PROTOCOLS
        && !is_stream
        && !parts.headers.contains_key(CONTENT_ENCODING)
}
