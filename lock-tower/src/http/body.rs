//! The body of a response from behind a lock: a refusal, the inner body, or the inner body with its
//! lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tower::BoxError;

use crate::hold::layer_holds::LayerHolds;
use crate::hold::section::{End, Failure, PollStep, Section, Step, Work};
use crate::http::response_options::ResponseOptions;

/// The body of an [`HttpLock`](crate::HttpLock)'s response.
///
/// Under [`hold_until_body_end`](crate::HttpLockLayer::hold_until_body_end) it carries the lock.
/// Dropping it releases the lock.
#[pin_project]
pub struct LockBody<B: Body> {
    #[pin]
    kind: Kind<B>,
}

#[pin_project(project = KindProjection)]
enum Kind<B: Body> {
    Refusal(Option<Bytes>),
    Open(#[pin] B),
    /// Boxed, so that the other kinds, which are the usual ones, stay small.
    Held(Pin<Box<Held<B>>>),
}

/// A body under its lock.
#[pin_project]
struct Held<B: Body> {
    #[pin]
    section: Section<Frames<B>>,
    response_options: Arc<ResponseOptions>,
}

/// The frames of a body. The last one is the end, and waits until the lock is released. Trailers
/// are the last frame, also of a body that does not know its end.
#[pin_project]
struct Frames<B>(#[pin] B);

impl<B: Body> Work for Frames<B> {
    type More = Frame<B::Data>;
    type Output = Option<Frame<B::Data>>;
    type Error = B::Error;

    fn poll_step(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollStep<Self> {
        let mut body = self.project().0;
        let frame = ready!(body.as_mut().poll_frame(cx)).transpose();
        Poll::Ready(match frame {
            Ok(Some(frame)) if !frame.is_trailers() && !body.is_end_stream() => Step::More(frame),
            last => Step::End(last),
        })
    }
}

impl<B: Body> LockBody<B> {
    pub(crate) fn refusal(body: Bytes) -> Self {
        Self { kind: Kind::Refusal(Some(body).filter(|body| !body.is_empty())) }
    }

    pub(crate) fn open(body: B) -> Self {
        Self { kind: Kind::Open(body) }
    }

    pub(crate) fn held(
        body: B,
        layer_holds: LayerHolds,
        response_options: &Arc<ResponseOptions>,
    ) -> Self {
        let section = Section::new(Frames(body), layer_holds, |_| false);
        Self {
            kind: Kind::Held(Box::pin(Held {
                section,
                response_options: Arc::clone(response_options),
            })),
        }
    }
}

impl<B> Body for LockBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        match self.project().kind.project() {
            KindProjection::Refusal(body) => {
                Poll::Ready(body.take().map(|body| Ok(Frame::data(body.into()))))
            }
            KindProjection::Open(body) => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            KindProjection::Held(held) => held.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Refusal(body) => body.is_none(),
            Kind::Open(body) => body.is_end_stream(),
            // Until it is done there is a frame to come, or an error.
            Kind::Held(held) => held.section.is_done(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Refusal(body) => SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Open(body) => body.size_hint(),
            Kind::Held(held) => match held.section.work() {
                Some(Frames(body)) => body.size_hint(),
                None if held.section.is_done() => SizeHint::with_exact(0),
                None => SizeHint::default(), // the last frame waits
            },
        }
    }
}

impl<B> Held<B>
where
    B: Body,
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        if this.section.is_done() {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(this.section.poll(cx)) {
            Step::More(frame) => Some(Ok(frame)),
            Step::End(End { result: Err(Failure::Refused(error)), mut layer_holds }) => {
                layer_holds.end(Some(&error));
                // The last frame for the client: trailers where a client reads them, or a body that
                // is cut.
                Some(this.response_options.refusals.last_frame(&error).ok_or_else(|| error.into()))
            }
            Step::End(End { result: Ok(last), mut layer_holds }) => {
                layer_holds.end(None);
                last.map(Ok)
            }
            Step::End(End { result: Err(Failure::Inner(error)), mut layer_holds }) => {
                layer_holds.end(None);
                Some(Err(error.into()))
            }
        })
    }
}

impl<B: Body + Default> Default for LockBody<B> {
    fn default() -> Self {
        Self::open(B::default())
    }
}

impl<B: Body> fmt::Debug for LockBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Refusal(_) => "LockBody::Refusal",
            Kind::Open(_) => "LockBody::Open",
            Kind::Held(_) => "LockBody::Held",
        })
    }
}
