//! One request's whole way: wait for the locks, make the inner service ready, run it, give the locks back.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use pin_project::pin_project;
use tower::Service;

use crate::carry::CarryHandle;
use crate::claim::Claim;
use crate::config::{Config, OnLost};
use crate::error::LockError;
use crate::hold::Hold;
use crate::journal::Journal;
use crate::key::Keys;
use crate::loss::Loss;
use crate::release::{Lasted, Releasing};

/// How it ended.
pub(crate) enum Outcome<T, E> {
    /// The inner service answered; with the hold, if that is to last beyond the answer.
    Served(T, Option<(Hold, Journal)>),
    /// The inner service failed.
    Failed(E),
    /// The inner service was not called, or its answer does not count.
    Refused(LockError),
}

/// The state machine behind both layers' futures.
#[pin_project]
pub(crate) struct Section<S, Req, C>
where
    S: Service<Req>,
{
    #[pin]
    state: State<S, Req>,
    /// None, too, for such a request: that saves counting references on the way that should cost nothing.
    config: Option<Arc<Config>>,
    carry: C,
    /// The end of the hold; made when the inner service is not ready, or does not answer, at once.
    #[pin]
    loss: Option<Loss>,
    /// Whether the hold is to last beyond this answer.
    outlives: fn(&S::Response) -> bool,
    /// None for a request that passes without a lock.
    journal: Option<Journal>,
}

#[pin_project(project = StateProjection)]
#[allow(clippy::large_enum_variant, reason = "a box would cost an allocation on every request")]
enum State<S, Req>
where
    S: Service<Req>,
{
    /// The request needs no lock, and the inner service was ready.
    Passing(#[pin] S::Future),
    /// The request has no key that could be locked.
    Refused(Option<LockError>),
    /// The inner service was broken before it was called.
    Failed(Option<S::Error>),
    Acquiring {
        #[pin]
        claim: Claim,
        caller: Option<(S, Req)>,
    },
    Readying {
        caller: Option<(S, Req)>,
        hold: Option<Hold>,
    },
    Running {
        #[pin]
        future: S::Future,
        hold: Option<Hold>,
    },
    Releasing {
        result: Option<Result<S::Response, S::Error>>,
        #[pin]
        releasing: Releasing,
    },
    Done,
}

impl<S, Req, C> Section<S, Req, C>
where
    S: Service<Req> + Clone,
    C: CarryHandle<Req>,
{
    /// Inlined, as are those that pass it on, so that the state is built where it stays.
    #[inline(always)]
    pub(crate) fn begin(
        inner: &mut S,
        request: Req,
        keys: Result<Option<Keys>, crate::KeyError>,
        config: &Arc<Config>,
        carry: C,
        outlives: fn(&S::Response) -> bool,
    ) -> Self {
        // First of all, and with nothing of the other ways in between: this one is to cost next to nothing.
        if let Ok(None) = keys {
            let state = State::pass(inner, request);
            return Self { state, config: None, carry, loss: None, outlives, journal: None };
        }
        let state = match keys.and_then(|keys| keys.map(Keys::resolve).transpose()) {
            Ok(Some(asked)) => {
                let claim = Claim::new(asked, config.options, carry.outer(&request));
                State::Acquiring { claim, caller: Some((inner.clone(), request)) }
            }
            Ok(None) => unreachable!("handled above"),
            Err(error) => State::Refused(Some(error.into())),
        };
        let (config, journal) = (Some(Arc::clone(config)), Some(Journal::begin()));
        Self { state, config, carry, loss: None, outlives, journal }
    }
}

impl<S, Req, C> Section<S, Req, C>
where
    S: Service<Req>,
{
    /// The short way of a request that needs no lock: nothing but the inner future. `None` for all others.
    #[inline(always)]
    pub(crate) fn poll_passing(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Option<Poll<Result<S::Response, S::Error>>> {
        match self.project().state.project() {
            StateProjection::Passing(future) => Some(future.poll(cx)),
            _ => None,
        }
    }
}

#[cfg(feature = "http")]
impl<S, Req, C> Section<S, Req, C>
where
    S: Service<Req>,
{
    /// The layer's settings; `None` if the request needs no lock.
    pub(crate) fn config(&self) -> Option<&Config> {
        self.config.as_deref()
    }

    /// The request, while it waits for its lock or for the inner service to be ready.
    pub(crate) fn waiting(self: Pin<&mut Self>) -> Option<&mut Req> {
        match self.project().state.project() {
            StateProjection::Acquiring { caller, .. }
            | StateProjection::Readying { caller, .. } => {
                caller.as_mut().map(|(_, request)| request)
            }
            _ => None,
        }
    }

    /// Ends a wait: leaves the queue, and gives back what was taken.
    pub(crate) fn refuse(self: Pin<&mut Self>, error: LockError) -> Outcome<S::Response, S::Error> {
        let mut this = self.project();
        this.state.set(State::Done);
        this.loss.set(None);
        this.journal.iter_mut().for_each(|journal| journal.refused(&error));
        Outcome::Refused(error)
    }

    /// How long the request has waited for its lock; `None` if it needs none.
    pub(crate) fn waited(self: Pin<&Self>) -> Option<std::time::Duration> {
        self.get_ref().journal.as_ref().map(Journal::waited)
    }
}

impl<S, Req> State<S, Req>
where
    S: Service<Req> + Clone,
{
    /// Calls a ready service where it stands: nothing is cloned. One that is not ready is moved out, for it keeps
    /// its place in whatever line it stands in, and a clone that has no place stays behind.
    #[inline(always)]
    fn pass(inner: &mut S, request: Req) -> Self {
        match inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => Self::Passing(inner.call(request)),
            Poll::Ready(Err(error)) => Self::Failed(Some(error)),
            Poll::Pending => {
                let clone = inner.clone();
                let polled = std::mem::replace(inner, clone);
                Self::Readying { caller: Some((polled, request)), hold: None }
            }
        }
    }
}

impl<S, Req, C> Future for Section<S, Req, C>
where
    S: Service<Req>,
    C: CarryHandle<Req>,
{
    type Output = Outcome<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let config = this.config.as_deref();
        let stops = config.is_some_and(|config| config.on_lost == OnLost::Stop);
        let outcome = loop {
            match this.state.as_mut().project() {
                StateProjection::Passing(future) => break served(ready!(future.poll(cx))),
                StateProjection::Refused(error) => {
                    break Outcome::Refused(error.take().expect("taken once: done after it"));
                }
                StateProjection::Failed(error) => {
                    break Outcome::Failed(error.take().expect("taken once: done after it"));
                }
                StateProjection::Acquiring { claim, caller } => {
                    let config = config.expect("a request with a key has it");
                    let hold = match ready!(claim.poll(config, cx)) {
                        Ok(hold) => Some(hold),
                        Err(error) if config.fail_open && error.is_outage() => {
                            this.journal.iter_mut().for_each(|journal| journal.unlocked(&error));
                            None
                        }
                        Err(error) => break Outcome::Refused(error),
                    };
                    let mut caller = caller.take();
                    if let (Some(hold), Some((_, request))) = (&hold, &mut caller) {
                        let handle = hold.handle();
                        let token = handle.fencing_token().get();
                        this.journal.iter_mut().for_each(|journal| journal.granted(token));
                        this.carry.carry(request, handle.clone());
                    }
                    this.state.set(State::Readying { caller, hold });
                }
                StateProjection::Readying { caller, hold } => {
                    if is_lost(this.loss.as_mut(), cx) {
                        break Outcome::Refused(LockError::lost());
                    }
                    let (service, _) = caller.as_mut().expect("taken when the state ends");
                    let Poll::Ready(ready) = service.poll_ready(cx) else {
                        if stops && becomes_lost(this.loss.as_mut(), hold.as_ref(), cx) {
                            break Outcome::Refused(LockError::lost());
                        }
                        return Poll::Pending;
                    };
                    if let Err(error) = ready {
                        break Outcome::Failed(error);
                    }
                    if stops && hold.as_ref().is_some_and(Hold::is_lost) {
                        break Outcome::Refused(LockError::lost());
                    }
                    let (mut service, request) = caller.take().expect("it was there above");
                    let hold = hold.take();
                    let future = service.call(request);
                    this.state.set(State::Running { future, hold });
                }
                StateProjection::Running { future, hold } => {
                    if is_lost(this.loss.as_mut(), cx) {
                        break Outcome::Refused(LockError::lost());
                    }
                    let Poll::Ready(result) = future.poll(cx) else {
                        if stops && becomes_lost(this.loss.as_mut(), hold.as_ref(), cx) {
                            break Outcome::Refused(LockError::lost());
                        }
                        return Poll::Pending;
                    };
                    let Some(hold) = hold.take() else { break served(result) };
                    // The inner future goes first: nothing of it runs when the next has the lock.
                    this.state.set(State::Done);
                    this.loss.set(None);
                    if stops && result.is_ok() && hold.is_lost() {
                        break Outcome::Refused(LockError::lost());
                    }
                    match result {
                        Ok(response) if (this.outlives)(&response) => {
                            let kept = this.journal.take().map(|journal| (hold, journal));
                            return Poll::Ready(Outcome::Served(response, kept));
                        }
                        result if config.is_some_and(|config| config.release_in_background) => {
                            drop(hold);
                            break served(result);
                        }
                        result => {
                            let (result, releasing) = (Some(result), hold.release());
                            this.state.set(State::Releasing { result, releasing });
                        }
                    }
                }
                StateProjection::Releasing { result, releasing } => {
                    let lasted = ready!(releasing.poll(cx));
                    let result = result.take().expect("taken once: done after it");
                    if stops && lasted == Lasted::NotToTheEnd && result.is_ok() {
                        break Outcome::Refused(LockError::lost());
                    }
                    break served(result);
                }
                StateProjection::Done => panic!("a lock's future is not polled after it is ready"),
            }
        };
        // Before the answer goes out: what the inner service and the hold still have is dropped here.
        this.state.set(State::Done);
        this.loss.set(None);
        if let Some(journal) = this.journal {
            match &outcome {
                Outcome::Served(..) | Outcome::Failed(_) => journal.served(),
                Outcome::Refused(error) => journal.refused(error),
            }
        }
        Poll::Ready(outcome)
    }
}

/// Whether a loss that is watched for has come.
fn is_lost(loss: Pin<&mut Option<Loss>>, cx: &mut Context<'_>) -> bool {
    loss.as_pin_mut().is_some_and(|loss| loss.poll(cx).is_ready())
}

/// Begins to watch, unless that has begun. Whether the hold is lost already.
fn becomes_lost(
    mut loss: Pin<&mut Option<Loss>>,
    hold: Option<&Hold>,
    cx: &mut Context<'_>,
) -> bool {
    match hold {
        Some(hold) if loss.is_none() => {
            loss.set(Some(hold.loss()));
            is_lost(loss, cx)
        }
        _ => false,
    }
}

fn served<T, E>(result: Result<T, E>) -> Outcome<T, E> {
    match result {
        Ok(response) => Outcome::Served(response, None),
        Err(error) => Outcome::Failed(error),
    }
}

impl<S, Req, C> fmt::Debug for Section<S, Req, C>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Passing(_) => "passing",
            State::Refused(_) => "refused",
            State::Failed(_) => "failed",
            State::Acquiring { .. } => "acquiring",
            State::Readying { .. } => "readying",
            State::Running { .. } => "running",
            State::Releasing { .. } => "releasing",
            State::Done => "done",
        })
    }
}
