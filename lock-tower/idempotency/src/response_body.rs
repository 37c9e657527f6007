//! The response bodies: `ResponseBody`, which the service returns, and `AnswerBody`, for a request
//! that has waited in the queue.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use lock_tower::http::LockBody;
use pin_project::pin_project;
use tower::BoxError;

use crate::request_body::as_bytes;

/// The response body of an [`Idempotency`](crate::Idempotency) service. For a request without a
/// key, it is the handler's body unchanged. For a request with a key, it belongs to the handler's
/// response, a stored response or a refusal.
#[pin_project]
pub struct ResponseBody<R: Body<Error: Into<BoxError>>>(#[pin] Kind<R>);

#[pin_project(project = Projection)]
enum Kind<R: Body<Error: Into<BoxError>>> {
    /// The handler's body for a request whose key the layer does not handle.
    Passing(#[pin] R),
    /// The response body of a request with a key that the layer handles.
    Keyed(#[pin] LockBody<AnswerBody<R>>),
    /// The body of a refusal before the body is read. `None` once it is sent.
    Whole(Option<Bytes>),
}

impl<R: Body<Error: Into<BoxError>>> ResponseBody<R> {
    pub(crate) fn passing(body: R) -> Self {
        Self(Kind::Passing(body))
    }

    pub(crate) fn keyed(body: LockBody<AnswerBody<R>>) -> Self {
        Self(Kind::Keyed(body))
    }

    pub(crate) fn whole(data: Bytes) -> Self {
        Self(Kind::Whole(Some(data).filter(|data| !data.is_empty())))
    }
}

impl<R: Body<Error: Into<BoxError>>> Body for ResponseBody<R> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().0.project() {
            Projection::Passing(body) => body.poll_frame(cx).map(|frame| frame.map(boxed)),
            Projection::Keyed(body) => body.poll_frame(cx),
            Projection::Whole(data) => Poll::Ready(data.take().map(Frame::data).map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Passing(body) => body.is_end_stream(),
            Kind::Keyed(body) => body.is_end_stream(),
            Kind::Whole(data) => data.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Passing(body) => body.size_hint(),
            Kind::Keyed(body) => body.size_hint(),
            Kind::Whole(data) => SizeHint::with_exact(data.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

impl<R: Body<Error: Into<BoxError>> + Default> Default for ResponseBody<R> {
    fn default() -> Self {
        Self::passing(R::default())
    }
}

impl<R: Body<Error: Into<BoxError>>> fmt::Debug for ResponseBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Passing(_) => "ResponseBody(passing)",
            Kind::Keyed(_) => "ResponseBody(keyed)",
            Kind::Whole(_) => "ResponseBody(whole)",
        })
    }
}

/// Converts frame data to `Bytes`, and boxes the error.
fn boxed<D: Buf, E: Into<BoxError>>(frame: Result<Frame<D>, E>) -> Result<Frame<Bytes>, BoxError> {
    as_bytes(frame).map_err(Into::into)
}

/// The response body for a request that has waited in the queue. The client receives the bytes in
/// `data` first: a stored response, a refusal, or what the layer has collected of the handler's
/// body in order to store it. Then it receives what `end` contains: trailers, an error, or the rest
/// of the body.
pub(crate) struct AnswerBody<R> {
    /// The bytes to send first. Empty once they are sent.
    pub(crate) data: Bytes,
    pub(crate) end: End<R>,
}

/// What the client receives after the bytes in `data`.
pub(crate) enum End<R> {
    /// The body has ended. `None` if it has no trailers, or once they are sent.
    Trailers(Option<HeaderMap>),
    /// The handler's body has failed with this error. `None` once it is sent.
    Failed(Option<BoxError>),
    /// The handler's body has not ended yet, so the rest is streamed and the response is not
    /// stored.
    Open(Pin<Box<R>>),
}

impl<R> AnswerBody<R> {
    /// Creates a complete body from these bytes.
    pub(crate) fn whole(data: Bytes) -> Self {
        Self { data, end: End::Trailers(None) }
    }

    /// Creates a body that streams the handler's body, without collecting it.
    pub(crate) fn open(body: R) -> Self {
        Self { data: Bytes::new(), end: End::Open(Box::pin(body)) }
    }
}

impl<R: Body<Error: Into<BoxError>>> Body for AnswerBody<R> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if !this.data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.data)))));
        }
        match &mut this.end {
            End::Trailers(trailers) => Poll::Ready(trailers.take().map(Frame::trailers).map(Ok)),
            End::Failed(error) => Poll::Ready(error.take().map(Err)),
            End::Open(body) => body.as_mut().poll_frame(cx).map(|frame| frame.map(boxed)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty()
            && match &self.end {
                End::Trailers(trailers) => trailers.is_none(),
                End::Failed(error) => error.is_none(),
                End::Open(body) => body.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let collected = self.data.len() as u64;
        match &self.end {
            End::Trailers(_) => SizeHint::with_exact(collected),
            End::Failed(_) => SizeHint::default(),
            End::Open(body) => {
                let rest = body.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(collected));
                if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(collected)) {
                    hint.set_upper(upper);
                }
                hint
            }
        }
    }
}
