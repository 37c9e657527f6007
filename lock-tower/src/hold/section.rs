//! The critical section: work that runs while a layer holds the locks of a request.
//!
//! # Implementation notes
//!
//! - **The work is dropped before the locks are released**: no work runs once the next holder has
//!   the lock. The field order ensures this when the section is dropped, also while unwinding.
//! - **A loss is watched for from the first `Pending` of the work.** The watch registers the task's
//!   waker, so it is polled on every `Pending`. A lock acquired meanwhile by another task wakes the
//!   section, which then also watches the new lock.
//! - **Losses are checked for three times**: before the work is polled, after it was polled, and in
//!   the store's response to the release. Only this response shows that the store, too, regarded
//!   the lock as held until the end.
//! - **Errors are returned unchanged.** A loss replaces successful results only, because they claim
//!   that something was done.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

use crate::hold::layer_holds::LayerHolds;
use crate::hold::loss::Loss;
use crate::hold::release::{Lasted, Releasing};
use crate::refusal::LockError;

/// Work that a [`Section`] runs while locks are held: the call of an inner service, or a response
/// body.
#[diagnostic::on_unimplemented(
    message = "the service inside the lock does not accept the lock's requests",
    note = "behind `HttpLockLayer` and `LockScopeLayer` a service gets `Request<RequestBody<B>>`: implement `Service<Request<RequestBody<B>>>`, or `Service<Request<B>>` for every body `B`",
    note = "or convert the body: `.map_request(|request: Request<RequestBody<Body>>| request.map(Body::new))`"
)]
pub(crate) trait Work {
    /// An intermediate result, after which the work continues, such as a frame of a body.
    type More;
    type Output;
    type Error;

    /// Polls the work until the next intermediate result, or until the final result.
    fn poll_step(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollStep<Self>;

    /// Returns false if nothing has been done yet that could have effects.
    fn has_begun(&self) -> bool {
        true
    }
}

type WorkStep<W> = Step<<W as Work>::More, Result<<W as Work>::Output, <W as Work>::Error>>;
pub(crate) type PollStep<W> = Poll<WorkStep<W>>;
type PollEnd<W> = Poll<Step<<W as Work>::More, End<<W as Work>::Output, <W as Work>::Error>>>;

/// The result of a poll of [`Work`]: an intermediate result (`More`) or the final result (`End`).
pub(crate) enum Step<M, T> {
    More(M),
    End(T),
}

impl<F, T, E> Work for F
where
    F: Future<Output = Result<T, E>>,
{
    type More = Infallible;
    type Output = T;
    type Error = E;

    fn poll_step(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollStep<Self> {
        self.poll(cx).map(Step::End)
    }
}

/// The end of a [`Section`]: the result of the work, and the locks that are still held.
pub(crate) struct End<T, E> {
    pub(crate) result: Result<T, Failure<E>>,
    /// The locks that the layer still holds after this result, together with the request's log. The
    /// caller records the outcome in the log, because only the caller knows whether the result is a
    /// refusal.
    pub(crate) layer_holds: LayerHolds,
}

/// The reason why a section ended without an output.
pub(crate) enum Failure<E> {
    /// The work itself failed with this error, which the layer returns unchanged.
    Inner(E),
    /// The layer refuses the request: the work was not started, or the result is invalid because a
    /// lock was lost.
    Refused(LockError),
}

impl<T, E> End<T, E> {
    pub(crate) fn refused(error: LockError, layer_holds: LayerHolds) -> Self {
        Self { result: Err(Failure::Refused(error)), layer_holds }
    }
}

/// Runs work while a layer's locks are held. Stops the work if a lock is lost, and releases the
/// locks at the end.
#[pin_project]
pub(crate) struct Section<W: Work> {
    #[pin]
    state: SectionState<W>,
    /// Completes when a lock of the layer is lost. `None` before the work is first pending, and if
    /// the layer is set to `OnLost::Continue`.
    #[pin]
    loss: Option<Loss>,
    /// Decides by the output of the work whether the locks stay held, until the end of a response
    /// body.
    outlives: fn(&W::Output, &LayerHolds) -> bool,
}

#[pin_project(project = SectionProjection)]
#[allow(clippy::large_enum_variant, reason = "a box would cost an allocation on every request")]
enum SectionState<W: Work> {
    Running {
        #[pin]
        work: W,
        /// The locks under which the work runs; taken out when the work ends. Declared after the
        /// work, so that the work is dropped before the locks are released.
        layer_holds: Option<LayerHolds>,
    },
    Releasing {
        end: Option<End<W::Output, W::Error>>,
        #[pin]
        releasing: Releasing,
    },
    Done,
}

impl<W: Work> Section<W> {
    pub(crate) fn new(
        work: W,
        layer_holds: LayerHolds,
        outlives: fn(&W::Output, &LayerHolds) -> bool,
    ) -> Self {
        let state = SectionState::Running { work, layer_holds: Some(layer_holds) };
        Self { state, loss: None, outlives }
    }

    pub(crate) fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollEnd<W> {
        loop {
            let this = self.as_mut().project();
            match this.state.project() {
                SectionProjection::Running { mut work, layer_holds } => {
                    let layer_holds = layer_holds.as_mut().expect("there until the work has ended");
                    let step = ready!(poll_work(work.as_mut(), layer_holds, this.loss, cx));
                    let result = match step {
                        Some(Step::More(more)) => return Poll::Ready(Step::More(more)),
                        Some(Step::End(result)) => result.map_err(Failure::Inner),
                        None if work.has_begun() => Err(Failure::Refused(LockError::lost())),
                        None => Err(Failure::Refused(LockError::lost_before())),
                    };
                    if let Some(end) = self.as_mut().end(result) {
                        return Poll::Ready(Step::End(end));
                    }
                }
                SectionProjection::Releasing { end, releasing } => {
                    let lasted = ready!(releasing.poll(cx));
                    let mut end = end.take().expect("taken only once");
                    if end.result.is_ok()
                        && lasted == Lasted::NotToTheEnd
                        && end.layer_holds.stops_on_loss()
                    {
                        end.result = Err(Failure::Refused(LockError::lost()));
                    }
                    self.project().state.set(SectionState::Done);
                    return Poll::Ready(Step::End(end));
                }
                SectionProjection::Done => {
                    panic!("the lock's future was polled after completion")
                }
            }
        }
    }

    /// Ends the section with the `result` of the work. Drops the work, and begins to release the
    /// locks unless they stay held for a response body. Returns `None` if the section must wait for
    /// the release, and otherwise the end of the section.
    fn end(
        mut self: Pin<&mut Self>,
        result: Result<W::Output, Failure<W::Error>>,
    ) -> Option<End<W::Output, W::Error>> {
        let mut layer_holds = self.as_mut().close()?;
        let outlives = |output| (self.outlives)(output, &layer_holds);
        if layer_holds.has_holds() && result.as_ref().is_ok_and(outlives) {
            return Some(End { result, layer_holds });
        }
        let is_awaited = !matches!(result, Err(Failure::Refused(_)));
        let releasing = layer_holds.release().filter(|_| is_awaited);
        let end = Some(End { result, layer_holds });
        match releasing {
            Some(releasing) => self.project().state.set(SectionState::Releasing { end, releasing }),
            None => return end,
        }
        None
    }

    /// Drops the work, and returns the locks, which are released when the returned value is
    /// dropped. Returns `None` if the work has already ended.
    pub(crate) fn close(self: Pin<&mut Self>) -> Option<LayerHolds> {
        let mut this = self.project();
        let SectionProjection::Running { layer_holds, .. } = this.state.as_mut().project() else {
            return None;
        };
        let layer_holds = layer_holds.take();
        this.state.set(SectionState::Done);
        this.loss.set(None);
        layer_holds.map(LayerHolds::close)
    }
}

/// Polls the work, and checks before and afterwards whether a lock was lost. Ready with `None`
/// after a loss: the work must stop, or its success no longer counts. An error of the work counts
/// even after a loss.
fn poll_work<W: Work>(
    work: Pin<&mut W>,
    layer_holds: &LayerHolds,
    mut loss: Pin<&mut Option<Loss>>,
    cx: &mut Context<'_>,
) -> Poll<Option<WorkStep<W>>> {
    // Before the work was first pending, nothing watches the locks.
    let is_stopped = match loss.is_none() {
        true => work.has_begun() && layer_holds.stops(),
        false => is_lost(loss.as_mut(), cx),
    };
    if is_stopped {
        return Poll::Ready(None);
    }
    let Poll::Ready(step) = work.poll_step(cx) else {
        if let Some(more) = layer_holds.watch(loss.is_none(), cx) {
            loss.set(Some(more));
        }
        return match is_lost(loss, cx) {
            true => Poll::Ready(None),
            false => Poll::Pending,
        };
    };
    let counts = matches!(step, Step::End(Err(_))) || !layer_holds.stops();
    Poll::Ready(Some(step).filter(|_| counts))
}

/// Returns true if a watched lock is lost. Otherwise wakes the task of `cx` at the next loss.
fn is_lost(loss: Pin<&mut Option<Loss>>, cx: &mut Context<'_>) -> bool {
    loss.as_pin_mut().is_some_and(|loss| loss.poll(cx).is_ready())
}

impl<W: Work> Section<W> {
    /// Returns the work; `None` if it has ended.
    pub(crate) fn work(&self) -> Option<&W> {
        match &self.state {
            SectionState::Running { work, .. } => Some(work),
            SectionState::Releasing { .. } | SectionState::Done => None,
        }
    }

    /// Returns the work; `None` if it has ended.
    pub(crate) fn work_mut(self: Pin<&mut Self>) -> Option<Pin<&mut W>> {
        match self.project().state.project() {
            SectionProjection::Running { work, .. } => Some(work),
            SectionProjection::Releasing { .. } | SectionProjection::Done => None,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, SectionState::Done)
    }
}
