//! The future of a service whose requests may take locks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project::pin_project;
use tower::BoxError;

use crate::answers::server_timing;
use crate::body::LockBody;
use crate::config::OnLost;
use crate::error::LockError;
use crate::journal::Journal;
use crate::loss::Loss;
use crate::release::{Lasted, Releasing};
use crate::scope::Scope;

/// The response of a [`LockScope`](crate::LockScope).
///
/// # Cancel safety
/// Dropping it drops the inner service's future, leaves the queue in which that waits, and gives back what it holds.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct LockScopeFuture<F, T, E> {
    /// Before the scope, so that it is dropped first: nothing of it runs when the next has the lock.
    #[pin]
    state: State<F, T, E>,
    scope: Closing,
    /// The end of what is held; none while nothing is.
    #[pin]
    loss: Option<Loss>,
    /// How many locks that one watches.
    seen: usize,
}

#[pin_project(project = StateProjection)]
#[allow(clippy::large_enum_variant, reason = "a box would cost an allocation on every request")]
enum State<F, T, E> {
    Running(#[pin] F),
    Releasing {
        result: Option<Result<T, E>>,
        waited: Option<Duration>,
        journal: Option<Journal>,
        #[pin]
        releasing: Releasing,
    },
    Done,
}

/// Gives back what is held, whoever else knows the scope.
struct Closing(Arc<Scope>);

impl Drop for Closing {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

impl<F, T, E> LockScopeFuture<F, T, E> {
    pub(crate) fn new(future: F, scope: Arc<Scope>) -> Self {
        Self { state: State::Running(future), scope: Closing(scope), loss: None, seen: 0 }
    }
}

impl<F, R, E> Future for LockScopeFuture<F, Response<R>, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
    R::Data: From<Bytes>,
    R::Error: Into<BoxError>,
{
    type Output = Result<Response<LockBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let scope = Arc::clone(&this.scope.0);
        let stops = scope.config.on_lost == OnLost::Stop;
        loop {
            match this.state.as_mut().project() {
                StateProjection::Running(future) => {
                    let result = match is_lost(this.loss.as_mut(), cx) {
                        true => None,
                        false => match future.poll(cx) {
                            Poll::Ready(result) => Some(result),
                            Poll::Pending if !stops => return Poll::Pending,
                            Poll::Pending => {
                                // Whatever was taken in there is watched from now on.
                                if let Some(loss) = scope.watch(this.seen, cx) {
                                    this.loss.set(Some(loss));
                                }
                                match is_lost(this.loss.as_mut(), cx) {
                                    true => None,
                                    false => return Poll::Pending,
                                }
                            }
                        },
                    };
                    this.state.set(State::Done);
                    this.loss.set(None);
                    let waited = scope.waited();
                    let (hold, journal) = scope.close();
                    let Some(result) = result else {
                        return Poll::Ready(Ok(refused(&scope, waited, journal)));
                    };
                    let Some(hold) = hold else {
                        return Poll::Ready(served(&scope, result, waited, journal));
                    };
                    if stops && result.is_ok() && hold.is_lost() {
                        return Poll::Ready(Ok(refused(&scope, waited, journal)));
                    }
                    match (result, journal) {
                        (Ok(response), Some(journal))
                            if scope.answers.hold_until_body_end
                                && !response.body().is_end_stream()
                                && refusal(&response).is_none() =>
                        {
                            let body = |body| {
                                LockBody::held(body, hold, journal, &scope.config, &scope.answers)
                            };
                            return Poll::Ready(Ok(timed(&scope, response.map(body), waited)));
                        }
                        (result, journal) if scope.config.release_in_background => {
                            drop(hold);
                            return Poll::Ready(served(&scope, result, waited, journal));
                        }
                        (result, journal) => {
                            let (result, releasing) = (Some(result), hold.release());
                            this.state.set(State::Releasing { result, waited, journal, releasing });
                        }
                    }
                }
                StateProjection::Releasing { result, waited, journal, releasing } => {
                    let lasted = ready!(releasing.poll(cx));
                    let result = result.take().expect("taken once: done after it");
                    let (waited, journal) = (*waited, journal.take());
                    this.state.set(State::Done);
                    return Poll::Ready(match lasted == Lasted::NotToTheEnd && stops {
                        true if result.is_ok() => Ok(refused(&scope, waited, journal)),
                        _ => served(&scope, result, waited, journal),
                    });
                }
                StateProjection::Done => panic!("a lock's future is not polled after it is ready"),
            }
        }
    }
}

/// Whether a loss that is watched for has come.
fn is_lost(loss: Pin<&mut Option<Loss>>, cx: &mut Context<'_>) -> bool {
    loss.as_pin_mut().is_some_and(|loss| loss.poll(cx).is_ready())
}

/// What an inner service refuses a request for, if it does.
fn refusal<R>(response: &Response<R>) -> Option<&LockError> {
    response.extensions().get()
}

/// The inner service's answer; it may itself be the refusal of a lock.
fn served<R: Body, E>(
    scope: &Scope,
    result: Result<Response<R>, E>,
    waited: Option<Duration>,
    journal: Option<Journal>,
) -> Result<Response<LockBody<R>>, E> {
    if let Some(mut journal) = journal {
        match result.as_ref().ok().and_then(refusal) {
            Some(error) => journal.refused(error),
            None => journal.served(),
        }
    }
    result.map(|response| {
        let response = match scope.answers.refusals.rendered(&response) {
            Some(refusal) => refusal.map(LockBody::refusal),
            None => response.map(LockBody::open),
        };
        timed(scope, response, waited)
    })
}

/// The hold was lost under the inner service.
fn refused<R: Body>(
    scope: &Scope,
    waited: Option<Duration>,
    journal: Option<Journal>,
) -> Response<LockBody<R>> {
    let error = LockError::lost();
    if let Some(mut journal) = journal {
        journal.refused(&error);
    }
    timed(scope, scope.answers.refusals.respond(&error).map(LockBody::refusal), waited)
}

fn timed<B>(scope: &Scope, mut response: Response<B>, waited: Option<Duration>) -> Response<B> {
    if let Some(waited) = waited.filter(|_| scope.answers.server_timing) {
        response.headers_mut().append("server-timing", server_timing(waited));
    }
    response
}

impl<F, T, E> fmt::Debug for LockScopeFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Running(_) => "running",
            State::Releasing { .. } => "releasing",
            State::Done => "done",
        };
        f.debug_struct("LockScopeFuture").field("state", &state).finish_non_exhaustive()
    }
}
