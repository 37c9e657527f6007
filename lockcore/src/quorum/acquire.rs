//! Quorum acquisition: requests primary after primary until a majority is held.
//!
//! # Implementation notes
//!
//! - An acquisition owns guards at some primaries, and queue positions at others. Dropping it at
//!   any point leaves nothing behind.
//! - An acquisition that cannot reach a majority keeps nobody waiting: it releases all holds. A
//!   primary that refuses requests counts as unreachable. But only a request shows whether it still
//!   refuses, so the acquisition then does a round about once a second.
//! - A hold left at a primary by a dead process delays others for a *hop* (the timeout per
//!   primary), and not for a lease: an acquisition that holds a lower primary continues with the
//!   next primary, and keeps the queue position. A *round* tries all primaries once. The hop
//!   doubles each round, up to a second, for networks with longer round trips.
//! - *No deadlock.* An acquisition waits without a timeout in two cases: it holds nothing, or it
//!   needs every remaining primary and waits at a primary below all held primaries. In the second
//!   case, the holder there holds a primary below all primaries of the waiter. So the lowest held
//!   primary falls along a chain of such waits, and the chain ends: with a guard, or with an
//!   acquisition that waits only for a hop. Before such a wait, an acquisition leaves all queues at
//!   lower primaries, because a grant there would break this order.
//! - *No starvation.* Each queue is FIFO, and the acquisition at the head leaves the primary within
//!   bounded time. At the lowest primary, this takes a hop for each other primary, or the time of a
//!   hold. At any other primary, waits at lower primaries may come first. A round without a
//!   majority leads to a queue position at a higher primary that has replied, so the number of
//!   rounds is small.
//! - *No convoy.* By these rules alone, waits would multiply. Requests that cannot reach a lower
//!   primary wait at a higher primary without a timeout. An acquisition that holds the lower
//!   primary queues behind all of them, and blocks the lower primary meanwhile. So an acquisition
//!   that finds a crowd at a higher primary releases all holds and waits there. Later requests of
//!   the process also queue there first: the primary becomes the *lead* of the lock. All then wait
//!   in a single queue, and find the other primaries free.

mod answers;
mod holds;
mod limits;
mod requests;
mod rounds;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use proto::node::{Note, Refusal};
use proto::{LockErrorKind, LockName};
use tokio::sync::watch;
use tokio::time::Instant;

use self::rounds::{QuorumAcquireResult, Rounds};
use super::context::AcquireContext;
use super::primaries::Primaries;
use crate::foreign::CallerWaker;
use crate::node::HoldCell;
use crate::types::error::LockError;

/// The future of a quorum acquisition. Sends nothing until polled. Dropping it leaves all queues,
/// and releases the primaries held so far.
pub(crate) struct QuorumAcquire {
    running: BoxFuture<'static, QuorumAcquireResult>,
    caller: CallerWaker,
    pub(crate) positions: watch::Receiver<Option<u64>>,
    /// The primaries, until the first poll. If the future is dropped before, their observer warns
    /// of a missing `.await`. `None` after the first poll, and if the request is invalid.
    unpolled: Option<Arc<Primaries>>,
}

impl QuorumAcquire {
    pub(crate) fn new(context: Result<AcquireContext, LockError>) -> Self {
        let (sender, positions) = watch::channel(None);
        let unpolled = context.as_ref().ok().map(|context| Arc::clone(&context.primaries));
        let running = async move {
            let context = context?;
            let reported = Reported::new(&context);
            let result = Rounds::new(context, sender).run().await;
            reported.end(&result);
            result
        };
        Self { running: running.boxed(), caller: CallerWaker::default(), positions, unpolled }
    }
}

impl Future for QuorumAcquire {
    type Output = QuorumAcquireResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<QuorumAcquireResult> {
        let Self { running, caller, unpolled, .. } = &mut *self;
        *unpolled = None;
        // The view and the leads wake many callers at once, in a task of the quorum or in another
        // caller's poll.
        running.as_mut().poll(&mut Context::from_waker(caller.catching(cx.waker())))
    }
}

impl Drop for QuorumAcquire {
    fn drop(&mut self) {
        if let Some(primaries) = &self.unpolled {
            primaries.observer.unpolled();
        }
    }
}

impl fmt::Debug for QuorumAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumAcquire").finish_non_exhaustive()
    }
}

/// Reports the outcome of an acquisition to logs and metrics. If dropped before [`end`](Self::end),
/// it reports a cancellation.
struct Reported {
    primaries: Arc<Primaries>,
    lock: LockName,
    of: HoldCell,
    began: Instant,
    has_ended: bool,
}

impl Reported {
    fn new(context: &AcquireContext) -> Self {
        let (lock, of) = (context.request.lock.clone(), context.of.clone());
        let (primaries, began) = (Arc::clone(&context.primaries), Instant::now());
        Self { primaries, lock, of, began, has_ended: false }
    }

    fn end(mut self, result: &QuorumAcquireResult) {
        self.has_ended = true;
        let (lock, of) = (self.lock.clone(), self.of.clone());
        let is_timeout = |error: &LockError| error.kind() == LockErrorKind::Timeout;
        if result.as_ref().is_err_and(is_timeout) {
            self.note_wait();
        }
        self.primaries.observer.note(&match result {
            Ok(Some(hold)) => Note::Granted { lock, waited: hold.waited(), handed_over: false, of },
            Ok(None) => Note::Refused { lock, refusal: Refusal::Busy, of },
            Err(error) => Note::Refused { lock, refusal: Refusal::Kind(error.kind()), of },
        });
    }

    /// Reports a wait that ended without a grant.
    fn note_wait(&self) {
        let (lock, of) = (self.lock.clone(), self.of.clone());
        self.primaries.observer.note(&Note::Cancelled { lock, waited: self.began.elapsed(), of });
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        if !self.has_ended {
            self.note_wait();
            self.primaries.observer.cancelled(&self.of);
        }
    }
}
