//! The state machine of a request whose key the layer knows: acquire the locks, make the inner
//! service ready, call it, release the locks.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use pin_project::{pin_project, pinned_drop};
use tower::Service;

use crate::config::Config;
use crate::hold::acquire::AcquireKeys;
use crate::hold::layer_holds::LayerHolds;
use crate::hold::place::Place;
use crate::hold::section::{End, Failure, Section, Step};
use crate::key::{KeyError, Keys};
use crate::lock::call::ServiceCall;
use crate::lock::carry::CarryHandle;
use crate::refusal::LockError;

/// The state machine of a request behind a [`Lock`](crate::lock::Lock) or an `HttpLock`: it waits
/// for the locks, calls the inner service, and releases the locks. The response futures of both
/// services are wrappers around this type.
#[pin_project]
pub(crate) struct Locking<S: Service<Req>, Req, C> {
    #[pin]
    state: LockingState<S, Req>,
    carry: C,
    /// Decides by the response whether the locks stay held, until the end of the response body.
    outlives: fn(&S::Response, &LayerHolds) -> bool,
}

#[pin_project(project = LockingProjection)]
#[allow(clippy::large_enum_variant, reason = "a box would cost an allocation on every request")]
enum LockingState<S: Service<Req>, Req> {
    /// The request needs no lock, and the inner service has been called.
    Passing(#[pin] S::Future),
    /// The result was known from the start: the inner service failed to become ready, or the key is
    /// invalid. `None` once the request is over.
    Ended(Option<End<S::Response, S::Error>>),
    Acquiring {
        #[pin]
        waiting: Waiting,
        caller: Option<(S, Req)>,
    },
    Running(#[pin] Section<ServiceCall<S, Req>>),
}

/// A request's wait for its locks, and the request's log. The end of the wait, also by a drop,
/// records the position in the log.
#[pin_project(PinnedDrop)]
struct Waiting {
    #[pin]
    acquire: AcquireKeys,
    /// Empty once the wait has ended.
    layer_holds: LayerHolds,
}

impl Waiting {
    /// Ends the wait, and returns the value that holds the log.
    fn end(self: Pin<&mut Self>) -> LayerHolds {
        let this = self.project();
        let mut layer_holds = std::mem::take(this.layer_holds);
        layer_holds.queued(this.acquire.position());
        layer_holds
    }
}

#[pinned_drop]
impl PinnedDrop for Waiting {
    fn drop(self: Pin<&mut Self>) {
        drop(self.end());
    }
}

impl<S: Service<Req> + Clone, Req, C: CarryHandle<Req>> Locking<S, Req, C> {
    /// Begins a request: waits for `keys`, or calls the inner service at once if `keys` is `None`.
    /// An error in `keys` refuses the request. `place` limits the waiting requests on the
    /// connection. Inlined, like its callers, so that the large state is built in place and not
    /// copied.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "they are the parts of a layer and its request")]
    pub(crate) fn new(
        inner: &mut S,
        request: Req,
        keys: Result<Option<Keys>, KeyError>,
        config: &Arc<Config>,
        carry: C,
        place: Option<Place>,
        outlives: fn(&S::Response, &LayerHolds) -> bool,
    ) -> Self {
        // Checked first, because a request without a lock must cost next to nothing.
        if let Ok(None) = keys {
            return Self { state: LockingState::pass(inner, request, outlives), carry, outlives };
        }
        let mut layer_holds = LayerHolds::default();
        layer_holds.log();
        let resolve = |keys: Option<Keys>| keys.map(|keys| keys.resolve(&config.locks)).transpose();
        let state = match keys.and_then(resolve) {
            Ok(Some(asked)) => {
                let acquire = AcquireKeys::new(asked, config, carry.holds(&request), place);
                let caller = Some((inner.clone(), request));
                LockingState::Acquiring { waiting: Waiting { acquire, layer_holds }, caller }
            }
            Ok(None) => unreachable!("handled above"),
            Err(error) => LockingState::Ended(Some(End::refused(error.into(), layer_holds))),
        };
        Self { state, carry, outlives }
    }
}

impl<S: Service<Req> + Clone, Req> LockingState<S, Req> {
    /// Calls the inner service for a request without a lock. A ready service is called directly,
    /// without a clone. A service that is not ready moves into the future, because it may already
    /// have a position in a queue for readiness; a fresh clone replaces it.
    #[inline(always)]
    fn pass(inner: &mut S, request: Req, outlives: fn(&S::Response, &LayerHolds) -> bool) -> Self {
        match inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => Self::Passing(inner.call(request)),
            Poll::Ready(Err(error)) => Self::Ended(Some(passed(Err(error)))),
            Poll::Pending => Self::pass_later(inner, request, outlives),
        }
    }

    /// Creates the state for a service that is not ready: a section waits for the service, and then
    /// calls it. A separate function, so that `pass` stays small.
    #[cold]
    fn pass_later(
        inner: &mut S,
        request: Req,
        outlives: fn(&S::Response, &LayerHolds) -> bool,
    ) -> Self {
        let clone = inner.clone();
        let call = ServiceCall::new(Some((std::mem::replace(inner, clone), request)));
        Self::Running(Section::new(call, LayerHolds::default(), outlives))
    }
}

impl<S: Service<Req>, Req, C> Locking<S, Req, C> {
    /// Polls the inner future of a request without a lock, as cheaply as possible. Returns `None`
    /// for all other requests, for which the caller then uses [`poll`](Self::poll).
    #[inline(always)]
    pub(crate) fn poll_passing(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Option<Poll<Result<S::Response, S::Error>>> {
        match self.project().state.project() {
            LockingProjection::Passing(future) => Some(future.poll(cx)),
            _ => None,
        }
    }

    /// Returns the request while it waits for a lock or for the inner service to become ready;
    /// `None` afterwards.
    pub(crate) fn waiting(self: Pin<&mut Self>) -> Option<&mut Req> {
        match self.project().state.project() {
            LockingProjection::Acquiring { caller, .. } => {
                caller.as_mut().map(|(_, request)| request)
            }
            LockingProjection::Running(section) => section.work_mut()?.request(),
            LockingProjection::Passing(_) | LockingProjection::Ended(_) => None,
        }
    }

    /// Ends the wait, and refuses the request with `error`: leaves the queue, and releases the
    /// locks acquired so far.
    pub(crate) fn refuse(self: Pin<&mut Self>, error: LockError) -> End<S::Response, S::Error> {
        let mut this = self.project();
        let layer_holds = match this.state.as_mut().project() {
            LockingProjection::Acquiring { waiting, .. } => Some(waiting.end()),
            LockingProjection::Running(section) => section.close(),
            LockingProjection::Passing(_) | LockingProjection::Ended(_) => None,
        };
        this.state.set(LockingState::Ended(None));
        End::refused(error, layer_holds.unwrap_or_default())
    }
}

impl<S: Service<Req>, Req, C: CarryHandle<Req>> Locking<S, Req, C> {
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<End<S::Response, S::Error>> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                LockingProjection::Passing(future) => {
                    return future.poll(cx).map(passed);
                }
                LockingProjection::Ended(end) => {
                    return Poll::Ready(end.take().expect("the lock's future was polled again"));
                }
                LockingProjection::Acquiring { mut waiting, caller } => {
                    let acquired = ready!(waiting.as_mut().project().acquire.poll(cx));
                    let mut caller = caller.take();
                    let mut layer_holds = waiting.as_mut().end();
                    let acquire = &waiting.acquire;
                    match acquired {
                        Ok(acquired) => {
                            let handle =
                                layer_holds.add(acquired, acquire.config(), &acquire.holds());
                            if let Some((_, request)) = &mut caller {
                                this.carry.carry(request, handle);
                            }
                        }
                        Err(error) if acquire.config().fail_open && error.is_outage() => {
                            layer_holds.log().unlocked(&error);
                            if let Some((_, request)) = &mut caller {
                                this.carry.unlocked(request);
                            }
                        }
                        Err(error) => {
                            this.state.set(LockingState::Ended(None));
                            return Poll::Ready(End::refused(error, layer_holds));
                        }
                    }
                    let section =
                        Section::new(ServiceCall::new(caller), layer_holds, *this.outlives);
                    this.state.set(LockingState::Running(section));
                }
                LockingProjection::Running(section) => match ready!(section.poll(cx)) {
                    Step::More(()) => {} // the inner service is ready
                    Step::End(end) => return Poll::Ready(end),
                },
            }
        }
    }
}

/// Wraps the inner service's result in an [`End`], for a request that passed without a lock.
fn passed<T, E>(result: Result<T, E>) -> End<T, E> {
    End { result: result.map_err(Failure::Inner), layer_holds: LayerHolds::default() }
}

impl<S: Service<Req>, Req, C> fmt::Debug for Locking<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            LockingState::Passing(_) => "passing",
            LockingState::Ended(_) => "ended",
            LockingState::Acquiring { .. } => "acquiring",
            LockingState::Running(_) => "running",
        })
    }
}
