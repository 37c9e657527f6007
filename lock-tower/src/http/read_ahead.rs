//! Reading a request's body while the request waits for a lock.
//!
//! # Implementation notes
//!
//! On HTTP/2 and HTTP/3 all requests of a connection share one flow-control window, and an unread
//! body occupies part of it. So waiting requests with unread bodies can exhaust the window for the
//! lock holder, which then waits for them while they wait for it. Behind a proxy the requests may
//! come from several clients. So the body of a waiting request is read, within bounds, and the
//! request is refused beyond them.
//!
//! On HTTP/1 an unread body blocks only that connection. But a server detects a disconnect by
//! reading: while body bytes are unread, a disconnect is not detected, and the request would wait
//! for nobody. So the body is read here as well, up to the share. Beyond the share the client is
//! slowed down, not refused.
//!
//! A body error ends the wait: the client is gone, or the bytes are not valid HTTP.
//!
//! The bounds are memory bounds. A data frame can be a slice from a server's read buffer, where a
//! single byte keeps the whole buffer alive. So data is copied into separate buffers, whose
//! capacity is counted.
//!
//! Clients are not distinguished here. So that no client takes the room of all others, each request
//! has its own share, which is not part of the total.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::Sleep;

use crate::refusal::LockError;

/// How long a request whose body exceeds the memory bounds may still wait for the lock before it is
/// refused. The store usually grants a free lock within this time, so a large upload that need not
/// wait is not refused.
const GRACE: Duration = Duration::from_millis(100);

/// The bytes that count toward the memory bounds for each [`Piece`] and for each trailer, in
/// addition to their data. Estimates the memory for bookkeeping.
const OVERHEAD: usize = 128;

/// The maximum size, in bytes, of a buffer that collects the data of several frames. Data that does
/// not fit starts a new buffer, which costs [`OVERHEAD`].
const MERGED: usize = 16 << 10;

/// The bytes of memory that the body of each request may take before it counts toward the layer's
/// total. About the default flow-control window of an HTTP/2 stream.
const SHARE: usize = 64 << 10;

/// How much memory, in bytes, the bodies of waiting requests may take.
#[derive(Debug, Clone)]
pub(crate) struct ReadBounds {
    /// The bound for the body of a single request.
    pub(crate) each: usize,
    /// The bound for all requests of a layer and its clones together. The first [`SHARE`] bytes of
    /// each request are not included.
    total: Arc<Total>,
}

/// The memory, in bytes, that the bodies of all waiting requests of a layer may take (`limit`) and
/// take now (`used`). The first [`SHARE`] bytes of each request are not included.
#[derive(Debug)]
struct Total {
    limit: usize,
    used: AtomicUsize,
}

impl ReadBounds {
    /// Sets the bound for all requests together, in bytes.
    pub(crate) fn set_total(&mut self, limit: usize) {
        self.total = Arc::new(Total { limit, used: AtomicUsize::new(0) });
    }
}

impl Default for ReadBounds {
    /// Returns bounds of 4 MiB for each request, gRPC's default maximum message size, and 64 MiB
    /// for all requests together.
    fn default() -> Self {
        let total = Arc::new(Total { limit: 64 << 20, used: AtomicUsize::new(0) });
        Self { each: 4 << 20, total }
    }
}

/// What happens to a waiting request whose body exceeds the memory bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// The request is refused, because the unread rest would take the connection's window from
    /// other requests.
    Refuse,
    /// The body is not read further, and the request continues to wait, because no other request
    /// uses the connection.
    Stop,
}

impl Beyond {
    /// Returns [`Refuse`](Self::Refuse) from HTTP/2 on, because requests share the connection, and
    /// [`Stop`](Self::Stop) for earlier versions.
    pub(crate) fn of(version: Version) -> Self {
        if version >= Version::HTTP_2 { Self::Refuse } else { Self::Stop }
    }
}

/// A part of a body that was read ahead, copied into separate memory.
enum Piece<E> {
    Data(Vec<u8>),
    Trailers(HeaderMap),
    Failure(E),
}

impl<E> Piece<E> {
    /// Returns how many bytes this piece counts toward the memory bounds.
    fn cost(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Data(data) => data.capacity(),
                Self::Trailers(trailers) => trailers.iter().map(header_cost).sum(),
                Self::Failure(_) => 0,
            }
    }
}

fn header_cost((name, value): (&HeaderName, &HeaderValue)) -> usize {
    OVERHEAD + name.as_str().len() + value.len()
}

/// A request body that is read into memory while the request waits for a lock, and read by the
/// handler later.
pub(crate) struct ReadAhead<B: Body> {
    /// The parts that were read ahead and that the handler has not read yet, in order.
    pieces: VecDeque<Piece<B::Error>>,
    /// The part of the body that is not read yet; `None` once the body has ended.
    rest: Option<Pin<Box<B>>>,
    bounds: ReadBounds,
    beyond: Beyond,
    /// The sum of the costs of `pieces`, in bytes, as counted toward the memory bounds.
    used: usize,
    /// True if the last piece exceeded the layer's total. Then nothing more is read ahead until the
    /// handler has read a piece.
    is_full: bool,
    /// True once the handler no longer reads the body. Then data is counted, but not kept.
    is_discarded: bool,
    /// The timer for [`GRACE`]; `None` until the body exceeds the memory bounds. Each wait has its
    /// own.
    grace: Option<Pin<Box<Sleep>>>,
}

impl<B: Body> ReadAhead<B> {
    pub(crate) fn new(body: B, bounds: &ReadBounds, beyond: Beyond) -> Self {
        let pieces = VecDeque::new();
        let rest = Some(Box::pin(body));
        let bounds = bounds.clone();
        let (is_full, is_discarded) = (false, false);
        Self { pieces, rest, bounds, beyond, used: 0, is_full, is_discarded, grace: None }
    }

    /// Reads frames into memory until no more is available, the memory bounds are reached, or the
    /// body has ended. Pending while the request may wait, even if the whole body has been read.
    /// Ready with the refusal if the body has failed, or has exceeded the bounds for [`GRACE`]
    /// under [`Beyond::Refuse`]. There is no success value.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<LockError> {
        let refusal = loop {
            if let Some(Piece::Failure(_)) = self.pieces.back() {
                return Poll::Ready(LockError::body_failed());
            }
            if self.beyond == Beyond::Stop
                && (self.is_full || self.used >= SHARE.min(self.bounds.each))
            {
                return Poll::Pending;
            }
            if self.is_full {
                break LockError::read_ahead_full();
            }
            let Some(rest) = &mut self.rest else { return Poll::Pending };
            if self.used > self.bounds.each {
                match rest.is_end_stream() {
                    true => return Poll::Pending, // exactly within the bound
                    false => break LockError::body_limit(),
                }
            }
            match ready!(rest.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => self.keep(frame),
                Some(Err(error)) => {
                    self.push(Piece::Failure(error));
                    self.rest = None;
                }
                None => self.rest = None,
            }
        };
        if self.grace.is_none() && Handle::try_current().is_ok() {
            self.grace = Some(Box::pin(tokio::time::sleep(GRACE)));
        }
        if let Some(grace) = &mut self.grace {
            ready!(grace.as_mut().poll(cx));
        }
        Poll::Ready(refusal)
    }

    /// Ends reading ahead after a wait. A later wait has its own [`GRACE`].
    pub(crate) fn end_wait(&mut self) {
        self.grace = None;
    }

    /// Returns the next frame for the handler: first the pieces that were read ahead, then frames
    /// directly from the body.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(piece) = self.pieces.pop_front() {
            self.set_used(self.used - piece.cost());
            self.is_full = false;
            self.grace = None; // the body takes less memory now
            return Poll::Ready(Some(match piece {
                Piece::Data(data) => Ok(Frame::data(data.into())),
                Piece::Trailers(trailers) => Ok(Frame::trailers(trailers)),
                Piece::Failure(error) => Err(error),
            }));
        }
        match &mut self.rest {
            Some(rest) => rest.as_mut().poll_frame(cx).map_ok(into_bytes),
            None => Poll::Ready(None),
        }
    }

    /// Returns how far the body has been read: the number of pieces read ahead, and whether the
    /// body still continues. `SharedBody` compares this before and after a poll: after a change the
    /// handler has something to read.
    pub(crate) fn progress(&self) -> (usize, bool) {
        (self.pieces.len(), self.rest.is_some())
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let data = self.pieces.iter().map(|piece| match piece {
            Piece::Data(data) => data.len() as u64,
            Piece::Trailers(_) | Piece::Failure(_) => 0,
        });
        let ahead: u64 = data.sum();
        let rest =
            self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |rest| rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(ahead.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(ahead)) {
            hint.set_upper(upper);
        }
        hint
    }

    /// Discards the body, because the handler no longer reads it. Under [`Beyond::Stop`] the rest
    /// is not dropped before [`end_if_discarded`](Self::end_if_discarded): a wait still reads it,
    /// to detect a disconnect.
    pub(crate) fn discard(&mut self) {
        self.is_discarded = true;
        self.pieces.clear();
        self.set_used(0);
        self.is_full = false;
        if self.beyond == Beyond::Refuse {
            self.rest = None;
        }
    }

    /// Drops what is left in a discarded body.
    pub(crate) fn end_if_discarded(&mut self) {
        if self.is_discarded {
            self.rest = None;
        }
    }

    /// Keeps a frame for the handler: copies the data, and merges it with the previous piece if
    /// both are small.
    fn keep(&mut self, frame: Frame<B::Data>) {
        if self.is_discarded {
            let size = frame.data_ref().map_or(0, Buf::remaining);
            return self.set_used(self.used + size);
        }
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                return frame.into_trailers().into_iter().for_each(|trailers| {
                    self.push(Piece::Trailers(trailers));
                });
            }
        };
        let size = data.remaining();
        match self.pieces.back_mut() {
            Some(Piece::Data(last)) if last.len() + size <= MERGED => {
                let before = last.capacity();
                last.put(data);
                let grown = last.capacity() - before;
                self.set_used(self.used + grown);
            }
            _ => {
                let mut copy = Vec::with_capacity(size);
                copy.put(data);
                self.push(Piece::Data(copy));
            }
        }
    }

    fn push(&mut self, piece: Piece<B::Error>) {
        self.set_used(self.used + piece.cost());
        self.pieces.push_back(piece);
    }

    /// Sets `used`, and updates the layer's total, to which only the bytes above [`SHARE`] count.
    /// Also sets `is_full` if the total then exceeds its limit.
    fn set_used(&mut self, used: usize) {
        let before = self.used.saturating_sub(SHARE);
        let after = used.saturating_sub(SHARE);
        self.used = used;
        let total = &self.bounds.total;
        if after > before {
            let more = after - before;
            self.is_full |= total.used.fetch_add(more, Ordering::Relaxed) + more > total.limit;
        } else {
            total.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

impl<B: Body> Drop for ReadAhead<B> {
    fn drop(&mut self) {
        self.set_used(0);
    }
}

impl<B: Body> fmt::Debug for ReadAhead<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead").field("pieces", &self.pieces.len()).finish_non_exhaustive()
    }
}

/// Converts the data of a frame to `Bytes`, without a copy if it is already `Bytes`.
pub(crate) fn into_bytes<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}
