//! A future that completes when a lock is lost.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lockcore::LostOwned;
use pin_project::pin_project;

use crate::hold::handle::LockHandle;
use crate::hold::registry::HoldRegistry;

/// A future that completes when any of the watched locks is lost. A lock that is released first no
/// longer counts. A loss that has completed one such future counts for all others, too.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Loss {
    #[pin]
    first: Option<Watch>,
    /// The watches of all locks after the first. Each costs an allocation, which is acceptable
    /// because requests with several keys are rare.
    rest: Vec<Pin<Box<Watch>>>,
}

#[pin_project]
#[derive(Debug)]
struct Watch {
    handle: LockHandle,
    /// `None` if the lock was released after its loss.
    #[pin]
    lost: Option<LostOwned>,
}

impl Loss {
    /// Watches the locks of these handles, except for locks that were released before any loss
    /// stopped work.
    pub(crate) fn new(handles: impl Iterator<Item = LockHandle>) -> Self {
        let mut watches = handles.filter_map(|handle| {
            let lost = handle.held().lost();
            (lost.is_some() || handle.held().is_lost()).then_some(Watch { handle, lost })
        });
        Self { first: watches.next(), rest: watches.map(Box::pin).collect() }
    }

    /// Watches the locks in `holds` that the layer with the number `layer` releases.
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
        if let Some(lost) = this.lost.as_pin_mut() {
            ready!(lost.poll(cx));
        }
        // After the handler has released the lock, other guards may keep it and then lose it. That
        // does not concern this request, which continues.
        match this.handle.held().stops_work() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
