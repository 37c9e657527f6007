//! `ReadBody`: the request body that the inner service receives.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use crate::read::{Reserved, WholeBody};

/// The request body that the service inside an [`IdempotencyLayer`](crate::IdempotencyLayer)
/// receives. If the layer handles the request's key, it has already read the body completely.
/// Otherwise the body is the client's, unchanged.
#[pin_project]
pub struct ReadBody<B>(#[pin] Kind<B>);

#[pin_project(project = Projection)]
enum Kind<B> {
    /// The unchanged body of a request whose key the layer does not handle, such as a request
    /// without a key.
    Passing(#[pin] B),
    /// The completely read body. `data` and `trailers` are `None` once they are sent, or if the
    /// body has none.
    Whole {
        data: Option<Bytes>,
        trailers: Option<HeaderMap>,
        /// The body's reserved memory, freed when the body is dropped.
        _reserved: Reserved,
    },
}

impl<B> ReadBody<B> {
    pub(crate) fn passing(body: B) -> Self {
        Self(Kind::Passing(body))
    }

    pub(crate) fn whole(body: WholeBody) -> Self {
        let WholeBody { data, trailers, reserved } = body;
        let data = Some(data).filter(|data| !data.is_empty());
        Self(Kind::Whole { data, trailers, _reserved: reserved })
    }
}

impl<B: Body> Body for ReadBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().0.project() {
            Projection::Passing(body) => body.poll_frame(cx).map(|frame| frame.map(as_bytes)),
            Projection::Whole { data, trailers, .. } => {
                let frame = data.take().map(Frame::data);
                let frame = frame.or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Passing(body) => body.is_end_stream(),
            Kind::Whole { data, trailers, .. } => data.is_none() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Passing(body) => body.size_hint(),
            Kind::Whole { data, .. } => {
                SizeHint::with_exact(data.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }
}

/// Converts frame data to `Bytes`, without a copy if it is already `Bytes`.
pub(crate) fn as_bytes<D: Buf, E>(frame: Result<Frame<D>, E>) -> Result<Frame<Bytes>, E> {
    frame.map(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
}

impl<B> fmt::Debug for ReadBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Passing(_) => "ReadBody(passing)",
            Kind::Whole { .. } => "ReadBody(whole)",
        })
    }
}
