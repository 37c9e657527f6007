//! The end of any of several holds, as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Completes when one of the tokens is cancelled.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Loss {
    #[pin]
    first: Option<WaitForCancellationFutureOwned>,
    /// Requests of several keys are rare.
    rest: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Loss {
    pub(crate) fn new(mut tokens: impl Iterator<Item = CancellationToken>) -> Self {
        Self {
            first: tokens.next().map(CancellationToken::cancelled_owned),
            rest: tokens.map(|token| Box::pin(token.cancelled_owned())).collect(),
        }
    }
}

impl Future for Loss {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let first = this.first.as_pin_mut().is_some_and(|first| first.poll(cx).is_ready());
        if first || this.rest.iter_mut().any(|other| other.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
