//! The work that a layer does under the lock: wait until the inner service is ready, then call it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tower::Service;

use crate::hold::section::{PollStep, Step, Work};

/// The call of an inner service under a lock. Waits until the service is ready, and then calls it
/// with the request.
#[pin_project(project = CallProjection)]
pub(crate) enum ServiceCall<S: Service<Req>, Req> {
    Readying { caller: Option<(S, Req)>, is_ready: bool },
    Running(#[pin] S::Future),
}

impl<S: Service<Req>, Req> ServiceCall<S, Req> {
    pub(crate) fn new(caller: Option<(S, Req)>) -> Self {
        Self::Readying { caller, is_ready: false }
    }

    /// Returns the request; `None` once the service has been called with it.
    pub(crate) fn request(self: Pin<&mut Self>) -> Option<&mut Req> {
        match self.project() {
            CallProjection::Readying { caller, .. } => caller.as_mut().map(|(_, request)| request),
            CallProjection::Running(_) => None,
        }
    }
}

impl<S: Service<Req>, Req> Work for ServiceCall<S, Req> {
    /// Returned once the service is ready, before it is called, so that the section checks first
    /// whether a lock was lost.
    type More = ();
    type Output = S::Response;
    type Error = S::Error;

    fn poll_step(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollStep<Self> {
        if let CallProjection::Readying { caller, is_ready } = self.as_mut().project() {
            if !*is_ready {
                let (service, _) = caller.as_mut().expect("taken when the state ends");
                if let Err(error) = ready!(service.poll_ready(cx)) {
                    return Poll::Ready(Step::End(Err(error)));
                }
                *is_ready = true;
                return Poll::Ready(Step::More(()));
            }
            let (mut service, request) = caller.take().expect("taken when the state ends");
            let future = service.call(request);
            self.set(Self::Running(future));
        }
        match self.project() {
            CallProjection::Running(future) => future.poll(cx).map(Step::End),
            CallProjection::Readying { .. } => unreachable!("the service has been called"),
        }
    }

    /// Returns true if the service has been called. Making it ready has no effects.
    fn has_begun(&self) -> bool {
        matches!(self, Self::Running(_))
    }
}
