//! The end of any of several holds, as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::handle::LockHandle;

/// Completes when one of the holds is lost.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Loss {
    #[pin]
    first: Option<Watch>,
    /// Requests of several keys are rare.
    rest: Vec<Pin<Box<Watch>>>,
}

#[pin_project]
#[derive(Debug)]
struct Watch {
    handle: LockHandle,
    #[pin]
    lost: WaitForCancellationFutureOwned,
}

impl Loss {
    pub(crate) fn new<'a>(handles: impl Iterator<Item = &'a LockHandle>) -> Self {
        let mut watches = handles.filter_map(|handle| {
            let lost = handle.loss()?.cancelled_owned();
            Some(Watch { handle: handle.clone(), lost })
        });
        Self { first: watches.next(), rest: watches.map(Box::pin).collect() }
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

impl Future for Watch {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        ready!(this.lost.poll(cx));
        // Other guards may have kept, and then lost, what the handler had given back: no business of its request.
        match this.handle.is_given_back() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}
