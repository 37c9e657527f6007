//! What is read of a body while its request waits for a lock.
//!
//! # Implementation notes
//!
//! On HTTP/2 and HTTP/3 all requests of a connection share one flow-control window. A body that is
//! not read keeps its part of the window. So requests that wait with unread bodies can leave
//! nothing for the holder of the lock, which then waits for them as they wait for it. Behind a
//! proxy the requests can be of several clients. So a request that waits reads its body, within
//! bounds. Beyond them it is refused. On HTTP/1 an unread body stops its own connection only.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf as _;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::Sleep;

use crate::refusal::LockError;

/// In this time the store says whether a request has to wait at all. A large upload is not refused
/// before.
const GRACE: Duration = Duration::from_millis(100);

/// What a frame costs beside its data.
const FRAME: usize = 128;

/// How much may be read ahead.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) each: usize,
    /// Of all requests of a layer and its clones.
    total: Arc<Total>,
}

#[derive(Debug)]
struct Total {
    limit: usize,
    used: AtomicUsize,
}

impl Bounds {
    pub(crate) fn set_total(&mut self, limit: usize) {
        self.total = Arc::new(Total { limit, used: AtomicUsize::new(0) });
    }
}

impl Default for Bounds {
    /// 4 MiB is the largest message of gRPC by default.
    fn default() -> Self {
        let total = Arc::new(Total { limit: 64 << 20, used: AtomicUsize::new(0) });
        Self { each: 4 << 20, total }
    }
}

/// Whether a body that is not read takes the window from other requests.
pub(crate) fn is_needed<B: Body>(version: Version, body: &B) -> bool {
    version >= Version::HTTP_2 && !body.is_end_stream()
}

/// What comes of a body at a time.
pub(crate) type Piece<B> = Result<Frame<<B as Body>::Data>, <B as Body>::Error>;

/// A body, and what was read of it before its reader asked.
pub(crate) struct ReadAhead<B: Body> {
    frames: VecDeque<Piece<B>>,
    /// None once it has ended.
    rest: Option<Pin<Box<B>>>,
    bounds: Bounds,
    used: usize,
    grace: Option<Pin<Box<Sleep>>>,
}

impl<B: Body> ReadAhead<B> {
    pub(crate) fn new(body: B, bounds: &Bounds) -> Self {
        let (frames, rest) = (VecDeque::new(), Some(Box::pin(body)));
        Self { frames, rest, bounds: bounds.clone(), used: 0, grace: None }
    }

    /// Reads what there is. Ready if that is more than is allowed; pending, also when all has been
    /// read.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<LockError> {
        while self.is_within_bounds() {
            let Some(rest) = &mut self.rest else { return Poll::Pending };
            match ready!(rest.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.count(cost(&frame));
                    self.frames.push_back(Ok(frame));
                }
                Some(Err(error)) => {
                    self.frames.push_back(Err(error));
                    self.rest = None;
                }
                None => self.rest = None,
            }
        }
        if self.rest.as_ref().is_none_or(|rest| rest.is_end_stream()) {
            return Poll::Pending; // just so
        }
        if self.grace.is_none() && Handle::try_current().is_ok() {
            self.grace = Some(Box::pin(tokio::time::sleep(GRACE)));
        }
        if let Some(grace) = &mut self.grace {
            ready!(grace.as_mut().poll(cx));
        }
        Poll::Ready(LockError::body_limit())
    }

    /// The next frame for the reader of the body.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece<B>>> {
        if let Some(frame) = self.frames.pop_front() {
            if let Ok(frame) = &frame {
                self.uncount(cost(frame));
            }
            return Poll::Ready(Some(frame));
        }
        match &mut self.rest {
            Some(rest) => rest.as_mut().poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    /// What changes when it gets something, or learns that there is no more.
    pub(crate) fn progress(&self) -> (usize, bool) {
        (self.frames.len(), self.rest.is_some())
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let data = self.frames.iter().flatten().filter_map(Frame::data_ref);
        let ahead: u64 = data.map(|data| data.remaining() as u64).sum();
        let rest =
            self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |rest| rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(ahead.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(ahead)) {
            hint.set_upper(upper);
        }
        hint
    }

    /// It is read no more: the rest need not come.
    pub(crate) fn end(&mut self) {
        self.frames.clear();
        self.rest = None;
        self.uncount(self.used);
    }

    fn is_within_bounds(&self) -> bool {
        let total = &self.bounds.total;
        self.used <= self.bounds.each && total.used.load(Ordering::Relaxed) <= total.limit
    }

    fn count(&mut self, cost: usize) {
        self.used += cost;
        self.bounds.total.used.fetch_add(cost, Ordering::Relaxed);
    }

    fn uncount(&mut self, cost: usize) {
        self.used -= cost;
        self.bounds.total.used.fetch_sub(cost, Ordering::Relaxed);
    }
}

fn cost<D: bytes::Buf>(frame: &Frame<D>) -> usize {
    FRAME + frame.data_ref().map_or(0, |data| data.remaining())
}

impl<B: Body> Drop for ReadAhead<B> {
    fn drop(&mut self) {
        self.uncount(self.used);
    }
}

impl<B: Body> fmt::Debug for ReadAhead<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead").field("frames", &self.frames.len()).finish_non_exhaustive()
    }
}
