//! A future that completes when a hold is lost.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lockcore::LockGuard;
use pin_project::pin_project;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::hold::handle::LockHandle;
use crate::hold::registry::HoldRegistry;

/// Completes when any watched hold is lost.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Loss {
    #[pin]
    first: Option<Watch>,
    /// Requests with several keys are rare.
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
    pub(crate) fn new(handles: impl Iterator<Item = LockHandle>) -> Self {
        let mut watches = handles.filter_map(|handle| {
            let lost = handle.held().with_guard(LockGuard::lost_owned).ok()?;
            Some(Watch { handle, lost })
        });
        Self { first: watches.next(), rest: watches.map(Box::pin).collect() }
    }

    /// The loss of any hold kept by the layer with this number.
    pub(crate) fn of_layer(holds: &Arc<HoldRegistry>, layer: usize) -> Self {
        Self::new(LockHandle::all(holds).filter(|handle| handle.held().layer == layer))
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
        // A hold released by the handler may be kept, and then lost, by other guards: the request
        // continues.
        match this.handle.held().is_released() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}
