//! Releases a request's locks, in bounded time, before the response is sent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use lockcore::{LockErrorKind, LockGuard, Release};
use pin_project::pin_project;
use tokio::runtime::Handle;
use tokio::time::Sleep;

/// The maximum time for which a response waits for the release of the request's locks. Then the
/// response is sent, and the release continues in the background.
const LIMIT: Duration = Duration::from_millis(500);

/// Whether all locks of a layer were held until their release. If not, another request for the same
/// key may have run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasted {
    /// No lock was reported as lost before its release. A release that failed or is still running
    /// counts as held.
    ToTheEnd,
    /// At least one lock was lost before its release, for example because its lease had expired.
    NotToTheEnd,
}

/// Waits until all locks of a layer are released, but for at most [`LIMIT`]. Returns whether they
/// were held until their release. The release continues even if this future is dropped.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Releasing {
    first: Option<Release>,
    rest: Vec<Release>,
    lasted: Lasted,
    /// The timer that ends this wait after [`LIMIT`]; `None` before the first poll that has to
    /// wait, and outside a tokio runtime.
    #[pin]
    limit: Option<Sleep>,
}

impl Releasing {
    pub(crate) fn new(mut guards: impl Iterator<Item = LockGuard>) -> Self {
        Self {
            first: guards.next().map(LockGuard::release),
            rest: guards.map(LockGuard::release).collect(),
            lasted: Lasted::ToTheEnd,
            limit: None,
        }
    }
}

impl Future for Releasing {
    type Output = Lasted;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Lasted> {
        let mut this = self.project();
        let lasted = this.lasted;
        let mut is_done = |release: &mut Release| match Pin::new(release).poll(cx) {
            Poll::Ready(Err(error)) if error.kind() == LockErrorKind::Lost => {
                *lasted = Lasted::NotToTheEnd;
                true
            }
            // Other errors count as released too: the lock was held until now, and the release
            // continues by itself.
            Poll::Ready(_) => true,
            Poll::Pending => false,
        };
        if this.first.as_mut().is_some_and(&mut is_done) {
            *this.first = None;
        }
        this.rest.retain_mut(|release| !is_done(release));
        if this.first.is_none() && this.rest.is_empty() {
            return Poll::Ready(*lasted);
        }
        // Without a runtime there is no timer; then the store's own request timeout is the bound.
        if this.limit.is_none() && Handle::try_current().is_ok() {
            this.limit.set(Some(tokio::time::sleep(LIMIT)));
        }
        match this.limit.as_pin_mut() {
            Some(limit) => limit.poll(cx).map(|()| *lasted),
            None => Poll::Pending,
        }
    }
}
