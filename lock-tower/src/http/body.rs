//! The response body behind a lock: a refusal, the inner body, or the inner body under the lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tower::BoxError;

use crate::hold::layer_holds::LayerHolds;
use crate::hold::section::{End, Failure, PollStep, Section, Step, Work};
use crate::http::response_options::ResponseOptions;

/// The response body of [`HttpLock`](crate::http::HttpLock) and
/// [`LockScope`](crate::scope::LockScope): the body of the inner service, or of a refusal.
///
/// With [`hold_until_body_end`](crate::HttpLockLayer::hold_until_body_end) the body keeps the lock
/// until the last frame. Dropping the body also releases the lock.
#[pin_project]
pub struct LockBody<B: Body> {
    #[pin]
    kind: LockBodyKind<B>,
}

#[pin_project(project = LockBodyProjection)]
enum LockBodyKind<B: Body> {
    /// The body of a refusal; `None` if the body is empty, or has been sent.
    Refusal(Option<Bytes>),
    /// The body of the inner service, without a lock.
    Open(#[pin] B),
    /// The body of the inner service, with the lock. Boxed, so that the other and more frequent
    /// kinds stay small.
    Held(Pin<Box<HeldBody<B>>>),
}

/// A response body that keeps the lock until its end.
#[pin_project]
struct HeldBody<B: Body> {
    #[pin]
    section: Section<Frames<B>>,
    response_options: Arc<ResponseOptions>,
}

/// A response body as the [`Work`] of a section. Each frame is an intermediate result, except for
/// the last frame: it ends the work, so it is sent after the lock is released. Trailers are always
/// the last frame, even if the body does not report its end, and so is the frame that completes the
/// length.
#[pin_project(project = FramesProjection)]
struct Frames<B> {
    #[pin]
    body: B,
    /// The number of bytes after which the server drops the body without another poll; `None` if
    /// the server polls the body to its end.
    left: Option<u64>,
}

impl<B: Body> Work for Frames<B> {
    type More = Frame<B::Data>;
    type Output = Option<Frame<B::Data>>;
    type Error = B::Error;

    fn poll_step(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollStep<Self> {
        let FramesProjection { mut body, left } = self.project();
        let frame = ready!(body.as_mut().poll_frame(cx)).transpose();
        let data = frame.iter().flatten().find_map(Frame::data_ref);
        let sent = data.map_or(0, |data| data.remaining() as u64);
        left.iter_mut().for_each(|left| *left = left.saturating_sub(sent));
        let is_end = *left == Some(0) || body.is_end_stream();
        Poll::Ready(match frame {
            Ok(Some(frame)) if !frame.is_trailers() && !is_end => Step::More(frame),
            last => Step::End(last),
        })
    }
}

impl<B: Body> LockBody<B> {
    pub(crate) fn refusal(body: Bytes) -> Self {
        Self { kind: LockBodyKind::Refusal(Some(body).filter(|body| !body.is_empty())) }
    }

    pub(crate) fn open(body: B) -> Self {
        Self { kind: LockBodyKind::Open(body) }
    }

    /// Creates the body that keeps the locks of `layer_holds` until its end. The server drops the
    /// body after `length` bytes; `None` if it polls the body to its end.
    pub(crate) fn held(
        body: B,
        length: Option<u64>,
        layer_holds: LayerHolds,
        response_options: &Arc<ResponseOptions>,
    ) -> Self {
        let section = Section::new(Frames { body, left: length }, layer_holds, |_, _| false);
        Self {
            kind: LockBodyKind::Held(Box::pin(HeldBody {
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
            LockBodyProjection::Refusal(body) => {
                Poll::Ready(body.take().map(|body| Ok(Frame::data(body.into()))))
            }
            LockBodyProjection::Open(body) => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            LockBodyProjection::Held(held) => held.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            LockBodyKind::Refusal(body) => body.is_none(),
            LockBodyKind::Open(body) => body.is_end_stream(),
            // Before the section is done, a frame or an error is still to come.
            LockBodyKind::Held(held) => held.section.is_done(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            LockBodyKind::Refusal(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64)
            }
            LockBodyKind::Open(body) => body.size_hint(),
            LockBodyKind::Held(held) => match held.section.work() {
                Some(Frames { body, .. }) => body.size_hint(),
                None if held.section.is_done() => SizeHint::with_exact(0),
                None => SizeHint::default(), // the last frame is still to come
            },
        }
    }
}

impl<B> HeldBody<B>
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
                // The last frame for the client: trailers if the client reads them, otherwise an
                // error that cuts off the body.
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
            LockBodyKind::Refusal(_) => "LockBody::Refusal",
            LockBodyKind::Open(_) => "LockBody::Open",
            LockBodyKind::Held(_) => "LockBody::Held",
        })
    }
}
