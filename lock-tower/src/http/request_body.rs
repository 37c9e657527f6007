//! The request body behind a lock: the part read during the wait, and the rest.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use crate::http::read_ahead::{Beyond, ReadAhead, ReadBounds, into_bytes};
use crate::refusal::LockError;

/// The request body passed to the inner service of [`HttpLock`](crate::http::HttpLock) and
/// [`LockScope`](crate::scope::LockScope). It contains all data of the client, in order. Some data
/// may be read while the request waits, and small pieces of data are then merged.
///
/// If an inner service needs another body type, such as axum's `from_fn`, convert the body in
/// between, with `.map_request(|request: Request<RequestBody<Body>>| request.map(Body::new))`.
#[pin_project]
pub struct RequestBody<B: Body> {
    #[pin]
    kind: RequestBodyKind<B>,
}

#[pin_project(project = RequestBodyProjection)]
enum RequestBodyKind<B: Body> {
    /// The body as received: nothing was read ahead.
    Open(#[pin] B),
    /// The layer reads the body ahead, before it calls the inner service.
    Ahead(Box<ReadAhead<B>>),
    /// The handler reads the body, and a lock wait in an extractor or handler may read it ahead.
    Shared(Reading<B>),
    /// A placeholder while [`poll_ahead`](RequestBody::poll_ahead) replaces `Open` with `Ahead`.
    Moving,
}

impl<B: Body> RequestBody<B> {
    pub(crate) fn open(body: B) -> Self {
        Self { kind: RequestBodyKind::Open(body) }
    }

    /// Creates a body that can be read ahead while an extractor or handler waits for a lock.
    /// Returns the body for the inner service, and the same body for the code that waits.
    pub(crate) fn shared(
        body: B,
        bounds: &ReadBounds,
        beyond: Beyond,
    ) -> (Self, Arc<SharedBody<B>>) {
        let body = ReadAhead::new(body, bounds, beyond);
        let state = SharedBodyState { body, waiting: Vec::new(), waits: 0 };
        let shared = Arc::new(SharedBody(Mutex::new(state)));
        (Self { kind: RequestBodyKind::Shared(Reading(Arc::clone(&shared))) }, shared)
    }

    /// Reads the body into memory while the request waits. Pending while the request may wait.
    /// Ready with the refusal if the body exceeds the `bounds` or has failed. There is no success
    /// value. Does nothing for a body made by [`shared`](Self::shared).
    pub(crate) fn poll_ahead(
        &mut self,
        bounds: &ReadBounds,
        beyond: Beyond,
        cx: &mut Context<'_>,
    ) -> Poll<LockError> {
        if let RequestBodyKind::Open(_) = &self.kind
            && let RequestBodyKind::Open(body) =
                std::mem::replace(&mut self.kind, RequestBodyKind::Moving)
        {
            self.kind = RequestBodyKind::Ahead(Box::new(ReadAhead::new(body, bounds, beyond)));
        }
        match &mut self.kind {
            RequestBodyKind::Ahead(body) => body.poll_ahead(cx),
            _ => Poll::Pending,
        }
    }
}

/// A request body with two readers: the handler, and a lock wait in the same request, which reads
/// ahead of the handler.
pub(crate) struct SharedBody<B: Body>(Mutex<SharedBodyState<B>>);

struct SharedBodyState<B: Body> {
    body: ReadAhead<B>,
    /// The wakers of the tasks that wait for the body. The body itself wakes only the task that
    /// polled last, which then wakes the others.
    waiting: Vec<Waker>,
    /// The number of lock waits that read the body ahead now.
    waits: usize,
}

/// A [`SharedBody`] of any body type, as used by code that waits for a lock.
pub(crate) trait PollAhead: Send + Sync {
    /// Records that a lock wait begins, which reads the body ahead until [`leave`](Self::leave).
    fn enter(&self);

    /// Reads the body into memory while the request waits. Pending while the request may wait.
    /// Ready with the refusal if the body exceeds the memory bounds or has failed. There is no
    /// success value.
    fn poll_ahead(&self, cx: &mut Context<'_>) -> Poll<LockError>;

    /// Stops reading ahead, at the end of a lock wait. Wakes all other readers of the body, because
    /// from now on they must poll it themselves.
    fn leave(&self);

    /// Drops the rest of the body if neither the handler nor a lock wait reads it. The server can
    /// then go on to the end of the request.
    fn end_if_unread(&self);
}

impl<B: Body> SharedBody<B> {
    /// Polls the body with `poll`, and returns the `Poll` that `poll` returns. The second value of
    /// `poll` is true if the body has changed: then the other tasks that wait for the body are
    /// woken.
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut ReadAhead<B>, &mut Context<'_>) -> (Poll<T>, bool),
    ) -> Poll<T> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        let (polled, has_changed) = poll(&mut state.body, cx);
        let others = match has_changed {
            true => std::mem::take(&mut state.waiting),
            false => Vec::new(),
        };
        if polled.is_pending() && !state.waiting.iter().any(|other| other.will_wake(&waker)) {
            state.waiting.push(waker);
        }
        drop(state); // a waker is foreign code, which may read this body
        others.into_iter().filter(|other| !other.will_wake(cx.waker())).for_each(Waker::wake);
        polled
    }

    fn wake_all(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Locks the mutex, even if poisoned, because a body that panics half way ends the request.
    fn lock(&self) -> MutexGuard<'_, SharedBodyState<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> PollAhead for SharedBody<B>
where
    B: Body + Send,
    B::Data: Send,
    B::Error: Send,
{
    fn poll_ahead(&self, cx: &mut Context<'_>) -> Poll<LockError> {
        self.poll(cx, |body, cx| {
            let before = body.progress();
            let polled = body.poll_ahead(cx);
            (polled, body.progress() != before)
        })
    }

    fn enter(&self) {
        self.lock().waits += 1;
    }

    fn leave(&self) {
        let mut state = self.lock();
        state.waits -= 1;
        state.body.end_wait();
        drop(state);
        self.end_if_unread();
        self.wake_all();
    }

    fn end_if_unread(&self) {
        let mut state = self.lock();
        if state.waits == 0 {
            state.body.end_if_discarded();
        }
    }
}

/// The handler's access to a shared body. Dropping it discards the body. The rest is still there
/// for a lock wait that begins before the handler is next pending, as in an extractor that is the
/// last argument of a handler: axum drops the body before it.
struct Reading<B: Body>(Arc<SharedBody<B>>);

impl<B: Body> Drop for Reading<B> {
    fn drop(&mut self) {
        self.0.lock().body.discard();
        self.0.wake_all();
    }
}

impl<B: Body> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            RequestBodyProjection::Open(body) => body.poll_frame(cx).map_ok(into_bytes),
            RequestBodyProjection::Ahead(body) => body.poll_frame(cx),
            RequestBodyProjection::Shared(reading) => reading.0.poll(cx, |body, cx| {
                let polled = body.poll_frame(cx);
                let has_changed = polled.is_ready();
                (polled, has_changed)
            }),
            RequestBodyProjection::Moving => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            RequestBodyKind::Open(body) => body.is_end_stream(),
            RequestBodyKind::Ahead(body) => body.is_end_stream(),
            RequestBodyKind::Shared(reading) => reading.0.lock().body.is_end_stream(),
            RequestBodyKind::Moving => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            RequestBodyKind::Open(body) => body.size_hint(),
            RequestBodyKind::Ahead(body) => body.size_hint(),
            RequestBodyKind::Shared(reading) => reading.0.lock().body.size_hint(),
            RequestBodyKind::Moving => SizeHint::with_exact(0),
        }
    }
}

impl<B: Body + Default> Default for RequestBody<B> {
    fn default() -> Self {
        Self::open(B::default())
    }
}

impl<B: Body> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            RequestBodyKind::Open(_) | RequestBodyKind::Moving => "RequestBody::Open",
            RequestBodyKind::Ahead(_) => "RequestBody::Ahead",
            RequestBodyKind::Shared(_) => "RequestBody::Shared",
        })
    }
}
